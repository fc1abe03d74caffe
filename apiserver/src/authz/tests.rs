//! Claims about rules alone; the core's tests ask whole servers.

use serde_json::json;

use super::attributes::Attributes;
use super::rule::{PolicyRule, describe};

fn asked(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

// A6
#[test]
fn a_rule_lets_what_it_names() {
    let rule =
        json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log", "*/scale"]});
    let named = json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["web"]});
    let (rule, named) = (PolicyRule(&rule), PolicyRule(&named));
    for (what, expected) in [
        (asked("get", "", "pods", "a"), true),
        (asked("list", "", "pods", ""), true),
        (asked("watch", "", "pods", ""), false),
        (asked("get", "apps", "pods", "a"), false),
        (asked("get", "", "pods/log", "a"), true),
        (asked("get", "", "pods/status", "a"), false),
        (asked("get", "", "replicationcontrollers/scale", "a"), true),
        (asked("get", "", "scale", "a"), false),
    ] {
        assert_eq!(rule.allows(&what), expected, "{what:?}");
    }
    for (what, expected) in [
        (asked("get", "apps", "deployments", "web"), true),
        (asked("get", "apps", "deployments/status", "web"), true),
        (asked("get", "apps", "deployments", "other"), false),
        // A list of all, or a create, names nothing; a list by `metadata.name` does.
        (asked("list", "apps", "deployments", ""), false),
        (asked("create", "apps", "deployments", ""), false),
        (asked("list", "apps", "deployments", "web"), true),
    ] {
        assert_eq!(named.allows(&what), expected, "{what:?}");
    }
}

// A6
#[test]
fn a_path_ends_with_a_star_or_is_meant_whole() {
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz/*", "/version"]});
    let path = |verb: &str, path: &str| Attributes {
        verb: verb.to_owned(),
        path: Some(path.to_owned()),
        ..Attributes::default()
    };
    for (what, expected) in [
        (path("get", "/healthz/ping"), true),
        (path("get", "/healthz/"), true),
        (path("get", "/healthz"), false),
        (path("get", "/version"), true),
        (path("get", "/version/x"), false),
        (path("post", "/version"), false),
    ] {
        assert_eq!(PolicyRule(&rule).allows(&what), expected, "{what:?}");
    }
    assert!(!PolicyRule(&rule).allows(&asked("get", "", "pods", "")));
}

// A7
#[test]
fn rules_cover_others_piece_by_piece() {
    let cover = |own: serde_json::Value, wanted: serde_json::Value| {
        PolicyRule(&wanted).simple().iter().all(|simple| PolicyRule(&own).covers(simple))
    };
    let rule = |verbs: &[&str], resources: &[&str], names: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": resources, "resourceNames": names});
    assert!(cover(rule(&["*"], &["*"], &[]), rule(&["get", "x"], &["pods", "pods/log"], &["a"])));
    assert!(cover(rule(&["get"], &["*/log"], &[]), rule(&["get"], &["pods/log"], &[])));
    assert!(!cover(rule(&["get"], &["pods"], &[]), rule(&["get"], &["pods/log"], &[])));
    assert!(!cover(rule(&["get"], &["pods"], &["a"]), rule(&["get"], &["pods"], &[])));
    assert!(cover(rule(&["get"], &["pods"], &["a", "b"]), rule(&["get"], &["pods"], &["a"])));
    assert!(!cover(rule(&["get"], &["pods"], &[]), rule(&["*"], &["pods"], &[])));
    let paths = |verb: &str, path: &str| json!({"verbs": [verb], "nonResourceURLs": [path]});
    assert!(cover(paths("get", "/a/*"), paths("get", "/a/b/*")));
    assert!(!cover(paths("get", "/a"), paths("get", "/a/*")));
}

#[test]
fn what_is_lacking_is_listed_by_resource() {
    let rule = json!({"verbs": ["list", "get"], "apiGroups": [""], "resources": ["pods", "maps"], "resourceNames": []});
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
    let lacking = [PolicyRule(&rule).simple(), PolicyRule(&paths).simple()].concat();
    assert_eq!(
        describe(&lacking),
        "{APIGroups:[\"\"], Resources:[\"maps\"], Verbs:[\"list\" \"get\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"get\"]}\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
    );
}
