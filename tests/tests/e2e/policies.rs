//! Admission policies: both servers evaluate them alike, and say the same.

use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use watchkeeper::{
    prelude::*,
    webhook::{Params, Policy},
};
use watchkeeper_tests::backend::{Server, Stage, User};

use crate::harness::tests;

tests! {
    Shared: policies_say_the_same, policies_change_the_same, wrong_policies_are_refused_alike;
    Own: a_program_under_its_own_role_has_policies_with_parameters;
}

/// How long a server may take until it asks a new policy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn send(stage: &Stage, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    match stage.client.request::<Value>(request).await {
        Ok(answer) => (200, answer),
        Err(kube::Error::Api(status)) => (status.code, serde_json::to_value(&status).unwrap()),
        Err(error) => panic!("{path}: {body}: {error}"),
    }
}

/// Merges the fields of one object into another.
fn with(mut object: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// Names a policy of this stage.
fn named(stage: &Stage, name: &str) -> String {
    format!("{name}.{}", stage.namespace)
}

fn constraints(stage: &Stage, operations: &[&str]) -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
        "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"],
        }],
    })
}

/// Installs a policy and its binding, for ConfigMaps of the stage that have the policy's name as label `case`.
async fn install(stage: &Stage, family: &str, name: &str, policy: &Value, binding: &Value) {
    let own = match family {
        "mutating" => {
            json!({"matchConstraints": constraints(stage, &["CREATE"]), "reinvocationPolicy": "Never"})
        }
        _ => json!({"matchConstraints": constraints(stage, &["CREATE"])}),
    };
    let mut spec = with(own, policy);
    // A condition would be asked too late: a binding without parameters fails before.
    spec["matchConstraints"]["objectSelector"] = json!({"matchLabels": {"case": name}});
    let full = named(stage, name);
    let binding = match family {
        "mutating" => with(json!({ "policyName": full }), binding),
        _ => with(json!({"policyName": full, "validationActions": ["Deny"]}), binding),
    };
    for (plural, spec) in [("policies", spec), ("policybindings", binding)] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{family}admission{plural}");
        let (code, answer) =
            send(stage, Method::POST, &path, &json!({"metadata": {"name": full}, "spec": spec})).await;
        assert_eq!(code, 200, "{name}: {answer}");
    }
}

/// Tries to create a ConfigMap of a case.
async fn tried(stage: &Stage, name: &str, data: &Value) -> (u16, Value) {
    let path = format!("/api/v1/namespaces/{}/configmaps?dryRun=All", stage.namespace);
    let mut object = json!({"metadata": {"name": "tried", "labels": {"case": name}}});
    if data.as_object().is_some_and(|data| !data.is_empty()) {
        object["data"] = data.clone();
    }
    send(stage, Method::POST, &path, &object).await
}

