//! Definitions: what a CRD must say.

use serde_json::{Value, json};

use crate::object;
use crate::schema::Schema;
use crate::status::Cause;

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    object::at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Checks a CRD.
pub(crate) fn faults(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (group, plural) = (text(crd, "spec.group"), text(crd, "spec.names.plural"));
    let name = object::name(crd);
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &format!("{name:?}"), why));
    }
    for (path, what) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(crd, "spec.names.kind")),
    ] {
        if what.is_empty() {
            causes.push(Cause::required(path, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", &format!("{group:?}"), why));
    }
    causes.extend(name_faults(crd));
    let scope = text(crd, "spec.scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        let message = format!("Unsupported value: {scope:?}: supported values: \"Cluster\", \"Namespaced\"");
        causes.push(Cause::new("FieldValueNotSupported", "spec.scope", message));
    }
    if object::at(crd, "spec.preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", "true", why));
    }
    if is_protected(group) && approval(crd).is_empty() {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                   https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", why));
    } else if is_protected(group) && !approval(crd).starts_with("unapproved") && !is_url(approval(crd)) {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a \
                   reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
        let shown = format!("{:?}", approval(crd));
        causes.push(Cause::invalid("metadata.annotations[api-approved.kubernetes.io]", &shown, why));
    }
    causes.extend(conversion_faults(&crd["spec"]["conversion"]));
    let versions =
        object::at(crd, "spec.versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    causes.extend(versions_faults(versions));
    for (index, version) in versions.iter().enumerate() {
        causes.extend(version_faults(version, index, versions.len() == 1));
    }
    for (index, version) in versions.iter().enumerate() {
        let Some(schema) = version["schema"].get("openAPIV3Schema") else {
            causes.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            continue;
        };
        if let Err(errors) = Schema::from_crd(schema) {
            let one = versions.len() == 1;
            causes.extend(errors.into_iter().map(Cause::from).map(|mut cause| {
                if !one {
                    let place = format!("spec.versions[{index}].schema.openAPIV3Schema");
                    cause.field = cause.field.replace("spec.validation.openAPIV3Schema", &place);
                }
                cause
            }));
        }
    }
    causes
}

/// Checks that versions have names of their own, and that one of them is stored.
fn versions_faults(versions: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let stored = versions.iter().filter(|v| v["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &shown_versions(versions), why));
    }
    let names = || versions.iter().map(|version| &version["name"]);
    if (1..versions.len()).any(|at| names().take(at).any(|name| *name == versions[at]["name"])) {
        causes.push(Cause::invalid(
            "spec.versions",
            &shown_versions(versions),
            "must contain unique version names",
        ));
    }
    if stored == 0 {
        causes.push(Cause::invalid("status.storedVersions", "null", "must have at least one stored version"));
    }
    causes
}

/// Checks the settings of conversion between versions.
fn conversion_faults(conversion: &Value) -> Vec<Cause> {
    let (config, versions) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    let webhook = &conversion["webhook"];
    let (client, given) = (&webhook["clientConfig"], webhook["conversionReviewVersions"].as_array());
    let given = given.map(Vec::as_slice).unwrap_or_default();
    let mut causes = Vec::new();
    match conversion["strategy"].as_str().unwrap_or_default() {
        "Webhook" => {
            if !client.is_object() {
                causes.push(Cause::required(config, "required when strategy is set to Webhook"));
            } else if client["url"].is_string() == client["service"].is_object() {
                causes.push(Cause::required(config, "exactly one of url or service is required"));
            }
            let is_known = |version: &Value| matches!(version.as_str(), Some("v1" | "v1beta1"));
            if given.is_empty() {
                causes.push(Cause::required(versions, ""));
            } else if !given.iter().any(is_known) {
                let shown = Value::Array(given.to_vec()).to_string();
                causes.push(Cause::invalid(versions, &shown, "must include at least one of v1, v1beta1"));
            }
        }
        "None" | "" => {
            let why = "should not be set when strategy is not set to Webhook";
            if client.is_object() {
                causes.push(Cause::forbidden(config, why));
            }
            if !given.is_empty() {
                causes.push(Cause::forbidden(versions, why));
            }
        }
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"None\", \"Webhook\"");
            causes.push(Cause::new("FieldValueNotSupported", "spec.conversion.strategy", message));
        }
    }
    causes
}

