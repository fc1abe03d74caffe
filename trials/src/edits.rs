//! What somebody else may change of an object, as merge patches that its schema allows.

use serde_json::{Map, Value, json};
use watchkeeper_apiserver::inside::{JsonType, ListKind, NodeRef};

/// The key that is added to maps.
const ADDED: &str = "added-by-a-stranger";

/// How numbers are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// To the most that the schema allows, or the least where they are that.
    ToTheirLimits,
    /// By one.
    ByOne,
    /// Not at all.
    Stay,
}

/// Whether something is added, or only what is there is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Additions {
    Too,
    None,
}

/// Finds a leaf to change, and writes the merge patch that changes it.
pub(crate) fn one(value: &Value, number: bool) -> Option<Value> {
    match value {
        Value::Number(it) if number => it.as_i64().map(|it| json!(it.saturating_add(1))),
        Value::String(it) if !number => Some(json!(format!("{it}x"))),
        Value::Object(fields) => {
            fields.iter().find_map(|(name, inner)| one(inner, number).map(|inner| json!({ name: inner })))
        }
        _ => None,
    }
}

/// Writes the merge patch that changes every field at once, those in lists and maps too.
pub(crate) fn many(
    value: &Value,
    node: NodeRef<'_>,
    numbers: Numbers,
    additions: Additions,
) -> Option<Value> {
    Editor { numbers, additions }.patch(value, node)
}

#[derive(Clone, Copy)]
struct Editor {
    numbers: Numbers,
    additions: Additions,
}

impl Editor {
    /// What a merge patch says for a value; `None` where it is to stay.
    fn patch(self, value: &Value, node: NodeRef<'_>) -> Option<Value> {
        match value {
            Value::Object(fields) if is_map(node) => self.map(fields, node),
            Value::Object(fields) => {
                let patch = fields
                    .iter()
                    .filter_map(|(name, inner)| Some((name.clone(), self.patch(inner, node.field(name)?)?)));
                let patch: Map<String, Value> = patch.collect();
                (!patch.is_empty()).then_some(Value::Object(patch))
            }
            _ => self.changed(value, node),
        }
    }

    /// Changes one entry of a map, takes another away, and adds one.
    fn map(self, fields: &Map<String, Value>, node: NodeRef<'_>) -> Option<Value> {
        let inner = node.additional()?;
        let mut patch = Map::new();
        if let Some((name, value)) = fields.iter().next()
            && let Some(changed) = self.patch(value, inner)
        {
            patch.insert(name.clone(), changed);
        }
        if let Some((name, _)) = fields.iter().nth(1) {
            patch.insert(name.clone(), Value::Null);
        }
        if self.additions == Additions::Too && inner.kind() == JsonType::String {
            patch.insert(ADDED.to_owned(), "x".into());
        }
        (!patch.is_empty()).then_some(Value::Object(patch))
    }

    /// Another value in its place.
    fn changed(self, value: &Value, node: NodeRef<'_>) -> Option<Value> {
        let rule = |name: &str| node.rule(name);
        match value {
            Value::String(text) => match rule("enum").and_then(Value::as_array) {
                Some(words) => words.iter().find(|word| *word != value && word.is_string()).cloned(),
                None if rule("format").is_some() || rule("pattern").is_some() => None,
                None => Some(format!("{text}x").into()),
            },
            Value::Bool(it) => Some((!it).into()),
            Value::Number(_) => self.number(value, node),
            Value::Array(items) => self.list(items, node).map(Value::Array),
            Value::Object(fields) => {
                let mut fields = fields.clone();
                let mut any = false;
                for (name, inner) in &mut fields {
                    if let Some(changed) = node.field(name).and_then(|node| self.changed(inner, node)) {
                        *inner = changed;
                        any = true;
                    }
                }
                any.then_some(Value::Object(fields))
            }
            Value::Null => None,
        }
    }

    fn number(self, value: &Value, node: NodeRef<'_>) -> Option<Value> {
        match self.numbers {
            Numbers::Stay => None,
            Numbers::ByOne => value.as_i64().map(|it| it.saturating_add(1).into()),
            Numbers::ToTheirLimits => {
                let (least, most) = limits(node);
                [most, least].into_iter().flatten().map(Value::from).find(|limit| limit != value)
            }
        }
    }