/// Tries until the answer is as it should be.
async fn becomes(
    stage: &Stage,
    name: &str,
    data: &Value,
    expected: impl Fn(u16, &Value) -> bool,
) -> (u16, Value) {
    let mut last = (0, Value::Null);
    let waited = timeout(PATIENCE, async {
        loop {
            last = tried(stage, name, data).await;
            if expected(last.0, &last.1) {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(waited.await.is_ok(), "{name}: {last:?}");
    last
}

async fn remove(stage: &Stage, family: &str, name: &str) {
    for plural in ["policybindings", "policies"] {
        let path =
            format!("/apis/admissionregistration.k8s.io/v1/{family}admission{plural}/{}", named(stage, name));
        send(stage, Method::DELETE, &path, &json!({})).await;
    }
}

fn rule(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

// A58
async fn policies_say_the_same(stage: Stage) {
    let param = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let reference = |action: &str| json!({"paramRef": {"name": "none", "parameterNotFoundAction": action}});
    let lazy = json!({
        "variables": [
            {"name": "count", "expression": "size(object.data)"},
            {"name": "lacking", "expression": "object.data.missing"},
        ],
        "validations": [
            {"expression": "variables.count > 1 || variables.lacking == 'x'"},
            {"expression": "variables.count < 3", "messageExpression": "'found ' + string(variables.count)"},
        ],
    });
    let audit = json!({"auditAnnotations": [{"key": "k", "valueExpression": "object.data.missing + ''"}]});
    // Each case has its policy, its binding, what is tried, and what is said.
    let cases = [
        (
            "plain",
            rule("object.data.k == 'v'"),
            json!({}),
            json!({"k": "w"}),
            422,
            "failed expression: object.data.k == 'v'",
        ),
        (
            "forbidden",
            json!({"validations": [{"expression": "false", "message": " never ", "reason": "Forbidden"}]}),
            json!({}),
            json!({}),
            403,
            "never",
        ),
        (
            "missing",
            rule("object.data.k == 'v'"),
            json!({}),
            json!({"l": "w"}),
            422,
            "expression 'object.data.k == 'v'' resulted in error: no such key: k",
        ),
        (
            "no-data",
            rule("object.data.k == 'v'"),
            json!({}),
            json!({}),
            422,
            "expression 'object.data.k == 'v'' resulted in error: no such key: data",
        ),
        (
            "request",
            rule(
                "request.operation == 'CREATE' && request.dryRun && request.name == 'tried' && oldObject == null && request.kind.kind == 'Pod'",
            ),
            json!({}),
            json!({}),
            422,
            "failed expression: request.operation == 'CREATE' && request.dryRun && request.name == 'tried' && oldObject == null && request.kind.kind == 'Pod'",
        ),
        (
            "namespace",
            rule("namespaceObject.metadata.name != request.namespace"),
            json!({}),
            json!({}),
            422,
            "failed expression: namespaceObject.metadata.name != request.namespace",
        ),
        ("lazy", lazy.clone(), json!({}), json!({"a": "", "b": "", "c": ""}), 422, "found 3"),
        (
            "composed",
            lazy,
            json!({}),
            json!({"a": ""}),
            422,
            "expression 'variables.count > 1 || variables.lacking == 'x'' resulted in error: composited variable \"lacking\" fails to evaluate: no such key: missing",
        ),
        (
            "condition",
            with(
                rule("true"),
                &json!({"matchConditions": [{"name": "c", "expression": "object.none == 1"}]}),
            ),
            json!({}),
            json!({}),
            422,
            "expression 'object.none == 1' resulted in error: no such key: none",
        ),
        (
            "params",
            with(rule("params == null"), &param),
            reference("Deny"),
            json!({}),
            422,
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        ),
        (
            "no-params",
            with(rule("params != null"), &param),
            json!({}),
            json!({}),
            422,
            "failed expression: params != null",
        ),
        (
            "audit",
            audit,
            json!({"validationActions": ["Audit"]}),
            json!({}),
            422,
            "expression 'object.data.missing + ''' resulted in error: no such key: data",
        ),
        (
            "division",
            rule("1 / (size(object.metadata.name) - 5) == 0"),
            json!({}),
            json!({}),
            422,
            "expression '1 / (size(object.metadata.name) - 5) == 0' resulted in error: division by zero",
        ),
        (
            "own",
            rule("!authorizer.requestResource.check('create').allowed()"),
            json!({}),
            json!({}),
            422,
            "failed expression: !authorizer.requestResource.check('create').allowed()",
        ),
        (
            "account",
            rule(
                "authorizer.serviceAccount('none', 'robot').group('').resource('pods').check('get').allowed()",
            ),
            json!({}),
            json!({}),
            422,
            "failed expression: authorizer.serviceAccount('none', 'robot').group('').resource('pods').check('get').allowed()",
        ),
        (
            "wrong-account",
            rule("authorizer.serviceAccount('none', 'A').path('/').check('get').allowed()"),
            json!({}),
            json!({}),
            422,
            "expression 'authorizer.serviceAccount('none', 'A').path('/').check('get').allowed()' resulted in error: Invalid service account name",
        ),
        (
            "no-path",
            rule("authorizer.path(' ').check('get').allowed()"),
            json!({}),
            json!({}),
            422,
            "expression 'authorizer.path(' ').check('get').allowed()' resulted in error: path must not be empty",
        ),
        (
            "checks",
            rule("['a', 'b', 'c'].exists(v, !authorizer.path('/x').check(v).allowed())"),
            json!({}),
            json!({}),
            422,
            "expression '['a', 'b', 'c'].exists(v, !authorizer.path('/x').check(v).allowed())' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
        (
            "decision",
            json!({
                "variables": [
                    {"name": "pods", "expression": "authorizer.group('').resource('pods')"},
                    {"name": "said", "expression": "variables.pods.namespace('none').name('a').subresource('log').fieldSelector('a=b').labelSelector('a').check('get')"},
                    {"name": "name", "expression": "object.metadata.name"},
                ],
                "validations": [
                    {"expression": "variables.said.allowed() && !variables.said.errored() && variables.said.error() == '' && variables.said.reason() == ''"},
                    {"expression": "variables.said.errored()", "messageExpression": "'asked for ' + variables.name"},
                ],
            }),
            json!({}),
            json!({}),
            422,
            "asked for tried",
        ),
        // A message has no authorizer, and so has not a variable that it uses.
        (
            "message",
            json!({
                "variables": [{"name": "said", "expression": "authorizer.path('/').check('get')"}],
                "validations": [{"expression": "!variables.said.allowed()", "messageExpression": "'said ' + variables.said.reason()"}],
            }),
            json!({}),
            json!({}),
            422,
            "failed expression: !variables.said.allowed()",
        ),
        (
            "skipped",
            with(
                rule("false"),
                &json!({"matchConditions": [{"name": "c", "expression": "authorizer.path('').check('get').allowed()"}]}),
            ),
            json!({}),
            json!({}),
            422,
            "expression 'authorizer.path('').check('get').allowed()' resulted in error: path must not be empty",
        ),
    ];
    for (name, policy, binding, ..) in &cases {
        install(&stage, "validating", name, policy, binding).await;
    }
    for (name, _, _, data, code, said) in &cases {
        let full = named(&stage, name);
        let message =
            format!("ValidatingAdmissionPolicy '{full}' with binding '{full}' denied request: {said}");
        let (found, status) = becomes(&stage, name, data, |code, _| code != 200).await;
        assert_eq!(status["message"], format!("configmaps \"tried\" is forbidden: {message}"), "{name}");
        let reason = if *code == 403 { "Forbidden" } else { "Invalid" };
        assert_eq!((found, status["reason"].as_str()), (*code, Some(reason)), "{name}");
        assert_eq!(status["details"]["causes"][0]["message"], message, "{name}: {status}");
    }
    // What the policies allow, now that they are asked.
    for (name, data) in
        [("plain", json!({"k": "v"})), ("lazy", json!({"a": "", "b": ""})), ("other", json!({}))]
    {
        let (code, answer) = tried(&stage, name, &data).await;
        assert_eq!(code, 200, "{name}: {answer}");
    }
    for (name, ..) in &cases {
        remove(&stage, "validating", name).await;
    }
}

fn configuration(expression: &str) -> Value {
    json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]})
}

fn operations(expression: &str) -> Value {
    json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]})
}

