//! Claims about a core that enforces roles; `tests/authz` checks a real server the same way, and more.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::authz::{Attributes, WantedUser};
use crate::identity::User;
use crate::route::RequestInfo;
use crate::state::Authorization;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn core() -> Core {
    Core::new(CoreConfig { authorization: Authorization::Rbac, ..CoreConfig::default() })
}

fn user(name: &str) -> User {
    User::named(name, vec!["system:authenticated".to_owned()])
}

async fn call(core: &Core, user: User, method: Method, uri: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    if method == Method::PATCH {
        headers.insert("content-type", "application/merge-patch+json".parse().expect("a value"));
    }
    let uri = uri.parse().expect("a uri");
    match core.serve(ApiRequest { method, uri, headers, body, user }).await {
        Reply::Full(response) => {
            (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
        }
        Reply::Stream { .. } => (200, Value::Null),
    }
}

async fn role(core: &Core, name: &str, rules: Value) {
    let body = json!({"metadata": {"name": name}, "rules": rules});
    let (code, made) = call(core, User::Admin, Method::POST, &format!("{RBAC}/clusterroles"), body).await;
    assert_eq!(code, 201, "{made}");
}

async fn bind(core: &Core, role: &str, user: &str) {
    let body = json!({
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": user}],
    });
    let (code, made) =
        call(core, User::Admin, Method::POST, &format!("{RBAC}/clusterrolebindings"), body).await;
    assert_eq!(code, 201, "{made}");
}

async fn code(core: &Core, name: &str, method: Method, uri: &str) -> u16 {
    call(core, user(name), method, uri, Value::Null).await.0
}

// A6
#[tokio::test(start_paused = true)]
async fn a_user_may_what_a_bound_role_lets_and_no_more() {
    let core = core();
    let (_, refused) = call(&core, user("ann"), Method::GET, MAPS, Value::Null).await;
    assert_eq!(
        refused["message"],
        "configmaps is forbidden: User \"ann\" cannot list resource \"configmaps\" in API group \"\" in the namespace \
         \"default\""
    );
    role(
        &core,
        "named",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["*"]}]),
    )
    .await;
    bind(&core, "named", "ann").await;
    for (method, uri, expected) in [
        (Method::GET, format!("{MAPS}/a"), 404),
        (Method::GET, format!("{MAPS}/b"), 403),
        (Method::GET, MAPS.to_owned(), 403),
        (Method::GET, format!("{MAPS}?fieldSelector=metadata.name%3Da"), 200),
        (Method::GET, format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da"), 200),
        (Method::POST, MAPS.to_owned(), 403),
        (Method::GET, "/api/v1/secrets".to_owned(), 403),
        (Method::GET, "/apis".to_owned(), 200),
        (Method::GET, "/metrics".to_owned(), 403),
    ] {
        assert_eq!(code(&core, "ann", method.clone(), &uri).await, expected, "{method} {uri}");
    }
    assert_eq!(call(&core, User::Anonymous, Method::GET, "/version", Value::Null).await.0, 200);
    assert_eq!(call(&core, User::Anonymous, Method::GET, "/apis", Value::Null).await.0, 403);
    let masters = User::named("x", vec!["system:masters".to_owned()]);
    assert_eq!(call(&core, masters, Method::GET, "/api/v1/secrets", Value::Null).await.0, 200);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_binding_to_a_role_that_is_absent_is_named_in_the_refusal() {
    let core = core();
    bind(&core, "absent", "ann").await;
    let (_, refused) = call(&core, user("ann"), Method::GET, MAPS, Value::Null).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with(": RBAC: clusterrole.rbac.authorization.k8s.io \"absent\" not found"),
        "{message}"
    );
}

