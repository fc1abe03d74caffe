//! Claims about admission policies: which ones are asked, what they see, and what their answers do.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::identity::User;
use crate::state::Authorization;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// An answer: its code, its body, and its warnings.
struct Answered {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answered {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

async fn send(core: &Core, method: Method, uri: &str, body: Value) -> Answered {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    if method == Method::PATCH {
        headers.insert("content-type", "application/merge-patch+json".parse().expect("a value"));
    }
    let request = ApiRequest { method, uri: uri.parse().expect("a uri"), headers, body, user: User::Admin };
    let Reply::Full(response) = core.serve(request).await else { panic!("a stream") };
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    let code = response.status().as_u16();
    Answered { code, body: serde_json::from_slice(response.body()).unwrap_or_default(), warnings }
}

fn core() -> Core {
    Core::new(CoreConfig::default())
}

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

fn rules(operations: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"],
    }]})
}

/// Merges the fields of one object into another.
fn with(mut object: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

async fn made(core: &Core, plural: &str, name: &str, spec: Value) {
    let body = json!({"metadata": {"name": name}, "spec": spec});
    let answered = send(core, Method::POST, &format!("{POLICIES}/{plural}"), body).await;
    assert_eq!(answered.code, 201, "{}", answered.body);
}

/// Installs a validating policy for ConfigMaps, bound as `NAME-bound`.
async fn validating(core: &Core, name: &str, policy: Value, binding: Value) {
    let policy = with(json!({"matchConstraints": rules(&["*"])}), &policy);
    made(core, "validatingadmissionpolicies", name, policy).await;
    let binding = with(json!({"policyName": name, "validationActions": ["Deny"]}), &binding);
    made(core, "validatingadmissionpolicybindings", &format!("{name}-bound"), binding).await;
}

/// Installs a mutating policy for ConfigMaps, bound as `NAME-bound`.
async fn mutating(core: &Core, name: &str, policy: Value) {
    let own = json!({"matchConstraints": rules(&["CREATE", "UPDATE"]), "reinvocationPolicy": "Never"});
    made(core, "mutatingadmissionpolicies", name, with(own, &policy)).await;
    let binding = json!({ "policyName": name });
    made(core, "mutatingadmissionpolicybindings", &format!("{name}-bound"), binding).await;
}

fn rule(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

// A58
#[tokio::test]
async fn a_policy_refuses_a_request_in_the_words_of_the_server() {
    let core = core();
    let policy = json!({"validations": [
        {"expression": "object.data.size() < 3"},
        {"expression": "object.data.k == 'v'", "message": "k must be v", "reason": "Forbidden"},
    ]});
    validating(&core, "k-is-v", policy, json!({})).await;
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await.code, 201);
    let refused = send(&core, Method::POST, MAPS, map("b", json!({"k": "w"}))).await;
    let message =
        "ValidatingAdmissionPolicy 'k-is-v' with binding 'k-is-v-bound' denied request: k must be v";
    assert_eq!(refused.code, 403);
    assert_eq!(refused.message(), format!("configmaps \"b\" is forbidden: {message}"));
    assert_eq!(
        refused.body["details"],
        json!({"name": "b", "kind": "configmaps", "causes": [{"message": message}]})
    );
    assert_eq!(refused.body["reason"], "Forbidden");
    // A message that is left out is the expression, and a reason that is left out is Invalid.
    let refused = send(&core, Method::POST, MAPS, map("c", json!({"k": "v", "l": "", "m": ""}))).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")));
    assert!(refused.message().ends_with("denied request: failed expression: object.data.size() < 3"));
}

#[tokio::test]
async fn expressions_see_all_that_a_real_server_gives_them() {
    for (expression, data, code) in [
        ("object.metadata.name == request.name", json!({}), 201),
        ("request.operation == 'CREATE' && oldObject == null", json!({}), 201),
        ("request.userInfo.groups.exists(group, group == 'system:masters')", json!({}), 201),
        ("request.namespace == 'default' && !request.dryRun", json!({}), 201),
        ("namespaceObject.metadata.name == 'default'", json!({}), 201),
        ("request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'", json!({}), 201),
        ("!has(object.data) || object.data.all(key, key != 'x')", json!({"x": "1"}), 422),
        ("has(request.subResource)", json!({}), 422),
    ] {
        let core = core();
        validating(&core, "p", rule(expression), json!({})).await;
        let answered = send(&core, Method::POST, MAPS, map("a", data)).await;
        assert_eq!(answered.code, code, "{expression}: {}", answered.body);
    }
}

#[tokio::test]
async fn updates_and_deletions_have_an_old_object() {
    let core = core();
    let policy = json!({
        "matchConstraints": rules(&["UPDATE"]),
        "validations": [{"expression": "object.data.k == oldObject.data.k", "message": "k is immutable"}],
    });
    validating(&core, "k-stays", policy, json!({})).await;
    let policy = json!({
        "matchConstraints": rules(&["DELETE"]),
        "validations": [{"expression": "object == null && oldObject.data.k != 'kept'"}],
    });
    validating(&core, "kept", policy, json!({})).await;
    let at = format!("{MAPS}/a");
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({"k": "kept"}))).await.code, 201);
    assert_eq!(send(&core, Method::PATCH, &at, json!({"data": {"l": "1"}})).await.code, 200);
    let refused = send(&core, Method::PATCH, &at, json!({"data": {"k": "other"}})).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().ends_with("denied request: k is immutable"), "{}", refused.message());
    assert_eq!(send(&core, Method::DELETE, &at, Value::Null).await.code, 422);
    assert_eq!(send(&core, Method::POST, MAPS, map("b", json!({"k": "v"}))).await.code, 201);
    assert_eq!(send(&core, Method::DELETE, &format!("{MAPS}/b"), Value::Null).await.code, 200);
}