// A59
async fn policies_change_the_same(stage: Stage) {
    let chosen = "Object{data: {'l': string(object.metadata.name), 'k': 'x'}, metadata: Object.metadata{labels: {'set': 'yes'}}}";
    let patched = "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('l.m'), value: 'w'}, JSONPatch{op: 'replace', path: '/data/k', value: string(size(object.data))}]";
    let tested = "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, JSONPatch{op: 'remove', path: '/data/k'}, JSONPatch{op: 'add', path: '/data/n', value: ''}]";
    let several = json!({"variables": [{"name": "name", "expression": "object.metadata.name"}], "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'l': variables.name}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'copy', from: '/data/l', path: '/data/m'}]"}},
    ]});
    let changes = [
        ("set", configuration(chosen), json!({"k": "x", "l": "tried"})),
        ("patched", operations(patched), json!({"k": "1", "l.m": "w"})),
        (
            "asked",
            configuration(
                "Object{data: {'may': authorizer.requestResource.check('create').allowed() ? 'yes' : 'no'}}",
            ),
            json!({"k": "v", "may": "yes"}),
        ),
        ("several", several, json!({"k": "v", "l": "tried", "m": "tried"})),
    ];
    for (name, policy, _) in &changes {
        install(&stage, "mutating", name, policy, &json!({})).await;
    }
    install(&stage, "mutating", "tested", &operations(tested), &json!({})).await;
    let refusals = [
        (
            "type-name",
            configuration("Object{data: Object.wrong{l: 'w'}}"),
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.data\", which matches field name path from root Object type",
        ),
        (
            "field",
            configuration("Object{nothing: 'w'}"),
            "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema",
        ),
        (
            "removed",
            operations("[JSONPatch{op: 'remove', path: '/data/none'}]"),
            "JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            "failed",
            configuration("Object{data: {'l': object.none}}"),
            "expression 'Object{data: {'l': object.none}}' resulted in error: no such key: none",
        ),
        (
            "condition",
            with(
                configuration("Object{}"),
                &json!({"matchConditions": [{"name": "c", "expression": "object.none == 1"}]}),
            ),
            "expression 'object.none == 1' resulted in error: no such key: none",
        ),
    ];
    for (name, policy, _) in &refusals {
        install(&stage, "mutating", name, policy, &json!({})).await;
    }
    for (name, _, expected) in &changes {
        let changed = |code: u16, answer: &Value| code != 200 || answer["data"] != json!({"k": "v"});
        let (code, answer) = becomes(&stage, name, &json!({"k": "v"}), changed).await;
        assert_eq!((code, &answer["data"]), (200, expected), "{name}: {answer}");
    }
    for (name, _, why) in &refusals {
        let (code, status) = becomes(&stage, name, &json!({"k": "v"}), |code, _| code != 200).await;
        let full = named(&stage, name);
        let message = format!("policy '{full}' with binding '{full}' denied request: {why}");
        assert_eq!((code, status["message"].as_str()), (403, Some(message.as_str())), "{name}");
        assert_eq!(status["reason"], "Invalid", "{name}");
    }
    // A patch whose test fails does nothing: by now its policy is asked as well.
    let (code, answer) = tried(&stage, "tested", &json!({"k": "v"})).await;
    assert_eq!((code, &answer["data"]), (200, &json!({"k": "v"})), "{answer}");
    for name in
        changes.iter().chain(&[]).map(|(name, ..)| *name).chain(refusals.iter().map(|(name, ..)| *name))
    {
        remove(&stage, "mutating", name).await;
    }
    remove(&stage, "mutating", "tested").await;
}

