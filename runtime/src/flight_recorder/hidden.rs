//! Fields that a recording never shows.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

/// A field of a kind.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HiddenField {
    group: String,
    plural: String,
    steps: Vec<String>,
}

impl HiddenField {
    pub(super) fn new(group: &str, plural: &str, pointer: &str) -> Self {
        assert!(pointer.starts_with('/'), "a JSON pointer begins with `/`, and {pointer:?} does not");
        let step = |step: &str| step.replace("~1", "/").replace("~0", "~");
        let steps = pointer.split('/').skip(1).map(step).collect();
        Self { group: group.to_owned(), plural: plural.to_owned(), steps }
    }

    /// What no recording shows: Secrets, in whose annotations tools keep what they applied, and tokens.
    pub(super) fn always() -> Vec<Self> {
        let secrets = ["/data/*", "/stringData/*", "/metadata/annotations/*"];
        let secrets = secrets.iter().map(|pointer| Self::new("", "secrets", pointer));
        // The manager itself asks whose token a request to its HTTP server has.
        let tokens = [
            Self::new("authentication.k8s.io", "tokenreviews", "/spec/token"),
            Self::new("", "serviceaccounts", "/status/token"),
        ];
        secrets.chain(tokens).collect()
    }

    pub(super) fn is_of(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// Returns JSON without what is hidden, in one line; an object, a list, or an event.
pub(super) fn shown<'f, 'j>(hidden: impl Iterator<Item = &'f HiddenField>, json: &'j [u8]) -> Cow<'j, [u8]> {
    let mut hidden = hidden.peekable();
    if hidden.peek().is_none() && !json.contains(&b'\n') {
        return Cow::Borrowed(json);
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(json) else {
        // What can't be parsed could hold anything.
        return Cow::Borrowed(if hidden.peek().is_some() { b"null" } else { json });
    };
    if hidden.peek().is_some() {
        hide_copies(&mut value);
        each(&mut value, &|object| {
            object.pointer_mut("/metadata/managedFields").into_iter().for_each(hide_items);
        });
    }
    for field in hidden {
        each(&mut value, &|object| hide(object, &field.steps));
    }
    Cow::Owned(value.to_string().into_bytes())
}

/// Changes an object, the one of an event, and those of a list or of a table.
fn each(value: &mut Value, change: &dyn Fn(&mut Value)) {
    change(value);
    value.get_mut("object").into_iter().for_each(|object| each(object, change));
    for list in ["items", "rows"] {
        let all = value.get_mut(list).and_then(Value::as_array_mut);
        all.into_iter().flatten().for_each(|item| each(item, change));
    }
}

/// Hides what may repeat hidden fields: the values of a JSON patch, the cells of a table, and what a server says of
/// an object that it refuses.
fn hide_copies(value: &mut Value) {
    if value["kind"] == "Status" && value["status"] == "Failure" {
        hide(value, &["message".to_owned()]);
        hide(value, &["details", "causes", "*", "message"].map(str::to_owned));
    }
    for step in value.as_array_mut().into_iter().flatten() {
        hide(step, &["value".to_owned()]);
    }
    // Columns of a table may show any field.
    each(value, &|row| hide(row, &["cells".to_owned()]));
}

/// Leaves the values of items out of managed fields, where they are keys.
fn hide_items(fields: &mut Value) {
    match fields {
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with("v:") && !key.starts_with("k:"));
            fields.values_mut().for_each(hide_items);
        }
        Value::Array(managers) => managers.iter_mut().for_each(hide_items),
        _ => {}
    }
}

fn hide(value: &mut Value, steps: &[String]) {
    let Some((step, rest)) = steps.split_first() else { return empty(value) };
    match value {
        Value::Object(fields) if step == "*" => fields.values_mut().for_each(|value| hide(value, rest)),
        // In a patch, items have other positions.
        Value::Array(items) if step == "*" || step.parse::<usize>().is_ok() => {
            items.iter_mut().for_each(|value| hide(value, rest));
        }
        Value::Object(fields) => {
            if let Some(value) = fields.get_mut(step) {
                hide(value, rest);
            }
        }
        _ => {}
    }
}