// A58
#[tokio::test]
async fn variables_are_evaluated_when_they_are_used_and_once() {
    let core = core();
    let policy = json!({
        "variables": [
            {"name": "all", "expression": "object.data"},
            {"name": "lacking", "expression": "object.data.missing"},
            {"name": "count", "expression": "size(variables.all)"},
        ],
        "validations": [
            {"expression": "variables.count < 2", "messageExpression": "'found ' + string(variables.count)"},
            {"expression": "variables.count == 1 || variables.lacking == 'x'"},
        ],
    });
    validating(&core, "few", policy, json!({})).await;
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await.code, 201);
    let refused = send(&core, Method::POST, MAPS, map("b", json!({"k": "v", "l": "w"}))).await;
    assert!(refused.message().ends_with("denied request: found 2"), "{}", refused.message());
    let refused = send(&core, Method::POST, MAPS, map("c", json!({}))).await;
    let why = "denied request: expression 'variables.count == 1 || variables.lacking == 'x'' resulted in error: \
               composited variable \"lacking\" fails to evaluate: no such key: missing";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

#[tokio::test]
async fn a_failure_counts_as_the_policy_says() {
    for (failure, code) in [("Fail", 422), ("Ignore", 201)] {
        let core = core();
        let policy =
            json!({"failurePolicy": failure, "validations": [{"expression": "object.data.none == 1"}]});
        validating(&core, "p", policy, json!({})).await;
        let answered = send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await;
        assert_eq!(answered.code, code, "{failure}: {}", answered.body);
    }
}

#[tokio::test]
async fn bindings_deny_warn_or_say_nothing() {
    for (actions, code, warnings) in
        [(json!(["Deny"]), 422, 0), (json!(["Warn", "Audit"]), 201, 1), (json!(["Audit"]), 201, 0)]
    {
        let core = core();
        validating(&core, "p", rule("false"), json!({"validationActions": actions})).await;
        let answered = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
        assert_eq!((answered.code, answered.warnings.len()), (code, warnings), "{actions}");
        if warnings == 1 {
            let text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-bound': failed expression: false";
            assert!(answered.warnings[0].contains(text), "{:?}", answered.warnings);
        }
    }
}

#[tokio::test]
async fn a_policy_without_a_binding_decides_nothing() {
    let core = core();
    let spec = with(json!({"matchConstraints": rules(&["*"])}), &rule("false"));
    made(&core, "validatingadmissionpolicies", "unbound", spec).await;
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({}))).await.code, 201);
}

