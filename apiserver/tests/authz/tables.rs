//! The roles, the questions and the requests.

use k8s_openapi::serde_json::{Value, json};

/// One question: may they?
#[derive(Debug)]
pub(crate) struct Question {
    /// The user; a name with `+` has groups behind it.
    who: &'static str,
    verb: &'static str,
    group: &'static str,
    /// The resource, `/` and a subresource; a path where it begins with `/`.
    what: &'static str,
    namespace: &'static str,
    name: &'static str,
    pub(crate) allowed: bool,
}

impl Question {
    pub(crate) const fn of(
        who: &'static str,
        verb: &'static str,
        group: &'static str,
        what: &'static str,
        namespace: &'static str,
        name: &'static str,
    ) -> Self {
        Self { who, verb, group, what, namespace, name, allowed: true }
    }

    const fn no(self) -> Self {
        Self { allowed: false, ..self }
    }

    pub(crate) fn spec(&self) -> Value {
        let mut parts = self.who.split('+');
        let user = parts.next().unwrap_or_default();
        let groups: Vec<&str> = parts.collect();
        if self.what.starts_with('/') {
            let asked = json!({"verb": self.verb, "path": self.what});
            return json!({"user": user, "groups": groups, "nonResourceAttributes": asked});
        }
        let (resource, subresource) = self.what.split_once('/').unwrap_or((self.what, ""));
        let asked = json!({
            "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
            "namespace": self.namespace, "name": self.name,
        });
        json!({"user": user, "groups": groups, "resourceAttributes": asked})
    }
}

/// One request, as the administrator with these headers, or as the user `viewer`.
#[derive(Debug)]
pub(crate) struct Act<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) viewer: bool,
    pub(crate) code: u16,
}

const fn ask(
    who: &'static str,
    verb: &'static str,
    what: &'static str,
    namespace: &'static str,
    name: &'static str,
) -> Question {
    Question::of(who, verb, "", what, namespace, name)
}

const APPS: &str = "apps";
const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const QUESTIONS: &[Question] = &[
    ask("ann", "get", "pods", "shop", "a"),
    ask("ann", "list", "pods", "shop", ""),
    ask("ann", "list", "pods", "", "").no(),
    ask("ann", "list", "pods", "default", "").no(),
    ask("ann", "get", "pods/log", "shop", "a"),
    ask("ann", "get", "pods/status", "shop", "a").no(),
    ask("ann", "delete", "pods", "shop", "a").no(),
    ask("zoe", "get", "pods", "shop", "a").no(),
    ask("zoe+readers", "get", "pods", "shop", "a"),
    ask("zoe+readers", "watch", "pods", "", ""),
    ask("zoe+readers", "get", "nodes", "", "n").no(),
    Question::of("sue", "update", APPS, "deployments/scale", "default", "web"),
    Question::of("sue", "update", APPS, "statefulsets/scale", "shop", "db"),
    Question::of("sue", "update", APPS, "deployments", "shop", "web").no(),
    Question::of("sue", "get", APPS, "deployments", "", ""),
    ask("sue", "update", "replicationcontrollers/scale", "shop", "r").no(),
    ask("ben", "get", "configmaps", "shop", "conf"),
    ask("ben", "get", "configmaps", "shop", "other").no(),
    ask("ben", "list", "configmaps", "shop", "").no(),
    ask("ben", "list", "configmaps", "shop", "conf"),
    ask("ben", "create", "configmaps", "shop", "").no(),
    ask("ben", "delete", "configmaps", "", "conf"),
    ask("oli+ops", "get", "/metrics", "", ""),
    ask("oli+ops", "get", "/logs/a/b", "", ""),
    ask("oli+ops", "get", "/logs", "", "").no(),
    ask("oli+ops", "post", "/metrics", "", "").no(),
    ask("oli", "get", "/metrics", "", "").no(),
    ask("system:serviceaccount:shop:robot", "delete", "configmaps", "shop", "a"),
    ask("system:serviceaccount:default:robot", "delete", "configmaps", "shop", "a").no(),
    ask("system:serviceaccount:shop:robot", "get", "secrets", "shop", "a").no(),
    ask("cat", "get", "pods", "shop", "a").no(),
    ask("vic", "get", "pods", "shop", "a"),
    ask("vic", "get", "secrets", "shop", "a").no(),
    ask("vic", "create", "pods", "shop", "").no(),
    ask("eve", "get", "secrets", "shop", "a"),
    ask("eve", "create", "pods", "shop", ""),
    Question::of("eve", "create", GROUP, "roles", "shop", "").no(),
    Question::of("ada", "create", GROUP, "rolebindings", "shop", ""),
    Question::of("ada", "get", "coordination.k8s.io", "leases", "shop", "l"),
    ask("ada", "get", "pods", "default", "a").no(),
    ask("ada", "update", "namespaces", "shop", "shop").no(),
    Question::of("agg", "get", "example.com", "widgets", "shop", "w"),
    Question::of("agg", "list", "example.com", "gadgets", "", "").no(),
    ask("x+system:masters", "anything", "nothing", "", ""),
    ask("x+system:masters", "get", "/everything", "", ""),
    ask("x+system:authenticated", "get", "/api/v1", "", ""),
    ask("x+system:authenticated", "get", "/openapi/v3", "", ""),
    ask("x+system:authenticated", "get", "/metrics", "", "").no(),
    ask("x+system:unauthenticated", "get", "/version", "", ""),
    ask("x+system:unauthenticated", "get", "/healthz", "", ""),
    ask("x+system:unauthenticated", "get", "/api", "", "").no(),
    Question::of(
        "x+system:authenticated",
        "create",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "",
        "",
    ),
    Question::of("x+system:authenticated", "create", "authorization.k8s.io", "subjectaccessreviews", "", "")
        .no(),
];

