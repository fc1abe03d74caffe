//! Tests that a policy and a validator say the same: generated objects are given to both.

use std::{env, fmt, marker::PhantomData, mem};

use http::{Method, Request};
use kube::core::CustomResourceExt;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use super::{
    admit::{Admit, Validates, Validator},
    policy::Policy,
    request::Operation,
};
use crate::{
    object::{Kind, Scope},
    versions::{generated_object, schema_of},
    writes::TypedObject,
};

/// How many requests are judged, unless set.
const REQUESTS: usize = 300;
/// Where the objects are.
const NAMESPACE: &str = "default";
/// The name of all objects.
const NAME: &str = "agreement";
/// How many of the generated objects may be ones that the server does not take, for each that it takes.
const MOST_REFUSED: usize = 20;
/// A comparison of fewer than this part of the requests shows too little.
const FEWEST: usize = 10;

impl<K: TypedObject + CustomResourceExt> Policy<K> {
    /// Checks that this policy and a validator say the same about generated objects; a test calls it.
    ///
    /// It is [`Agreement`] with its defaults. The API server evaluates the policy: give the client of one that is only for
    /// this test, such as `watchkeeper-apiserver`, and that has the kind.
    ///
    /// # Panics
    /// They disagree: the message shows the objects, both verdicts, and the seed.
    pub async fn agrees_with(&self, validator: impl Validator<K>, client: kube::Client) {
        Agreement::new(self, validator).check(client).await;
    }
}

/// Checks that a policy and a validator say the same about generated objects.
///
/// Objects are generated from the kind's schema, as [`RoundTrip`](crate::versions::RoundTrip) does it. In updates, the new
/// object has parts of the old one. Numbers and texts of the policy's expressions are used as values, so that bounds are
/// met. Objects that the schema refuses reach neither of the two, and are left out.
///
/// ```no_run
/// # use kube::core::CustomResourceExt;
/// # use watchkeeper::{prelude::*, webhook::{Agreement, Policy, Validator}};
/// # async fn compare<K: watchkeeper::writes::TypedObject + CustomResourceExt>(
/// #     policy: Policy<K>, rules: impl Validator<K>, client: kube::Client) {
/// Agreement::new(&policy, rules).requests(2_000).seed(7).check(client).await;
/// # }
/// ```
#[must_use = "call `check`"]
pub struct Agreement<K, V> {
    policy: Policy<K>,
    validator: Validates<K, V>,
    requests: usize,
    seed: u64,
}

impl<K, V> fmt::Debug for Agreement<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreement")
            .field("policy", &self.policy)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<K: TypedObject + CustomResourceExt, V: Validator<K>> Agreement<K, V> {
    /// Compares 300 requests, always the same ones; `WATCHKEEPER_OBJECTS` sets another number.
    pub fn new(policy: &Policy<K>, validator: V) -> Self {
        let given = env::var("WATCHKEEPER_OBJECTS").ok().and_then(|number| number.parse().ok());
        let validator = Validates(validator, PhantomData);
        Self { policy: policy.clone(), validator, requests: given.unwrap_or(REQUESTS), seed: 0 }
    }

    /// Sets how many requests are compared.
    pub fn requests(self, requests: usize) -> Self {
        Self { requests, ..self }
    }

    /// Generates other objects.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Checks, and returns how many requests both refused.
    ///
    /// # Panics
    /// They disagree; nothing was refused, so that nothing was compared; or the server can't be used.
    pub async fn check(self, client: kube::Client) -> usize {
        match self.run(client).await {
            Ok(refused) => refused,
            Err(why) => panic!("{why}"),
        }
    }

    /// Checks; the error describes the first disagreement.
    pub(crate) async fn run(&self, client: kube::Client) -> Result<usize, String> {
        let kind = Kind::of::<K>();
        let bench = Bench { client, kind, policy: self.policy.full_name() };
        bench.install(&self.policy).await?;
        let (schema, known) = (schema_of(&K::crd()), constants(&self.policy));
        let (mut compared, mut refused, mut last) = (0, 0, String::new());
        for case in 0..self.requests * MOST_REFUSED {
            if compared == self.requests {
                break;
            }
            let mut rng = SmallRng::seed_from_u64(self.seed ^ (case as u64) << 32);
            let operation = self.policy.operations[rng.random_range(0..self.policy.operations.len())];
            let made = |rng: &mut SmallRng| {
                let mut object = generated_object(rng, &schema, &bench.kind.api_version(), &bench.kind.kind);
                salt(rng, &mut object, &known);
                object
            };
            let (new, mut old) = (made(&mut rng), made(&mut rng));
            if operation == Operation::Update {
                mix(&mut rng, &mut old, &new);
            }
            let asked = match bench.ask(operation, &old, &new).await {
                Ok(asked) => asked,
                Err(why) => {
                    last = why;
                    continue;
                }
            };
            let Some(said) = self.validate(&asked).await? else { continue };
            compared += 1;
            refused += usize::from(said.is_some());
            if said.is_some() != asked.policy.is_some() {
                return Err(self.disagreement(&asked, said.as_deref()));
            }
        }
        let name = &self.policy.name;
        match (compared, refused) {
            (0, _) => Err(format!(
                "the policy {name} was asked about nothing: the server refuses all objects: {last}"
            )),
            (few, _) if few < self.requests.div_ceil(FEWEST) => Err(format!(
                "the policy {name} and the validator were asked about {few} requests of {}: the server refuses most of \
                 the generated objects, the last one because of: {last}",
                self.requests
            )),
            (_, 0) => Err(format!(
                "the policy {name} and the validator refuse none of {compared} generated requests, so nothing was compared: \
                 raise `.requests(..)`, or bound the schema so that its values come near to the rule's"
            )),
            _ => Ok(refused),
        }
    }

    /// Asks the validator; returns why it refuses. `None` is an object that the type can't read.
    async fn validate(&self, asked: &AskedRequest) -> Result<Option<Option<String>>, String> {
        let request = serde_json::from_value(asked.review.clone()).map_err(|error| error.to_string())?;
        let verdict = self.validator.admit(&request).await;
        match verdict {
            Ok(verdict) => {
                let refusal = verdict.findings.status(NAME, &Kind::of::<K>());
                Ok(Some(refusal.map(|status| text(&status["message"]))))
            }
            Err(failure) if failure.code == 400 => Ok(None),
            Err(failure) => {
                Err(format!("{}\nthe seed: {}\nthe request: {}", failure.why, self.seed, asked.shown()))
            }
        }
    }

    fn disagreement(&self, asked: &AskedRequest, validator: Option<&str>) -> String {
        let verdict = |said: Option<&str>| match said {
            Some(why) => format!("refuses it: {why}"),
            None => "allows it".to_owned(),
        };
        format!(
            "the policy {} and the validator disagree\nthe policy {}\nthe validator {}\nthe seed: {}\nthe request: {}",
            self.policy.name,
            verdict(asked.policy.as_deref()),
            verdict(validator),
            self.seed,
            asked.shown(),
        )
    }
}

