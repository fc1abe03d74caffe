//! What a comparison of a policy with a validator needs: the server that is asked, and values that meet the bounds.

use std::mem;

use http::{Method, Request};
use rand::{Rng, rngs::SmallRng};
use serde_json::{Value, json};

use super::request::Operation;
use crate::object::{Kind, Scope};

/// Where the objects are.
pub(super) const NAMESPACE: &str = "default";
/// The name of all objects.
pub(super) const NAME: &str = "agreement";

/// A request, and what the policy said about it.
pub(super) struct AskedRequest {
    /// As a validator would get it.
    pub(super) review: Value,
    /// Why the policy refuses it.
    pub(super) policy: Option<String>,
}

impl AskedRequest {
    /// Shows the request in a message.
    pub(super) fn shown(&self) -> String {
        let old = match self.review["oldObject"].is_null() {
            true => String::new(),
            false => format!("\nthe old object: {}", self.review["oldObject"]),
        };
        format!("{}{old}\nthe object: {}", text(&self.review["operation"]), self.review["object"])
    }
}

/// The API server that evaluates the policy.
pub(super) struct Bench {
    pub(super) client: kube::Client,
    pub(super) kind: Kind,
    /// Its name in the cluster.
    pub(super) policy: String,
}

impl Bench {
    fn collection(&self) -> String {
        let Kind { group, version, plural, scope, .. } = &self.kind;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match scope {
            Scope::Namespaced => format!("{root}/namespaces/{NAMESPACE}/{plural}"),
            Scope::Cluster => format!("{root}/{plural}"),
        }
    }

    /// Sends one operation as a dry run; the objects are as the server stores them.
    pub(super) async fn ask(
        &self,
        operation: Operation,
        given: &Value,
        new: &Value,
    ) -> Result<AskedRequest, String> {
        let collection = self.collection();
        let path = format!("{collection}/{NAME}");
        let mut new = self.stored(new).await?;
        let (mut old, mut code_and_answer) = (Value::Null, None);
        if operation != Operation::Create {
            // What is deleted is the object itself.
            let given = if operation == Operation::Delete { &new } else { given };
            let (code, stored) = self.send(Method::POST, &collection, Some(&bare(given))).await;
            if code >= 300 {
                return Err(text(&stored["message"]));
            }
            old = stored;
            let mut metadata = old["metadata"].clone();
            for key in ["labels", "annotations"] {
                metadata[key] = new["metadata"][key].clone();
            }
            new["metadata"] = metadata;
            code_and_answer = Some(match operation {
                Operation::Delete => self.send(Method::DELETE, &format!("{path}?dryRun=All"), None).await,
                _ => self.send(Method::PUT, &format!("{path}?dryRun=All"), Some(&new)).await,
            });
            self.send(Method::DELETE, &path, None).await;
        }
        let (code, answer) = match code_and_answer {
            Some(answered) => answered,
            None => self.send(Method::POST, &format!("{collection}?dryRun=All"), Some(&bare(&new))).await,
        };
        let message = text(&answer["message"]);
        let own = format!("ValidatingAdmissionPolicy '{}'", self.policy);
        let policy = match code < 300 {
            true => None,
            false if message.contains(&own) => Some(message),
            false => return Err(message),
        };
        if operation == Operation::Delete {
            new = Value::Null;
        }
        let Kind { group, version, kind, .. } = &self.kind;
        let namespace = if self.kind.scope == Scope::Namespaced { NAMESPACE } else { "" };
        let review = json!({
            "uid": "agreement", "kind": {"group": group, "version": version, "kind": kind}, "name": NAME,
            "namespace": namespace, "operation": operation.as_str(), "object": new, "oldObject": old, "dryRun": true,
            "userInfo": {"username": "agreement"},
        });
        Ok(AskedRequest { review, policy })
    }