const fn act(
    method: &'static str,
    path: &'static str,
    who: &'static [(&'static str, &'static str)],
    code: u16,
) -> Act<'static> {
    Act { method, path, body: "", headers: who, viewer: false, code }
}

const fn post(
    path: &'static str,
    body: &'static str,
    who: &'static [(&'static str, &'static str)],
    code: u16,
) -> Act<'static> {
    Act { method: "POST", path, body, headers: who, viewer: false, code }
}

const fn viewer(path: &'static str, who: &'static [(&'static str, &'static str)], code: u16) -> Act<'static> {
    Act { method: "GET", path, body: "", headers: who, viewer: true, code }
}

const ANN: &[(&str, &str)] = &[("impersonate-user", "ann")];
const CAT: &[(&str, &str)] = &[("impersonate-user", "cat")];
const EVE: &[(&str, &str)] = &[("impersonate-user", "eve")];
const ADA: &[(&str, &str)] = &[("impersonate-user", "ada")];
const BOB: &[(&str, &str)] = &[("impersonate-user", "bob")];
const ESC: &[(&str, &str)] = &[("impersonate-user", "esc")];
const ROBOT: &[(&str, &str)] = &[("impersonate-user", "system:serviceaccount:shop:robot")];
const NOBODY: &[(&str, &str)] = &[("impersonate-user", "system:anonymous")];

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

