//! Preparation: what single built-in kinds fill in, keep and refuse.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Resource, defaults, validate};
use crate::object::{self, child_mut, map_mut};
use crate::selector::check_label_key;
use crate::status::Cause;

/// Whether an object's own fields hold its deletion back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The kind does not have this field.
    None,
    /// It waits for its controller.
    Held,
    /// Its controller has let go.
    Released,
}

/// The label every namespace carries.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

fn kind(resource: &Resource) -> &str {
    resource.built_in().map_or("", |row| row.kind)
}

/// Fills in what a new object begins with.
pub(crate) fn for_create(resource: &Resource, object: &mut Value) {
    match kind(resource) {
        "Namespace" => {
            name_label(object);
            map_mut(object).insert("status".into(), json!({"phase": "Active"}));
        }
        "Pod" => {
            let phase = json!({"phase": "Pending", "qosClass": defaults::qos_class(object)});
            map_mut(object).insert("status".into(), phase);
        }
        "PersistentVolume" => drop(map_mut(object).insert("status".into(), json!({"phase": "Pending"}))),
        "PersistentVolumeClaim" => drop(map_mut(object).insert("status".into(), json!({"phase": "Pending"}))),
        "CustomResourceDefinition" => {
            let stored: Vec<Value> = stored_version(object).into_iter().collect();
            let accepted = json!({"plural": "", "kind": ""});
            let status = json!({"conditions": null, "acceptedNames": accepted, "storedVersions": stored});
            map_mut(object).insert("status".into(), status);
        }
        _ => {}
    }
}

/// Adds to a new object what no manager owns.
pub(crate) fn admit(resource: &Resource, object: &mut Value, uid: &str) {
    match kind(resource) {
        "Namespace" => {
            let spec = child_mut(map_mut(object), "spec");
            let list = spec.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut()
                && !list.iter().any(|f| f == "kubernetes")
            {
                list.push("kubernetes".into());
            }
        }
        "Pod" => defaults::admit_pod(object),
        "Job" => defaults::admit_job(object, uid),
        "Service" => defaults::admit_service(object),
        "Node" => defaults::admit_node(object),
        _ => {}
    }
}

fn stored_version(crd: &Value) -> Option<Value> {
    let versions = crd["spec"]["versions"].as_array()?;
    versions.iter().find(|v| v["storage"] == true).map(|v| v["name"].clone())
}

fn name_label(object: &mut Value) {
    let name = object::name(object).to_owned();
    let labels = child_mut(object::meta_mut(object), "labels");
    labels.insert(NAMESPACE_LABEL.into(), name.into());
}

/// Carries what an update may not change silently.
pub(crate) fn for_update(resource: &Resource, before: &Value, new: &mut Value) {
    if kind(resource) == "Service" {
        super::services::change_type(before, new);
    }
    if kind(resource) == "Namespace" {
        name_label(new);
        let finalizers = object::at(before, "spec.finalizers").cloned();
        let spec = child_mut(map_mut(new), "spec");
        match finalizers {
            Some(list) => drop(spec.insert("finalizers".into(), list)),
            None => drop(spec.remove("finalizers")),
        }
    }
}

/// Fills in the defaults of a built-in kind.
pub(crate) fn defaults(resource: &Resource, object: &mut Value) {
    let Some(row) = resource.built_in() else { return };
    match row.kind {
        "Secret" => secret(object),
        "CustomResourceDefinition" => crd(object),
        other => defaults::fill(other, object),
    }
}

/// Fills in the values that the typed server always writes.
pub(crate) fn fill_empty(resource: &Resource, object: &mut Value) {
    let Some(row) = resource.built_in() else { return };
    if let Value::Object(empty) = row.empty_fields() {
        let map = map_mut(object);
        for (key, value) in empty {
            if map.get(&key).is_none_or(|there| there.is_null() && !value.is_null()) {
                map.insert(key, value);
            } else if key == "status" {
                fill_missing(map, &key, value);
            }
        }
    }
    defaults::null_times(row.kind, object);
}

