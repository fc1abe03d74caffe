//! The difference between two states of an object, one line for each field.

use serde_json::{Map, Value};

use crate::api_request::ResourcePath;

/// At most this many fields are shown.
const MOST: usize = 40;
/// At most this many bytes of a value are shown.
const LONGEST: usize = 120;
/// Fields that only the server writes.
const SERVER_FIELDS: [&str; 5] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// Lists what differs: `+ path: new`, `- path: old`, `~ path: old -> new`. Values of Secrets are not shown.
pub(super) fn lines(path: &ResourcePath, before: &Value, after: &Value) -> Vec<String> {
    let secret = path.group.is_empty() && path.plural == "secrets";
    let mut diff = Diff { secret, lines: Vec::new(), more: 0 };
    match (before, after) {
        (Value::Null, Value::Null) => {}
        (before, Value::Null) if !before.is_null() => diff.lines.push("- the whole object".to_owned()),
        _ => diff.compare("", before, after),
    }
    if diff.more > 0 {
        diff.lines.push(format!("and {} more", diff.more));
    }
    diff.lines
}

struct Diff {
    secret: bool,
    lines: Vec<String>,
    more: usize,
}

impl Diff {
    fn compare(&mut self, path: &str, before: &Value, after: &Value) {
        match (before, after) {
            (before, after) if before == after => {}
            (Value::Object(old), Value::Object(new)) => {
                let gone = old.keys().filter(|name| !new.contains_key(*name));
                for name in new.keys().chain(gone) {
                    if path == "metadata" && SERVER_FIELDS.contains(&name.as_str()) {
                        continue;
                    }
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                    self.compare(&inner, &of(old), &of(new));
                }
            }
            (Value::Null, Value::Object(new)) if !new.is_empty() => {
                self.compare(path, &Value::Object(Map::new()), after);
            }
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                for (at, (old, new)) in old.iter().zip(new).enumerate() {
                    self.compare(&format!("{path}[{at}]"), old, new);
                }
            }
            (Value::Null, new) => self.push(format!("+ {path}: {}", self.shown(path, new))),
            (old, Value::Null) => self.push(format!("- {path}: {}", self.shown(path, old))),
            (old, new) => {
                self.push(format!("~ {path}: {} -> {}", self.shown(path, old), self.shown(path, new)));
            }
        }
    }

    fn push(&mut self, line: String) {
        match self.lines.len() < MOST {
            true => self.lines.push(line),
            false => self.more += 1,
        }
    }

    fn shown(&self, path: &str, value: &Value) -> String {
        // Annotations are hidden too: tools keep in them what they applied last.
        let plain = ["apiVersion", "kind", "type", "immutable"].contains(&path)
            || (path.starts_with("metadata.") && !path.starts_with("metadata.annotations"));
        if self.secret && !plain {
            return "(not shown)".to_owned();
        }
        crate::object::cut_to(value.to_string(), LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    // W6
    #[test]
    fn each_field_that_differs_is_a_line_and_values_of_secrets_are_hidden() {
        let place = ResourcePath::parse("/apis/apps/v1/namespaces/shop/deployments/a").unwrap();
        let before =
            json!({ "metadata": { "uid": "1", "labels": { "a": "1" } }, "spec": { "n": 1, "list": [1, 2] } });
        let after =
            json!({ "metadata": { "uid": "2" }, "spec": { "n": 2, "list": [1, 3], "new": { "x": true } } });
        assert_eq!(
            lines(&place, &before, &after),
            [
                "- metadata.labels: {\"a\":\"1\"}",
                "~ spec.list[1]: 2 -> 3",
                "~ spec.n: 1 -> 2",
                "+ spec.new.x: true"
            ]
        );
        assert_eq!(lines(&place, &before, &Value::Null), ["- the whole object"]);
        let secrets = ResourcePath::parse("/api/v1/namespaces/shop/secrets/a").unwrap();
        let shown =
            lines(&secrets, &json!({ "data": { "k": "aHVudGVyMg==" } }), &json!({ "data": { "k": "eA==" } }));
        assert_eq!(shown, ["~ data.k: (not shown) -> (not shown)"]);
        let applied = |what: &str| json!({ "metadata": { "annotations": { LAST_APPLIED: what }, "labels": { "a": what } } });
        for (before, after) in [
            (json!({ "metadata": {} }), applied("hunter2")),
            (applied("hunter1"), applied("hunter2")),
            (applied("hunter2"), json!({ "metadata": { "labels": { "a": "x" } } })),
            (json!({ "data": { "k": "hunter2" } }), json!({})),
            (Value::Null, json!({ "data": { "k": "hunter2" }, "metadata": { "name": "a" } })),
        ] {
            let shown = lines(&secrets, &before, &after);
            let hidden = shown.iter().filter(|line| !line.contains("labels"));
            assert!(
                hidden.clone().count() > 0 && hidden.clone().all(|line| !line.contains("hunter")),
                "{shown:?}"
            );
        }
        let many: Value =
            (0..100).map(|n| (format!("f{n:03}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(lines(&place, &json!({}), &many).last().unwrap(), "and 60 more");
    }
}