// A60
async fn wrong_policies_are_refused_alike(stage: Stage) {
    let all = || json!({"matchConstraints": constraints(&stage, &["CREATE"])});
    let rules = |expression: &str| with(all(), &rule(expression));
    let changes = |change: Value| with(with(all(), &change), &json!({"reinvocationPolicy": "Never"}));
    let not_found = |what: &str| format!("undeclared reference to '{what}' (in container '')");
    let validating = "validatingadmissionpolicies";
    let cases = [
        (validating, rule("true"), "spec.matchConstraints", "Required value".to_owned()),
        (
            validating,
            all(),
            "spec.validations",
            "validations or auditAnnotations must contain at least one item".to_owned(),
        ),
        (
            validating,
            rules("object.x +"),
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:11: Syntax error".to_owned(),
        ),
        (validating, rules("objekt.x == 1"), "spec.validations[0].expression", not_found("objekt")),
        (validating, rules("params.x == 1"), "spec.validations[0].expression", not_found("params")),
        (
            validating,
            rules("request.nothing == 'x'"),
            "spec.validations[0].expression",
            "undefined field 'nothing'".to_owned(),
        ),
        (
            validating,
            rules("object.spec.enabled"),
            "spec.validations[0].expression",
            "must evaluate to bool but got dyn".to_owned(),
        ),
        (
            validating,
            rules("'text'"),
            "spec.validations[0].expression",
            "must evaluate to bool but got string".to_owned(),
        ),
        (
            validating,
            with(
                all(),
                &json!({"validations": [{"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}]}),
            ),
            "spec.validations[0].messageExpression",
            not_found("authorizer"),
        ),
        (
            validating,
            rules("authorizer.path('/').check('get').denied()"),
            "spec.validations[0].expression",
            not_found("denied"),
        ),
        (
            validating,
            rules("authorizer.path('/').check('get')"),
            "spec.validations[0].expression",
            "must evaluate to bool but got kubernetes.authorization.Decision".to_owned(),
        ),
        (
            validating,
            rules("authorizer.resource('pods').check('get').allowed()"),
            "spec.validations[0].expression",
            "found no matching overload for 'resource' applied to 'kubernetes.authorization.Authorizer.(string)'"
                .to_owned(),
        ),
        (
            validating,
            with(rules("variables.b == 1"), &json!({"variables": [{"name": "a", "expression": "1"}]})),
            "spec.validations[0].expression",
            "undefined field 'b'".to_owned(),
        ),
        (
            validating,
            with(rules("true"), &json!({"variables": [{"name": "a-b", "expression": "1"}]})),
            "spec.variables[0].name",
            "must be a valid CEL identifier".to_owned(),
        ),
        (
            validating,
            with(all(), &json!({"validations": [{"expression": "true", "message": "a\nb"}]})),
            "spec.validations[0].message",
            "must not contain line breaks".to_owned(),
        ),
        (
            validating,
            with(all(), &json!({"validations": [{"expression": "true", "messageExpression": "1"}]})),
            "spec.validations[0].messageExpression",
            "must evaluate to string but got int".to_owned(),
        ),
        (
            validating,
            with(all(), &json!({"validations": [{"expression": "true", "reason": "Wrong"}]})),
            "spec.validations[0].reason",
            "supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"".to_owned(),
        ),
        (
            validating,
            with(rules("true"), &json!({"matchConditions": [{"name": "c", "expression": "variables.a"}]})),
            "spec.matchConditions[0].expression",
            not_found("variables"),
        ),
        (
            "mutatingadmissionpolicies",
            changes(configuration("Object{data: {'l': object.metadata.name, 'k': 'x'}}")),
            "spec.mutations[0].applyConfiguration.expression",
            "expected type 'dyn' but found 'string'".to_owned(),
        ),
        (
            "mutatingadmissionpolicies",
            changes(json!({})),
            "spec.mutations",
            "mutations must contain at least one item".to_owned(),
        ),
        (
            "mutatingadmissionpolicies",
            changes(configuration("{'a': 'b'}")),
            "spec.mutations[0].applyConfiguration.expression",
            "must evaluate to Object but got map(string, string)".to_owned(),
        ),
        (
            "mutatingadmissionpolicies",
            changes(operations("Object{}")),
            "spec.mutations[0].jsonPatch.expression",
            "must evaluate to list(JSONPatch) but got Object".to_owned(),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"policyName": "p", "validationActions": ["Deny", "Warn"]}),
            "spec.validationActions",
            "must not contain both Deny and Warn".to_owned(),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {"parameterNotFoundAction": "Deny"}}),
            "spec.paramRef",
            "one of name or selector must be specified".to_owned(),
        ),
    ];
    for (plural, spec, field, expected) in cases {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}?dryRun=All");
        let body = json!({"metadata": {"name": named(&stage, "wrong")}, "spec": spec});
        let (code, status) = send(&stage, Method::POST, &path, &body).await;
        assert_eq!(code, 422, "{body}: {status}");
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        let says = |cause: &Value| {
            cause["field"].as_str().is_some_and(|at| at.starts_with(field))
                && cause["message"].as_str().is_some_and(|text| text.contains(&expected))
        };
        assert!(causes.iter().any(says), "{field}, {expected}: {causes:?}");
    }
}