pub(crate) const ACTS: &[Act<'static>] = &[
    act("GET", "/api/v1/namespaces/shop/pods", ANN, 200),
    act("GET", "/api/v1/namespaces/default/pods", ANN, 403),
    act("GET", "/api/v1/pods", ANN, 403),
    act("GET", "/api/v1/namespaces/shop/pods/p", ANN, 404),
    act("DELETE", "/api/v1/namespaces/shop/pods/p", ANN, 403),
    act("DELETE", "/api/v1/namespaces/shop/pods", ANN, 403),
    act("GET", "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dx", EVE, 200),
    act("GET", "/metrics", ANN, 403),
    act("GET", "/", ANN, 403),
    act("GET", "/apis/apps/v1/namespaces/shop/deployments/d/scale", ANN, 403),
    act("GET", "/api/v1/namespaces/shop", EVE, 200),
    act("GET", "/api/v1/namespaces", EVE, 403),
    act("GET", "/apis/example.com/v1/widgets", EVE, 403),
    act("GET", "/api/v1/namespaces/shop/configmaps/x%3Cy", ANN, 403),
    // A binding that names a role which is not there says so.
    act("GET", "/api/v1/namespaces/shop/pods", CAT, 403),
    act("GET", "/api/v1/namespaces/shop/configmaps", ROBOT, 200),
    act("GET", "/api/v1/namespaces/shop/secrets", ROBOT, 403),
    act("GET", "/version", NOBODY, 200),
    act("GET", "/api", NOBODY, 403),
    act("GET", "/api/v1/nodes", NOBODY, 403),
    act("GET", "/version", &[("impersonate-group", "g")], 400),
    act("GET", "/version", &[("impersonate-uid", "u"), ("impersonate-extra-a", "b")], 400),
    // Nobody gives away what they have not.
    post(
        ROLES,
        r#"{"metadata":{"name":"own"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
        ADA,
        201,
    ),
    post(
        ROLES,
        r#"{"metadata":{"name":"more"},"rules":[{"apiGroups":["","apps"],"resources":["nodes","pods"],"verbs":["get","bind"]}]}"#,
        ADA,
        403,
    ),
    post(
        ROLES,
        r#"{"metadata":{"name":"named"},"rules":[{"apiGroups":[""],"resources":["nodes"],"resourceNames":["a","b"],"verbs":["get"]}]}"#,
        ADA,
        403,
    ),
    post(ROLES, r#"{"metadata":{"name":"r"},"rules":[]}"#, EVE, 403),
    Act {
        method: "PATCH",
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/editor",
        body: r#"{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#,
        headers: ADA,
        viewer: false,
        code: 403,
    },
    // Fields that only the garbage collector changes do not grant anything.
    Act {
        method: "PATCH",
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/wide",
        body: r#"{"metadata":{"finalizers":["example.com/f"]}}"#,
        headers: ADA,
        viewer: false,
        code: 200,
    },
    Act {
        method: "PATCH",
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/wide",
        body: r#"{"metadata":{"labels":{"a":"b"}}}"#,
        headers: ADA,
        viewer: false,
        code: 403,
    },
    post(
        BINDINGS,
        r#"{"metadata":{"name":"b1"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"new"}]}"#,
        ADA,
        201,
    ),
    post(
        BINDINGS,
        r#"{"metadata":{"name":"b2"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}"#,
        ADA,
        403,
    ),
    post(
        BINDINGS,
        r#"{"metadata":{"name":"b3"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"nothing"}}"#,
        ADA,
        404,
    ),
    // `bind` and `escalate` are rights of their own.
    post(
        BINDINGS,
        r#"{"metadata":{"name":"b4"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"scaler"}}"#,
        BOB,
        201,
    ),
    post(
        BINDINGS,
        r#"{"metadata":{"name":"b5"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"urls"}}"#,
        BOB,
        403,
    ),
    post(
        CLUSTER_ROLES,
        r#"{"metadata":{"name":"e1"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#,
        ESC,
        201,
    ),
    post(
        CLUSTER_ROLES,
        r#"{"metadata":{"name":"e2"},"rules":[],"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}"#,
        BOB,
        403,
    ),
    post(
        CLUSTER_ROLES,
        r#"{"metadata":{"name":"e3"},"rules":[{"nonResourceURLs":["/x"],"verbs":["get"]}]}"#,
        BOB,
        403,
    ),
    // Who may be whom.
    viewer("/api/v1/namespaces/shop/pods", &[], 403),
    viewer("/api/v1/namespaces/shop/pods", &[("impersonate-user", "ann")], 200),
    viewer("/api/v1/namespaces/shop/pods", &[("impersonate-user", "ben")], 403),
    viewer("/version", &[("impersonate-user", "ben")], 403),
    viewer("/api/v1/pods", &[("impersonate-user", "ann"), ("impersonate-group", "readers")], 200),
    viewer("/api/v1/pods", &[("impersonate-user", "ann"), ("impersonate-group", "system:masters")], 403),
    viewer(
        "/api/v1/namespaces/shop/configmaps",
        &[("impersonate-user", "system:serviceaccount:shop:robot")],
        200,
    ),
    viewer(
        "/api/v1/namespaces/shop/configmaps",
        &[("impersonate-user", "system:serviceaccount:shop:other")],
        403,
    ),
    viewer(
        "/api/v1/namespaces/shop/configmaps",
        &[("impersonate-user", "system:serviceaccount:shop:other"), ("impersonate-group", "readers")],
        403,
    ),
    viewer(
        "/api/v1/namespaces/shop/pods",
        &[("impersonate-user", "ann"), ("impersonate-extra-scopes", "view")],
        200,
    ),
    viewer(
        "/api/v1/namespaces/shop/pods",
        &[("impersonate-user", "ann"), ("impersonate-extra-scopes", "all")],
        403,
    ),
    viewer("/api/v1/namespaces/shop/pods", &[("impersonate-user", "ann"), ("impersonate-uid", "7")], 403),
];

/// What is created first, in order, and where.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let cluster_bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let subject = |who: &str| match who.split_once(':') {
        Some(("sa", name)) => json!({"kind": "ServiceAccount", "namespace": "shop", "name": name}),
        Some(("group", name)) => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
        _ => json!({"kind": "User", "apiGroup": GROUP, "name": who}),
    };
    let binding = |name: &str, kind: &str, role: &str, who: &str| json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": [subject(who)]});
    let impersonation = json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["readers"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["robot"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "resourceNames": ["view"], "verbs": ["impersonate"]},
    ]);
    let binder = json!([
        rule(&[GROUP], &["rolebindings", "clusterroles"], &["create"]),
        {"apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["scaler"], "verbs": ["bind"]},
    ]);
    let mut part = role("part", json!([rule(&["example.com"], &["widgets"], &["get"])]));
    part["metadata"]["labels"] = json!({"for": "whole"});
    let whole = json!({
        "metadata": {"name": "whole"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"for": "whole"}}]},
    });
    vec![
        ("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})),
        (
            cluster_roles,
            role("reader", json!([rule(&[""], &["pods", "pods/log"], &["get", "list", "watch"])])),
        ),
        (
            cluster_roles,
            role(
                "scaler",
                json!([rule(&[APPS], &["*/scale"], &["update"]), rule(&[APPS], &["deployments"], &["get"])]),
            ),
        ),
        (
            cluster_roles,
            role(
                "named",
                json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["conf"], "verbs": ["*"]}]),
            ),
        ),
        (
            cluster_roles,
            role("urls", json!([{"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}])),
        ),
        (cluster_roles, role("impersonator", impersonation)),
        (cluster_roles, role("binder", binder)),
        (
            cluster_roles,
            role("escalator", json!([rule(&[GROUP], &["clusterroles"], &["create", "escalate"])])),
        ),
        (cluster_roles, part),
        (cluster_roles, whole),
        (ROLES, role("editor", json!([rule(&[""], &["configmaps"], &["*"])]))),
        (ROLES, role("wide", json!([rule(&["*"], &["*"], &["*"])]))),
        (BINDINGS, binding("ann", "ClusterRole", "reader", "ann")),
        (BINDINGS, binding("robot", "Role", "editor", "sa:robot")),
        (BINDINGS, binding("cat", "ClusterRole", "absent", "cat")),
        (BINDINGS, binding("vic", "ClusterRole", "view", "vic")),
        (BINDINGS, binding("eve", "ClusterRole", "edit", "eve")),
        (BINDINGS, binding("ada", "ClusterRole", "admin", "ada")),
        (cluster_bindings, binding("readers", "ClusterRole", "reader", "group:readers")),
        (cluster_bindings, binding("sue", "ClusterRole", "scaler", "sue")),
        (cluster_bindings, binding("ben", "ClusterRole", "named", "ben")),
        (cluster_bindings, binding("ops", "ClusterRole", "urls", "group:ops")),
        (cluster_bindings, binding("agg", "ClusterRole", "whole", "agg")),
        (cluster_bindings, binding("bob", "ClusterRole", "binder", "bob")),
        (cluster_bindings, binding("esc", "ClusterRole", "escalator", "esc")),
        (cluster_bindings, binding("viewer", "ClusterRole", "impersonator", "viewer")),
    ]
}
