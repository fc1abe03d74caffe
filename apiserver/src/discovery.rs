//! Discovery: groups, versions and resources, in the old form and the aggregated one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::{Reach, Registry, Resource, Served, UNSTORED_GROUPS, Unstored, unstored};
use crate::object;

const BUILT_IN_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Subresources of built-in kinds other than status and scale: plural, name, kind with group and version, verbs.
const BELOW: [(&str, &str, [&str; 3], &[&str]); 10] = [
    ("pods", "attach", ["", "", "PodAttachOptions"], &["create", "get"]),
    ("pods", "binding", ["", "", "Binding"], &["create"]),
    ("pods", "eviction", ["policy", "v1", "Eviction"], &["create"]),
    ("pods", "exec", ["", "", "PodExecOptions"], &["create", "get"]),
    ("pods", "log", ["", "", "Pod"], &["get"]),
    ("pods", "portforward", ["", "", "PodPortForwardOptions"], &["create", "get"]),
    ("pods", "proxy", ["", "", "PodProxyOptions"], PROXY_VERBS),
    ("nodes", "proxy", ["", "", "NodeProxyOptions"], PROXY_VERBS),
    ("services", "proxy", ["", "", "ServiceProxyOptions"], PROXY_VERBS),
    ("serviceaccounts", "token", ["authentication.k8s.io", "v1", "TokenRequest"], &["create"]),
];
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

/// One subresource: its name, its kind with group and version, its verbs.
type Below<'a> = (&'a str, [&'a str; 3], Vec<&'static str>);

/// Lists the subresources of a resource by name; the status of custom resources comes first.
fn below<'a>(resource: &'a Resource, served: &'a Served) -> Vec<Below<'a>> {
    let own = served.subresources.iter().map(|name| {
        let kind =
            if name == "scale" { ["autoscaling", "v1", "Scale"] } else { ["", "", resource.kind.as_str()] };
        (name.as_str(), kind, subresource_verbs(name))
    });
    let mut all: Vec<Below<'a>> = own.collect();
    if resource.is_custom() {
        all.sort_by_key(|(name, ..)| *name != "status");
        return all;
    }
    let more = BELOW.iter().filter(|(plural, name, ..)| {
        *plural == resource.plural() && resource.group().is_empty() && !served.offers(name)
    });
    all.extend(more.map(|(_, name, kind, verbs)| (*name, *kind, verbs.to_vec())));
    all.sort_by_key(|(name, ..)| *name);
    all
}

/// Returns all groups with their versions, preferred first.
pub(crate) fn all_groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = registry.groups().into_iter().collect();
    groups.extend(UNSTORED_GROUPS.map(|group| (group.to_owned(), vec!["v1".to_owned()])));
    groups
}

fn verbs(resource: &Resource) -> Vec<&'static str> {
    let all = if resource.is_custom() { CUSTOM_VERBS } else { BUILT_IN_VERBS };
    let no_collection = resource.built_in().is_some_and(|row| row.kind == "Namespace");
    all.into_iter().filter(|verb| !(no_collection && *verb == "deletecollection")).collect()
}

fn subresource_verbs(name: &str) -> Vec<&'static str> {
    if name == "finalize" { vec!["update"] } else { SUBRESOURCE_VERBS.to_vec() }
}

/// Writes `/api`.
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    })
}

