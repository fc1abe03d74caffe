//! The schemas of the built-in kinds, and what their published form leaves out.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as crd;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::Schema;
use super::node::ListKind;
use super::parse::{self, Origin};

/// Names a built-in kind and its definition.
struct BuiltIn {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    definition: &'static str,
}

macro_rules! built_ins {
    ($($group:literal $version:literal $kind:ident $package:literal $ty:ty;)*) => {
        const KINDS: &[BuiltIn] = &[$(BuiltIn {
            group: $group,
            version: $version,
            kind: stringify!($kind),
            definition: concat!($package, ".", stringify!($kind)),
        },)*];

        fn generate(generator: &mut SchemaGenerator) {
            $(generator.subschema_for::<$ty>();)*
        }
    };
}

built_ins! {
    "" "v1" ConfigMap "io.k8s.api.core.v1" api::core::v1::ConfigMap;
    "" "v1" Endpoints "io.k8s.api.core.v1" api::core::v1::Endpoints;
    "" "v1" Event "io.k8s.api.core.v1" api::core::v1::Event;
    "" "v1" LimitRange "io.k8s.api.core.v1" api::core::v1::LimitRange;
    "" "v1" Namespace "io.k8s.api.core.v1" api::core::v1::Namespace;
    "" "v1" Node "io.k8s.api.core.v1" api::core::v1::Node;
    "" "v1" PersistentVolume "io.k8s.api.core.v1" api::core::v1::PersistentVolume;
    "" "v1" PersistentVolumeClaim "io.k8s.api.core.v1" api::core::v1::PersistentVolumeClaim;
    "" "v1" Pod "io.k8s.api.core.v1" api::core::v1::Pod;
    "" "v1" PodTemplate "io.k8s.api.core.v1" api::core::v1::PodTemplate;
    "" "v1" ReplicationController "io.k8s.api.core.v1" api::core::v1::ReplicationController;
    "" "v1" ResourceQuota "io.k8s.api.core.v1" api::core::v1::ResourceQuota;
    "" "v1" Secret "io.k8s.api.core.v1" api::core::v1::Secret;
    "" "v1" Service "io.k8s.api.core.v1" api::core::v1::Service;
    "" "v1" ServiceAccount "io.k8s.api.core.v1" api::core::v1::ServiceAccount;
    "apps" "v1" ControllerRevision "io.k8s.api.apps.v1" api::apps::v1::ControllerRevision;
    "apps" "v1" DaemonSet "io.k8s.api.apps.v1" api::apps::v1::DaemonSet;
    "apps" "v1" Deployment "io.k8s.api.apps.v1" api::apps::v1::Deployment;
    "apps" "v1" ReplicaSet "io.k8s.api.apps.v1" api::apps::v1::ReplicaSet;
    "apps" "v1" StatefulSet "io.k8s.api.apps.v1" api::apps::v1::StatefulSet;
    "autoscaling" "v1" HorizontalPodAutoscaler "io.k8s.api.autoscaling.v1" api::autoscaling::v1::HorizontalPodAutoscaler;
    "autoscaling" "v1" Scale "io.k8s.api.autoscaling.v1" api::autoscaling::v1::Scale;
    "autoscaling" "v2" HorizontalPodAutoscaler "io.k8s.api.autoscaling.v2" api::autoscaling::v2::HorizontalPodAutoscaler;
    "batch" "v1" CronJob "io.k8s.api.batch.v1" api::batch::v1::CronJob;
    "batch" "v1" Job "io.k8s.api.batch.v1" api::batch::v1::Job;
    "coordination.k8s.io" "v1" Lease "io.k8s.api.coordination.v1" api::coordination::v1::Lease;
    "discovery.k8s.io" "v1" EndpointSlice "io.k8s.api.discovery.v1" api::discovery::v1::EndpointSlice;
    "events.k8s.io" "v1" Event "io.k8s.api.events.v1" api::events::v1::Event;
    "networking.k8s.io" "v1" Ingress "io.k8s.api.networking.v1" api::networking::v1::Ingress;
    "networking.k8s.io" "v1" NetworkPolicy "io.k8s.api.networking.v1" api::networking::v1::NetworkPolicy;
    "policy" "v1" PodDisruptionBudget "io.k8s.api.policy.v1" api::policy::v1::PodDisruptionBudget;
    "rbac.authorization.k8s.io" "v1" ClusterRole "io.k8s.api.rbac.v1" api::rbac::v1::ClusterRole;
    "rbac.authorization.k8s.io" "v1" ClusterRoleBinding "io.k8s.api.rbac.v1" api::rbac::v1::ClusterRoleBinding;
    "rbac.authorization.k8s.io" "v1" Role "io.k8s.api.rbac.v1" api::rbac::v1::Role;
    "rbac.authorization.k8s.io" "v1" RoleBinding "io.k8s.api.rbac.v1" api::rbac::v1::RoleBinding;
    "storage.k8s.io" "v1" StorageClass "io.k8s.api.storage.v1" api::storage::v1::StorageClass;
    "apiextensions.k8s.io" "v1" CustomResourceDefinition
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1" crd::CustomResourceDefinition;
}

