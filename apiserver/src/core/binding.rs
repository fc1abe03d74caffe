//! Bindings: assigning a pod to a node, by its subresource or by the older kind `Binding`.

use serde_json::{Value, json};

use super::ApiRequest;
use super::target::find;
use crate::limits;
use crate::object;
use crate::route::{PathShape, RequestInfo};
use crate::state::State;
use crate::status::Status;
use crate::store::Stored;
use crate::write::{Keep, Shown, Target, WriteOptions, Written, admit_sent, other_uid, other_version};

/// Turns a request to make one of the older bindings into one for the pod's subresource.
///
/// # Errors
/// 405 for all but making one, 400 for bodies that name no pod.
pub(super) fn of_older_kind(
    state: &State,
    request: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Target>, Status> {
    if (info.group.as_str(), info.version.as_str(), info.resource.as_str()) != ("", "v1", "bindings") {
        return Ok(None);
    }
    if info.shape == PathShape::Object || info.namespace.is_none() {
        return Err(Status::no_such_resource());
    }
    if request.method != http::Method::POST {
        return Err(Status::method_not_allowed());
    }
    let body = &super::binary::json_of(request, ("v1", "Binding"))?.body;
    let binding = parse(body)?;
    let name = object::name(&binding);
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let pod = RequestInfo {
        resource: "pods".to_owned(),
        name: Some(name.to_owned()),
        subresource: "binding".to_owned(),
        shape: PathShape::Object,
        ..info.clone()
    };
    find(state, &pod).map(Some)
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    limits::read_yaml(body)
        .map_err(|error| Status::bad_request(format!("error decoding the binding: {error}")))
}

/// Binds a pod to a node.
///
/// # Errors
/// 400, 404 and 409 as a real server has them, and 500 for a target that is not a node.
pub(super) fn bind(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    body: &[u8],
) -> Result<Written, Status> {
    let mut binding = parse(body)?;
    if object::name(&binding) != target.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    check_target(&binding["target"])?;
    admit_sent(state, target, options, &mut binding)?;
    let storage = &target.resource.storage;
    let stored = state.store.get(storage, &target.key()).cloned().ok_or_else(|| target.not_found())?;
    check_versions(target, &binding, &stored)?;
    let mut pod = Value::clone(&stored.value());
    if let Some(why) = refusal(&pod) {
        return Err(Status::conflict("", "pods/binding", &target.name, &why));
    }
    assign(&mut pod, &binding, &state.clock.seconds());
    if options.keep == Keep::Yes {
        state.store.put(storage, &target.key(), pod);
    }
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Written::created(Shown::Other(status)))
}

fn check_target(node: &Value) -> Result<(), Status> {
    let (kind, name) = (node["kind"].as_str().unwrap_or_default(), node["name"].as_str().unwrap_or_default());
    let mut wrong = Vec::new();
    if !matches!(kind, "" | "Node") {
        wrong.push(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if name.is_empty() {
        wrong.push("target.name: Required value".to_owned());
    }
    match wrong.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::internal(one.clone())),
        all => Err(Status::internal(format!("[{}]", all.join(", ")))),
    }
}

/// A binding's own uid and version are those that its pod must have.
fn check_versions(target: &Target, binding: &Value, stored: &Stored) -> Result<(), Status> {
    let (uid, version) = (object::uid(binding), object::text(binding, "resourceVersion"));
    let there = stored.value();
    if !uid.is_empty() && uid != object::uid(&there) {
        return Err(other_uid(target, uid, object::uid(&there)));
    }
    if !version.is_empty() && version != stored.version.to_string() {
        return Err(other_version(target, version, stored.version));
    }
    Ok(())
}

/// Describes why a pod can't be bound.
fn refusal(pod: &Value) -> Option<String> {
    let name = object::name(pod);
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if object::is_deleting(pod) {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else if !node.is_empty() {
        Some(format!("pod {name} is already assigned to node {node:?}"))
    } else if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        Some(format!("pod {name} has non-empty .spec.schedulingGates"))
    } else {
        None
    }
}

fn assign(pod: &mut Value, binding: &Value, now: &str) {
    let pod = object::map_mut(pod);
    object::child_mut(pod, "spec").insert("nodeName".into(), binding["target"]["name"].clone());
    for key in ["annotations", "labels"] {
        let given = binding["metadata"][key].as_object().filter(|given| !given.is_empty());
        if let Some(given) = given {
            let metadata = object::child_mut(pod, "metadata");
            object::child_mut(metadata, key).extend(given.clone());
        }
    }
    let status = object::child_mut(pod, "status");
    status.remove("nominatedNodeName");
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if let Value::Array(conditions) = status.entry("conditions").or_insert_with(|| json!([])) {
        match conditions.iter_mut().find(|condition| condition["type"] == "PodScheduled") {
            // The moment of a change stays where nothing has changed.
            Some(there) if there["status"] == "True" => {
                let since = there["lastTransitionTime"].clone();
                *there = scheduled;
                there["lastTransitionTime"] = since;
            }
            Some(there) => *there = scheduled,
            None => conditions.push(scheduled),
        }
    }
}
