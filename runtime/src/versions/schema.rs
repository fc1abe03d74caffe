//! What a version's schema knows, and what an object holds beyond it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value};

/// Members of an object that are the same in all versions.
pub(super) const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the schema of a definition's only version; null if it has none.
pub(crate) fn of(definition: &CustomResourceDefinition) -> Value {
    let version = definition.spec.versions.first();
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
}

/// Returns the schema of a member; `None` if an object of this schema does not have such a member.
pub(super) fn member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let declared = &schema["properties"][name];
    let others = || Some(&schema["additionalProperties"]).filter(|others| others.is_object());
    if declared.is_null() { others() } else { Some(declared) }
}

/// Adds to an object as its type writes it what the raw object has and its schema does not know.
pub(super) fn with_unknown(typed: &Value, raw: &Value, schema: &Value) -> Value {
    match (typed, raw) {
        (Value::Object(known), Value::Object(raw)) => {
            let mut whole = known.clone();
            for (name, value) in raw {
                let declared = member(schema, name);
                match known.get(name) {
                    Some(typed) => {
                        whole.insert(
                            name.clone(),
                            with_unknown(typed, value, declared.unwrap_or(&Value::Null)),
                        );
                    }
                    None if declared.is_some() || value.is_null() => {}
                    None => drop(whole.insert(name.clone(), value.clone())),
                }
            }
            Value::Object(whole)
        }
        (Value::Array(known), Value::Array(raw)) if known.len() == raw.len() => {
            let pairs = known.iter().zip(raw);
            Value::Array(pairs.map(|(typed, raw)| with_unknown(typed, raw, &schema["items"])).collect())
        }
        _ => typed.clone(),
    }
}

/// Copies what is unknown to the schemas of both versions to the same place of the other version's object.
pub(super) fn carry_unknown(whole: &Value, typed: &Value, into: &mut Value, target: &Value) {
    let (Value::Object(whole), Value::Object(typed), Value::Object(into)) = (whole, typed, into) else {
        return;
    };
    for (name, value) in whole {
        let declared = member(target, name);
        match (typed.get(name), into.get_mut(name)) {
            (Some(typed), Some(into)) => {
                carry_unknown(value, typed, into, declared.unwrap_or(&Value::Null));
            }
            (None, None) if declared.is_none() => drop(into.insert(name.clone(), value.clone())),
            _ => {}
        }
    }
}

/// Takes the members out of an object that are the same in all versions.
pub(super) fn own_members(object: &Value) -> Value {
    let members = object.as_object().into_iter().flatten();
    let own = members.filter(|(name, _)| !COMMON.contains(&name.as_str()));
    Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_does_not_know_is_added_and_its_defaults_are_not() {
        let schema = json!({"properties": {"a": {}, "b": {"items": {"properties": {"c": {}}}}, "d": {}}});
        let typed = json!({"a": 1, "b": [{"c": 1}]});
        let raw = json!({"a": 1, "b": [{"c": 1, "new": 2}], "d": false, "other": [1], "none": null});
        let whole = with_unknown(&typed, &raw, &schema);
        assert_eq!(whole, json!({"a": 1, "b": [{"c": 1, "new": 2}], "other": [1]}));
        let mut into = json!({"a": 7});
        carry_unknown(&whole, &typed, &mut into, &json!({"properties": {"a": {}}}));
        assert_eq!(into, json!({"a": 7, "other": [1]}));
        let mut into = json!({"a": 7});
        carry_unknown(&whole, &typed, &mut into, &json!({"properties": {"other": {"type": "string"}}}));
        assert_eq!(into, json!({"a": 7}), "the other version means something else by it");
    }
}
