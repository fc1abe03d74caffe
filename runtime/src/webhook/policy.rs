//! Policies: rules and changes in CEL, which the API server evaluates itself; and whether a validator says the same.

use std::{env, fmt, marker::PhantomData};

use http::Method;
use kube::core::CustomResourceExt;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use super::{
    admit::{Admit, Validates, Validator},
    bench::{AskedRequest, Bench, NAME, NAMESPACE, constants, mix, salt, text, values_in},
    calls::FailurePolicy,
    params::{GivenParams, Params},
    request::Operation,
};
use crate::{
    object::{Kind, Scope},
    versions::{generated_object, schema_of},
    writes::TypedObject,
};

/// How many requests are judged, unless set.
const REQUESTS: usize = 300;
/// How many of the generated objects may be ones that the server does not take, for each that it takes.
const MOST_REFUSED: usize = 20;
/// A comparison of fewer than this part of the requests shows too little.
const FEWEST: usize = 10;

/// The group and version of policies.
const VERSION: &str = "admissionregistration.k8s.io/v1";

/// Rules and changes in CEL for the objects of a kind, which the API server evaluates itself.
///
/// Rules become a `ValidatingAdmissionPolicy` (Kubernetes 1.30 and later), changes a `MutatingAdmissionPolicy` (1.36 and
/// later), each with its binding. [`Manager::policy`](crate::Manager::policy) installs them. Unless set, they are for
/// creations and updates, and a request for which an expression fails is refused.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::webhook::Policy;
/// let policy = Policy::<ConfigMap>::new("mode-is-immutable")
///     .rule("object.data.mode == oldObject.data.mode", "data.mode is immutable")
///     .only_updates();
/// ```
///
/// Expressions see `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`, `variables`, and `params` if the policy
/// has [parameters](Self::params). `object` is null for
/// deletions, and `oldObject` for creations. A field that is not set can't be read: ask `has(object.spec.note)` first.
#[must_use = "a policy does nothing until a manager has it"]
pub struct Policy<K> {
    name: String,
    operations: Vec<Operation>,
    failure_policy: FailurePolicy,
    action: &'static str,
    /// Names and expressions.
    conditions: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    /// As the API has them.
    rules: Vec<Value>,
    changes: Vec<Value>,
    params: Option<GivenParams>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Policy<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            operations: self.operations.clone(),
            failure_policy: self.failure_policy,
            action: self.action,
            conditions: self.conditions.clone(),
            variables: self.variables.clone(),
            rules: self.rules.clone(),
            changes: self.changes.clone(),
            params: self.params.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Policy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("rules", &self.rules)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl<K: TypedObject> Policy<K> {
    /// Makes a policy, named in lower case with dashes. Plural and group of the kind are added to the name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            operations: vec![Operation::Create, Operation::Update],
            failure_policy: FailurePolicy::Fail,
            action: "Deny",
            conditions: Vec::new(),
            variables: Vec::new(),
            rules: Vec::new(),
            changes: Vec::new(),
            params: None,
            kind: PhantomData,
        }
    }

    /// Refuses a request, with a message of one line, unless an expression is true.
    pub fn rule(mut self, expression: impl Into<String>, message: impl Into<String>) -> Self {
        self.rules.push(json!({"expression": expression.into(), "message": message.into()}));
        self
    }

    /// Refuses a request unless an expression is true; another expression words the message.
    pub fn rule_saying(
        mut self,
        expression: impl Into<String>,
        message_expression: impl Into<String>,
    ) -> Self {
        let message = message_expression.into();
        self.rules.push(json!({"expression": expression.into(), "messageExpression": message}));
        self
    }

    /// Merges what an expression makes into the object, such as `Object{spec: Object.spec{goods: 'bread'}}`.
    ///
    /// It is merged as server-side apply does. A list or map that is one value can't be merged: use
    /// [`patches`](Self::patches).
    pub fn sets(mut self, expression: impl Into<String>) -> Self {
        let expression = json!({ "expression": expression.into() });
        self.changes.push(json!({"patchType": "ApplyConfiguration", "applyConfiguration": expression}));
        self
    }

    /// Patches the object by what an expression makes, such as `[JSONPatch{op: 'remove', path: '/spec/note'}]`.
    pub fn patches(mut self, expression: impl Into<String>) -> Self {
        let expression = json!({ "expression": expression.into() });
        self.changes.push(json!({"patchType": "JSONPatch", "jsonPatch": expression}));
        self
    }

    /// Names the result of an expression: later variables, rules and changes can use it as `variables.NAME`.
    pub fn variable(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.variables.push((name.into(), expression.into()));
        self
    }

    /// Gives expressions the values of other objects, as `params`.
    ///
    /// The manager does not install these objects. The API server demands that anyone who installs the policy may read them:
    /// [`Manager::rules`](crate::Manager::rules) has the permissions for this.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use watchkeeper::webhook::{Params, Policy};
    /// let policy = Policy::<Deployment>::new("few-replicas")
    ///     .params(Params::<ConfigMap>::named("limits"))
    ///     .rule("object.spec.replicas <= int(params.data.replicas)", "has too many replicas");
    /// ```
    pub fn params<P: TypedObject>(self, params: Params<P>) -> Self {
        Self { params: Some(params.given()), ..self }
    }

    /// Limits the policy to those requests for which an expression is true. All such expressions must be true.
    pub fn only_if(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.conditions.push((name.into(), expression.into()));
        self
    }

    /// Limits the policy to updates, so that `oldObject` is always there.
    pub fn only_updates(self) -> Self {
        Self { operations: vec![Operation::Update], ..self }
    }

    /// Has rules decide about deletions as well. Changes ignore this.
    pub fn deletions(mut self) -> Self {
        if !self.operations.contains(&Operation::Delete) {
            self.operations.push(Operation::Delete);
        }
        self
    }

    /// Lets requests pass for which an expression fails.
    pub fn ignore_failures(self) -> Self {
        Self { failure_policy: FailurePolicy::Ignore, ..self }
    }

    /// Has rules warn the user in place of a refusal.
    pub fn warns(self) -> Self {
        Self { action: "Warn", ..self }
    }

    /// Returns the policies and bindings as objects.
    pub(crate) fn generated(&self) -> Vec<GeneratedPolicy> {
        let rules =
            (!self.rules.is_empty()).then(|| self.made("Validating", json!({"validations": self.rules})));
        let changes = (!self.changes.is_empty()).then(|| {
            // What another policy sets later may need changes as well.
            self.made("Mutating", json!({"mutations": self.changes, "reinvocationPolicy": "IfNeeded"}))
        });
        rules.into_iter().chain(changes).flatten().collect()
    }

    /// Makes a policy of a family and its binding.
    fn made(&self, family: &'static str, own: Value) -> [GeneratedPolicy; 2] {
        let name = self.full_name();
        let named = |list: &[(String, String)]| -> Value {
            list.iter().map(|(name, expression)| json!({"name": name, "expression": expression})).collect()
        };
        let mut spec = own;
        spec["failurePolicy"] = self.failure_policy.as_str().into();
        spec["matchConstraints"] =
            json!({"matchPolicy": "Equivalent", "resourceRules": [self.resources(family)]});
        for (key, list) in [("matchConditions", &self.conditions), ("variables", &self.variables)] {
            if !list.is_empty() {
                spec[key] = named(list);
            }
        }
        let mut binding = json!({ "policyName": name });
        if family == "Validating" {
            binding["validationActions"] = json!([self.action]);
        }
        if let Some(params) = &self.params {
            spec["paramKind"] = params.kind();
            binding["paramRef"] = params.reference();
        }
        let object = |suffix: &str, spec: Value| GeneratedPolicy {
            kind: format!("{family}AdmissionPolicy{suffix}"),
            name: name.clone(),
            spec,
            params: self.params.clone(),
            fault: self.params.as_ref().and_then(|params| params.fault(&Kind::of::<K>())),
        };
        [object("", spec), object("Binding", binding)]
    }

    /// Returns the rule for the operations on the kind.
    fn resources(&self, family: &str) -> Value {
        let Kind { group, version, plural, scope, .. } = Kind::of::<K>();
        let operations = self.operations.iter().filter(|operation| {
            family == "Validating" || matches!(operation, Operation::Create | Operation::Update)
        });
        let operations: Vec<&str> = operations.map(|operation| operation.as_str()).collect();
        let scope = if scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
        json!({
            "apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations,
            "scope": scope,
        })
    }

    /// Returns the name of the policy and of its binding.
    fn full_name(&self) -> String {
        let Kind { group, plural, .. } = Kind::of::<K>();
        let group = if group.is_empty() { "core" } else { &group };
        format!("{}.{plural}.{group}", self.name)
    }
}

