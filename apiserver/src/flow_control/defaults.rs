//! Default flow schemas and priority levels: those of every cluster.

use serde_json::{Map, Value, json};

use super::GROUP;
use crate::state::State;
use crate::store::ResourceId;

/// The subjects of a schema.
#[derive(Clone, Copy)]
enum Whom {
    Group(&'static str),
    User(&'static str),
    /// All service accounts of `kube-system`.
    SystemAccounts,
}

/// The requests that the rules of a schema match.
#[derive(Clone, Copy)]
enum What {
    Everything,
    Probes,
    LeaderElection,
    Nodes,
}

/// A flow schema: name, priority level, precedence, how flows are distinguished, subjects and requests.
type Schema = (&'static str, &'static str, u32, &'static str, &'static [Whom], What);

const EVERYBODY: &[Whom] = &[Whom::Group("system:unauthenticated"), Whom::Group("system:authenticated")];
const NODES: &[Whom] = &[Whom::Group("system:nodes")];
const MANAGER: Whom = Whom::User("system:kube-controller-manager");
const SCHEDULER: Whom = Whom::User("system:kube-scheduler");
const CAMPAIGNERS: &[Whom] = &[MANAGER, SCHEDULER, Whom::SystemAccounts];

const SCHEMAS: [Schema; 11] = [
    ("exempt", "exempt", 1, "", &[Whom::Group("system:masters")], What::Everything),
    ("probes", "exempt", 2, "", EVERYBODY, What::Probes),
    ("system-leader-election", "leader-election", 100, "ByUser", CAMPAIGNERS, What::LeaderElection),
    ("system-node-high", "node-high", 400, "ByUser", NODES, What::Nodes),
    ("system-nodes", "system", 500, "ByUser", NODES, What::Everything),
    ("kube-controller-manager", "workload-high", 800, "ByNamespace", &[MANAGER], What::Everything),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", &[SCHEDULER], What::Everything),
    (
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        &[Whom::SystemAccounts],
        What::Everything,
    ),
    (
        "service-accounts",
        "workload-low",
        9_000,
        "ByUser",
        &[Whom::Group("system:serviceaccounts")],
        What::Everything,
    ),
    ("global-default", "global-default", 9_900, "ByUser", EVERYBODY, What::Everything),
    ("catch-all", "catch-all", 10_000, "ByUser", EVERYBODY, What::Everything),
];

/// A level with limits: its name, its shares, the percentage it may lend, and its queues and hand size, if any.
type Level = (&'static str, u32, u32, Option<(u32, u32)>);

const LEVELS: [Level; 7] = [
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("node-high", 40, 25, Some((64, 6))),
    ("system", 30, 33, Some((64, 6))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
];

/// Creates missing default schemas and levels without using up a version.
pub(crate) fn install(state: &mut State) {
    let exempt = json!({"nominalConcurrencyShares": 0, "lendablePercent": 0});
    add_level(state, "exempt", json!({"type": "Exempt", "exempt": exempt}));
    for (name, shares, lendable, queues) in LEVELS {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({"type": "Queue",
                "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}}),
        };
        let limited = json!({"nominalConcurrencyShares": shares, "limitResponse": response,
            "lendablePercent": lendable});
        add_level(state, name, json!({"type": "Limited", "limited": limited}));
    }
    SCHEMAS.iter().for_each(|schema| add_schema(state, schema));
}

fn add_level(state: &mut State, name: &str, spec: Value) {
    add(state, ("PriorityLevelConfiguration", name), spec, json!({}), &[]);
}

fn add_schema(state: &mut State, (name, level, precedence, distinguisher, whom, what): &Schema) {
    let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence});
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({ "type": distinguisher });
    }
    let mut rules = what.rules();
    rules["subjects"] = whom.iter().map(|whom| whom.subject()).collect();
    spec["rules"] = json!([rules]);
    let now = state.clock.seconds();
    let found = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists"
    );
    let status = json!({"conditions": [{"type": "Dangling", "status": "False", "lastTransitionTime": now,
        "reason": "Found", "message": found}]});
    let fields = json!({"f:status": {"f:conditions": {"k:{\"type\":\"Dangling\"}": {".": {},
        "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}}}}});
    let consumer = entry("api-priority-and-fairness-config-consumer-v1", "Apply", &now, fields);
    let consumer = with(consumer, "subresource", "status".into());
    add(state, ("FlowSchema", name), spec, status, &[consumer]);
}

impl Whom {
    fn subject(self) -> Value {
        match self {
            Self::Group(name) => json!({"kind": "Group", "group": {"name": name}}),
            Self::User(name) => json!({"kind": "User", "user": {"name": name}}),
            Self::SystemAccounts => json!({"kind": "ServiceAccount",
                "serviceAccount": {"namespace": "kube-system", "name": "*"}}),
        }
    }
}

impl What {
    fn rules(self) -> Value {
        let leases = json!({"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"]});
        let all = |groups: &str, resources: &[&str]| {
            json!({"verbs": ["*"], "apiGroups": [groups], "resources": resources, "clusterScope": true,
                "namespaces": ["*"]})
        };
        match self {
            Self::Everything => json!({"resourceRules": [all("*", &["*"])],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
            Self::Probes => json!({"nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}),
            Self::LeaderElection => {
                json!({"resourceRules": [with(leases, "verbs", json!(["get", "create", "update"]))]})
            }
            Self::Nodes => json!({"resourceRules": [all("", &["nodes", "nodes/status"]), leases]}),
        }
    }
}

fn with(mut value: Value, key: &str, part: Value) -> Value {
    value[key] = part;
    value
}

fn entry(manager: &str, operation: &str, now: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": format!("{GROUP}/v1"), "time": now,
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// Writes which fields there are; lists have one owner.
fn fields(value: &Value) -> Value {
    let Some(map) = value.as_object() else { return json!({}) };
    let own = map.iter().map(|(key, value)| (format!("f:{key}"), inner(key, value)));
    own.collect::<Map<_, _>>().into()
}

fn inner(key: &str, value: &Value) -> Value {
    match fields(value) {
        // The reference is a struct, others can be absent as a whole.
        Value::Object(map) if !map.is_empty() && key != "priorityLevelConfiguration" => {
            with(Value::Object(map), ".", json!({}))
        }
        other => other,
    }
}

fn add(state: &mut State, (kind, name): (&str, &str), spec: Value, status: Value, managers: &[Value]) {
    let id = ResourceId::new(GROUP, &format!("{}s", kind.to_lowercase()));
    if state.store.get(&id, name).is_some() {
        return;
    }
    let now = state.clock.seconds();
    let annotations = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
    let owned = json!({"f:metadata": {"f:annotations": with(fields(&annotations), ".", json!({}))},
        "f:spec": fields(&spec)});
    let producer = entry("api-priority-and-fairness-config-producer-v1", "Update", &now, owned);
    let managed: Vec<&Value> = managers.iter().chain([&producer]).collect();
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "uid": state.fixed_uid(&format!("{kind}/{name}")), "generation": 1,
            "creationTimestamp": now, "annotations": annotations, "managedFields": managed},
        "spec": spec, "status": status,
    });
    state.store.preset(&id, name, object);
}
