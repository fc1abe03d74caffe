//! Deployments and other kinds that keep pods running.

use serde_json::Value;

use super::place::{Findings, Place};
use super::{claims, pods, selectors, words};

/// Checks a Deployment.
pub(super) fn deployment(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    spec.at("replicas").at_least(faults, 0);
    selector(&spec, "deployment", faults);
    judged_template(&spec, ("ReplicaSet", "invalid label selector"), &[], faults);
    strategy(&spec.at("strategy"), faults);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        spec.at(field).at_least(faults, 0);
    }
    let (patience, least) = (spec.at("progressDeadlineSeconds"), spec.at("minReadySeconds"));
    if patience.number().is_some_and(|seconds| seconds <= least.number().unwrap_or(0)) {
        patience.invalid(faults, "must be greater than minReadySeconds");
    }
}

/// Checks a ReplicaSet.
pub(super) fn replica_set(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    spec.at("replicas").at_least(faults, 0);
    spec.at("minReadySeconds").at_least(faults, 0);
    // The server's own words for it name the other kind.
    selector(&spec, "deployment", faults);
    judged_template(&spec, ("ReplicaSet", "invalid label selector"), &[], faults);
}

/// Checks a ReplicationController.
pub(super) fn replication_controller(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    for field in ["minReadySeconds", "replicas"] {
        spec.at(field).at_least(faults, 0);
    }
    let (selector, own) = (spec.at("selector"), spec.at("template"));
    if selector.len() == 0 {
        selector.required(faults, "");
    }
    if !own.is_set() {
        own.required(faults, "");
        return;
    }
    let metadata = own.at("metadata");
    let labels = metadata.at("labels");
    if selector.entries().any(|(key, value)| labels.value()[key] != *value.value()) {
        labels.invalid(faults, "`selector` does not match template `labels`");
    }
    template(&spec, "ReplicationController", &[], faults);
}