impl<K: TypedObject + CustomResourceExt> Policy<K> {
    /// Checks that this policy and a validator say the same about generated objects; a test calls it.
    ///
    /// It is [`Agreement`] with its defaults. The API server evaluates the policy: give the client of one that is only for
    /// this test, such as `watchkeeper-apiserver`, and that has the kind. Create the objects that a policy has as parameters
    /// before; the validator must know their values.
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
        self.install(&bench).await?;
        let rules = self.policy.rules.iter().filter_map(|rule| rule["expression"].as_str());
        let variables = self.policy.variables.iter().map(|(_, expression)| expression.as_str());
        let (schema, mut known) = (schema_of(&K::crd()), constants(rules.chain(variables)));
        known.extend(self.values(&bench).await?);
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

    /// Installs the policy, for dry runs only: so that its old objects can be stored whatever it says.
    async fn install(&self, bench: &Bench) -> Result<(), String> {
        let policy = &self.policy;
        if let Some(why) = policy.generated().iter().find_map(GeneratedPolicy::fault) {
            return Err(format!("the policy {} can't be installed: {why}", policy.name));
        }
        if policy.rules.is_empty() {
            return Err(format!("the policy {} has no rules that a validator could agree with", policy.name));
        }
        let mut judged = policy.clone().only_if("dry-run", "request.dryRun");
        judged.action = "Deny";
        for object in judged.generated().iter().filter(|object| object.kind().starts_with("Validating")) {
            let path = format!("{}?fieldManager=watchkeeper&force=true", object.path());
            let (code, answer) = bench.send(Method::PATCH, &path, Some(&object.object())).await;
            if code == 404 {
                return Err(object.remedy());
            }
            if code >= 300 {
                let why = text(&answer["message"]);
                return Err(format!("the policy {} can't be installed: {why}", policy.name));
            }
        }
        Ok(())
    }