/// A request, and what the policy said about it.
struct AskedRequest {
    /// As a validator would get it.
    review: Value,
    /// Why the policy refuses it.
    policy: Option<String>,
}

impl AskedRequest {
    fn shown(&self) -> String {
        let old = match self.review["oldObject"].is_null() {
            true => String::new(),
            false => format!("\nthe old object: {}", self.review["oldObject"]),
        };
        format!("{}{old}\nthe object: {}", text(&self.review["operation"]), self.review["object"])
    }
}

/// The API server that evaluates the policy.
struct Bench {
    client: kube::Client,
    kind: Kind,
    policy: String,
}

impl Bench {
    /// Installs the policy, for dry runs only: so that its old objects can be stored whatever it says.
    async fn install<K: TypedObject>(&self, policy: &Policy<K>) -> Result<(), String> {
        if policy.rules.is_empty() {
            return Err(format!("the policy {} has no rules that a validator could agree with", policy.name));
        }
        let mut judged = policy.clone().only_if("dry-run", "request.dryRun");
        judged.action = "Deny";
        for object in judged.generated().iter().filter(|object| object.kind().starts_with("Validating")) {
            let path = format!("{}?fieldManager=watchkeeper&force=true", object.path());
            let (code, answer) = self.send(Method::PATCH, &path, Some(&object.object())).await;
            if code == 404 {
                return Err(object.remedy());
            }
            if code >= 300 {
                return Err(format!(
                    "the policy {} can't be installed: {}",
                    policy.name,
                    text(&answer["message"])
                ));
            }
        }
        Ok(())
    }

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
    async fn ask(&self, operation: Operation, given: &Value, new: &Value) -> Result<AskedRequest, String> {
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

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the numbers and texts in a policy's expressions; of numbers also the neighbours.
fn constants<K>(policy: &Policy<K>) -> Vec<Value> {
    let rules = policy.rules.iter().filter_map(|rule| rule["expression"].as_str());
    let variables = policy.variables.iter().map(|(_, expression)| expression.as_str());
    let mut found = Vec::new();
    for expression in rules.chain(variables) {
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

/// Puts known values in place of some of an object's own.
fn salt(rng: &mut SmallRng, value: &mut Value, known: &[Value]) {
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
fn mix(rng: &mut SmallRng, into: &mut Value, from: &Value) {
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
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn the_values_of_expressions_are_known() {
        let policy = Policy::<ConfigMap>::new("p")
            .variable("two2", "object.data.size() - 22")
            .rule("variables.two2 < 7 || object.data.mode in ['fast', \"slow\"]", "no");
        let texts = |text: &str| Value::from(text);
        let expected =
            [6.into(), 7.into(), 8.into(), texts("fast"), texts("slow"), 21.into(), 22.into(), 23.into()];
        assert_eq!(constants(&policy), expected);
    }
}