/// Returns whether a group belongs to Kubernetes, which requires an approval.
fn is_protected(group: &str) -> bool {
    group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io")
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split('/').next().unwrap_or_default();
        !scheme.is_empty() && !host.is_empty()
    })
}

/// Reports in a CRD's conditions whether its group's owners have approved it, if that is required.
pub(crate) fn mark_approval(crd: &mut Value, now: &str) {
    let approval = approval(crd).to_owned();
    if !is_protected(text(crd, "spec.group")) || approval.is_empty() {
        return;
    }
    let (status, reason, message) = match approval.starts_with("unapproved") {
        true => ("False", "UnapprovedAnnotation", format!("not approved: {approval:?}")),
        false => ("True", "ApprovedAnnotation", format!("approved in {approval}")),
    };
    set_condition(crd, now, "KubernetesAPIApprovalPolicyConformant", status, reason, &message);
}

fn approval(crd: &Value) -> &str {
    let annotations = object::meta(crd, "annotations");
    annotations.and_then(|map| map["api-approved.kubernetes.io"].as_str()).unwrap_or_default()
}

/// Shows versions as the server's own structs print.
fn shown_versions(versions: &[Value]) -> String {
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            let flag = |key: &str| version[key] == true;
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":null,\"Schema\":null,\
                 \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                version["name"],
                flag("served"),
                flag("storage"),
                flag("deprecated")
            )
        })
        .collect();
    format!("[{}]", shown.join(","))
}

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                        alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                        regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn is_dns_1035(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

fn name_faults(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["kind", "listKind"] {
        let name = crd["spec"]["names"][field].as_str().unwrap_or_default();
        if !name.is_empty() && !is_dns_1035(&name.to_lowercase()) {
            let why = format!("may have mixed case, but should otherwise match: {DNS_1035}");
            causes.push(Cause::invalid(format!("spec.names.{field}"), &format!("{name:?}"), &why));
        }
    }
    for field in ["plural", "singular"] {
        let name = crd["spec"]["names"][field].as_str().unwrap_or_default();
        if !name.is_empty() && !is_dns_1035(name) {
            causes.push(Cause::invalid(format!("spec.names.{field}"), &format!("{name:?}"), DNS_1035));
        }
    }
    let short = crd["spec"]["names"]["shortNames"].as_array().into_iter().flatten().enumerate();
    for (at, name) in short.filter_map(|(at, name)| Some((at, name.as_str()?))) {
        if !is_dns_1035(name) {
            causes.push(Cause::invalid(
                format!("spec.names.shortNames[{at}]"),
                &format!("{name:?}"),
                DNS_1035,
            ));
        }
    }
    let kind = text(crd, "spec.names.kind");
    if !kind.is_empty() && text(crd, "spec.names.listKind") == kind {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid("spec.names.listKind", &format!("{kind:?}"), why));
    }
    causes
}

fn version_faults(version: &Value, index: usize, only: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let place = if only { "spec".to_owned() } else { format!("spec.versions[{index}]") };
    let name = version["name"].as_str().unwrap_or_default();
    if !is_dns_1035(name) {
        let shown = format!("{name:?}");
        causes.push(Cause::invalid(format!("spec.versions[{index}].name"), &shown, DNS_1035));
        if only {
            causes.push(Cause::invalid("spec.version", &shown, DNS_1035));
        }
    }
    for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        causes.extend(column_faults(&format!("{place}.additionalPrinterColumns[{at}]"), column));
    }
    if let Some(scale) = version["subresources"].get("scale") {
        causes.extend(scale_faults(&place, scale));
    }
    for (at, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let path = field["jsonPath"].as_str().unwrap_or_default();
        let mut schema = version["schema"].get("openAPIV3Schema");
        for part in path.split('.').filter(|part| !part.is_empty()) {
            schema = schema.and_then(|schema| schema.get("properties")?.get(part));
        }
        if schema.is_none() {
            let why = "is an invalid path: does not refer to a valid field";
            let field = format!("{place}.selectableFields[{at}].jsonPath");
            causes.push(Cause::new("FieldValueInvalid", field, format!("Invalid value: {path:?}: {why}")));
        }
    }
    causes
}