fn fill_missing(map: &mut Map<String, Value>, key: &str, from: Value) {
    if let (Some(Value::Object(there)), Value::Object(from)) = (map.get_mut(key), from) {
        for (key, value) in from {
            there.entry(key).or_insert(value);
        }
    }
}

fn secret(object: &mut Value) {
    let map = map_mut(object);
    if map.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        map.insert("type".into(), "Opaque".into());
    }
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let data = child_mut(map, "data");
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
}

fn crd(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    super::schemas::tidy(spec);
    let conversion = child_mut(spec, "conversion");
    conversion.entry("strategy").or_insert_with(|| "None".into());
    let service =
        conversion.get_mut("webhook").and_then(|webhook| webhook.get_mut("clientConfig")?.get_mut("service"));
    if let Some(Value::Object(service)) = service {
        service.entry("port").or_insert_with(|| 443.into());
    }
    let names = child_mut(spec, "names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kind.is_empty() {
        for (key, value) in [("listKind", format!("{kind}List")), ("singular", kind.to_lowercase())] {
            let entry = names.entry(key).or_insert(Value::Null);
            if entry.as_str().unwrap_or_default().is_empty() {
                *entry = value.into();
            }
        }
    }
}

/// Checks a new or changed object beyond its schema.
pub(crate) fn faults(resource: &Resource, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate::faults(resource, object, before);
    match kind(resource) {
        "CustomResourceDefinition" => causes.extend(super::definition::faults(object)),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            causes.extend(super::webhooks::faults(object));
        }
        kind if kind.contains("AdmissionPolicy") => causes.extend(super::policies::faults(kind, object)),
        "Event" => causes.extend(event_faults(resource, object)),
        "Lease" => {
            if object["spec"]["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
                let shown = object["spec"]["leaseDurationSeconds"].to_string();
                causes.push(Cause::invalid("spec.leaseDurationSeconds", &shown, "must be greater than 0"));
            }
            if object["spec"]["leaseTransitions"].as_i64().is_some_and(|count| count < 0) {
                let shown = object["spec"]["leaseTransitions"].to_string();
                let why = "must be greater than or equal to 0";
                causes.push(Cause::invalid("spec.leaseTransitions", &shown, why));
            }
        }
        "ConfigMap" | "Secret" => {
            if object["type"] == "kubernetes.io/tls" {
                for key in ["tls.crt", "tls.key"].into_iter().filter(|key| object["data"].get(key).is_none())
                {
                    causes.push(Cause::required(format!("data[{key}]"), ""));
                }
            }
            causes.extend(super::data::faults(kind(resource), object));
        }
        _ => {}
    }
    causes
}

/// Reports what is wrong with an Event. One with a time of its own, in either group, is checked strictly.
fn event_faults(resource: &Resource, event: &Value) -> Option<Cause> {
    let text = |path: &str| object::at(event, path).and_then(Value::as_str).unwrap_or_default();
    let is_core = resource.group().is_empty();
    let is_strict = !is_core || !text("eventTime").is_empty();
    let [about, controller, note] = match is_core {
        true => ["involvedObject.namespace", "reportingComponent", "message"],
        false => ["regarding.namespace", "reportingController", "note"],
    };
    let (about, own) = (text(about), object::namespace(event));
    let fits = match (about.is_empty(), is_strict) {
        (true, true) => matches!(own, "default" | "kube-system"),
        (true, false) => own == "default",
        (false, true) => true,
        (false, false) => about == own,
    };
    let required = ["eventTime", controller, "reportingInstance", "action", "reason"];
    if let Some(field) = required.into_iter().find(|field| is_strict && text(field).is_empty()) {
        return Some(Cause::required(field, ""));
    }
    if !fits {
        let why = "does not match event.namespace";
        return Some(Cause::invalid("involvedObject.namespace", &format!("{about:?}"), why));
    }
    if !is_strict {
        return None;
    }
    if let Err(why) = check_label_key(text(controller)) {
        return Some(Cause::invalid(controller, &format!("{:?}", text(controller)), &why));
    }
    let limits = [("reportingInstance", "reportingInstance", 128), ("action", "action", 128)];
    let limits = limits.into_iter().chain([("reason", "reason", 128), (note, "message", 1_024)]);
    if let Some((_, shown, most)) = limits.into_iter().find(|(field, _, most)| text(field).len() > *most) {
        return Some(Cause::invalid(shown, "\"\"", &format!("can have at most {most} characters")));
    }
    if is_core {
        return None;
    }
    let kind = text("type");
    let why = format!("has invalid value: {kind}");
    (!matches!(kind, "Normal" | "Warning")).then(|| Cause::invalid("type", "\"\"", &why))
}

