//! Disruption budgets, limits of namespaces and priorities.

use std::collections::BTreeSet;

use serde_json::Value;

use super::place::{Findings, Place};
use super::quantity::Quantity;
use super::{apps, resources, selectors};
use crate::selector::check_label_key;

/// Checks a PodDisruptionBudget.
pub(super) fn budget(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        // The server's own form of it has other names for its fields.
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            least.value(),
            spec.at("selector").value(),
            most.value(),
            spec.at("unhealthyPodEvictionPolicy").value()
        );
        spec.invalid_as(faults, &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [least, most].iter().filter(|amount| amount.is_set()) {
        apps::amount_or_share(amount, faults);
        apps::at_most_all(amount, faults);
    }
    selectors::selector(&spec.at("selector"), faults);
    spec.at("unhealthyPodEvictionPolicy").one_of_if_set(faults, &["AlwaysAllow", "IfHealthyBudget"]);
}

/// Checks a LimitRange.
pub(super) fn limits(object: &Value, faults: &mut Findings) {
    const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let spec = Place::top(object, "spec");
    let mut kinds = BTreeSet::new();
    for limit in spec.at("limits").items() {
        let kind = limit.at("type");
        let shown = format!("{:?}", kind.text());
        if let Err(why) = check_label_key(kind.text()) {
            kind.invalid_as(faults, &shown, &why);
        } else if !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            && !kind.text().contains('/')
        {
            kind.invalid(faults, "must be a standard limit type or fully qualified");
        }
        if !kinds.insert(kind.text()) {
            kind.duplicate(faults, kind.value());
        }
        let of_containers = matches!(kind.text(), "Pod" | "Container");
        for list in LISTS {
            let list = limit.at(list);
            for (name, amount) in list.entries() {
                if of_containers {
                    resources::container_name(name, &amount, faults);
                } else {
                    resources::resource_name(name, &amount, faults);
                }
            }
        }
        for list in ["default", "defaultRequest"] {
            let list = limit.at(list);
            if kind.text() == "Pod" && list.len() > 0 {
                list.forbidden(faults, "may not be specified when `type` is 'Pod'");
            }
        }
        let (min, max) = (&limit.value()["min"]["storage"], &limit.value()["max"]["storage"]);
        if kind.text() == "PersistentVolumeClaim" && min.is_null() && max.is_null() {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            limit.at("limits").required(faults, why);
        }
        // The two amounts, the place that is blamed, the amount that is shown, and the words.
        for (low, high, blamed, shown, words) in [
            ("min", "max", "min", "min", "min value {} is greater than max value {}"),
            (
                "min",
                "defaultRequest",
                "defaultRequest",
                "defaultRequest",
                "min value {} is greater than default request value {}",
            ),
            (
                "defaultRequest",
                "max",
                "defaultRequest",
                "defaultRequest",
                "default request value {} is greater than max value {}",
            ),
            (
                "defaultRequest",
                "default",
                "defaultRequest",
                "defaultRequest",
                "default request value {} is greater than default limit value {}",
            ),
            ("min", "default", "default", "min", "min value {} is greater than default value {}"),
            ("default", "max", "default", "max", "default value {} is greater than max value {}"),
        ] {
            order(&limit, (low, high), (blamed, shown), words, faults);
        }
    }
}

/// Refuses an amount that is above another.
fn order(
    limit: &Place<'_, '_>,
    (low, high): (&str, &str),
    (blamed, shown): (&str, &str),
    words: &str,
    faults: &mut Findings,
) {
    let (low, high, blamed, shown) = (limit.at(low), limit.at(high), limit.at(blamed), limit.at(shown));
    for (name, place) in blamed.entries() {
        let (small, large) = (&low.value()[name], &high.value()[name]);
        let (Some(less), Some(more)) = (Quantity::read(small), Quantity::read(large)) else { continue };
        if less > more {
            let told = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let why = words.replacen("{}", &told(small), 1).replacen("{}", &told(large), 1);
            place.invalid_as(faults, &shown.value()[name].to_string(), &why);
        }
    }
}

/// Checks a PriorityClass.
pub(super) fn priority(object: &Value, faults: &mut Findings) {
    const HIGHEST: i64 = 1_000_000_000;
    let metadata = Place::top(object, "metadata");
    let (name, value) = (metadata.at("name"), Place::top(object, "value"));
    if name.text().starts_with("system-") {
        if let Err(why) = system_priority(object) {
            let start =
                "priority class names with 'system-' prefix are reserved for system use only. error: ";
            name.forbidden(faults, &format!("{start}{why}"));
        }
    } else if value.number().is_some_and(|value| value > HIGHEST) {
        value.forbidden(faults, &format!("maximum allowed value of a user defined priority is {HIGHEST}"));
    }
    Place::top(object, "preemptionPolicy").one_of_if_set(faults, &["PreemptLowerPriority", "Never"]);
}

/// The priorities that every cluster has, with their values.
const SYSTEM: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Returns whether an object is one of the priorities that every cluster has.
fn system_priority(object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let Some((_, wanted)) = SYSTEM.into_iter().find(|(known, _)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    let value = object["value"].as_i64().unwrap_or(0);
    if value != wanted {
        return Err(format!("value of {name} PriorityClass must be {wanted}"));
    }
    match object["globalDefault"] == true {
        true => Err(format!("globalDefault of {name} PriorityClass must be false")),
        false => Ok(()),
    }
}
