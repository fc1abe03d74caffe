//! Jobs, once and by the clock.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::place::{Findings, Place};
use super::{cron, networking, pods, selectors, words};

/// Checks a Job. A new one gets its selector later, unless it selects by itself.
pub(super) fn job(object: &Value, is_new: bool, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let selector = spec.at("selector");
    let template = spec.at("template");
    let metadata = template.at("metadata");
    let labels = metadata.at("labels");
    let selects = spec.at("manualSelector").is_true();
    if is_new && !selects {
        generated(object, &spec, &labels, faults);
    }
    job_spec(&spec, faults);
    if selector.is_set() {
        selectors::selector(&selector, faults);
    } else if selects {
        selector.required(faults, "");
    }
    let judged = (selects || !is_new) && (!selector.is_set() || selectors::is_valid(selector.value()));
    if judged && !selectors::matches(selector.value(), labels.value()) {
        labels.invalid(faults, "`selector` does not match template `labels`");
    }
    let completions = spec.at("completions").number().unwrap_or(0);
    if spec.at("completionMode").text() == "Indexed" && completions > 0 {
        let metadata = Place::top(object, "metadata");
        let name = metadata.at("name");
        let host = format!("{}-{}", name.text(), completions - 1);
        if !words::label(&host).is_empty() {
            name.invalid(faults, &format!("will not able to create pod with invalid DNS label: {host}"));
        }
    }
}

/// Checks the client's values if the server generates the selector.
fn generated(object: &Value, spec: &Place<'_, '_>, labels: &Place<'_, '_>, faults: &mut Findings) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    for key in ["job-name", "batch.kubernetes.io/job-name"] {
        let given = &labels.value()[key];
        if given.as_str().is_some_and(|given| given != name) {
            for (_, place) in labels.entries().filter(|(label, _)| *label == key) {
                place.invalid_as(faults, &labels.value().to_string(), &format!("must be '{name}'"));
            }
        }
    }
    let selector = spec.at("selector");
    let own = |key: &str| key.ends_with("controller-uid") || key.ends_with("job-name");
    let wanted = selector.at("matchLabels");
    let foreign = wanted.entries().any(|(key, _)| !own(key));
    if foreign {
        selector.invalid(faults, "`selector` not auto-generated");
    }
    let missed = wanted.entries().any(|(key, value)| !own(key) && labels.value()[key] != *value.value());
    if missed {
        labels.invalid(faults, "`selector` does not match template `labels`");
    }
}

/// Checks a CronJob; a new one also for its name, which has to leave room.
pub(super) fn cron_job(object: &Value, before: Option<&Value>, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let schedule = spec.at("schedule");
    if schedule.text().is_empty() {
        schedule.required(faults, "");
    } else {
        let zone_was_allowed = before
            .is_some_and(|old| old["spec"]["schedule"].as_str().is_some_and(|text| text.contains("TZ")));
        if let Err(why) = cron::check(schedule.text()) {
            schedule.invalid(faults, &why);
        }
        if schedule.text().contains("TZ") {
            if !zone_was_allowed {
                schedule.invalid(faults, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
            } else if spec.at("timeZone").is_set() {
                let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                schedule.invalid(faults, why);
            }
        }
    }
    spec.at("startingDeadlineSeconds").at_least(faults, 0);
    if before.is_none_or(|old| old["spec"]["timeZone"] != *spec.at("timeZone").value()) {
        time_zone(&spec.at("timeZone"), faults);
    }
    spec.at("concurrencyPolicy").one_of(faults, &["Allow", "Forbid", "Replace"]);
    let template = spec.at("jobTemplate");
    let job = template.at("spec");
    job_spec(&job, faults);
    if job.at("selector").is_set() {
        job.at("selector").invalid(faults, "`selector` will be auto-generated");
    }
    if job.at("manualSelector").is_true() {
        job.at("manualSelector").unsupported(faults, "true", &["nil", "false"]);
    }
    spec.at("successfulJobsHistoryLimit").at_least(faults, 0);
    spec.at("failedJobsHistoryLimit").at_least(faults, 0);
    let metadata = Place::top(object, "metadata");
    let name = metadata.at("name");
    if before.is_none() && name.text().len() > 52 {
        name.invalid(faults, "must be no more than 52 characters");
    }
}

fn time_zone(place: &Place<'_, '_>, faults: &mut Findings) {
    if !place.is_set() {
        return;
    }
    let text = place.text();
    if text.is_empty() {
        place.invalid(faults, "timeZone must be nil or non-empty string");
        return;
    }
    let fine = |c: u8| c.is_ascii_alphanumeric() || b".-_+".contains(&c);
    let odd = text.split('/').any(|part| {
        matches!(part, "." | "..")
            || part.starts_with('-')
            || !(1..=14).contains(&part.len())
            || !part.bytes().all(fine)
    });
    if odd {
        place.invalid(faults, &format!("unknown time zone {text}"));
    } else if text.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        place.invalid(faults, why);
    }
}

