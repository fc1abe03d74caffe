//! Autoscalers, in the form they are stored in.

use serde_json::Value;

use super::place::{Findings, Place};
use super::quantity::Quantity;
use super::words;

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const FIELDS: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// Checks a HorizontalPodAutoscaler.
pub(super) fn autoscaler(object: &Value, before: Option<&Value>, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    let was_zero = before.is_some_and(|old| old["spec"]["minReplicas"] == 0);
    least.at_least(faults, i64::from(!was_zero));
    match most.number().unwrap_or(0) {
        0 => most.required(faults, "must be set and greater than 0"),
        _ => most.at_least(faults, 1),
    }
    if least.number().is_some_and(|least| most.number().unwrap_or(0) < least) {
        let shown = most.number().unwrap_or(0).to_string();
        most.invalid_as(faults, &shown, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    reference(&target, faults);
    let version = target.at("apiVersion");
    let is_old = before.is_some_and(|old| {
        let old = &old["spec"]["scaleTargetRef"];
        ["apiVersion", "kind"].into_iter().all(|field| old[field] == target.value()[field])
    });
    // The one kind of the group without a name that has a scale.
    let needs_none = target.at("kind").text() == "ReplicationController";
    if !is_old && !needs_none && !version.text().contains('/') {
        let shown = format!("{:?}", version.text());
        version.invalid_as(faults, &shown, "apiVersion must specify API group");
    }
    let metrics = spec.at("metrics");
    for metric in metrics.items() {
        metric_spec(&metric, faults);
    }
    let from_zero = metrics.items().any(|metric| matches!(metric.at("type").text(), "Object" | "External"));
    if least.number() == Some(0) && !from_zero {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        metrics.forbidden(faults, why);
    }
    let behavior = spec.at("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        rules(&behavior.at(direction), faults);
    }
}

fn reference(place: &Place<'_, '_>, faults: &mut Findings) {
    for field in ["kind", "name"] {
        let field = place.at(field);
        match field.text() {
            "" => field.required(faults, ""),
            text => field.each(faults, words::path_segment(text)),
        }
    }
    let version = place.at("apiVersion");
    if version.text().matches('/').count() > 1 {
        version.invalid(faults, &format!("unexpected GroupVersion string: {}", version.text()));
    }
}

fn metric_spec(place: &Place<'_, '_>, faults: &mut Findings) {
    let kind = place.at("type");
    if kind.text().is_empty() {
        kind.required(faults, "must specify a metric source type");
    }
    kind.one_of(faults, &TYPES);
    let given: Vec<&str> =
        FIELDS.into_iter().map(|(_, field)| field).filter(|field| place.at(field).is_set()).collect();
    if let Some(first) = given.first() {
        source(&place.at(first), first, faults);
    }
    let expected = FIELDS.into_iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| field);
    match expected {
        Some(expected) if !place.at(expected).is_set() => {
            place.at(expected).required(faults, "must populate information for the given metric source");
        }
        Some(_) => {}
        // The server reports it a second time.
        None => kind.one_of(faults, &TYPES),
    }
    if given.len() != 1 {
        for other in given.into_iter().filter(|field| Some(*field) != expected) {
            place.at(other).forbidden(faults, "must populate the given metric source only");
        }
    }
}

fn source(place: &Place<'_, '_>, kind: &str, faults: &mut Findings) {
    let metric = place.at("metric");
    let named = |field: &Place<'_, '_>, why: &str, faults: &mut Findings| match field.text() {
        "" => field.required(faults, why),
        text => field.each(faults, words::path_segment(text)),
    };
    match kind {
        "object" => {
            reference(&place.at("describedObject"), faults);
            named(&metric.at("name"), "must specify a metric name", faults);
        }
        "external" | "pods" => named(&metric.at("name"), "must specify a metric name", faults),
        _ => {
            if place.at("name").text().is_empty() {
                place.at("name").required(faults, "must specify a resource name");
            }
        }
    }
    let container = place.at("container");
    if kind == "containerResource" {
        match container.text() {
            "" => container.required(faults, "must specify a container"),
            text => container.each(faults, words::label(text)),
        }
    }
    let target = place.at("target");
    let (value, average, share) =
        (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    metric_target(&target, faults);
    match kind {
        "object" if !value.is_set() && !average.is_set() => {
            average.required(faults, "must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            let why = "must set either a target value for metric or a per-pod target";
            average.required(faults, why);
        }
        "external" if value.is_set() && average.is_set() => {
            let why = "may not set both a target value for metric and a per-pod target";
            value.forbidden(faults, why);
        }
        "pods" if !average.is_set() => {
            average.required(faults, "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !share.is_set() && !average.is_set() => {
            share.required(faults, "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if share.is_set() && average.is_set() => {
            let why = "may not set both a target raw value and a target utilization";
            average.forbidden(faults, why);
        }
        _ => {}
    }
}

fn metric_target(place: &Place<'_, '_>, faults: &mut Findings) {
    let kind = place.at("type");
    if kind.text().is_empty() {
        kind.required(faults, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        let shown = format!("{:?}", kind.text());
        kind.invalid_as(faults, &shown, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = place.at(field);
        if Quantity::read(amount.value()).is_some_and(|amount| amount <= Quantity::ZERO) {
            amount.invalid(faults, "must be positive");
        }
    }
    let share = place.at("averageUtilization");
    if share.number().is_some_and(|share| share < 1) {
        share.invalid(faults, "must be greater than 0");
    }
}

fn rules(place: &Place<'_, '_>, faults: &mut Findings) {
    if !place.is_set() {
        return;
    }
    let window = place.at("stabilizationWindowSeconds");
    if window.number().is_some_and(|seconds| seconds < 0) {
        window.invalid(faults, "must be greater than or equal to zero");
    }
    if window.number().is_some_and(|seconds| seconds > 3600) {
        window.invalid(faults, "must be less than or equal to 3600");
    }
    place.at("selectPolicy").one_of_if_set(faults, &["Disabled", "Max", "Min"]);
    let policies = place.at("policies");
    if policies.len() == 0 {
        policies.required(faults, "must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.at("type").one_of(faults, &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let field = policy.at(field);
            let number = field.number().unwrap_or(0);
            if number <= 0 {
                field.invalid_as(faults, &number.to_string(), "must be greater than zero");
            }
        }
        let period = policy.at("periodSeconds");
        if period.number().is_some_and(|seconds| seconds > 1800) {
            period.invalid(faults, "must be less than or equal to 1800");
        }
    }
}