/// Finds a built-in kind's schema.
pub(super) fn find(group: &str, version: &str, kind: &str) -> Option<Schema> {
    static SCHEMAS: LazyLock<HashMap<&'static str, Schema>> = LazyLock::new(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.definition).collect();
        let (arena, roots) = parse::definitions(&names);
        let arena = Arc::new(arena);
        let schemas =
            roots.into_iter().map(|root| Schema { arena: Arc::clone(&arena), root, origin: Origin::BuiltIn });
        names.into_iter().zip(schemas).collect()
    });
    SCHEMAS.get(definition_name(group, version, kind)?).cloned()
}

/// Names the definition of a built-in kind.
pub(super) fn definition_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let is_wanted = |known: &&BuiltIn| known.group == group && known.version == version && known.kind == kind;
    KINDS.iter().find(is_wanted).map(|known| known.definition)
}

/// Holds every definition that the built-in kinds use, by its full name.
pub(super) fn definitions() -> &'static Map<String, Value> {
    static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<meta::ObjectMeta>();
        generate(&mut generator);
        generator.take_definitions(false)
    });
    &DEFINITIONS
}

/// Reads what a definition says about a field.
pub(super) fn description(definition: &str, field: &str) -> &'static str {
    let field = definitions().get(definition).and_then(|schema| schema.get("properties")?.get(field));
    field.and_then(|field| field.get("description")?.as_str()).unwrap_or_default()
}