fn group_value(name: &str, versions: &[String]) -> Value {
    let entry =
        |version: &String| json!({"groupVersion": object::api_version(name, version), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// Writes `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = all_groups(registry)
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_value(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Writes `/apis/GROUP`.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = all_groups(registry);
    let mut value = group_value(name, groups.get(name)?);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

/// Writes `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut out: Vec<Value> = unstored(group, version).map(listed_unstored).collect();
    let mut known = !out.is_empty();
    for resource in registry.all().filter(|r| r.group() == group) {
        let Some(served) = resource.served(version) else { continue };
        known = true;
        out.push(main_resource(resource));
        out.extend(below(resource, served).into_iter().map(|below| subresource(resource, below)));
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": object::api_version(group, version), "resources": out,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    known.then_some(list)
}

fn main_resource(resource: &Resource) -> Value {
    let mut out = json!({
        "name": resource.plural(), "singularName": resource.singular,
        "namespaced": resource.reach == Reach::Namespaced, "kind": resource.kind, "verbs": verbs(resource),
        "storageVersionHash": storage_hash(resource),
    });
    if !resource.short_names.is_empty() {
        out["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        out["categories"] = resource.categories.clone().into();
    }
    out
}

/// Makes eleven letters from a resource's storage version, stable from run to run.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let text = format!("{}/{}/{}", resource.group(), resource.storage_version().version, resource.kind);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    base64::engine::general_purpose::STANDARD.encode(hash.to_be_bytes())
}

fn subresource(resource: &Resource, (name, [group, version, kind], verbs): Below<'_>) -> Value {
    let mut out = json!({
        "name": format!("{}/{name}", resource.plural()), "singularName": "",
        "namespaced": resource.reach == Reach::Namespaced, "kind": kind, "verbs": verbs,
    });
    if !version.is_empty() {
        out["group"] = group.into();
        out["version"] = version.into();
    }
    out
}

/// The half of the aggregated discovery that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The core group: `/api`.
    Core,
    /// All others: `/apis`.
    Groups,
}

/// Writes the aggregated discovery of `/api` or `/apis`.
pub(crate) fn aggregated(registry: &Registry, half: Half) -> Value {
    let groups = all_groups(registry);
    let groups = groups.iter().filter(|(name, _)| name.is_empty() == (half == Half::Core));
    let items: Vec<Value> = groups
        .map(|(name, versions)| {
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let found = registry.all().filter(|r| r.group() == name);
                    let found = found.filter_map(|r| Some(discovered(r, r.served(version)?)));
                    // Those of the core group come first: nothing else has any.
                    let found = unstored(name, version).map(discovered_unstored).chain(found);
                    json!({"version": version, "resources": found.collect::<Vec<_>>(), "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn listed_unstored(unstored: &Unstored) -> Value {
    let Unstored { plural, kind, reach, verbs, short_names, .. } = unstored;
    let mut out = json!({
        "name": plural, "singularName": kind.to_lowercase(), "namespaced": *reach == Reach::Namespaced,
        "kind": kind, "verbs": verbs,
    });
    if !short_names.is_empty() {
        out["shortNames"] = json!(short_names);
    }
    out
}

fn discovered_unstored(unstored: &Unstored) -> Value {
    let Unstored { plural, kind, reach, verbs, short_names, .. } = unstored;
    let mut out = json!({
        "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": if *reach == Reach::Namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.to_lowercase(), "verbs": verbs,
    });
    if !short_names.is_empty() {
        out["shortNames"] = json!(short_names);
    }
    out
}

fn discovered(resource: &Resource, served: &Served) -> Value {
    let (group, version) =
        if resource.is_custom() { (served.group.as_str(), served.version.as_str()) } else { ("", "") };
    let mut out = json!({
        "resource": resource.plural(),
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": if resource.reach == Reach::Namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        out["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        out["categories"] = resource.categories.clone().into();
    }
    let subresources: Vec<Value> = below(resource, served)
        .into_iter()
        .map(|(name, [own_group, own_version, kind], verbs)| {
            let (group, version) =
                if own_version.is_empty() { (group, version) } else { (own_group, own_version) };
            let kind = json!({"group": group, "version": version, "kind": kind});
            json!({"subresource": name, "responseKind": kind, "verbs": verbs})
        })
        .collect();
    if !subresources.is_empty() {
        out["subresources"] = subresources.into();
    }
    out
}

/// Writes `/version`: that of the server that this one imitates.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.3",
        "gitCommit": "0000000000000000000000000000000000000000", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Writes `/`: the paths there are.
pub(crate) fn root(registry: &Registry) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for (group, versions) in all_groups(registry).iter().filter(|(name, _)| !name.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    json!({"paths": paths})
}