fn job_spec(spec: &Place<'_, '_>, faults: &mut Findings) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.at(field).at_least(faults, 0);
    }
    let (by_index, most) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    if most.is_set() && !by_index.is_set() {
        by_index.required(faults, "when maxFailedIndexes is specified");
    }
    manager(&spec.at("managedBy"), faults);
    let mode = spec.at("completionMode");
    mode.one_of_if_set(faults, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        indexed(spec, faults);
    } else if matches!(mode.text(), "" | "NonIndexed") {
        for field in [&by_index, &most] {
            if field.is_set() {
                field.invalid(faults, "requires indexed completion mode");
            }
        }
    }
    failure_policy(spec, faults);
    let success = spec.at("successPolicy");
    if success.is_set() && mode.text() != "Indexed" {
        success.invalid(faults, "requires indexed completion mode");
    }
    let rules = success.at("rules");
    if success.is_set() && mode.text() == "Indexed" && rules.len() == 0 {
        rules.required(faults, "at least one rules must be specified when the successPolicy is specified");
    }
    let replaces = spec.at("podReplacementPolicy");
    match spec.at("podFailurePolicy").is_set() {
        true => replaces.one_of_if_set(faults, &["Failed"]),
        false => replaces.one_of_if_set(faults, &["Failed", "TerminatingOrFailed"]),
    }
    let template = spec.at("template");
    pods::template(&template, faults);
    let pod = template.at("spec");
    let restart = pod.at("restartPolicy");
    match restart.text() {
        "" | "Always" => restart.required(faults, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.at("podFailurePolicy").is_set() => {
            restart.invalid(faults, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        _ => restart.one_of(faults, &["OnFailure", "Never"]),
    }
}

fn indexed(spec: &Place<'_, '_>, faults: &mut Findings) {
    let completions = spec.at("completions");
    if !completions.is_set() {
        completions.required(faults, "when completion mode is Indexed");
    }
    let parallel = spec.at("parallelism");
    if parallel.number().is_some_and(|count| count > 100_000) {
        let why = "must be less than or equal to 100000 when completion mode is Indexed";
        parallel.invalid(faults, why);
    }
    let most = spec.at("maxFailedIndexes");
    if let (Some(failed), Some(all)) = (most.number(), completions.number())
        && failed > all
    {
        most.invalid(faults, "must be less than or equal to completions");
    }
    if most.number().is_some_and(|count| count > 100_000) {
        most.invalid(faults, "must be less than or equal to 100000");
    }
}

/// Checks the name of an external controller of a job: a domain and a path.
fn manager(place: &Place<'_, '_>, faults: &mut Findings) {
    if !place.is_set() {
        return;
    }
    networking::domain_and_path(place, faults);
    if place.text().len() > 63 {
        place.too_long(faults, 63);
    }
}

fn failure_policy(spec: &Place<'_, '_>, faults: &mut Findings) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let policy = spec.at("podFailurePolicy");
    let rules = policy.at("rules");
    if rules.len() > 20 {
        rules.too_many(faults, 20);
    }
    for rule in rules.items() {
        let action = rule.at("action");
        match action.text() {
            "" => action.required(faults, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.at("backoffLimitPerIndex").is_set() => {
                action.invalid(faults, "requires the backoffLimitPerIndex to be set");
            }
            _ => action.one_of(faults, &ACTIONS),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            exit_codes(spec, &codes, faults);
        }
        for pattern in conditions.items() {
            let kind = pattern.at("type");
            selectors::key(&kind, kind.text(), faults);
            pattern.at("status").one_of(faults, &["False", "True", "Unknown"]);
        }
        let why = match (codes.is_set(), conditions.len() > 0) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        let message = format!("Invalid value: {why}");
        faults.add(|| crate::status::Cause::new("FieldValueInvalid", rule.to_string(), message));
    }
}

fn exit_codes(spec: &Place<'_, '_>, place: &Place<'_, '_>, faults: &mut Findings) {
    let operator = place.at("operator");
    match operator.text() {
        "" => operator.required(faults, "valid values: [\"In\" \"NotIn\"]"),
        _ => operator.one_of(faults, &["In", "NotIn"]),
    }
    let of = place.at("containerName");
    let pod = &spec.value()["template"]["spec"];
    let known = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod[list].as_array().into_iter().flatten())
        .any(|container| container["name"] == *of.value());
    if of.is_set() && !known {
        of.invalid(faults, "must be one of the container or initContainer names in the pod template");
    }
    let values = place.at("values");
    if values.len() == 0 {
        values.invalid(faults, "at least one value is required");
    } else if values.len() > 255 {
        values.too_many(faults, 255);
    }
    let mut seen = BTreeSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.number().unwrap_or(0);
        if operator.text() == "In" && code == 0 {
            value.invalid(faults, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            value.duplicate(faults, &json!(code));
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        values.invalid(faults, "must be ordered");
    }
}
