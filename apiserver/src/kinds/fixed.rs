//! Immutable fields of pods and services.

use serde_json::{Value, json};

use crate::object::{at, map_mut};
use crate::status::Cause;

const POD: &str = "pod updates may not change fields other than \
                   `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                   `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
                   (allow it to be set to 1 if it was previously negative)";

/// Reports changes of a pod's spec that an update may not make.
pub(super) fn pod(before: &Value, new: &Value) -> Option<Cause> {
    (fixed(before) != fixed(new) || lost_toleration(before, new)).then(|| Cause::forbidden("spec", POD))
}

/// Reports changes of containers that were added to a pod before, which are immutable.
pub(super) fn ephemeral(before: &Value, new: &Value) -> Vec<Cause> {
    let list = |pod: &'_ Value| -> Vec<Value> {
        pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default()
    };
    let (had, has) = (list(before), list(new));
    let fault = |old: &Value| {
        let name = old["name"].as_str().unwrap_or_default();
        let what = match has.iter().find(|one| one["name"] == old["name"]) {
            Some(one) if one == old => return None,
            Some(_) => "changed",
            None => "removed",
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        Some(Cause::forbidden("spec.ephemeralContainers", &why))
    };
    had.iter().filter_map(fault).collect()
}

/// Returns a pod's spec without what may change.
fn fixed(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    let map = map_mut(&mut spec);
    for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
        map.remove(field);
    }
    // Gates may be removed, and the pod's scheduling may still be restricted along with it.
    if map.remove("schedulingGates").is_some() {
        map.remove("nodeSelector");
        map.remove("affinity");
    }
    for list in ["containers", "initContainers"] {
        for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            map_mut(container).remove("image");
        }
    }
    spec
}

fn lost_toleration(before: &Value, new: &Value) -> bool {
    let kept = new["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let had = before["spec"]["tolerations"].as_array().into_iter().flatten();
    // Its seconds may change.
    let shape = |toleration: &Value| {
        let mut shape = toleration.clone();
        map_mut(&mut shape).remove("tolerationSeconds");
        shape
    };
    had.map(shape).any(|toleration| !kept.iter().map(shape).any(|other| other == toleration))
}

/// Reports changes of a service's addresses that an update may not make.
pub(super) fn service(before: &Value, new: &Value) -> Vec<Cause> {
    let (was, is) = (at(before, "spec.clusterIP"), at(new, "spec.clusterIP"));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let external = new["spec"]["type"] == "ExternalName" || before["spec"]["type"] == "ExternalName";
    if was == is || text(was).is_empty() || external {
        return Vec::new();
    }
    if before["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
        let policy = "this cluster is not configured for dual-stack services";
        return vec![
            Cause::invalid("spec.ipFamilyPolicy", "\"RequireDualStack\"", policy),
            Cause::invalid("spec.ipFamilies[1]", "\"IPv6\"", "not configured on this cluster"),
        ];
    }
    let shown = json!([text(is)]).to_string();
    vec![Cause::invalid("spec.clusterIPs[0]", &shown, "may not change once set")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::child_mut;

    fn with(field: &str, value: Value) -> Value {
        let mut pod = json!({"spec": {
            "containers": [{"name": "c", "image": "a"}],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
        }});
        child_mut(map_mut(&mut pod), "spec").insert(field.to_owned(), value);
        pod
    }

    // wire 329
    #[test]
    fn a_pod_may_change_its_images_and_little_else() {
        let before = with("nodeName", json!(""));
        let containers = |image: &str| with("containers", json!([{"name": "c", "image": image}]));
        assert!(pod(&containers("a"), &containers("b")).is_none());
        assert!(
            pod(&with("activeDeadlineSeconds", json!(1)), &with("activeDeadlineSeconds", json!(2))).is_none()
        );
        assert!(pod(&before, &with("nodeName", json!("n"))).is_some());
        let more = json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 9}, {"key": "l"}]);
        assert!(
            pod(&with("x", json!(1)), &{
                let mut new = with("tolerations", more);
                new["spec"]["x"] = json!(1);
                new
            })
            .is_none()
        );
        assert!(
            pod(&with("x", json!(1)), &{
                let mut new = with("tolerations", json!([]));
                new["spec"]["x"] = json!(1);
                new
            })
            .is_some()
        );
    }

    #[test]
    fn a_service_keeps_its_address() {
        let service_at = |address: &str| json!({"spec": {"type": "ClusterIP", "clusterIP": address}});
        assert!(service(&service_at(""), &service_at("10.0.0.1")).is_empty());
        let causes = service(&service_at("10.0.0.1"), &service_at("10.0.0.2"));
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "spec.clusterIPs[0]");
    }
}
