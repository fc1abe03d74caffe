//! Limits: upper bounds on what the server accepts.
//!
//! Each is checked before the work it bounds. Where a real server has the limit, the number and the words are its own.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::status::Status;

/// The longest body of a request, in bytes.
pub(crate) const BODY: usize = 3 * 1024 * 1024;

/// The most values in a body. A value needs far more memory than its two bytes of JSON.
pub(crate) const VALUES: usize = 60_000;

/// How deep an object may nest. A client's parser stops at 127, and lists and events nest an object themselves.
pub(crate) const DEPTH: usize = 120;

/// The largest object, in bytes of JSON: what etcd takes.
pub(crate) const OBJECT: usize = 1536 * 1024;

/// The most bytes of an object's annotations.
pub(crate) const ANNOTATIONS: usize = 256 * 1024;

/// The most bytes in the data of a ConfigMap or a Secret.
pub(crate) const DATA: usize = 1024 * 1024;

/// The memory limit for the faults of one object, in bytes of text.
pub(crate) const FAULTS: usize = 1024 * 1024;

/// What the changes that a store remembers may take together, in bytes of JSON. Older ones are forgotten, as by a
/// compaction: a watch from there gets 410.
pub(crate) const HISTORY: usize = 32 * 1024 * 1024;

/// The most operations of one JSON patch.
pub(crate) const PATCH_OPERATIONS: usize = 10_000;

/// The limit for all `copy` operations of one JSON patch, in bytes of JSON.
pub(crate) const PATCH_COPIES: usize = 3 * 1024 * 1024;

/// How many values one JSON patch may move: those that move, and those that make room for them in a list.
pub(crate) const PATCH_MOVES: usize = 5_000_000;

/// The most letters of an expression in CEL.
pub(crate) const CEL_TEXT: usize = 100_000;

/// How deep an expression in CEL may be.
pub(crate) const CEL_DEPTH: usize = 250;

/// The cost limit of one CEL expression.
pub(crate) const CEL_CALL: u64 = 1_000_000;

/// The cost limit of all expressions of one object.
pub(crate) const CEL_OBJECT: u64 = 10_000_000;

/// The cost limit of one match condition of a webhook.
pub(crate) const CEL_CONDITION: u64 = 2_500_000;

/// The cost of a question to the authorizer: one expression can ask two.
pub(crate) const CEL_CHECK: u64 = 350_000;

/// The longest list that `lists.range` makes.
pub(crate) const CEL_RANGE: i64 = 10_000;

/// Refuses a body of JSON that is too long, or that has too many values to be read.
///
/// # Errors
/// 413, in the server's words.
pub(crate) fn check_body(body: &[u8]) -> Result<(), Status> {
    if body.len() > BODY {
        return Err(Status::too_large(BODY));
    }
    if has_few_values(body) { Ok(()) } else { Err(Status::too_large(BODY)) }
}

/// Returns whether a text may be read as JSON. Other texts pass: [`read_yaml`] counts their values itself.
pub(crate) fn has_few_values(text: &[u8]) -> bool {
    let is_json =
        text.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"[{".contains(byte));
    !is_json || count(text) <= VALUES
}

/// Bounds the number of values in a JSON text from its commas and brackets.
pub(crate) fn count(text: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Reads YAML. Aliases can expand beyond memory, so every value is counted.
///
/// # Errors
/// The error.
pub(crate) fn read_yaml(body: &[u8]) -> Result<Value, serde_yaml_ng::Error> {
    let mut left = Left { values: VALUES, letters: BODY };
    CountedValue(&mut left).deserialize(serde_yaml_ng::Deserializer::from_slice(body))
}

/// The remaining budget of a document.
struct Left {
    values: usize,
    letters: usize,
}

impl Left {
    fn take<E: Error>(&mut self, letters: usize) -> Result<(), E> {
        let taken = self.values.checked_sub(1).zip(self.letters.checked_sub(letters));
        (self.values, self.letters) =
            taken.ok_or_else(|| E::custom("document contains excessive aliasing"))?;
        Ok(())
    }
}

/// Reads a value as `serde_json` does, and counts it.
struct CountedValue<'l>(&'l mut Left);