fn column_faults(place: &str, column: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |name: &str| column[name].as_str().unwrap_or_default();
    if text("name").is_empty() {
        causes.push(Cause::required(format!("{place}.name"), ""));
    }
    let types = "must be one of boolean,date,integer,number,string";
    match text("type") {
        "" => causes.push(Cause::required(format!("{place}.type"), types)),
        "boolean" | "date" | "integer" | "number" | "string" => {}
        other => causes.push(Cause::invalid(format!("{place}.type"), &format!("{other:?}"), types)),
    }
    let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let format = text("format");
    if !format.is_empty() && !formats.contains(&format) {
        let why = format!("must be one of {}", formats.join(","));
        causes.push(Cause::invalid(format!("{place}.format"), &format!("{format:?}"), &why));
    }
    if text("jsonPath").is_empty() {
        causes.push(Cause::required(format!("{place}.JSONPath"), ""));
    }
    causes
}

fn scale_faults(place: &str, scale: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, roots, where_to) in [
        ("specReplicasPath", &[".spec."][..], "under .spec"),
        ("statusReplicasPath", &[".status."], "under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "under either .spec or .status"),
    ] {
        let (field, path) =
            (format!("{place}.subresources.scale.{name}"), scale[name].as_str().unwrap_or_default());
        let shown = format!("{path:?}");
        if path.is_empty() && name != "labelSelectorPath" {
            causes.push(Cause::required(field, ""));
        } else if !path.is_empty() && !path.starts_with('.') {
            causes.push(Cause::invalid(field, &shown, "must be a simple json path starting with ."));
        } else if !path.is_empty() && !roots.iter().any(|root| path.starts_with(root)) {
            causes.push(Cause::invalid(field, &shown, &format!("should be a json path {where_to}")));
        }
    }
    causes
}

/// Reports the stored versions that a changed CRD no longer has.
pub(super) fn vanished(crd: &Value) -> Vec<Cause> {
    let stored = object::at(crd, "status.storedVersions").and_then(Value::as_array);
    let versions = object::at(crd, "spec.versions").and_then(Value::as_array);
    let has = |name: &Value| versions.is_some_and(|all| all.iter().any(|version| version["name"] == *name));
    let gone = stored.into_iter().flatten().enumerate().filter(|(_, name)| !has(name));
    gone.map(|(index, name)| {
        let name = name.as_str().unwrap_or_default();
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
             storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        Cause::invalid(format!("status.storedVersions[{index}]"), &format!("{name:?}"), &why)
    })
    .collect()
}

/// Sets a condition of a CRD.
pub(crate) fn set_condition(
    crd: &mut Value,
    now: &str,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let status_map = object::child_mut(object::map_mut(crd), "status");
    let list = status_map.entry("conditions").or_insert(Value::Null);
    if !list.is_array() {
        *list = json!([]);
    }
    let entry = json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message});
    if let Some(list) = list.as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == kind) {
            Some(there) => *there = entry,
            None => list.push(entry),
        }
    }
}

/// Reports in a CRD's conditions that its objects will be removed.
pub(crate) fn mark_terminating(crd: &mut Value, now: &str) {
    let why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(crd, now, "Terminating", "True", "InstanceDeletionPending", why);
}

/// Reports in a CRD's conditions that its objects are being removed.
pub(crate) fn mark_deleting(crd: &mut Value, now: &str) {
    let why = "CustomResource deletion is in progress";
    set_condition(crd, now, "Terminating", "True", "InstanceDeletionInProgress", why);
}
