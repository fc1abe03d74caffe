//! The schemas of the built-in kinds, and what their published form leaves out.

use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as crd;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as registration;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::node::ListKind;
use crate::facts::{Field, Ownership, Presence, facts};

/// Names a built-in kind and its definition.
struct BuiltInKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    definition: &'static str,
    generate: fn(&mut SchemaGenerator),
}

macro_rules! built_ins {
    ($($group:literal $version:literal $kind:ident $package:literal $ty:ty;)*) => {
        const KINDS: &[BuiltInKind] = &[$(BuiltInKind {
            group: $group,
            version: $version,
            kind: stringify!($kind),
            definition: concat!($package, ".", stringify!($kind)),
            generate: |generator| drop(generator.subschema_for::<$ty>()),
        },)*];
    };
}

built_ins! {
    "" "v1" Binding "io.k8s.api.core.v1" api::core::v1::Binding;
    "" "v1" ComponentStatus "io.k8s.api.core.v1" api::core::v1::ComponentStatus;
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
    "admissionregistration.k8s.io" "v1" MutatingAdmissionPolicy
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::MutatingAdmissionPolicy;
    "admissionregistration.k8s.io" "v1" MutatingAdmissionPolicyBinding
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::MutatingAdmissionPolicyBinding;
    "admissionregistration.k8s.io" "v1" MutatingWebhookConfiguration
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::MutatingWebhookConfiguration;
    "admissionregistration.k8s.io" "v1" ValidatingAdmissionPolicy
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::ValidatingAdmissionPolicy;
    "admissionregistration.k8s.io" "v1" ValidatingAdmissionPolicyBinding
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
    "admissionregistration.k8s.io" "v1" ValidatingWebhookConfiguration
        "io.k8s.api.admissionregistration.v1" api::admissionregistration::v1::ValidatingWebhookConfiguration;
    "apiregistration.k8s.io" "v1" APIService
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1" registration::APIService;
    "authentication.k8s.io" "v1" SelfSubjectReview
        "io.k8s.api.authentication.v1" api::authentication::v1::SelfSubjectReview;
    "authentication.k8s.io" "v1" TokenReview "io.k8s.api.authentication.v1" api::authentication::v1::TokenReview;
    "authentication.k8s.io" "v1" TokenRequest "io.k8s.api.authentication.v1" api::authentication::v1::TokenRequest;
    "authorization.k8s.io" "v1" LocalSubjectAccessReview
        "io.k8s.api.authorization.v1" api::authorization::v1::LocalSubjectAccessReview;
    "authorization.k8s.io" "v1" SelfSubjectAccessReview
        "io.k8s.api.authorization.v1" api::authorization::v1::SelfSubjectAccessReview;
    "authorization.k8s.io" "v1" SelfSubjectRulesReview
        "io.k8s.api.authorization.v1" api::authorization::v1::SelfSubjectRulesReview;
    "authorization.k8s.io" "v1" SubjectAccessReview
        "io.k8s.api.authorization.v1" api::authorization::v1::SubjectAccessReview;
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
    "certificates.k8s.io" "v1" CertificateSigningRequest
        "io.k8s.api.certificates.v1" api::certificates::v1::CertificateSigningRequest;
    "coordination.k8s.io" "v1" Lease "io.k8s.api.coordination.v1" api::coordination::v1::Lease;
    "discovery.k8s.io" "v1" EndpointSlice "io.k8s.api.discovery.v1" api::discovery::v1::EndpointSlice;
    "events.k8s.io" "v1" Event "io.k8s.api.events.v1" api::events::v1::Event;
    "flowcontrol.apiserver.k8s.io" "v1" FlowSchema "io.k8s.api.flowcontrol.v1" api::flowcontrol::v1::FlowSchema;
    "flowcontrol.apiserver.k8s.io" "v1" PriorityLevelConfiguration
        "io.k8s.api.flowcontrol.v1" api::flowcontrol::v1::PriorityLevelConfiguration;
    "networking.k8s.io" "v1" IPAddress "io.k8s.api.networking.v1" api::networking::v1::IPAddress;
    "networking.k8s.io" "v1" IngressClass "io.k8s.api.networking.v1" api::networking::v1::IngressClass;
    "networking.k8s.io" "v1" ServiceCIDR "io.k8s.api.networking.v1" api::networking::v1::ServiceCIDR;
    "node.k8s.io" "v1" RuntimeClass "io.k8s.api.node.v1" api::node::v1::RuntimeClass;
    "networking.k8s.io" "v1" Ingress "io.k8s.api.networking.v1" api::networking::v1::Ingress;
    "networking.k8s.io" "v1" NetworkPolicy "io.k8s.api.networking.v1" api::networking::v1::NetworkPolicy;
    "policy" "v1" PodDisruptionBudget "io.k8s.api.policy.v1" api::policy::v1::PodDisruptionBudget;
    "rbac.authorization.k8s.io" "v1" ClusterRole "io.k8s.api.rbac.v1" api::rbac::v1::ClusterRole;
    "rbac.authorization.k8s.io" "v1" ClusterRoleBinding "io.k8s.api.rbac.v1" api::rbac::v1::ClusterRoleBinding;
    "rbac.authorization.k8s.io" "v1" Role "io.k8s.api.rbac.v1" api::rbac::v1::Role;
    "rbac.authorization.k8s.io" "v1" RoleBinding "io.k8s.api.rbac.v1" api::rbac::v1::RoleBinding;
    "resource.k8s.io" "v1" DeviceClass "io.k8s.api.resource.v1" api::resource::v1::DeviceClass;
    "resource.k8s.io" "v1" ResourceClaim "io.k8s.api.resource.v1" api::resource::v1::ResourceClaim;
    "resource.k8s.io" "v1" ResourceClaimTemplate "io.k8s.api.resource.v1" api::resource::v1::ResourceClaimTemplate;
    "resource.k8s.io" "v1" ResourceSlice "io.k8s.api.resource.v1" api::resource::v1::ResourceSlice;
    "scheduling.k8s.io" "v1" PriorityClass "io.k8s.api.scheduling.v1" api::scheduling::v1::PriorityClass;
    "storage.k8s.io" "v1" CSIDriver "io.k8s.api.storage.v1" api::storage::v1::CSIDriver;
    "storage.k8s.io" "v1" CSINode "io.k8s.api.storage.v1" api::storage::v1::CSINode;
    "storage.k8s.io" "v1" CSIStorageCapacity "io.k8s.api.storage.v1" api::storage::v1::CSIStorageCapacity;
    "storage.k8s.io" "v1" VolumeAttachment "io.k8s.api.storage.v1" api::storage::v1::VolumeAttachment;
    "storage.k8s.io" "v1" VolumeAttributesClass "io.k8s.api.storage.v1" api::storage::v1::VolumeAttributesClass;
    "storage.k8s.io" "v1" StorageClass "io.k8s.api.storage.v1" api::storage::v1::StorageClass;
    "apiextensions.k8s.io" "v1" CustomResourceDefinition
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1" crd::CustomResourceDefinition;
}