// A7
#[tokio::test(start_paused = true)]
async fn nobody_gives_away_rights_that_they_have_not() {
    let core = core();
    role(
        &core,
        "giver",
        json!([
            {"apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        ]),
    )
    .await;
    bind(&core, "giver", "ann").await;
    let give = |name: &str, verbs: &[&str]| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
    let roles = format!("{RBAC}/clusterroles");
    assert_eq!(call(&core, user("ann"), Method::POST, &roles, give("own", &["get"])).await.0, 201);
    let (code, refused) =
        call(&core, user("ann"), Method::POST, &roles, give("more", &["get", "list", "watch"])).await;
    assert_eq!(
        (code, refused["message"].as_str()),
        (
            403,
            Some(
                "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) \
                 is attempting to grant RBAC permissions not currently held:\n\
                 {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}"
            )
        )
    );
    let own = format!("{roles}/own");
    let widened = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    assert_eq!(call(&core, user("ann"), Method::PATCH, &own, widened).await.0, 403);
    let binding = |role: &str| {
        json!({"metadata": {"name": format!("b-{role}")}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
               "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "new"}]})
    };
    let bindings = format!("{RBAC}/clusterrolebindings");
    assert_eq!(call(&core, user("ann"), Method::POST, &bindings, binding("own")).await.0, 201);
    assert_eq!(call(&core, user("ann"), Method::POST, &bindings, binding("cluster-admin")).await.0, 403);
    // `escalate` and `bind` say that they may all the same.
    role(
        &core,
        "free",
        json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["escalate", "bind"]}]),
    )
    .await;
    bind(&core, "free", "ann").await;
    assert_eq!(call(&core, user("ann"), Method::POST, &roles, give("more", &["*"])).await.0, 201);
    assert_eq!(call(&core, user("ann"), Method::POST, &bindings, binding("cluster-admin")).await.0, 201);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_role_too_large_to_compare_is_refused_at_once() {
    let core = core();
    role(&core, "giver", json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["create"]}]))
        .await;
    bind(&core, "giver", "ann").await;
    let many: Vec<String> = (0..2000).map(|n| format!("x{n}")).collect();
    let body = json!({"metadata": {"name": "big"}, "rules": [{"apiGroups": many, "resources": many, "verbs": many}]});
    let (code, refused) = call(&core, user("ann"), Method::POST, &format!("{RBAC}/clusterroles"), body).await;
    assert_eq!(code, 403);
    assert!(
        refused["message"].as_str().unwrap_or_default().contains("at most 100000 can be compared"),
        "{refused}"
    );
}