#[tokio::test]
async fn selectors_exclusions_and_conditions_narrow_what_a_policy_is_for() {
    let rule_of = |extra: Value| {
        let own = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
        with(own, &extra)
    };
    let constraints = |fields: Value| with(rules(&["*"]), &fields);
    let chosen = json!({"matchLabels": {"chosen": "yes"}});
    for (name, policy, binding, code) in [
        (
            "object selector",
            json!({"matchConstraints": constraints(json!({"objectSelector": chosen}))}),
            json!({}),
            201,
        ),
        (
            "namespace selector",
            json!({"matchConstraints": constraints(json!({"namespaceSelector": chosen}))}),
            json!({}),
            201,
        ),
        (
            "its own namespace",
            json!({"matchConstraints": constraints(json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            }))}),
            json!({}),
            422,
        ),
        (
            "exclusion",
            json!({"matchConstraints": constraints(json!({"excludeResourceRules": [rule_of(json!({}))]}))}),
            json!({}),
            201,
        ),
        (
            "another name excluded",
            json!({"matchConstraints": constraints(json!({
                "excludeResourceRules": [rule_of(json!({"resourceNames": ["other"]}))],
            }))}),
            json!({}),
            422,
        ),
        ("binding", json!({}), json!({"matchResources": {"objectSelector": chosen}}), 201),
        (
            "condition",
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name != 'a'"}]}),
            json!({}),
            201,
        ),
        (
            "condition that fails",
            json!({"matchConditions": [{"name": "c", "expression": "object.spec.x"}, {"name": "d", "expression": "object.none == 1"}]}),
            json!({}),
            422,
        ),
    ] {
        let core = core();
        let mut policy = with(rule("false"), &policy);
        if name == "condition that fails" {
            policy["matchConditions"][0]["expression"] = "true".into();
        }
        validating(&core, "p", policy, binding).await;
        let answered = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
        assert_eq!(answered.code, code, "{name}: {}", answered.body);
    }
}

// A58
#[tokio::test]
async fn parameters_come_from_the_binding() {
    let policy = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "own", "expression": "object.metadata.name != params.metadata.name"}],
        "validations": [{
            "expression": "object.data.size() <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most",
        }],
    });
    let named = |action: &str| json!({"paramRef": {"name": "limits", "namespace": "kube-system", "parameterNotFoundAction": action}});
    let limits = |name: &str, most: &str| json!({"metadata": {"name": name, "labels": {"limits": "yes"}}, "data": {"most": most}});
    let of_the_system = "/api/v1/namespaces/kube-system/configmaps";
    // The parameters are not there.
    for (action, code) in [("Deny", 422), ("Allow", 201)] {
        let core = core();
        validating(&core, "p", policy.clone(), named(action)).await;
        let answered = send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await;
        assert_eq!(answered.code, code, "{}", answered.body);
        if code == 422 {
            let why = "ValidatingAdmissionPolicy 'p' with binding 'p-bound' denied request: failed to configure binding: \
                       no params found for policy binding with `Deny` parameterNotFoundAction";
            assert!(answered.message().ends_with(why), "{}", answered.message());
        }
    }
    // By name, and by a selector: each object that it selects is a parameter.
    let selected = json!({"paramRef": {
        "namespace": "kube-system", "selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny",
    }});
    for (reference, most) in [(named("Deny"), "2"), (selected, "1")] {
        let core = core();
        for (name, most) in [("limits", "2"), ("more-limits", "1")] {
            assert_eq!(send(&core, Method::POST, of_the_system, limits(name, most)).await.code, 201);
        }
        validating(&core, "p", policy.clone(), reference).await;
        let refused = send(&core, Method::POST, MAPS, map("a", json!({"k": "", "l": "", "m": ""}))).await;
        assert_eq!(refused.code, 422);
        let answered = send(&core, Method::POST, MAPS, map("b", json!({"k": "", "l": ""}))).await;
        match most {
            "2" => assert_eq!(answered.code, 201, "{}", answered.body),
            _ => assert!(answered.message().ends_with("at most 1"), "{}", answered.message()),
        }
    }
    // The kind of the parameters is not there.
    let core = core();
    let policy = with(policy, &json!({"paramKind": {"apiVersion": "limits.dev/v1", "kind": "Limit"}}));
    validating(&core, "p", policy, named("Allow")).await;
    let refused = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
    let why = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
               referenced by paramKind: 'limits.dev/v1, Kind=Limit'";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