    /// Reads the values of the parameters, so that bounds in them are met as well.
    async fn values(&self, bench: &Bench) -> Result<Vec<Value>, String> {
        let Some(params) = &self.policy.params else { return Ok(Vec::new()) };
        let (name, path) = (&self.policy.name, params.path(NAMESPACE));
        let (code, answer) = bench.send(Method::GET, &path, None).await;
        let is_none = answer["items"].as_array().is_some_and(Vec::is_empty);
        if code >= 300 || is_none {
            let why = if is_none { "there is none".to_owned() } else { text(&answer["message"]) };
            return Err(format!(
                "the parameters of the policy {name} can't be read at {path}: {why}: create them on the server first"
            ));
        }
        Ok(values_in(&answer))
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

/// A policy or a binding, as it is installed.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedPolicy {
    kind: String,
    pub(crate) name: String,
    spec: Value,
    params: Option<GivenParams>,
    /// Why no API server can evaluate it, and what to do.
    fault: Option<String>,
}

impl GeneratedPolicy {
    /// Returns why it can't be installed on any server, and what to do.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the kind of its parameters, and for a binding that selects them the namespace in which it does.
    ///
    /// Only users who may get, or list, all of them can install it.
    pub(crate) fn read(&self) -> Option<(&Kind, Option<Option<&str>>)> {
        let params = self.params.as_ref()?;
        Some((&params.kind, params.listed_in().filter(|_| self.kind.ends_with("Binding"))))
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the plural of its kind.
    pub(crate) fn plural(&self) -> String {
        let kind = self.kind.to_lowercase();
        kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{VERSION}/{}/{}", self.plural(), self.name)
    }

    /// Returns the object.
    pub(crate) fn object(&self) -> Value {
        json!({"apiVersion": VERSION, "kind": self.kind, "metadata": {"name": self.name}, "spec": self.spec})
    }

    /// Says from which version of Kubernetes on it is served, and what to do on an older server.
    pub(crate) fn remedy(&self) -> String {
        let (since, webhook) = match self.kind.starts_with("Mutating") {
            true => ("1.36", "Defaulter"),
            false => ("1.30", "Validator"),
        };
        let kind = self.kind.trim_end_matches("Binding");
        format!(
            "the server has no {kind} of {VERSION}, which Kubernetes serves from {since} on: update it, or write a `{webhook}` in place of the policy"
        )
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    use super::*;

    #[test]
    fn rules_and_changes_become_policies_with_bindings() {
        let policy = Policy::<ConfigMap>::new("sized")
            .only_if("not-mine", "object.metadata.name != 'mine'")
            .variable("size", "size(object.data)")
            .rule("variables.size < 9", "has too much data")
            .rule_saying("variables.size > 0", "'has ' + string(variables.size)")
            .sets("Object{data: {'a': 'b'}}")
            .patches("[JSONPatch{op: 'remove', path: '/data/c'}]")
            .deletions()
            .warns();
        let made: Vec<Value> = policy.generated().iter().map(GeneratedPolicy::object).collect();
        let [validating, bound, mutating, bound_changes] = made.try_into().unwrap();
        let conditions = json!([{"name": "not-mine", "expression": "object.metadata.name != 'mine'"}]);
        let rule = |operations: Value| {
            json!({"matchPolicy": "Equivalent", "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"], "operations": operations, "scope": "Namespaced"}]})
        };
        let variables = json!([{"name": "size", "expression": "size(object.data)"}]);
        assert_eq!(
            validating,
            json!({"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "sized.configmaps.core"},
                "spec": {"failurePolicy": "Fail", "matchConstraints": rule(json!(["CREATE", "UPDATE", "DELETE"])),
                    "matchConditions": conditions, "variables": variables, "validations": [
                        {"expression": "variables.size < 9", "message": "has too much data"},
                        {"expression": "variables.size > 0", "messageExpression": "'has ' + string(variables.size)"}]}})
        );
        assert_eq!(
            bound["spec"],
            json!({"policyName": "sized.configmaps.core", "validationActions": ["Warn"]})
        );
        assert_eq!(bound["kind"], "ValidatingAdmissionPolicyBinding");
        assert_eq!(mutating["spec"]["matchConstraints"], rule(json!(["CREATE", "UPDATE"])));
        assert_eq!(mutating["spec"]["reinvocationPolicy"], "IfNeeded");
        assert_eq!(bound_changes["spec"], json!({"policyName": "sized.configmaps.core"}));
        let paths: Vec<String> = policy.generated().iter().map(GeneratedPolicy::path).collect();
        assert!(paths[0].ends_with("/v1/validatingadmissionpolicies/sized.configmaps.core"), "{paths:?}");
        assert!(paths[3].ends_with("/v1/mutatingadmissionpolicybindings/sized.configmaps.core"), "{paths:?}");
        let of_namespaces = Policy::<Namespace>::new("a").rule("true", "m").only_updates().ignore_failures();
        let of_namespaces = of_namespaces.generated()[0].object();
        assert_eq!(of_namespaces["spec"]["failurePolicy"], "Ignore");
        assert_eq!(of_namespaces["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "Cluster");
    }

    #[test]
    fn parameters_are_in_the_policy_and_its_binding() {
        let small = || {
            Policy::<ConfigMap>::new("small").rule("size(object.data) < int(params.data.most)", "is large")
        };
        let made = |params| -> Vec<Value> {
            let generated = small().sets("Object{}").params::<ConfigMap>(params).generated();
            assert!(generated.iter().all(|object| object.fault().is_none()));
            generated.iter().map(GeneratedPolicy::object).collect()
        };
        let named = made(Params::named("limits").in_namespace("ops").allow_if_missing());
        let (kind, reference) = (
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            json!({"name": "limits", "namespace": "ops", "parameterNotFoundAction": "Allow"}),
        );
        for (policy, binding) in [(0, 1), (2, 3)] {
            assert_eq!(named[policy]["spec"]["paramKind"], kind);
            assert_eq!(named[binding]["spec"]["paramRef"], reference);
        }
        let selected = &made(Params::labelled([("tier", "gold")]))[1]["spec"]["paramRef"];
        assert_eq!(
            selected,
            &json!({"selector": {"matchLabels": {"tier": "gold"}}, "parameterNotFoundAction": "Deny"})
        );
        let all = &made(Params::labelled([("", ""); 0]))[1]["spec"]["paramRef"]["selector"];
        assert_eq!(all, &json!({}));
        let faulty = |fault: Option<String>| fault.expect("a fault");
        let of_namespaces =
            Policy::<Namespace>::new("a").rule("true", "m").params(Params::<ConfigMap>::named("b"));
        let why = faulty(of_namespaces.generated()[0].fault.clone());
        assert!(why.contains("a Namespace is in no namespace, so name that of the ConfigMap"), "{why}");
        let why = faulty(
            small().params(Params::<Namespace>::named("a").in_namespace("b")).generated()[1].fault.clone(),
        );
        assert!(why.contains("a Namespace is in no namespace, so leave `.in_namespace(..)` out"), "{why}");
    }
}