struct Idle;

impl Reconciler<ConfigMap> for Idle {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

/// Limits the data of ConfigMaps of the case with the policy's name, so that each policy is seen alone: which of several a
/// server names differs.
fn limited(stage: &Stage, name: &str, params: Params<ConfigMap>) -> Policy<ConfigMap> {
    Policy::new(name)
        .only_if(
            "of-this-test",
            format!(
                "request.namespace == '{}' && object.metadata.name == 'tried' && object.metadata.labels.case == '{name}'",
                stage.namespace
            ),
        )
        .params(params)
        .rule_saying(
            "size(object.data) <= int(params.data.most)",
            format!("'{name}: more than ' + params.data.most"),
        )
}

// A58
async fn a_program_under_its_own_role_has_policies_with_parameters(stage: Stage) {
    let params = || Params::<ConfigMap>::named("limits");
    let program = |client: kube::Client| {
        Manager::new(client)
            .policy(limited(&stage, "named", params()))
            .policy(limited(
                &stage,
                "selected",
                Params::labelled([("limits", "yes")]).in_namespace(&*stage.namespace),
            ))
            .policy(limited(&stage, "missing", Params::named("none").allow_if_missing()))
            .controller(Controller::new(Idle))
    };
    let rules = program(stage.client.clone()).rules().with_name("limits");
    let client = match &stage.server {
        Server::Embedded(_) => stage.client.clone(),
        Server::KubeApiserver(_) => {
            let group = "rbac.authorization.k8s.io";
            let subjects = json!([{"apiGroup": group, "kind": "User", "name": "viewer"}]);
            let bound = |kind: &str| {
                json!({"metadata": {"name": "limits"}, "subjects": subjects,
                    "roleRef": {"apiGroup": group, "kind": kind, "name": "limits"}})
            };
            let cluster =
                (format!("/apis/{group}/v1"), "cluster", rules.cluster_role().map(|role| json!(role)));
            let local = (
                format!("/apis/{group}/v1/namespaces/{}", stage.namespace),
                "",
                rules.roles().first().map(|role| json!(role)),
            );
            for (root, prefix, role) in [cluster, local] {
                let kind = if prefix.is_empty() { "Role" } else { "ClusterRole" };
                for (plural, body) in [("roles", role.expect("a role")), ("rolebindings", bound(kind))] {
                    let path = format!("{root}/{prefix}{plural}");
                    let (code, answer) = send(&stage, Method::POST, &path, &body).await;
                    assert_eq!(code, 200, "{path}: {answer}");
                }
            }
            stage.server.client(User::Viewer, &stage.namespace).await.0
        }
    };
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let limits = |name: &str, most: &str| json!({"metadata": {"name": name, "labels": {"limits": "yes"}}, "data": {"most": most}});
    for body in [limits("limits", "2"), limits("more-limits", "1")] {
        assert_eq!(send(&stage, Method::POST, &maps, &body).await.0, 200);
    }
    let running = program(client).spawn();
    let says =
        |what: &'static str| move |_: u16, answer: &Value| answer["message"].to_string().contains(what);
    becomes(&stage, "named", &json!({"a": "", "b": "", "c": ""}), says("named: more than 2")).await;
    becomes(&stage, "selected", &json!({"a": "", "b": ""}), says("selected: more than 1")).await;
    for (name, data) in [("named", json!({"a": "", "b": ""})), ("selected", json!({"a": ""}))] {
        let (code, answer) = tried(&stage, name, &data).await;
        assert_eq!(code, 200, "{name}: {answer}");
    }
    // Without the object, nothing passes; the policy whose object may be missing has allowed all.
    let gone = send(&stage, Method::DELETE, &format!("{maps}/limits"), &json!({})).await;
    assert_eq!(gone.0, 200, "{}", gone.1);
    let denied = says("no params found for policy binding with `Deny`");
    becomes(&stage, "named", &json!({"a": ""}), denied).await;
    running.stop().await.expect("a clean stop");
    let (code, answer) = send(
        &stage,
        Method::GET,
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/missing.configmaps.core",
        &json!({}),
    )
    .await;
    assert_eq!(
        (code, &answer["spec"]["paramRef"]["parameterNotFoundAction"]),
        (200, &json!("Allow")),
        "{answer}"
    );
}
