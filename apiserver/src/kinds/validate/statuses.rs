//! Statuses: what nobody may write, the controllers of the kinds included.

use serde_json::Value;

use super::place::{Findings, Place};

/// Checks the end of a job.
pub(super) fn job(before: &Value, new: &Value, faults: &mut Findings) {
    let is = |object: &Value, kind: &str| {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let status = Place::top(new, "status");
    let conditions = status.at("conditions");
    let wrong = |faults: &mut Findings, why: &str| conditions.invalid_as(faults, why, "");
    let [complete, failed, succeeds, fails] =
        ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"].map(|kind| is(new, kind));
    let has_changed =
        ["Complete", "Failed"].iter().any(|kind| is(before, kind) != is(new, kind)) && (complete || failed);
    if has_changed && !status.at("startTime").is_set() {
        status.at("startTime").required(faults, "startTime is required for finished job");
    }
    if has_changed && status.at("active").number().is_some_and(|active| active > 0) {
        status.at("active").invalid(faults, "active>0 is invalid for finished job");
    }
    let ended = status.at("completionTime");
    if has_changed && complete && !ended.is_set() {
        ended.required(faults, "completionTime is required for Complete jobs");
    }
    if !complete && ended.is_set() && before["status"]["completionTime"] != *ended.value() {
        ended.invalid(faults, "cannot set completionTime when there is no Complete=True condition");
    }
    for kind in ["Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"] {
        if is(before, kind) && !is(new, kind) {
            wrong(faults, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if !has_changed {
        return;
    }
    for (is_wrong, why) in [
        (complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (complete && fails, "cannot set Complete=True and FailureTarget=true conditions"),
        (succeeds && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (succeeds && fails, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        (
            complete && !succeeds,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (failed && !fails, "cannot set Failed=True condition without the FailureTarget=true condition"),
    ] {
        if is_wrong {
            wrong(faults, why);
        }
    }
}

/// Checks that no part of the replicas is more than all of them; `ready` is how the last of the errors names those that are ready.
pub(super) fn replicas(before: &Value, new: &Value, parts: &[&str], ready: &str, faults: &mut Findings) {
    if before["status"] == new["status"] {
        return;
    }
    let status = Place::top(new, "status");
    let number = |field: &str| status.at(field).number().unwrap_or_default();
    if number("replicas") < 0 {
        status.at("replicas").at_least(faults, 0);
    }
    for part in
        parts.iter().copied().chain(["availableReplicas"]).filter(|part| number(part) > number("replicas"))
    {
        let shown = number(part).to_string();
        status.at(part).invalid_as(faults, &shown, "cannot be greater than status.replicas");
    }
    if number("availableReplicas") > number("readyReplicas") {
        status.at("availableReplicas").invalid(faults, &format!("cannot be greater than {ready}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(check: impl Fn(&mut Findings)) -> Vec<String> {
        let mut faults = Findings::default();
        check(&mut faults);
        faults.into_causes().into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    // What a kube-apiserver 1.36.3 said.
    #[test]
    fn a_job_ends_as_its_controller_ends_it() {
        let of = |before: Value, status: Value| {
            said(|faults| job(&json!({ "status": before }), &json!({ "status": status }), faults))
        };
        let is = |kinds: &[&str]| {
            let conditions = kinds.iter().map(|kind| json!({ "type": kind, "status": "True" }));
            Value::from(conditions.collect::<Vec<_>>())
        };
        let at = |hour: u32| format!("2026-01-01T0{hour}:00:00Z");
        assert_eq!(
            of(Value::Null, json!({ "startTime": at(1), "conditions": is(&["Complete"]) })),
            [
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ]
        );
        let complete = json!({
            "startTime": at(1), "completionTime": at(2), "conditions": is(&["SuccessCriteriaMet", "Complete"]),
        });
        assert_eq!(of(Value::Null, complete.clone()), [""; 0]);
        let failed = json!({ "startTime": at(1), "conditions": is(&["FailureTarget", "Failed"]) });
        assert_eq!(of(Value::Null, failed.clone()), [""; 0]);
        let mut busy = failed.clone();
        (busy["active"], busy["completionTime"]) = (json!(1), json!(at(2)));
        assert_eq!(
            of(Value::Null, busy),
            [
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
                "status.completionTime: Invalid value: \"2026-01-01T02:00:00Z\": cannot set completionTime when there is no Complete=True condition",
            ]
        );
        assert_eq!(
            of(failed.clone(), json!({ "startTime": at(1) })),
            [
                "status.conditions: Invalid value: cannot disable the terminal Failed=True condition",
                "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
            ]
        );
        assert_eq!(
            of(json!({ "conditions": is(&["Complete"]) }), json!({ "conditions": is(&["Complete"]) })),
            [""; 0]
        );
    }

    #[test]
    fn no_part_of_the_replicas_is_more_than_all() {
        let of = |status: Value| {
            let new = json!({ "status": status });
            said(|faults| {
                let parts = ["readyReplicas", "currentReplicas", "updatedReplicas"];
                replicas(&Value::Null, &new, &parts, "status.readyReplicas", faults);
            })
        };
        assert_eq!(of(json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 1 })), [""; 0]);
        assert_eq!(
            of(json!({ "readyReplicas": 2 })),
            ["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"]
        );
        assert_eq!(
            of(json!({ "replicas": 3, "readyReplicas": 1, "availableReplicas": 2 })),
            ["status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas"]
        );
        assert_eq!(of(json!({ "replicas": -1 })).len(), 5);
    }
}