/// Puts nothing in the place of what a value says. Its form stays, so that it can be decoded.
fn empty(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Bool(says) => *says = false,
        Value::Number(_) => *value = Value::from(0),
        Value::String(text) => text.clear(),
        Value::Array(items) => items.iter_mut().for_each(empty),
        Value::Object(fields) => fields.values_mut().for_each(empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_as(fields: &[HiddenField], json: &str) -> String {
        String::from_utf8(shown(fields.iter(), json.as_bytes()).into_owned()).unwrap()
    }

    // P25
    #[test]
    fn what_is_hidden_is_in_no_object_event_or_list() {
        let always = HiddenField::always();
        let of = |group: &str, plural: &str| -> Vec<HiddenField> {
            always.iter().filter(|field| field.is_of(group, plural)).cloned().collect()
        };
        let secrets = of("", "secrets");
        for json in [
            r#"{"kind":"Secret","data":{"a":"aHVudGVyMg=="},"metadata":{"annotations":{"b":"hunter2"}}}"#,
            r#"{"type":"ADDED","object":{"data":{"a":"aHVudGVyMg=="}}}"#,
            r#"{"items":[{"stringData":{"a":"hunter2"}},{"data":{"a":"aHVudGVyMg=="}}]}"#,
            "{\"data\": hunter2",
            r#"[{"op":"add","path":"/data/a","value":"aHVudGVyMg=="}]"#,
            r#"{"kind":"Table","rows":[{"cells":["hunter2"],"object":{"data":{"a":"aHVudGVyMg=="}}}]}"#,
            r#"{"type":"ADDED","object":{"kind":"Table","rows":[{"object":{"data":{"a":"aHVudGVyMg=="}}}]}}"#,
            r#"{"kind":"Status","status":"Failure","message":"\"hunter2\" is invalid",
                "details":{"causes":[{"message":"Invalid value: \"hunter2\""}]}}"#,
        ] {
            let shown = shown_as(&secrets, json);
            assert!(!shown.contains("hunter2") && !shown.contains("aHVu"), "{shown}");
        }
        let review = r#"{"spec":{"token":"hunter2","audiences":["a"]}}"#;
        let shown = shown_as(&of("authentication.k8s.io", "tokenreviews"), review);
        assert!(shown.contains("audiences") && !shown.contains("hunter2"), "{shown}");
        let request = r#"{"kind":"TokenRequest","status":{"token":"hunter2"}}"#;
        assert!(!shown_as(&of("", "serviceaccounts"), request).contains("hunter2"));
        let token = [HiddenField::new("web.example.dev", "sites", "/spec/users/*/token")];
        let shown = shown_as(&token, r#"{"spec":{"users":[{"name":"a","token":"t1"},{"token":"t2"}]}}"#);
        assert_eq!(shown, r#"{"spec":{"users":[{"name":"a","token":""},{"token":""}]}}"#);
        assert_eq!(shown_as(&[], "{\n\"a\": 1}"), r#"{"a":1}"#);
        // The form stays. A number is any item, and the items of a set are keys in managed fields.
        let fields = ["/spec/users/0/token", "/spec/login"]
            .map(|one| HiddenField::new("web.example.dev", "sites", one));
        let shown = shown_as(
            &fields,
            r#"{"metadata":{"managedFields":[{"f:spec":{"v:\"t1\"":{}}}]},"spec":{"login":{"name":"t1","tries":[7],"on":true},"users":[{"token":"t1"},{"token":"t2"}]}}"#,
        );
        assert_eq!(
            shown,
            r#"{"metadata":{"managedFields":[{"f:spec":{}}]},"spec":{"login":{"name":"","on":false,"tries":[0]},"users":[{"token":""},{"token":""}]}}"#
        );
    }
}
