//! Evictions: a pod is deleted as far as its disruption budget lets it go.

use serde_json::{Value, json};

use super::ApiRequest;
use crate::kinds::selects;
use crate::limits;
use crate::object;
use crate::route::Query;
use crate::state::State;
use crate::status::Status;
use crate::store::{ResourceId, Stored};
use crate::write::{DeleteOptions, Keep, Shown, Target, WriteOptions, Written, admit_sent, delete};

const FULL: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// The most pods that a budget may wait for.
const MOST_DISRUPTED: usize = 2000;

/// Evicts a pod.
///
/// # Errors
/// 400, 404 and 409 as for a deletion, 429 if the budget is used up, 500 for a pod of two budgets.
pub(super) fn evict(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    request: &ApiRequest,
    query: &Query,
) -> Result<Written, Status> {
    let mut eviction: Value = limits::read_yaml(&request.body)
        .map_err(|error| Status::bad_request(format!("error decoding the eviction: {error}")))?;
    if object::name(&eviction) != target.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    admit_sent(state, target, options, &mut eviction)?;
    let pod = state
        .store
        .get(&target.resource.storage, &target.key())
        .cloned()
        .ok_or_else(|| target.not_found())?;
    let given = &eviction["deleteOptions"];
    let given = if given.is_object() { given.to_string() } else { String::new() };
    let mut deletion = DeleteOptions::read(query, given.as_bytes())?;
    if options.keep == Keep::DryRun {
        deletion.keep = Keep::DryRun;
    }
    if !needs_no_budget(&pod.value()) {
        charge(state, target, &pod, deletion.keep)?;
    }
    delete(state, &Target { subresource: String::new(), ..target.clone() }, &deletion)?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Written::created(Shown::Other(status)))
}

/// Returns whether evicting a pod disturbs no one, because it is not running.
fn needs_no_budget(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
        || object::is_deleting(pod)
}

/// Takes a pod from the room of its budget.
fn charge(state: &mut State, target: &Target, pod: &Stored, keep: Keep) -> Result<(), Status> {
    let id = ResourceId::new("policy", "poddisruptionbudgets");
    let pod = pod.value();
    let labels = &pod["metadata"]["labels"];
    let all = state.store.in_namespace(&id, &target.namespace);
    let found: Vec<_> =
        all.filter(|budget| selects(&budget.value()["spec"]["selector"], labels)).cloned().collect();
    let budget = match found.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::internal(why));
        }
    };
    let mut value = Value::clone(&budget.value());
    if !is_ready(&pod) && may_go_unready(&value) {
        return Ok(());
    }
    take(&mut value, &target.name, &state.clock.seconds())?;
    if keep == Keep::Yes {
        state.store.put(&id, &budget.key, value);
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns whether pods that are not ready may go without room.
fn may_go_unready(budget: &Value) -> bool {
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let has_enough = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || has_enough
}

fn take(budget: &mut Value, pod: &str, now: &str) -> Result<(), Status> {
    let name = object::name(budget).to_owned();
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let generation = object::meta(budget, "generation").and_then(Value::as_i64).unwrap_or(0);
    if count("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(full(&why, Some(10)));
    }
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Status::forbidden("policy", "poddisruptionbudget", &name, why));
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden("policy", "poddisruptionbudget", &name, why));
    }
    if allowed == 0 {
        let (needs, has) = (count("desiredHealthy"), count("currentHealthy"));
        let why = format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently");
        return Err(full(&why, None));
    }
    let observed = count("observedGeneration");
    let status = object::child_mut(object::map_mut(budget), "status");
    status.insert("disruptionsAllowed".into(), json!(allowed - 1));
    object::child_mut(status, "disruptedPods").insert(pod.to_owned(), now.into());
    if allowed == 1 {
        let exhausted = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": observed,
            "lastTransitionTime": now, "reason": "InsufficientPods", "message": "",
        });
        if let Value::Array(conditions) = status.entry("conditions").or_insert_with(|| json!([])) {
            conditions.retain(|condition| condition["type"] != "DisruptionAllowed");
            conditions.push(exhausted);
        }
    }
    Ok(())
}

/// 429: the budget allows no further disruption.
fn full(why: &str, retry_after: Option<u32>) -> Status {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry_after {
        details["retryAfterSeconds"] = seconds.into();
    }
    Status { retry_after, ..Status::new(429, Some("TooManyRequests"), FULL).with_details(details) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": status})
    }

    // A48
    #[test]
    fn a_budget_that_nobody_has_looked_at_lets_no_pod_go() {
        let refused = take(&mut budget(json!({"observedGeneration": 1})), "p", "now").unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (429, Some(10)));
        let mut empty = budget(
            json!({"observedGeneration": 2, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 1}),
        );
        let refused = take(&mut empty, "p", "now").unwrap_err();
        let cause = &refused.details.unwrap()["causes"][0]["message"];
        assert_eq!(cause, "The disruption budget b needs 2 healthy pods and has 1 currently");
        let mut last = budget(json!({"observedGeneration": 2, "disruptionsAllowed": 1}));
        take(&mut last, "p", "now").unwrap();
        assert_eq!(last["status"]["disruptionsAllowed"], 0);
        assert_eq!(last["status"]["disruptedPods"], json!({"p": "now"}));
        assert_eq!(last["status"]["conditions"][0]["reason"], "InsufficientPods");
    }
}