impl<'de> DeserializeSeed<'de> for CountedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::Null)
    }

    /// An empty document in YAML.
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        self.0.take(0).map(|()| flag.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.0.take(0).map(|()| number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.0.take(0).map(|()| number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        self.0.take(0).map(|()| number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.0.take(text.len()).map(|()| text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.take(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(CountedValue(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.0.take(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.0.take(key.len())?;
            map.insert(key, entries.next_value_seed(CountedValue(self.0))?);
        }
        Ok(Value::Object(map))
    }
}

/// Returns how deep a value nests, which a text or a number does not, and how many values are in it.
pub(crate) fn depth_and_values(value: &Value) -> (usize, usize) {
    let both = |(depth, values): (usize, usize), below: &Value| {
        let (below, more) = depth_and_values(below);
        (depth.max(1 + below), values + more)
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 1), both),
        Value::Object(fields) => fields.values().fold((1, 1), both),
        _ => (0, 1),
    }
}

/// Returns the bytes that a value takes as JSON, up to escapes.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 1 + items.len().max(1) + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(name, value)| name.len() + 3 + size(value));
            1 + fields.len().max(1) + pairs.sum::<usize>()
        }
    }
}

/// Refuses an object that cannot be kept; one that is too large loses its managed fields first.
///
/// # Errors
/// 500 for size, as a real server says what etcd has said; 422 for depth.
pub(crate) fn fit(object: &mut Value) -> Result<(), Status> {
    if depth_and_values(object).0 > DEPTH {
        let message = format!("the object nests deeper than {DEPTH} levels");
        return Err(Status::new(422, Some("Invalid"), message));
    }
    if size(object) > OBJECT {
        crate::object::remove(object, "managedFields");
    }
    if size(object) > OBJECT {
        return Err(Status::new(500, None, "etcdserver: request is too large"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_in_texts_are_not_counted() {
        assert_eq!(count(br#"{"a,[{": "\",[{", "b": [1, 2]}"#), 4);
    }

    // A31
    #[test]
    fn a_body_of_many_small_values_is_refused_before_it_is_read() {
        let many = format!("[{}1]", "1,".repeat(VALUES));
        assert_eq!(check_body(many.as_bytes()).map_err(|status| status.code), Err(413));
        assert_eq!(
            check_body(format!("{{\"a\": \"{}\"}}", "1,".repeat(VALUES)).as_bytes()).map_err(|_| ()),
            Ok(())
        );
    }

    // A31
    #[test]
    fn names_in_yaml_cannot_multiply_a_document() {
        let items = "- 1\n".repeat(1_000).replace("- ", " - ");
        let uses = "- *a\n".repeat(1_000);
        let values = format!("- &a\n{items}{uses}");
        let letters = format!("- &a {}\n{uses}", "x".repeat(10_000));
        for text in [values, letters] {
            let error = read_yaml(text.as_bytes()).map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.contains("excessive aliasing")));
        }
        let usual = "a: &x [1, -2, 1.5, true, ~, text]\nb: *x\n3: {}\n";
        let value: Value = serde_yaml_ng::from_str(usual).expect("YAML");
        assert_eq!(read_yaml(usual.as_bytes()).expect("YAML"), value);
    }

    #[test]
    fn a_size_is_that_of_the_text() {
        for value in
            [json!(null), json!([]), json!({}), json!({"a": [1, true, false, "x"], "b": {"c": -1.5}})]
        {
            assert_eq!(size(&value), value.to_string().len(), "{value}");
        }
        assert_eq!(depth_and_values(&json!({"a": [[1]]})), (3, 4));
    }
}
