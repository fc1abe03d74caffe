//! Types: what a server with types for its kinds can't decode, in its words.

use serde_json::Value;

use super::Target;
use crate::object;
use crate::schema::Schema;

/// Reads an object as a typed decoder does: what no type holds goes, and nulls are zero.
///
/// In custom resources, only the metadata has types.
///
/// # Errors
/// The first value of another type, in the server's words.
pub(super) fn decode(target: &Target, object: &mut Value) -> Result<(), String> {
    if !target.resource.is_custom() {
        return target.served.schema.decode(object);
    }
    for field in ["labels", "annotations"] {
        let values =
            object::meta(object, field).and_then(Value::as_object).into_iter().flat_map(|map| map.values());
        let odd = values.into_iter().find_map(|value| match value {
            Value::Null | Value::String(_) => None,
            Value::Bool(_) => Some("bool"),
            Value::Number(_) => Some("number"),
            Value::Array(_) => Some("array"),
            Value::Object(_) => Some("object"),
        });
        if let Some(what) = odd {
            return Err(format!(
                "json: cannot unmarshal {what} into Go struct field ObjectMeta.{field} of type string"
            ));
        }
    }
    Ok(())
}

/// Describes why an object that claims to be another built-in kind can't be read as the target's kind.
///
/// The server first decodes it as the kind that it claims, and then converts it.
pub(super) fn misread(target: &Target, object: &Value, kind: &str, api_version: &str) -> String {
    let (group, version) = object::group_version(api_version);
    let Some(claimed) = Schema::builtin(group, version, kind) else {
        return format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        );
    };
    if let Err(why) = claimed.decode(&mut object.clone()) {
        return why;
    }
    let own = target.resource.group().split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("converting ({version}.{kind}) to ({own}.{}): unknown conversion", target.resource.kind)
}
