//! Default roles and bindings of every cluster, except those of the cluster's own components.

use serde_json::{Value, json};

use super::resolve::GROUP;
use crate::apply::{UpdateInput, track_update};
use crate::object;
use crate::state::{Authorization, State};
use crate::store::ResourceId;

const WRITE: &str = "create delete deletecollection patch update";
const READ: &str = "get list watch";
const ALL: &str = "create delete deletecollection get list patch update watch";

/// A rule: verbs, groups and resources, with blanks between; the core group is `core`.
type Rule = (&'static str, &'static str, &'static str);

/// The permissions of the role `view`.
const VIEW: &[Rule] = &[
    (
        READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
         replicationcontrollers/scale serviceaccounts services services/status",
    ),
    (
        READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas \
         resourcequotas/status",
    ),
    (READ, "core", "namespaces"),
    (READ, "core events.k8s.io", "events"),
    (READ, "discovery.k8s.io", "endpointslices"),
    (
        READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets \
         replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
    ),
    (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (
        READ,
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
         networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
    ),
    (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
];

/// The permissions of the role `edit` beyond `view`.
const EDIT: &[Rule] = &[
    (READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "core", "serviceaccounts"),
    (WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "core", "pods/eviction"),
    (
        WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts \
         services services/proxy",
    ),
    ("create", "core", "serviceaccounts/token"),
    (WRITE, "core events.k8s.io", "events"),
    (
        WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
         statefulsets/scale",
    ),
    (WRITE, "autoscaling", "horizontalpodautoscalers"),
    (WRITE, "batch", "cronjobs jobs"),
    (
        WRITE,
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
         replicasets/scale replicationcontrollers/scale",
    ),
    (WRITE, "policy", "poddisruptionbudgets"),
    (WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (ALL, "coordination.k8s.io", "leases"),
    (WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
];

/// The permissions of the role `admin` beyond `edit`.
const ADMIN: &[Rule] =
    &[("create", "authorization.k8s.io", "localsubjectaccessreviews"), (ALL, GROUP, "rolebindings roles")];

const BASIC: &[Rule] = &[
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
];

const DELEGATOR: &[Rule] = &[
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
];

const MONITORING: &[Rule] = &[("get", "core", "nodes/metrics")];

/// A role: its name, its rules, the paths it lets read, and the role that it is part of.
type Role = (&'static str, &'static [Rule], &'static str, &'static str);

const ROLES: &[Role] = &[
    (
        "system:discovery",
        &[],
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
        "",
    ),
    (
        "system:monitoring",
        MONITORING,
        "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*",
        "",
    ),
    ("system:basic-user", BASIC, "", ""),
    ("system:public-info-viewer", &[], "/healthz /livez /readyz /version /version/", ""),
    ("system:aggregate-to-admin", ADMIN, "", "admin"),
    ("system:aggregate-to-edit", EDIT, "", "edit"),
    ("system:aggregate-to-view", VIEW, "", "view"),
    ("system:auth-delegator", DELEGATOR, "", ""),
];

/// The aggregated roles, and the role that each is part of.
const AGGREGATED: [(&str, &str); 3] = [("admin", ""), ("edit", "admin"), ("view", "edit")];

/// The bindings, named as their role, and the groups they are for.
const BINDINGS: [(&str, &str); 5] = [
    ("cluster-admin", "system:masters"),
    ("system:discovery", "system:authenticated"),
    ("system:basic-user", "system:authenticated"),
    ("system:public-info-viewer", "system:authenticated system:unauthenticated"),
    ("system:monitoring", "system:monitoring"),
];

/// Creates the default roles and bindings that are not there, where roles decide.
pub(crate) fn install(state: &mut State) {
    if state.authorization != Authorization::Rbac {
        return;
    }
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    add(state, "clusterroles", "cluster-admin", "", json!({ "rules": everything }));
    for (name, rules, paths, part_of) in ROLES {
        let mut list: Vec<Value> = Vec::new();
        if !paths.is_empty() {
            list.push(json!({"verbs": ["get"], "nonResourceURLs": words(paths)}));
        }
        list.extend(rules.iter().map(rule));
        add(state, "clusterroles", name, part_of, json!({ "rules": list }));
    }
    for (name, part_of) in AGGREGATED {
        let labels = json!({"matchLabels": {label(name): "true"}});
        let body = json!({"aggregationRule": {"clusterRoleSelectors": [labels]}, "rules": null});
        add(state, "clusterroles", name, part_of, body);
    }
    for (name, groups) in BINDINGS {
        let subjects: Vec<Value> = words(groups)
            .into_iter()
            .map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group}))
            .collect();
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        add(state, "clusterrolebindings", name, "", json!({"roleRef": role, "subjects": subjects}));
    }
    super::aggregate::step(state);
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().map(|word| if word == "core" { "" } else { word }).collect()
}

fn rule((verbs, groups, resources): &Rule) -> Value {
    json!({"verbs": words(verbs), "apiGroups": words(groups), "resources": words(resources)})
}

fn label(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

fn add(state: &mut State, plural: &str, name: &str, part_of: &str, body: Value) {
    let id = ResourceId::new(GROUP, plural);
    if state.store.get(&id, name).is_some() {
        return;
    }
    let Some(resource) = state.registry.find(GROUP, plural).cloned() else { return };
    let (served, now, uid) = (resource.storage_version(), state.clock.seconds(), state.make_uid());
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if !part_of.is_empty() {
        labels[label(part_of)] = "true".into();
    }
    let mut object = body;
    let map = object::map_mut(&mut object);
    map.insert("kind".into(), resource.kind.clone().into());
    map.insert("apiVersion".into(), served.api_version().into());
    map.insert(
        "metadata".into(),
        json!({
            "name": name, "uid": uid, "creationTimestamp": now, "labels": labels,
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        }),
    );
    track_update(UpdateInput {
        live: None,
        new: &mut object,
        manager: "kube-apiserver",
        subresource: None,
        api_version: &served.api_version(),
        schema: &served.schema,
        ignored: &[],
        now: &now,
    });
    state.store.put(&id, name, object);
}