#[tokio::test]
async fn policies_are_never_asked_about_policies() {
    let core = core();
    let policy = json!({
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]},
        ]},
        "validations": [{"expression": "false"}],
    });
    validating(&core, "p", policy, json!({})).await;
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({}))).await.code, 422);
    let at = format!("{POLICIES}/validatingadmissionpolicies/p");
    assert_eq!(send(&core, Method::DELETE, &at, Value::Null).await.code, 200);
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({}))).await.code, 201);
}

#[tokio::test]
async fn a_changed_policy_is_read_again() {
    let core = core();
    validating(&core, "p", rule("false"), json!({})).await;
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({}))).await.code, 422);
    let at = format!("{POLICIES}/validatingadmissionpolicies/p");
    let changed = send(&core, Method::PATCH, &at, json!({"spec": rule("true")})).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    assert_eq!(send(&core, Method::POST, MAPS, map("a", json!({}))).await.code, 201);
}

fn configuration(expression: &str) -> Value {
    json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]})
}

fn operations(expression: &str) -> Value {
    json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]})
}

// A59
#[tokio::test]
async fn a_mutation_merges_a_part_or_patches() {
    let made = "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a.b'), value: 'c'}]";
    let tested =
        "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, JSONPatch{op: 'remove', path: '/data/k'}]";
    for (policy, expected) in [
        (configuration("Object{data: {'l': object.metadata.name}}"), json!({"k": "v", "l": "a"})),
        (
            configuration("has(object.data.l) ? Object{} : Object{data: {'l': 'w'}}"),
            json!({"k": "v", "l": "w"}),
        ),
        // Entries that are optional; kube-apiserver 1.36.3 panics when such a policy is created.
        (
            configuration("Object{data: {?'l': object.data[?'k'], ?'m': object.data[?'none']}}"),
            json!({"k": "v", "l": "v"}),
        ),
        (operations(made), json!({"k": "v", "a.b": "c"})),
        (operations(tested), json!({"k": "v"})),
        (
            operations(
                "[JSONPatch{op: 'remove', path: '/data/k'}, JSONPatch{op: 'add', path: '/data/m', value: 'n'}]",
            ),
            json!({"m": "n"}),
        ),
    ] {
        let core = core();
        mutating(&core, "p", policy.clone()).await;
        let answered = send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await;
        assert_eq!((answered.code, &answered.body["data"]), (201, &expected), "{policy}: {}", answered.body);
    }
}

#[tokio::test]
async fn a_mutation_that_does_not_fit_refuses_the_request() {
    let metadata = "Object{metadata: Object.metadata{finalizers: ['a.dev/b']}}";
    for (policy, why) in [
        (
            configuration("Object{data: Object.wrong{l: 'w'}}"),
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.data\", which matches field name path from root Object type",
        ),
        (
            configuration("Object{nothing: 'w'}"),
            "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema",
        ),
        (
            operations("[JSONPatch{op: 'remove', path: '/data/none'}]"),
            "JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            configuration("Object{data: {'l': object.none}}"),
            "expression 'Object{data: {'l': object.none}}' resulted in error: no such key: none",
        ),
    ] {
        let core = core();
        mutating(&core, "p", policy).await;
        let refused = send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await;
        let message = format!("policy 'p' with binding 'p-bound' denied request: {why}");
        assert_eq!((refused.code, refused.message()), (403, message.as_str()));
        assert_eq!(refused.body["reason"], "Invalid");
    }
    // Finalizers are a set: they are merged.
    let core = core();
    mutating(&core, "p", configuration(metadata)).await;
    let made = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
    assert_eq!(made.body["metadata"]["finalizers"], json!(["a.dev/b"]), "{}", made.body);
    // A container's arguments are one value.
    let core = self::core();
    let spec = with(
        json!({"matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
        ]}, "reinvocationPolicy": "Never"}),
        &configuration(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', args: ['x']}]}}",
        ),
    );
    made_pods(&core, spec).await;
}