/// Checks a DaemonSet.
pub(super) fn daemon_set(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    if spec.at("selector").is_set() {
        selector(&spec, "daemonset", faults);
    }
    let selects = &spec.value()["selector"];
    if !selects.is_null() && !selectors::is_valid(selects) {
        template(&spec, "DaemonSet", &[], faults);
    } else {
        matched_template(&spec, "DaemonSet", &[], faults);
    }
    spec.at("minReadySeconds").at_least(faults, 0);
    let strategy = spec.at("updateStrategy");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = strategy.at("rollingUpdate");
            let (missing, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for amount in [&missing, &more] {
                amount_or_share(amount, faults);
            }
            for amount in [&missing, &more] {
                at_most_all(amount, faults);
            }
            match (amount_of(&missing) != 0, amount_of(&more) != 0) {
                (true, true) => more.invalid(faults, "may not be set when maxUnavailable is non-zero"),
                (false, false) => missing.required(faults, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => strategy.unsupported(faults, &shown_strategy(&strategy), &["RollingUpdate", "OnDelete"]),
    }
    spec.at("revisionHistoryLimit").at_least(faults, 0);
}

/// Checks a StatefulSet; a new one with the claims it makes.
pub(super) fn stateful_set(object: &Value, is_new: bool, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let management = spec.at("podManagementPolicy");
    if !matches!(management.text(), "OrderedReady" | "Parallel") {
        management.invalid(faults, "must be 'OrderedReady' or 'Parallel'");
    }
    let strategy = spec.at("updateStrategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" if rolling.is_set() => {
            rolling.invalid(faults, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.at("partition").at_least(faults, 0);
            let missing = rolling.at("maxUnavailable");
            if missing.is_set() {
                amount_or_share(&missing, faults);
                if amount_of(&missing) == 0 {
                    missing.invalid(faults, "cannot be 0");
                }
                at_most_all(&missing, faults);
            }
        }
        _ => {
            let shown = shown_strategy(&strategy);
            strategy.invalid_as(faults, &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        retention.at(field).one_of_if_set(faults, &["Retain", "Delete"]);
    }
    if is_new {
        for claim in spec.at("volumeClaimTemplates").items() {
            claims::spec(&claim.at("spec"), faults);
        }
        let service = spec.at("serviceName");
        if !service.text().is_empty() {
            service.each(faults, words::label(service.text()));
        }
    }
    spec.at("replicas").at_least(faults, 0);
    spec.at("minReadySeconds").at_least(faults, 0);
    spec.at("ordinals").at("start").at_least(faults, 0);
    selector(&spec, "statefulset", faults);
    let templates = spec.value()["volumeClaimTemplates"].as_array();
    let added: Vec<(&str, &Value)> = templates
        .into_iter()
        .flatten()
        .filter_map(|claim| Some((claim["metadata"]["name"].as_str()?, claim)))
        .collect();
    judged_template(&spec, ("StatefulSet", ""), &added, faults);
}

/// Checks a selector that has to be there.
fn selector(spec: &Place<'_, '_>, owner: &str, faults: &mut Findings) {
    let place = spec.at("selector");
    if !place.is_set() {
        place.required(faults, "");
        return;
    }
    selectors::selector(&place, faults);
    if selectors::is_empty(place.value()) {
        place.invalid(faults, &format!("empty selector is invalid for {owner}"));
    }
}

/// Checks the template of pods, unless the selector is invalid, which another check reports.
fn judged_template<'v>(
    spec: &Place<'_, 'v>,
    (owner, why): (&str, &str),
    added: &[(&'v str, &'v Value)],
    faults: &mut Findings,
) {
    let selector = spec.at("selector");
    if selector.is_set() && !selectors::is_valid(selector.value()) {
        selector.invalid(faults, why);
    } else {
        matched_template(spec, owner, added, faults);
    }
}

/// Checks the template of pods, and that the selector selects them.
fn matched_template<'v>(
    spec: &Place<'_, 'v>,
    owner: &str,
    added: &[(&'v str, &'v Value)],
    faults: &mut Findings,
) {
    let template_place = spec.at("template");
    let (selector, metadata) = (&spec.value()["selector"], template_place.at("metadata"));
    let labels = metadata.at("labels");
    if !selectors::matches(selector, labels.value()) {
        labels.invalid(faults, "`selector` does not match template `labels`");
    }
    template(spec, owner, added, faults);
}

/// Checks the template of pods that run for ever.
fn template<'v>(spec: &Place<'_, 'v>, owner: &str, added: &[(&'v str, &'v Value)], faults: &mut Findings) {
    let template = spec.at("template");
    pods::template_with(&template, added, faults);
    let pod = template.at("spec");
    let restart = pod.at("restartPolicy");
    if restart.text() != "Always" {
        restart.one_of(faults, &["Always"]);
    }
    if pod.at("activeDeadlineSeconds").is_set() {
        let why = format!("activeDeadlineSeconds in {owner} is not Supported");
        pod.at("activeDeadlineSeconds").forbidden(faults, &why);
    }
}

fn strategy(place: &Place<'_, '_>, faults: &mut Findings) {
    let rolling = place.at("rollingUpdate");
    match place.at("type").text() {
        "Recreate" if rolling.is_set() => {
            rolling.forbidden(faults, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (missing, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            amount_or_share(&missing, faults);
            amount_or_share(&more, faults);
            if amount_of(&missing) == 0 && amount_of(&more) == 0 {
                missing.invalid(faults, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&missing, faults);
        }
        _ => place.unsupported(faults, &shown_strategy(place), &["Recreate", "RollingUpdate"]),
    }
}

/// Shows a strategy like the server, whose internal form has other names for the fields.
fn shown_strategy(place: &Place<'_, '_>) -> String {
    let rolling = place.at("rollingUpdate");
    let rolling = if rolling.is_set() {
        let (missing, more) = (&rolling.value()["maxUnavailable"], &rolling.value()["maxSurge"]);
        format!("{{\"MaxUnavailable\":{missing},\"MaxSurge\":{more}}}")
    } else {
        "null".to_owned()
    };
    format!("{{\"Type\":{:?},\"RollingUpdate\":{rolling}}}", place.at("type").text())
}

/// Refuses a value that is neither a number nor a percentage.
pub(super) fn amount_or_share(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.value().is_string() {
        if words::percent(place.text()).is_none() {
            place.invalid(faults, words::PERCENT);
        }
    } else {
        place.at_least(faults, 0);
    }
}

/// Refuses shares above the whole.
pub(super) fn at_most_all(place: &Place<'_, '_>, faults: &mut Findings) {
    if words::percent(place.text()).is_some_and(|share| share > 100) {
        place.invalid(faults, "must not be greater than 100%");
    }
}

fn amount_of(place: &Place<'_, '_>) -> i64 {
    match place.value() {
        // A number in quotes counts as it does to the server: as one.
        Value::String(text) => words::percent(text).or_else(|| text.parse().ok()).unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}
