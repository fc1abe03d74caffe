//! Types: what a server with types for its kinds can't decode, in its words.

use serde_json::Value;

use super::Target;
use crate::object;

/// Reads an object as a typed decoder does: what no type holds goes, and nulls are zero.
///
/// Of custom resources only the metadata has types.
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