async fn made_pods(core: &Core, spec: Value) {
    made(core, "mutatingadmissionpolicies", "p", spec).await;
    made(core, "mutatingadmissionpolicybindings", "p-bound", json!({"policyName": "p"})).await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    let refused = send(core, Method::POST, "/api/v1/namespaces/default/pods", pod).await;
    let why = "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

// A59
#[tokio::test]
async fn a_policy_runs_again_if_a_later_one_changed_the_object() {
    for (policy, expected) in [("Never", "0"), ("IfNeeded", "1")] {
        let core = core();
        let counts = "Object{data: {'labels': has(object.metadata.labels) ? string(size(object.metadata.labels)) : '0'}}";
        let own = with(configuration(counts), &json!({ "reinvocationPolicy": policy }));
        mutating(&core, "a-first", own).await;
        mutating(&core, "b-second", configuration("Object{metadata: Object.metadata{labels: {'x': 'y'}}}"))
            .await;
        let made = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
        assert_eq!(made.body["data"]["labels"], expected, "{policy}: {}", made.body);
    }
}

#[tokio::test]
async fn changes_by_policies_are_validated_and_have_no_owner() {
    let core = core();
    mutating(&core, "adds", configuration("Object{data: {'l': 'w'}}")).await;
    validating(&core, "few", rule("object.data.size() < 3"), json!({})).await;
    let made = send(&core, Method::POST, MAPS, map("a", json!({"k": "v"}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let owned = &made.body["metadata"]["managedFields"][0]["fieldsV1"]["f:data"];
    assert_eq!(owned, &json!({".": {}, "f:k": {}}), "{}", made.body);
    assert_eq!(send(&core, Method::POST, MAPS, map("b", json!({"k": "v", "m": ""}))).await.code, 422);
}

async fn ask_as(core: &Core, user: User, name: &str) -> (u16, String) {
    let uri = format!("{MAPS}?dryRun=All").parse().expect("a uri");
    let body = Bytes::from(map(name, json!({})).to_string());
    let request = ApiRequest { method: Method::POST, uri, headers: HeaderMap::new(), body, user };
    let Reply::Full(response) = core.serve(request).await else { panic!("a stream") };
    let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    (response.status().as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

/// Makes a core with roles, in which ann may create ConfigMaps, and ann and a service account may approve `a`.
async fn with_roles() -> Core {
    let core = Core::new(CoreConfig { authorization: Authorization::Rbac, ..CoreConfig::default() });
    let group = "rbac.authorization.k8s.io";
    let writes = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]});
    let approves = json!({"apiGroups": [""], "resources": ["configmaps/approval"], "verbs": ["approve"],
        "resourceNames": ["a"]});
    let reads = json!({"nonResourceURLs": ["/rules"], "verbs": ["get"]});
    let ann = json!({"kind": "User", "apiGroup": group, "name": "ann"});
    let account = json!({"kind": "ServiceAccount", "namespace": "ops", "name": "robot"});
    for (name, rules, subjects) in [
        ("writes", json!([writes, reads]), json!([ann])),
        ("approves", json!([approves]), json!([ann, account])),
    ] {
        let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
        for (plural, body) in [
            ("clusterroles", json!({"metadata": {"name": name}, "rules": rules})),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects}),
            ),
        ] {
            let made = send(&core, Method::POST, &format!("/apis/{group}/v1/{plural}"), body).await;
            assert_eq!(made.code, 201, "{}", made.body);
        }
    }
    core
}