fn wanted(headers: &[(&'static str, &str)]) -> WantedUser {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().expect("a value"));
    }
    WantedUser::of(&map).expect("a user").expect("somebody")
}

// A8
#[tokio::test(start_paused = true)]
async fn acting_as_somebody_else_takes_a_right_for_each_part() {
    let core = core();
    let listing = Attributes::of(&Method::GET, &RequestInfo::of(&Method::GET, &MAPS.parse().expect("a uri")));
    let act = |name: &str, headers: &[(&'static str, &str)]| {
        core.impersonate(&user(name), &wanted(headers), &listing)
    };
    let (jane, robot) =
        (("impersonate-user", "jane"), ("impersonate-user", "system:serviceaccount:default:robot"));
    let refused = act("ann", &[jane]).expect_err("no right");
    assert_eq!(
        refused.message,
        "configmaps is forbidden: User \"ann\" cannot impersonate-on:user-info:list resource \"configmaps\" in API group \
         \"\" in the namespace \"default\""
    );
    role(
        &core,
        "old",
        json!([
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]},
            {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"], "verbs": ["impersonate"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "verbs": ["impersonate"]},
        ]),
    )
    .await;
    bind(&core, "old", "ann").await;
    let got = act("ann", &[jane, ("impersonate-group", "devs"), ("impersonate-extra-scopes", "a")])
        .expect("a right");
    assert_eq!((got.name(), got.groups()), ("jane", vec!["devs", "system:authenticated"]));
    assert_eq!(got.extra().and_then(|extra| extra.get("scopes")), Some(&vec!["a".to_owned()]));
    let got = act("ann", &[robot]).expect("a right");
    assert_eq!(
        got.groups(),
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    );
    for beyond in [
        vec![("impersonate-user", "joe")],
        vec![jane, ("impersonate-group", "system:masters")],
        vec![jane, ("impersonate-uid", "1")],
        vec![jane, ("impersonate-extra-other", "a")],
    ] {
        assert_eq!(act("ann", &beyond).expect_err("no right").code, 403, "{beyond:?}");
    }
    // The newer way: a right to be somebody, and one for what is done as them.
    role(
        &core,
        "new",
        json!([
            {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:user-info:list"]},
        ]),
    )
    .await;
    bind(&core, "new", "ben").await;
    assert_eq!(act("ben", &[jane]).expect("a right").name(), "jane");
    assert_eq!(act("ben", &[robot]).expect_err("no right").code, 403);
    let getting = Attributes { verb: "get".to_owned(), ..listing.clone() };
    assert!(core.impersonate(&user("ben"), &wanted(&[jane]), &getting).is_err());
    assert!(
        core.impersonate(
            &User::Admin,
            &wanted(&[("impersonate-user", "x"), ("impersonate-group", "system:masters")]),
            &listing
        )
        .expect("an administrator")
        .is_superuser()
    );
}

// A9
#[tokio::test(start_paused = true)]
async fn an_aggregated_role_has_the_rules_of_those_its_labels_choose() {
    let core = core();
    bind(&core, "view", "vic").await;
    assert_eq!(code(&core, "vic", Method::GET, MAPS).await, 200, "the default roles are aggregated");
    assert_eq!(code(&core, "vic", Method::GET, "/apis/apps/v1/deployments").await, 200);
    assert_eq!(code(&core, "vic", Method::GET, "/api/v1/secrets").await, 403);
    let roles = format!("{RBAC}/clusterroles");
    let more = json!({
        "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    });
    assert_eq!(call(&core, User::Admin, Method::POST, &roles, more).await.0, 201);
    core.settle();
    assert_eq!(code(&core, "vic", Method::GET, "/api/v1/secrets").await, 200);
    call(&core, User::Admin, Method::DELETE, &format!("{roles}/more"), Value::Null).await;
    core.settle();
    assert_eq!(code(&core, "vic", Method::GET, "/api/v1/secrets").await, 403);
    let version = core.resource_version();
    core.settle();
    assert_eq!(core.resource_version(), version, "nothing is written where nothing changes");
}

// A6
#[tokio::test(start_paused = true)]
async fn reviews_are_answered_by_the_roles() {
    let core = core();
    bind(&core, "view", "vic").await;
    let reviews = "/apis/authorization.k8s.io/v1";
    let asked = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    let own = json!({"spec": {"resourceAttributes": asked}});
    let path = format!("{reviews}/selfsubjectaccessreviews");
    let (_, mine) = call(&core, user("vic"), Method::POST, &path, own).await;
    assert_eq!(mine["status"]["allowed"], true, "{mine}");
    assert_eq!(
        mine["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"vic-view\" of ClusterRole \"view\" to User \"vic\""
    );
    let theirs = |user: &str| json!({"spec": {"user": user, "resourceAttributes": asked}});
    let path = format!("{reviews}/subjectaccessreviews");
    assert_eq!(
        call(&core, user("vic"), Method::POST, &path, theirs("vic")).await.0,
        403,
        "not everyone may ask"
    );
    for (name, allowed) in [("vic", true), ("ann", false)] {
        let (code, review) = call(&core, User::Admin, Method::POST, &path, theirs(name)).await;
        assert_eq!((code, &review["status"]["allowed"]), (201, &json!(allowed)), "{review}");
    }
    let path = format!("{reviews}/namespaces/default/localsubjectaccessreviews");
    let mut local = theirs("vic");
    assert_eq!(call(&core, User::Admin, Method::POST, &path, local.clone()).await.0, 422);
    local["metadata"] = json!({"namespace": "default"});
    assert_eq!(call(&core, User::Admin, Method::POST, &path, local).await.1["status"]["allowed"], true);
    let path = format!("{reviews}/selfsubjectrulesreviews");
    let (_, rules) =
        call(&core, user("vic"), Method::POST, &path, json!({"spec": {"namespace": "default"}})).await;
    let has = |resource: &str| {
        let rules = rules["status"]["resourceRules"].as_array().expect("rules");
        rules
            .iter()
            .any(|rule| rule["resources"].as_array().is_some_and(|list| list.iter().any(|r| r == resource)))
    };
    assert!(has("pods/log") && has("selfsubjectreviews") && !has("secrets"), "{rules}");
}

// A6
#[tokio::test(start_paused = true)]
async fn without_roles_users_have_what_is_given_to_them() {
    let core = Core::new(CoreConfig::default());
    bind(&core, "cluster-admin", "ann").await;
    assert_eq!(code(&core, "ann", Method::GET, MAPS).await, 403, "roles are stored only");
    assert_eq!(
        call(&core, User::Admin, Method::GET, &format!("{RBAC}/clusterroles"), Value::Null).await.1["items"],
        json!([])
    );
}