/// Reports changes of immutable fields.
pub(crate) fn update_faults(
    resource: &Resource,
    subresource: &str,
    before: &Value,
    new: &Value,
) -> Vec<Cause> {
    // An earlier build may have stored the object without a default that the new state has.
    let filled = resource.built_in().map(|_| {
        let mut before = before.clone();
        defaults(resource, &mut before);
        before
    });
    let before = filled.as_ref().unwrap_or(before);
    // A write of the status ignores the specification that it brings.
    let mut causes = match subresource {
        "status" | "approval" | "finalize" if kind(resource) != "CustomResourceDefinition" => Vec::new(),
        _ => faults(resource, new, Some(before)),
    };
    causes.extend(validate::changes(resource, before, new));
    match kind(resource) {
        "Pod" if subresource.is_empty() => causes.extend(super::fixed::pod(before, new)),
        "Pod" if subresource == "ephemeralcontainers" => causes.extend(super::fixed::ephemeral(before, new)),
        "Service" => causes.extend(super::fixed::service(before, new)),
        "Namespace" if subresource == "status" => causes.extend(phase_fault(new)),
        _ => {}
    }
    if resource.group() == "events.k8s.io" {
        for (field, shown) in
            [("note", "message"), ("reason", "reason"), ("action", "action"), ("type", "type")]
        {
            if before.get(field) != new.get(field) {
                let value = new.get(field).map_or_else(|| "null".to_owned(), ToString::to_string);
                causes.push(Cause::invalid(shown, &value, "field is immutable"));
            }
        }
    }
    let immutable: &[&str] = match kind(resource) {
        "Deployment" | "DaemonSet" | "ReplicaSet" => &["spec.selector"],
        "Secret" => &["type"],
        "CustomResourceDefinition" => &["spec.scope", "spec.group", "spec.names.kind"],
        _ => &[],
    };
    if kind(resource) == "CustomResourceDefinition" {
        causes.retain(|cause| cause.field != "metadata.name");
        causes.extend(super::definition::vanished(new));
    }
    for path in immutable {
        let (was, is) = (object::at(before, path), object::at(new, path));
        if was != is && was.is_some() {
            let shown = is.map_or_else(|| "null".to_owned(), ToString::to_string);
            causes.push(Cause::invalid(*path, &shown, "field is immutable"));
        }
    }
    if matches!(kind(resource), "ConfigMap" | "Secret") && before["immutable"] == true {
        if new["immutable"] != true {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"] {
            if before.get(field) != new.get(field) {
                causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    causes
}

/// Refuses a phase that is not that of a namespace's deletion.
fn phase_fault(namespace: &Value) -> Option<Cause> {
    let phase = object::at(namespace, "status.phase").and_then(Value::as_str).unwrap_or_default();
    let (wanted, why) = match object::is_deleting(namespace) {
        true => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
        false => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
    };
    (phase != wanted).then(|| Cause::invalid("status.Phase", &format!("{phase:?}"), why))
}

/// Returns whether an object's own fields hold its deletion.
pub(crate) fn holds_itself(resource: &Resource, object: &Value) -> Hold {
    if kind(resource) != "Namespace" {
        return Hold::None;
    }
    let held =
        object::at(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if held { Hold::Held } else { Hold::Released }
}