/// Lists of maps: the definition, its field, the keys.
const MAP_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("NodeStatus", "addresses", &["type"]),
    ("ObjectMeta", "ownerReferences", &["uid"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodStatus", "podIPs", &["ip"]),
    ("PodStatus", "resourceClaimStatuses", &["name"]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ServiceAccount", "secrets", &["name"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
];

/// Lists of scalars, each an item of its own.
const SETS: &[(&str, &str)] = &[("NodeSpec", "podCIDRs"), ("ObjectMeta", "finalizers")];

/// Maps that are one value.
const ATOMIC_MAPS: &[(&str, &str)] =
    &[("PodSpec", "nodeSelector"), ("ReplicationControllerSpec", "selector"), ("ServiceSpec", "selector")];

/// Structs that are one value wherever they stand.
const ATOMIC_STRUCTS: &[&str] = &[
    "ConfigMapKeySelector",
    "ConfigMapNodeConfigSource",
    "CrossVersionObjectReference",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolumeClaimVolumeSource",
    "ResourceFieldSelector",
    "RoleRef",
    "ScopeSelector",
    "SecretKeySelector",
    "SecretReference",
    "ServiceBackendPort",
    "Subject",
    "TypedLocalObjectReference",
];

/// Fields that a typed server writes even when nothing was given.
const ALWAYS: &[(&str, &[&str])] = &[
    ("CronJob", &["spec", "status"]),
    ("CronJobSpec", &["jobTemplate", "schedule"]),
    ("CustomResourceDefinition", &["spec", "status"]),
    ("CustomResourceDefinitionSpec", &["group", "names", "scope", "versions"]),
    ("CustomResourceDefinitionNames", &["kind", "plural"]),
    ("CustomResourceDefinitionStatus", &["acceptedNames", "conditions", "storedVersions"]),
    ("DaemonSet", &["spec", "status"]),
    ("DaemonSetSpec", &["selector", "template", "updateStrategy"]),
    (
        "DaemonSetStatus",
        &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"],
    ),
    ("Deployment", &["spec", "status"]),
    ("DeploymentSpec", &["selector", "strategy", "template"]),
    (
        "Event",
        &[
            "deprecatedFirstTimestamp",
            "deprecatedLastTimestamp",
            "deprecatedSource",
            "eventTime",
            "firstTimestamp",
            "involvedObject",
            "lastTimestamp",
            "regarding",
            "reportingComponent",
            "reportingInstance",
            "source",
        ],
    ),
    ("HorizontalPodAutoscaler", &["spec", "status"]),
    ("HorizontalPodAutoscalerSpec", &["maxReplicas", "scaleTargetRef"]),
    ("Ingress", &["spec", "status"]),
    ("IngressStatus", &["loadBalancer"]),
    ("Job", &["spec", "status"]),
    ("JobSpec", &["template"]),
    ("JobTemplateSpec", &["metadata", "spec"]),
    ("Lease", &["spec"]),
    ("Namespace", &["spec", "status"]),
    ("NetworkPolicy", &["spec"]),
    ("NetworkPolicySpec", &["podSelector"]),
    ("Node", &["spec", "status"]),
    ("NodeDaemonEndpoints", &["kubeletEndpoint"]),
    ("NodeStatus", &["daemonEndpoints", "nodeInfo"]),
    ("PersistentVolume", &["spec", "status"]),
    ("PersistentVolumeClaim", &["spec", "status"]),
    ("PersistentVolumeClaimSpec", &["resources"]),
    ("Pod", &["spec", "status"]),
    ("PodDisruptionBudget", &["spec", "status"]),
    ("PodSpec", &["containers"]),
    ("PodTemplate", &["template"]),
    ("PodTemplateSpec", &["metadata", "spec"]),
    ("ReplicaSet", &["spec", "status"]),
    ("ReplicaSetSpec", &["selector", "template"]),
    ("ReplicaSetStatus", &["replicas"]),
    ("ReplicationController", &["spec", "status"]),
    ("ReplicationControllerStatus", &["replicas"]),
    ("ResourceQuota", &["spec", "status"]),
    ("RoleBinding", &["roleRef"]),
    ("ClusterRoleBinding", &["roleRef"]),
    ("Scale", &["spec", "status"]),
    ("Service", &["spec", "status"]),
    ("ServiceStatus", &["loadBalancer"]),
    ("StatefulSet", &["spec", "status"]),
    ("StatefulSetSpec", &["selector", "serviceName", "template", "updateStrategy"]),
    ("StatefulSetStatus", &["replicas"]),
];

/// Tells how the items of a built-in list are owned.
pub(super) fn list_kind(owner: &str, property: &str, keyed_by_type: bool) -> ListKind {
    let owner = short(owner);
    if property == "conditions" && keyed_by_type && owner.ends_with("Status") {
        return ListKind::Map(vec!["type".to_owned()]);
    }
    if SETS.contains(&(owner, property)) {
        return ListKind::Set;
    }
    let keys = MAP_LISTS
        .iter()
        .find(|(struct_name, field, _)| *struct_name == owner && *field == property)
        .map(|(_, _, keys)| *keys)
        .unwrap_or_default();
    if keys.is_empty() {
        return ListKind::Atomic;
    }
    ListKind::Map(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// Tells whether a built-in map is one value.
pub(super) fn is_atomic_map(owner: &str, property: &str) -> bool {
    ATOMIC_MAPS.contains(&(short(owner), property))
}

/// Tells whether a built-in struct is one value.
pub(super) fn is_atomic_struct(definition: &str) -> bool {
    ATOMIC_STRUCTS.contains(&short(definition))
}

/// Tells whether a definition stands for any JSON, whatever its own schema says.
pub(super) fn is_any_json(definition: &str) -> bool {
    matches!(
        short(definition),
        "FieldsV1"
            | "RawExtension"
            | "JSON"
            | "JSONSchemaPropsOrArray"
            | "JSONSchemaPropsOrBool"
            | "JSONSchemaPropsOrStringArray"
    )
}

/// Returns the default of a built-in list's key.
pub(super) fn key_default(owner: &str, property: &str) -> Option<Value> {
    let defaulted = matches!((short(owner), property), ("ContainerPort" | "ServicePort", "protocol"));
    defaulted.then(|| Value::from("TCP"))
}

/// Lists the fields that a typed server always writes.
pub(super) fn always(definition: &str) -> &'static [&'static str] {
    let name = short(definition);
    ALWAYS.iter().find(|(struct_name, _)| *struct_name == name).map(|(_, fields)| *fields).unwrap_or_default()
}

/// Strips the package from a definition's name.
fn short(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}
