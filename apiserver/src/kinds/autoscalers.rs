//! Autoscalers: stored as `autoscaling/v2`, and shown as `v1` on request.
//!
//! Fields that `v1` lacks are kept in annotations, so that a write through it loses nothing.

use serde_json::{Map, Value, json};

use crate::object::{self, at, child_mut, map_mut};

const PREFIX: &str = "autoscaling.alpha.kubernetes.io/";

/// The parts of an autoscaler that `v1` keeps in annotations, by the annotation's name.
const KEPT: [(&str, &str, &str); 4] = [
    ("spec", "metrics", "metrics"),
    ("spec", "behavior", "behavior"),
    ("status", "currentMetrics", "current-metrics"),
    ("status", "conditions", "conditions"),
];

/// Shows a stored autoscaler as `v1`.
pub(super) fn to_v1(stored: &Value) -> Value {
    let mut shown = stored.clone();
    map_mut(&mut shown).insert("apiVersion".into(), "autoscaling/v1".into());
    let cpu = take_cpu(&mut shown, ("spec", "metrics", "target"));
    let current = take_cpu(&mut shown, ("status", "currentMetrics", "current"));
    for (part, field, annotation) in KEPT {
        let taken = shown.get_mut(part).and_then(Value::as_object_mut).and_then(|part| part.remove(field));
        if let Some(taken) = taken.filter(|taken| !is_empty(taken)) {
            let annotations = child_mut(object::meta_mut(&mut shown), "annotations");
            annotations.insert(format!("{PREFIX}{annotation}"), taken.to_string().into());
        }
    }
    for (part, field, value) in [
        ("spec", "targetCPUUtilizationPercentage", cpu),
        ("status", "currentCPUUtilizationPercentage", current),
    ] {
        if let Some(value) = value {
            child_mut(map_mut(&mut shown), part).insert(field.into(), value);
        }
    }
    child_mut(map_mut(&mut shown), "status").entry("currentReplicas").or_insert_with(|| json!(0));
    shown
}

/// Turns an autoscaler of `v1` into the stored form.
pub(super) fn to_v2(mut shown: Value) -> Value {
    map_mut(&mut shown).insert("apiVersion".into(), "autoscaling/v2".into());
    for (part, field, annotation) in KEPT {
        let text = object::meta_mut(&mut shown)
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.remove(&format!("{PREFIX}{annotation}")));
        let kept = text.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        child_mut(map_mut(&mut shown), part).extend(kept.map(|kept: Value| (field.to_owned(), kept)));
    }
    for (part, field, list, what) in [
        ("spec", "targetCPUUtilizationPercentage", "metrics", "target"),
        ("status", "currentCPUUtilizationPercentage", "currentMetrics", "current"),
    ] {
        let part = child_mut(map_mut(&mut shown), part);
        let Some(share) = part.remove(field).filter(|share| !share.is_null()) else { continue };
        let mut value = json!({"averageUtilization": share});
        if what == "target" {
            value["type"] = "Utilization".into();
        }
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", what: value}});
        match part.get_mut(list) {
            Some(Value::Array(metrics)) => metrics.insert(0, metric),
            _ => drop(part.insert(list.into(), json!([metric]))),
        }
    }
    child_mut(map_mut(&mut shown), "status").entry("currentMetrics").or_insert(Value::Null);
    object::tidy(&mut shown);
    shown
}

/// Takes the share of the CPU out of a list of metrics.
fn take_cpu(shown: &mut Value, (part, list, what): (&str, &str, &str)) -> Option<Value> {
    let metrics = shown.get_mut(part)?.get_mut(list)?.as_array_mut()?;
    let share = |metric: &Value| {
        let cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        at(metric, &format!("resource.{what}.averageUtilization")).filter(|_| cpu).cloned()
    };
    let place = metrics.iter().position(|metric| share(metric).is_some())?;
    share(&metrics.remove(place))
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_old_version_has_no_fields_for_is_kept() {
        let cpu = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70},
        }});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}}});
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [cpu, pods], "behavior": {"scaleUp": {"selectPolicy": "Max"}}},
            "status": {"currentReplicas": 1, "currentMetrics": null, "desiredReplicas": 2},
        });
        let shown = to_v1(&stored);
        assert_eq!(shown["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
        assert_eq!(shown["status"], json!({"currentReplicas": 1, "desiredReplicas": 2}));
        assert_eq!(to_v2(shown), stored);
    }

    #[test]
    fn one_made_in_the_old_version_needs_no_metrics() {
        let made =
            json!({"apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"maxReplicas": 3}});
        let stored = to_v2(made);
        assert_eq!(stored["spec"], json!({"maxReplicas": 3}));
        assert_eq!(stored["apiVersion"], "autoscaling/v2");
    }
}