    /// Returns an object as the server stores it.
    async fn stored(&self, object: &Value) -> Result<Value, String> {
        let collection = self.collection();
        let (code, stored) = self.send(Method::POST, &collection, Some(&bare(object))).await;
        if code >= 300 {
            return Err(text(&stored["message"]));
        }
        self.send(Method::DELETE, &format!("{collection}/{NAME}"), None).await;
        Ok(stored)
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let form = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("Content-Type", form).body(body);
        match self.client.request::<Value>(request.expect("names make a path")).await {
            Ok(answer) => (200, answer),
            Err(kube::Error::Api(status)) => (status.code, json!({ "message": status.message })),
            Err(error) => (503, json!({ "message": error.to_string() })),
        }
    }
}

/// Returns an object without the metadata that a server sets, under the name of all objects.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].take();
    object["metadata"] =
        json!({"name": NAME, "labels": metadata["labels"], "annotations": metadata["annotations"]});
    object
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the numbers and texts in expressions; of numbers also the neighbours.
pub(super) fn constants<'e>(expressions: impl Iterator<Item = &'e str>) -> Vec<Value> {
    let mut found = Vec::new();
    for expression in expressions {
        let mut letters = expression.chars().peekable();
        let mut before = ' ';
        while let Some(letter) = letters.next() {
            if matches!(letter, '\'' | '"') {
                let text: String = letters.by_ref().take_while(|next| *next != letter).collect();
                found.push(text.into());
            } else if letter.is_ascii_digit() && !before.is_alphanumeric() {
                let mut digits = String::from(letter);
                while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                let number: i64 = digits.parse().unwrap_or_default();
                found.extend([number.saturating_sub(1), number, number.saturating_add(1)].map(Value::from));
            }
            before = letter;
        }
    }
    found
}

/// Lists the values in an object that is a parameter: numbers, also those in texts, with their neighbours, and texts.
pub(super) fn values_in(object: &Value) -> Vec<Value> {
    let number =
        |number: i64| [number.saturating_sub(1), number, number.saturating_add(1)].map(Value::from).to_vec();
    match object {
        Value::Object(fields) => {
            let own = fields
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "apiVersion" | "kind"));
            own.flat_map(|(_, value)| values_in(value)).collect()
        }
        Value::Array(items) => items.iter().flat_map(values_in).collect(),
        Value::Number(given) => given.as_i64().map(number).unwrap_or_default(),
        Value::String(text) => {
            let numbers = text.parse().map(number).unwrap_or_default();
            numbers.into_iter().chain([object.clone()]).collect()
        }
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

/// Puts known values in place of some of an object's own.
pub(super) fn salt(rng: &mut SmallRng, value: &mut Value, known: &[Value]) {
    match value {
        Value::Object(fields) => {
            let own = fields.iter_mut().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
            own.for_each(|(_, value)| salt(rng, value, known));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| salt(rng, item, known)),
        value if rng.random_ratio(1, 4) => {
            let same: Vec<_> =
                known.iter().filter(|known| mem::discriminant(*known) == mem::discriminant(value)).collect();
            if !same.is_empty() {
                *value = same[rng.random_range(0..same.len())].clone();
            }
        }
        _ => {}
    }
}

/// Puts parts of one value into another one.
pub(super) fn mix(rng: &mut SmallRng, into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(name) {
                    Some(into) if rng.random_ratio(1, 2) => mix(rng, into, value),
                    _ if rng.random_ratio(2, 3) => drop(into.insert(name.clone(), value.clone())),
                    _ => {}
                }
            }
        }
        (into, from) if rng.random_ratio(2, 3) => *into = from.clone(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_expressions_are_known() {
        let expressions =
            ["variables.two2 < 7 || object.data.mode in ['fast', \"slow\"]", "object.data.size() - 22"];
        let texts = |text: &str| Value::from(text);
        let expected =
            [6.into(), 7.into(), 8.into(), texts("fast"), texts("slow"), 21.into(), 22.into(), 23.into()];
        assert_eq!(constants(expressions.into_iter()), expected);
        let object =
            json!({"kind": "Limits", "metadata": {"name": "a"}, "spec": {"crew": 3, "of": ["7", "red"]}});
        let expected = [2.into(), 3.into(), 4.into(), 6.into(), 7.into(), 8.into(), texts("7"), texts("red")];
        assert_eq!(values_in(&object), expected);
    }
}