// A58
#[tokio::test]
async fn policies_ask_the_authorizer_about_the_user_of_the_request() {
    let core = with_roles().await;
    let approval = "authorizer.group('').resource('configmaps').subresource('approval').namespace('default').name(object.metadata.name).check('approve')";
    let policy = json!({
        "matchConditions": [{"name": "c", "expression": "!authorizer.path('/skip').check('get').allowed()"}],
        "variables": [
            {"name": "approval", "expression": approval},
            {"name": "own", "expression": "authorizer.requestResource"},
        ],
        "validations": [
            {"expression": "variables.approval.allowed()", "messageExpression": "'not approved: ' + object.metadata.name"},
            {"expression": "variables.own.check('create').allowed() && !variables.own.check('delete').allowed()"},
            {"expression": "authorizer.path('/rules').check('get').allowed() && !authorizer.path('/rules').check('post').allowed()"},
            {"expression": "!variables.approval.errored() && variables.approval.error() == ''"},
        ],
    });
    validating(&core, "approved", policy, json!({})).await;
    let ann = || User::named("ann", vec!["system:authenticated".to_owned()]);
    assert_eq!(ask_as(&core, ann(), "a").await, (201, String::new()));
    let (code, why) = ask_as(&core, ann(), "b").await;
    assert!(code == 422 && why.ends_with("denied request: not approved: b"), "{code} {why}");
    // A superuser may do everything, so it may skip the rules.
    assert_eq!(ask_as(&core, User::Admin, "b").await.0, 201);
    let robot = |name: &str| {
        format!(
            "authorizer.serviceAccount('ops', '{name}').group('').resource('configmaps').subresource('approval').namespace('default').name(object.metadata.name).check('approve')"
        )
    };
    let reason = "RBAC: allowed by ClusterRoleBinding \"approves\" of ClusterRole \"approves\" to ServiceAccount \"robot/ops\"";
    for (at, (expression, name, expected)) in [
        (format!("{}.allowed() && !{}.allowed()", robot("robot"), robot("other")), "a", ""),
        (format!("{}.reason() == '{reason}'", robot("robot")), "a", ""),
        (format!("{}.allowed()", robot("robot")), "b", "failed expression"),
        (
            "authorizer.serviceAccount('ops', 'A').path('/').check('get').allowed()".to_owned(),
            "a",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('o.s', 'a').path('/').check('get').allowed()".to_owned(),
            "a",
            "Invalid service account namespace",
        ),
        ("authorizer.path(' ').check('get').allowed()".to_owned(), "a", "path must not be empty"),
        (
            "authorizer.group('').resource('').check('get').allowed()".to_owned(),
            "a",
            "resource must not be empty",
        ),
        // Two checks are the most, as on a real server; one that is not evaluated does not count.
        (
            "['a', 'b', 'c'].exists(v, authorizer.path('/rules').check(v).allowed())".to_owned(),
            "a",
            "actual cost limit exceeded",
        ),
        (
            "['a', 'get', 'c', 'd'].exists(v, authorizer.path('/rules').check(v).allowed())".to_owned(),
            "a",
            "",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let core = with_roles().await;
        validating(&core, &format!("p{at}"), rule(&expression), json!({})).await;
        let (code, why) = ask_as(&core, ann(), name).await;
        assert!(
            if expected.is_empty() { code == 201 } else { why.contains(expected) },
            "{expression}: {code} {why}"
        );
    }
    let many: Vec<Value> =
        (0..30).map(|_| json!({"expression": "authorizer.path('/rules').check('get').allowed()"})).collect();
    let core = with_roles().await;
    validating(&core, "many", json!({ "validations": many }), json!({})).await;
    let (code, why) = ask_as(&core, ann(), "a").await;
    assert!(code == 422 && why.contains("running out of cost budget"), "{code} {why}");
}

// A59
#[tokio::test]
async fn changes_ask_the_authorizer_too() {
    let core = with_roles().await;
    let expression =
        "Object{data: {'deletes': authorizer.requestResource.check('delete').allowed() ? 'yes' : 'no'}}";
    mutating(&core, "marks", configuration(expression)).await;
    let made = send(&core, Method::POST, MAPS, map("a", json!({}))).await;
    assert_eq!(made.body["data"], json!({"deletes": "yes"}), "{}", made.body);
}

// A58
#[tokio::test]
async fn only_who_may_read_parameters_installs_a_policy_with_them() {
    let core = Core::new(CoreConfig { authorization: Authorization::Rbac, ..CoreConfig::default() });
    let group = "rbac.authorization.k8s.io";
    let install = |user: &'static str| {
        let core = &core;
        async move {
            let user = || User::named(user, Vec::new());
            let reference = |spec: Value| with(spec, &json!({"parameterNotFoundAction": "Deny"}));
            let binding = |of: &str, reference: Value| json!({"policyName": of, "validationActions": ["Deny"], "paramRef": reference});
            let policy = |kind: &str| {
                json!({"matchConstraints": rules(&["*"]), "paramKind": {"apiVersion": "v1", "kind": kind},
                "validations": [{"expression": "true"}]})
            };
            let mut said = Vec::new();
            for (plural, spec) in [
                ("policies", policy("ConfigMap")),
                ("policies", policy("Nothing")),
                (
                    "policybindings",
                    binding("limits", reference(json!({"name": "a", "namespace": "default"}))),
                ),
                ("policybindings", binding("limits", reference(json!({"selector": {}})))),
                ("policybindings", binding("none", reference(json!({"name": "a"})))),
            ] {
                let uri =
                    format!("{POLICIES}/validatingadmission{plural}?dryRun=All").parse().expect("a uri");
                let body = Bytes::from(json!({"metadata": {"name": "p"}, "spec": spec}).to_string());
                let request =
                    ApiRequest { method: Method::POST, uri, headers: HeaderMap::new(), body, user: user() };
                let Reply::Full(response) = core.serve(request).await else { panic!("a stream") };
                let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
                said.push(body["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned());
            }
            said
        }
    };
    let named = json!({"matchConstraints": rules(&["*"]), "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "true"}]});
    made(&core, "validatingadmissionpolicies", "limits", named).await;
    let writes =
        json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["create"]});
    let reads = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    for (user, rules) in [("ann", json!([writes])), ("bob", json!([writes, reads]))] {
        let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": user});
        let subjects = json!([{"kind": "User", "apiGroup": group, "name": user}]);
        for (plural, body) in [
            ("clusterroles", json!({"metadata": {"name": user}, "rules": rules})),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": user}, "roleRef": role, "subjects": subjects}),
            ),
        ] {
            let made = send(&core, Method::POST, &format!("/apis/{group}/v1/{plural}"), body).await;
            assert_eq!(made.code, 201, "{}", made.body);
        }
    }
    let of_the_kind = |user: &str, kind: &str| {
        format!(
            "Forbidden: user &{{{user} {user} [] map[]}} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion=v1)"
        )
    };
    let of_the_object = |user: &str, verb: &str| {
        format!(
            "Forbidden: user &{{{user} {user} [] map[]}} does not have {verb:?} permission on the object referenced by paramRef"
        )
    };
    let of_all = |user: &str| {
        format!(
            "Forbidden: unable to get policy none to determine minimum required permissions and user &{{{user} {user} [] map[]}} does not have \"get\" permission for all groups, versions and resources"
        )
    };
    assert_eq!(
        install("ann").await,
        [
            of_the_kind("ann", "ConfigMap"),
            of_the_kind("ann", "Nothing"),
            of_the_object("ann", "get"),
            of_the_object("ann", "list"),
            of_all("ann")
        ]
    );
    let none = String::new();
    assert_eq!(
        install("bob").await,
        [none.clone(), of_the_kind("bob", "Nothing"), none, of_the_object("bob", "list"), of_all("bob")]
    );
}

/// The causes for which a policy is refused.
async fn refused(plural: &str, spec: Value) -> Vec<String> {
    let body = json!({"metadata": {"name": "p"}, "spec": spec});
    let answered = send(&core(), Method::POST, &format!("{POLICIES}/{plural}"), body).await;
    let causes = answered.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let line = |cause: &Value| {
        let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("field"), text("message"))
    };
    causes.iter().map(line).collect()
}