/// Lists the definitions of the built-in kinds.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|known| known.definition)
}

/// Names the definition of a built-in kind.
pub(super) fn definition_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let is_wanted =
        |known: &&BuiltInKind| known.group == group && known.version == version && known.kind == kind;
    KINDS.iter().find(is_wanted).map(|known| known.definition)
}

/// Holds every definition that the built-in kinds use, by its full name.
pub(super) fn definitions() -> &'static Map<String, Value> {
    static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<meta::ObjectMeta>();
        KINDS.iter().for_each(|known| (known.generate)(&mut generator));
        generator.take_definitions(false)
    });
    &DEFINITIONS
}

/// Makes the definitions that one kind uses, itself and the metadata of objects included.
pub(super) fn definitions_of(kind: &str) -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<meta::ObjectMeta>();
    if let Some(known) = KINDS.iter().find(|known| known.definition == kind) {
        (known.generate)(&mut generator);
    }
    generator.take_definitions(false)
}

/// Reads a field of a definition.
pub(super) fn description(definition: &str, field: &str) -> &'static str {
    let field = definitions().get(definition).and_then(|schema| schema.get("properties")?.get(field));
    field.and_then(|field| field.get("description")?.as_str()).unwrap_or_default()
}

/// Finds the facts about a definition's field.
fn field(owner: &str, property: &str) -> Option<&'static Field> {
    facts().field(facts().defined(owner)?, property)
}

/// Returns how the items of a built-in list are owned.
pub(super) fn list_kind(owner: &str, property: &str) -> ListKind {
    match field(owner, property).map(|field| &field.ownership) {
        Some(Ownership::Set) => ListKind::Set,
        Some(Ownership::Keys(keys)) => ListKind::Map(keys.iter().map(|key| (*key).to_owned()).collect()),
        Some(Ownership::Atomic) | None => ListKind::Atomic,
    }
}

/// Returns how strategic merge patches merge a built-in list: by a key, empty for scalars, or not at all.
pub(super) fn merge_key(owner: &str, property: &str) -> Option<&'static str> {
    field(owner, property)?.merge
}

/// Returns whether a built-in map is one value.
pub(super) fn is_atomic_map(owner: &str, property: &str) -> bool {
    field(owner, property).is_some_and(|field| field.atomic)
}

/// Returns whether a built-in struct is one value.
pub(super) fn is_atomic_struct(definition: &str) -> bool {
    facts().defined(definition).is_some_and(|message| message.atomic)
}

/// Returns whether a definition accepts any JSON, whatever its own schema says.
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
    let field = field(owner, property)?;
    let zero = |value: &Value| *value == "" || *value == 0 || *value == false;
    // A zero is not a default if the field is omitted when empty.
    field.default.clone().filter(|value| field.presence == Presence::Given || !zero(value))
}

/// Lists the fields that a typed server always writes.
pub(super) fn always(definition: &str) -> Vec<&'static str> {
    // The metadata of whole objects is not among them: no object is without.
    let known = facts().defined(definition).map(|message| facts().always(message)).unwrap_or_default();
    known
        .into_iter()
        .filter(|name| *name != "metadata" || short(definition).ends_with("TemplateSpec"))
        .collect()
}

/// Strips the package from a definition's name.
fn short(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}
