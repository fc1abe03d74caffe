//! The rules by which two answers are the same.

use http::HeaderMap;
use serde_json::{Map, Value};

use crate::bind::{Bound, short};

/// The headers that must be the same.
const COMPARED: [&str; 7] =
    ["Content-Type", "Content-Encoding", "Warning", "Retry-After", "Allow", "Location", "WWW-Authenticate"];

/// The headers that may come although none was recorded.
const FREE: [&str; 3] = ["Location", "Content-Encoding", "Allow"];

/// Compares answers, and collects where they differ.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    bound: &'a mut Bound,
    /// The differences found so far, a path and what is there.
    pub(crate) differences: Vec<String>,
}

impl<'a> Comparison<'a> {
    /// Starts a comparison that binds what it sees.
    pub(crate) fn new(bound: &'a mut Bound) -> Self {
        Self { bound, differences: Vec::new() }
    }

    /// Notes a difference.
    pub(crate) fn note(&mut self, path: &str, what: &str) {
        self.differences.push(format!("{path}: {what}"));
    }

    /// Compares the headers that matter.
    pub(crate) fn headers(&mut self, want: &std::collections::BTreeMap<String, Value>, got: &HeaderMap) {
        for name in COMPARED {
            let mut values: Vec<Value> = got
                .get_all(name)
                .iter()
                .map(|value| Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
                .collect();
            let got = match values.len() {
                0 => None,
                1 => values.pop(),
                _ => Some(Value::Array(values)),
            };
            let path = format!("header {name}");
            match (want.get(name), got) {
                (None, None) => {}
                (None, Some(_)) if FREE.contains(&name) => {}
                (None, Some(got)) => self.note(&path, &format!("got {got}, want none")),
                (Some(want), got) => self.values(want, &got.unwrap_or_default(), &path),
            }
        }
    }

    /// Compares two values and all below them.
    pub(crate) fn values(&mut self, want: &Value, got: &Value, path: &str) {
        match (want, got) {
            (Value::Object(want), Value::Object(got)) => self.objects(want, got, path),
            (Value::Array(want), Value::Array(got)) => self.lists(want, got, path),
            (Value::String(want), Value::String(got)) => self.texts(want, got, path),
            (Value::Number(want), Value::Number(got)) if want.as_f64() == got.as_f64() => {}
            _ if want == got => {}
            _ => self.note(path, &format!("got {}, want {}", shown(got), shown(want))),
        }
    }

    fn objects(&mut self, want: &Map<String, Value>, got: &Map<String, Value>, path: &str) {
        // Fields of managedFields have uids in their names.
        let want: Map<String, Value> = want
            .iter()
            .map(|(key, value)| (self.bound.fill(key).unwrap_or_else(|_| key.clone()), value.clone()))
            .collect();
        for (key, want) in &want {
            let path = format!("{path}.{key}");
            match got.get(key) {
                Some(got) => self.values(want, got, &path),
                None => self.note(&path, &format!("missing, want {}", shown(want))),
            }
        }
        for (key, got) in got {
            if !want.contains_key(key) {
                self.note(&format!("{path}.{key}"), &format!("got {}, want none", shown(got)));
            }
        }
    }

    fn lists(&mut self, want: &[Value], got: &[Value], path: &str) {
        let (mut want, mut got) = (want.to_vec(), got.to_vec());
        // A real server collects some lists in random order.
        let key = match path.rsplit(['.', '|']).next() {
            Some("causes") => cause_key,
            Some("managedFields") => {
                want.iter_mut().chain(&mut got).for_each(forget_time);
                manager_key
            }
            _ => |_: &Value| Vec::new(),
        };
        want.sort_by_key(key);
        got.sort_by_key(key);
        if want.len() != got.len() {
            let shown = |items: &[Value]| shown(&items.iter().cloned().collect());
            let (g, w) = (shown(&got), shown(&want));
            return self.note(path, &format!("got {} items {g}, want {} {w}", got.len(), want.len()));
        }
        for (at, (want, got)) in want.iter().zip(&got).enumerate() {
            self.values(want, got, &format!("{path}[{at}]"));
        }
    }

    fn texts(&mut self, want: &str, got: &str, path: &str) {
        let wrong = if path.ends_with("message") && want.contains(" is invalid: [") {
            let namespace = self.bound.namespace().to_owned();
            self.bound.unify(&in_order(want, &namespace), &in_order(got, &namespace))
        } else {
            self.bound.unify(want, got)
        };
        for what in wrong {
            self.note(path, &what);
        }
    }
}

fn cause_key(cause: &Value) -> Vec<String> {
    ["field", "reason", "message"].map(|key| cause[key].to_string()).into()
}

fn manager_key(entry: &Value) -> Vec<String> {
    ["manager", "operation", "subresource"].map(|key| entry[key].to_string()).into()
}

/// Takes the time out of an entry of managedFields.
fn forget_time(entry: &mut Value) {
    if let Value::Object(entry) = entry {
        entry.remove("time");
    }
}

/// Sorts the errors a message lists: a real server's order varies.
fn in_order(message: &str, namespace: &str) -> String {
    let message = message.replace("{ns}", namespace).replace(['[', ']'], ", ");
    let mut parts: Vec<_> = message.split(", ").collect();
    parts.sort_unstable();
    parts.join(", ")
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => short(text),
        _ => short(&value.to_string()).trim_matches('"').replace("\\\"", "\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(want: Value, got: Value) -> Vec<String> {
        let mut bound = Bound::new("n");
        let mut comparison = Comparison::new(&mut bound);
        comparison.values(&want, &got, "");
        comparison.differences
    }

    #[test]
    fn missing_and_extra_fields_differ() {
        assert_eq!(differences(json!({"a": 1}), json!({"a": null})), [".a: got null, want 1"]);
        assert_eq!(
            differences(json!({"a": {}}), json!({"b": []})),
            [".a: missing, want {}", ".b: got [], want none"]
        );
        assert_eq!(differences(json!([1]), json!([2])), ["[0]: got 2, want 1"]);
    }

    #[test]
    fn managed_fields_come_in_any_order_and_their_times_are_free() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time, "fieldsV1": {}});
        let want = json!({"managedFields": [entry("a", "1"), entry("b", "2")]});
        assert!(
            differences(want.clone(), json!({"managedFields": [entry("b", "3"), entry("a", "4")]}))
                .is_empty()
        );
        assert_eq!(differences(want, json!({"managedFields": [entry("b", "3"), entry("c", "4")]})).len(), 2);
    }

    #[test]
    fn numbers_are_equal_by_value() {
        assert!(differences(json!([2]), json!([2.0])).is_empty());
        assert_eq!(differences(json!(1), json!(true)).len(), 1);
    }

    #[test]
    fn listed_errors_come_in_any_order() {
        let want =
            json!({"message": "X is invalid: [a: b, c: {ns}]", "causes": [{"field": "a"}, {"field": "c"}]});
        let got =
            json!({"message": "X is invalid: [c: n, a: b]", "causes": [{"field": "c"}, {"field": "a"}]});
        assert!(differences(want, got).is_empty());
    }
}