// A60
#[tokio::test]
async fn a_policy_that_can_not_work_is_refused_when_it_is_written() {
    let validations = |expression: &str| with(json!({"matchConstraints": rules(&["*"])}), &rule(expression));
    for (spec, expected) in [
        (rule("true"), "spec.matchConstraints.resourceRules: Required value"),
        (
            json!({"matchConstraints": rules(&["*"])}),
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
        ),
        (
            validations("object.x +"),
            "spec.validations[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: <input>:1:11: Syntax error",
        ),
        (
            validations("objekt.x == 1"),
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'objekt' (in container '')",
        ),
        (validations("params.x == 1"), "undeclared reference to 'params'"),
        (validations("variables.x == 1"), "undeclared reference to 'variables'"),
        (validations("request.nothing == 'x'"), "undefined field 'nothing'"),
        (validations("object.spec.enabled"), "must evaluate to bool but got dyn"),
        (validations("'text'"), "must evaluate to bool but got string"),
        (validations("Object{} == null"), "undeclared reference to 'Object'"),
        (validations("authorizer.path('/').check('get').denied()"), "undeclared reference to 'denied'"),
        (
            validations("authorizer.path('/').check('get')"),
            "must evaluate to bool but got kubernetes.authorization.Decision",
        ),
        (
            validations("authorizer.resource('pods').check('get').allowed()"),
            "found no matching overload for 'resource' applied to 'kubernetes.authorization.Authorizer.(string)'",
        ),
        (
            validations("authorizer.group(1).resource('pods').check('get').allowed()"),
            "found no matching overload for 'group' applied to 'kubernetes.authorization.Authorizer.(int)'",
        ),
        (
            with(validations("true"), &json!({"variables": [{"name": "a-b", "expression": "1"}]})),
            "spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier",
        ),
        (
            with(validations("true"), &json!({"matchConditions": [{"name": "", "expression": "true"}]})),
            "spec.matchConditions[0].name: Required value",
        ),
    ] {
        let found = refused("validatingadmissionpolicies", spec.clone()).await;
        assert!(found.iter().any(|line| line.contains(expected)), "{spec}: {found:?}");
    }
    let mutations = |mutation: Value| {
        with(json!({"matchConstraints": rules(&["CREATE"]), "reinvocationPolicy": "Never"}), &mutation)
    };
    for (spec, expected) in [
        (mutations(json!({})), "spec.mutations: Required value: mutations must contain at least one item"),
        (mutations(configuration("{'a': 'b'}")), "must evaluate to Object but got map(string, string)"),
        (mutations(operations("Object{}")), "must evaluate to list(JSONPatch) but got Object"),
        (mutations(operations("[JSONPatch{what: 'x'}]")), "undefined field 'what'"),
        (
            with(mutations(configuration("Object{}")), &json!({"matchConstraints": rules(&["DELETE"])})),
            "Unsupported value: \"DELETE\": supported values: \"CREATE\", \"UPDATE\"",
        ),
    ] {
        let found = refused("mutatingadmissionpolicies", spec.clone()).await;
        assert!(found.iter().any(|line| line.contains(expected)), "{spec}: {found:?}");
    }
    for (spec, expected) in [
        (json!({"validationActions": ["Deny"]}), "spec.policyName: Required value"),
        (json!({"policyName": "p"}), "spec.validationActions: Required value"),
        (
            json!({"policyName": "p", "validationActions": ["Deny", "Warn"]}),
            "must not contain both Deny and Warn",
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {"parameterNotFoundAction": "Deny"}}),
            "spec.paramRef: Required value: one of name or selector must be specified",
        ),
    ] {
        let found = refused("validatingadmissionpolicybindings", spec.clone()).await;
        assert!(found.iter().any(|line| line.contains(expected)), "{spec}: {found:?}");
    }
}

// A61
#[tokio::test]
async fn expressions_are_bounded_in_time_and_memory() {
    let nested = "object.data.k.split('').all(a, object.data.k.split('').all(b, a == b))";
    let large = "object.data.k.split('').map(a, object.data.k + object.data.k).size() > 0";
    let core = core();
    for (name, expression) in [("nested", nested), ("large", large)] {
        validating(&core, name, rule(expression), json!({})).await;
    }
    let refused = send(&core, Method::POST, MAPS, map("a", json!({"k": "v".repeat(10_000)}))).await;
    assert!(refused.message().contains("cost limit exceeded"), "{}", refused.message());
    // Many expressions share a budget, and variables count.
    let core = self::core();
    let dear = "variables.v.split('').all(a, !variables.v.contains('w'))";
    let policy = json!({
        "variables": [{"name": "v", "expression": "object.data.k"}],
        "validations": vec![json!({ "expression": dear }); 200],
    });
    validating(&core, "many", policy, json!({})).await;
    let refused = send(&core, Method::POST, MAPS, map("a", json!({"k": "v".repeat(1_000)}))).await;
    assert!(refused.message().contains("running out of cost budget"), "{}", refused.message());
}
