//! What the expressions of policies and webhooks may ask the server's authorizer.

use std::sync::Arc;

use super::request::Asked;
use crate::authz::{Attributes, Decision, decide};
use crate::identity::{User, service_account_groups};
use crate::schema::{AccessAnswer, AccessQuestion, Authorizer};
use crate::state::State;

/// Returns the authorizer that the expressions of policies and webhooks ask.
pub(super) fn authorizer<'v>(asked: &'v Asked, state: &'v State) -> Authorizer<'v> {
    let request = AccessQuestion {
        group: asked.resource.group().to_owned(),
        resource: asked.resource.plural().to_owned(),
        subresource: asked.subresource.clone(),
        namespace: asked.namespace.clone(),
        name: asked.name.clone(),
        ..AccessQuestion::default()
    };
    Authorizer { request, decide: Arc::new(|question| answer(asked, state, question)) }
}

/// Answers a question about the user of the request, or about a service account.
fn answer(of: &Asked, state: &State, question: &AccessQuestion) -> AccessAnswer {
    let AccessQuestion { account, verb, path, group, resource, subresource, namespace, name } =
        question.clone();
    let account = account.map(|(namespace, name)| {
        let groups = service_account_groups(&namespace);
        User::named(format!("system:serviceaccount:{namespace}:{name}"), groups)
    });
    let asked = Attributes { verb, path, group, resource, subresource, namespace, name };
    match decide(state, account.as_ref().unwrap_or(&of.user), &asked) {
        Decision::Allowed(reason) => AccessAnswer { allowed: true, reason },
        Decision::NoOpinion(reason) => AccessAnswer { allowed: false, reason },
    }
}
