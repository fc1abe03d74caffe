//! Definitions: what a CRD must say.

use serde_json::Value;

use crate::object;
use crate::schema::Schema;
use crate::status::Cause;

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    object::at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Says what is wrong with a CRD.
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
    let scope = text(crd, "spec.scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        let message = format!("Unsupported value: {scope:?}: supported values: \"Cluster\", \"Namespaced\"");
        causes.push(Cause::new("FieldValueNotSupported", "spec.scope", message));
    }
    let versions =
        object::at(crd, "spec.versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid(
            "spec.versions",
            &object::at(crd, "spec.versions").unwrap_or(&Value::Null).to_string(),
            why,
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let Some(schema) = version["schema"].get("openAPIV3Schema") else {
            let why = "schemas are required";
            causes.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), why));
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
