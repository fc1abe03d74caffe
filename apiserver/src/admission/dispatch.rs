//! Dispatch: which policies and webhooks are asked, in which order, and how their answers are used.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::hook::{Family, Hook, Unclear, are_there, hooks};
use super::policy::{PolicyFamily, PolicyRounds, are_bound, change, check};
use super::request::{Asked, Operation};
use super::review::{ReviewVerdict, patched, review, verdict};
use super::round::{Round, shown, taken};
use crate::kinds::Served;
use crate::session::Call;
use crate::state::State;
use crate::status::Status;

/// The state of one webhook's answer.
enum Said {
    /// It has not been called yet.
    Nothing,
    /// It failed, and that is passed over.
    Failed,
    /// This.
    Verdict(ReviewVerdict),
}

/// Returns whether there are mutating policies or webhooks.
pub(crate) fn are_to_mutate(state: &State) -> bool {
    are_there(state, Family::Mutating) || are_bound(state, PolicyFamily::Mutating)
}

/// Returns whether there are validating policies or webhooks.
pub(crate) fn are_to_validate(state: &State) -> bool {
    are_there(state, Family::Validating) || are_bound(state, PolicyFamily::Validating)
}

/// Lets the mutating policies and webhooks change an object; returns whether it has changed.
///
/// # Errors
/// A no, a failure that is not passed over, or that an answer is waited for.
pub(crate) fn mutate(state: &mut State, asked: &Asked, object: &mut Option<Value>) -> Result<bool, Status> {
    if !are_to_mutate(state) {
        return Ok(false);
    }
    let hooks = hooks(state, Family::Mutating);
    let (mut again, mut may_be_again) = (BTreeSet::new(), BTreeSet::new());
    let mut policies = PolicyRounds::default();
    let mut changed = false;
    for round in [Round::First, Round::Second] {
        if round == Round::Second && !changed {
            break;
        }
        if change(state, asked, object, round, &mut policies)? {
            changed = true;
            again.append(&mut may_be_again);
        }
        for hook in &hooks {
            let Some(version) = wants(state, hook, asked, object.as_ref())? else { continue };
            if round == Round::Second && !again.contains(&hook.id()) {
                continue;
            }
            let patch = match ask(state, Family::Mutating, hook, asked, &version, object.as_ref())? {
                Said::Nothing => return Err(Status::waiting()),
                Said::Failed => None,
                Said::Verdict(verdict) => verdict.outcome.map_err(|refusal| refusal.status(hook.name()))?,
            };
            let patch = patch.filter(|patch| patch.as_array().is_none_or(|steps| !steps.is_empty()));
            if let Some(patch) = patch
                && apply(state, hook, asked, &version, object, &patch)?
            {
                changed = true;
                again.append(&mut may_be_again);
            }
            if hook.wants_to_be_asked_again() {
                may_be_again.insert(hook.id());
            }
        }
    }
    Ok(changed)
}

/// Applies a patch; gives whether the object has changed.
fn apply(
    state: &mut State,
    hook: &Hook,
    asked: &Asked,
    version: &Served,
    object: &mut Option<Value>,
    patch: &Value,
) -> Result<bool, Status> {
    let Some(before) = object else {
        let name = hook.name();
        return Err(Status::internal_error(&format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        )));
    };
    let shown = shown(state, asked, before, version)?.ok_or_else(Status::waiting)?;
    let after = patched(&shown, patch)?;
    if after == shown {
        return Ok(false);
    }
    *before = taken(state, asked, version, before, after, &format!("admission webhook {:?}", hook.name()))?;
    Ok(true)
}

/// Asks the validating policies, then the validating webhooks, all at once.
///
/// # Errors
/// The first no, a failure that is not passed over, or that answers are waited for.
pub(crate) fn validate(state: &mut State, asked: &Asked, object: Option<&Value>) -> Result<(), Status> {
    if !are_to_validate(state) {
        return Ok(());
    }
    check(state, asked, object)?;
    let (mut waits, mut refused) = (false, None);
    for hook in hooks(state, Family::Validating) {
        let Some(version) = wants(state, &hook, asked, object)? else { continue };
        match ask(state, Family::Validating, &hook, asked, &version, object) {
            Ok(Said::Nothing) => waits = true,
            Ok(Said::Failed) => {}
            Ok(Said::Verdict(verdict)) => {
                if let Err(refusal) = verdict.outcome {
                    refused.get_or_insert_with(|| refusal.status(hook.name()));
                }
            }
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
    }
    match (waits, refused) {
        (true, _) => Err(Status::waiting()),
        (false, Some(refused)) => Err(refused),
        (false, None) => Ok(()),
    }
}

fn wants(
    state: &State,
    hook: &Hook,
    asked: &Asked,
    object: Option<&Value>,
) -> Result<Option<Arc<Served>>, Status> {
    hook.wants(state, asked, object).map_err(|unclear| match unclear {
        Unclear::NoNamespace => Status::not_found("", "namespaces", &asked.namespace),
        Unclear::Conditions(why) => {
            let (group, plural) = (asked.resource.group(), asked.resource.plural());
            Status::forbidden(group, plural, &asked.name, &why)
        }
    })
}

/// Returns a webhook's answer, if it has arrived.
fn ask(
    state: &mut State,
    family: Family,
    hook: &Hook,
    asked: &Asked,
    version: &Served,
    object: Option<&Value>,
) -> Result<Said, Status> {
    if !hook.takes(asked.trial) {
        let why = format!("admission webhook {:?} does not support dry run", hook.name());
        return Err(Status::bad_request(why));
    }
    let failed = |why: &str| {
        if hook.ignores_failures() {
            tracing::warn!(
                webhook = hook.name(),
                why,
                "a webhook failed, and its policy is to go on without it"
            );
            return Ok(Said::Failed);
        }
        Err(Status::internal_error(&format!("failed calling webhook {:?}: {why}", hook.name())))
    };
    let Some(review_version) = hook.review_version() else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return failed(why);
    };
    let object = object.filter(|_| asked.operation != Operation::Delete);
    let request = match asked.is_converted(version) {
        true => {
            let mut sent = [None, None];
            for (sent, object) in sent.iter_mut().zip([object, asked.old.as_ref()]) {
                let Some(object) = object else { continue };
                let Some(converted) = shown(state, asked, object, version)? else { return Ok(Said::Nothing) };
                *sent = Some(converted);
            }
            let [object, old] = sent;
            asked.request_of(version, object, old)
        }
        false => asked.request(version, object),
    };
    let key = format!("{family:?} {} {} {request}", hook.id(), hook.client());
    let uid = state.make_uid();
    let call = Call {
        key,
        client: hook.client().clone(),
        review: review(review_version, &uid, request),
        timeout: hook.timeout(),
    };
    let Some((uid, answer)) = state.session.answer(call) else { return Ok(Said::Nothing) };
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => return failed(&format!("failed to call webhook: {why}")),
    };
    match verdict(family, review_version, &uid, &answer) {
        Err(why) => failed(&why),
        Ok(verdict) => {
            for warning in &verdict.warnings {
                state.session.warn(warning);
            }
            Ok(Said::Verdict(verdict))
        }
    }
}