    /// Changes the items but for what tells them apart, takes the last one away, or adds a first one.
    fn list(self, items: &[Value], node: NodeRef<'_>) -> Option<Vec<Value>> {
        let keys: &[String] = match node.list() {
            ListKind::Map(keys) => keys,
            _ => &[],
        };
        let mut changed: Vec<Value> = items.iter().map(|item| self.item(item, keys, node.item())).collect();
        match (items.len(), self.additions) {
            (0, Additions::Too) if node.item().kind() == JsonType::String => changed.push("x".into()),
            (2.., _) => drop(changed.pop()),
            _ => {}
        }
        (changed != items).then_some(changed)
    }

    fn item(self, item: &Value, keys: &[String], node: NodeRef<'_>) -> Value {
        let mut changed = self.changed(item, node).unwrap_or_else(|| item.clone());
        for key in keys {
            if let Some(known) = item.get(key) {
                changed[key] = known.clone();
            }
        }
        changed
    }
}

/// Returns whether the fields are entries, whose names nobody declared.
fn is_map(node: NodeRef<'_>) -> bool {
    node.properties().next().is_none() && node.additional().is_some()
}

/// The least and the most that a number may be.
fn limits(node: NodeRef<'_>) -> (Option<i64>, Option<i64>) {
    let number =
        |name: &str| node.rule(name).and_then(|limit| limit.as_i64().or(limit.as_f64().map(|it| it as i64)));
    let exclusive = |name: &str| i64::from(node.rule(name) == Some(&Value::Bool(true)));
    let (low, high) = match node.rule("format").and_then(Value::as_str) {
        Some("int64") => (i64::MIN, i64::MAX),
        Some("uint8") => (0, i64::from(u8::MAX)),
        Some("uint16") => (0, i64::from(u16::MAX)),
        Some("uint32") => (0, i64::from(u32::MAX)),
        Some("uint" | "uint64") => (0, i64::MAX),
        _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let least = number("minimum").map_or(low, |least| (least + exclusive("exclusiveMinimum")).max(low));
    let most = number("maximum").map_or(high, |most| (most - exclusive("exclusiveMaximum")).min(high));
    (Some(least), Some(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchkeeper_apiserver::inside::{Schema, schema_of};

    fn schema() -> Schema {
        let text = json!({ "type": "string" });
        let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
            "text": text, "at": { "type": "string", "format": "date-time" },
            "tier": { "type": "string", "enum": ["gold", "iron"] },
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "count": { "type": "integer", "format": "int32" },
            "tags": { "type": "array", "items": text },
            "marks": { "type": "object", "additionalProperties": text },
            "doors": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"],
                    "properties": { "name": text, "open": { "type": "boolean" } } } },
        } } } });
        schema_of(&schema).expect("it is structural")
    }

    fn patched(spec: Value, numbers: Numbers, additions: Additions) -> Value {
        let schema = schema();
        many(&spec, schema.root().field("spec").expect("it is declared"), numbers, additions)
            .unwrap_or_default()
    }

    // T9
    #[test]
    fn many_fields_change_at_once_and_numbers_go_to_their_limits() {
        let spec =
            json!({ "text": "a", "at": "2026-01-01T00:00:00Z", "tier": "gold", "size": 3, "count": 7 });
        let patch = patched(spec, Numbers::ToTheirLimits, Additions::Too);
        assert_eq!(patch, json!({ "text": "ax", "tier": "iron", "size": 9, "count": i32::MAX }));
        let at_most = json!({ "size": 9, "count": 1 });
        assert_eq!(patched(at_most.clone(), Numbers::ToTheirLimits, Additions::Too)["size"], 1);
        assert_eq!(
            patched(at_most.clone(), Numbers::ByOne, Additions::Too),
            json!({ "size": 10, "count": 2 })
        );
        assert_eq!(patched(at_most, Numbers::Stay, Additions::Too), Value::Null);
    }

    // T9
    #[test]
    fn lists_and_maps_change_inside() {
        let spec = json!({ "tags": ["a", "b"], "marks": { "a": "1", "b": "2" },
            "doors": [{ "name": "front", "open": true }] });
        let patch = patched(spec.clone(), Numbers::Stay, Additions::None);
        let doors = json!([{ "name": "front", "open": false }]);
        assert_eq!(patch, json!({ "tags": ["ax"], "marks": { "a": "1x", "b": null }, "doors": doors }));
        let more = patched(spec, Numbers::Stay, Additions::Too);
        assert_eq!(more["marks"][ADDED], "x");
        let empty = json!({ "tags": [], "marks": {} });
        assert_eq!(patched(empty.clone(), Numbers::Stay, Additions::None), Value::Null);
        let filled = json!({ "tags": ["x"], "marks": { ADDED: "x" } });
        assert_eq!(patched(empty, Numbers::Stay, Additions::Too), filled);
    }
}
