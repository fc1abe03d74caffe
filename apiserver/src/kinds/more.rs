//! More built-in kinds that are only stored.

use super::row::{ALL, BuiltIn, Generation, OnPut, Reach, SCALE, STATUS, row};

const EXTENSIONS: &[&str] = &["api-extensions"];
const ADMISSION: &str = "admissionregistration.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// A row whose empty objects follow the schema.
const fn plain(group: &'static str, kind: &'static str, plural: &'static str) -> BuiltIn {
    BuiltIn { empty: "", ..row(group, kind, plural) }
}

/// A row of a kind without namespaces.
const fn cluster(group: &'static str, kind: &'static str, plural: &'static str) -> BuiltIn {
    BuiltIn { reach: Reach::Cluster, ..plain(group, kind, plural) }
}

/// The table.
pub(super) static MORE: [BuiltIn; 34] = [
    BuiltIn { short: &["limits"], on_put: OnPut::Creates, ..plain("", "LimitRange", "limitranges") },
    BuiltIn { short: &["pv"], subresources: STATUS, ..cluster("", "PersistentVolume", "persistentvolumes") },
    BuiltIn { generation: Generation::Body, ..plain("", "PodTemplate", "podtemplates") },
    BuiltIn {
        short: &["rc"],
        categories: ALL,
        subresources: SCALE,
        generation: Generation::Spec,
        fields: &["status.replicas"],
        ..plain("", "ReplicationController", "replicationcontrollers")
    },
    BuiltIn { short: &["quota"], subresources: STATUS, ..plain("", "ResourceQuota", "resourcequotas") },
    BuiltIn {
        categories: EXTENSIONS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
    },
    BuiltIn {
        categories: EXTENSIONS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
    },
    BuiltIn {
        categories: EXTENSIONS,
        generation: Generation::Body,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
    },
    BuiltIn {
        categories: EXTENSIONS,
        subresources: STATUS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
    },
    BuiltIn {
        categories: EXTENSIONS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
    },
    BuiltIn {
        categories: EXTENSIONS,
        generation: Generation::Body,
        on_put: OnPut::WantsVersion,
        ..cluster(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
    },
    BuiltIn {
        categories: EXTENSIONS,
        subresources: STATUS,
        ..cluster("apiregistration.k8s.io", "APIService", "apiservices")
    },
    BuiltIn {
        version: "v2",
        short: &["hpa"],
        categories: ALL,
        subresources: STATUS,
        ..plain("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    },
    BuiltIn {
        short: &["csr"],
        subresources: &["approval", "status"],
        fields: &["spec.signerName"],
        ..cluster("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests")
    },
    BuiltIn { generation: Generation::Body, ..plain("discovery.k8s.io", "EndpointSlice", "endpointslices") },
    BuiltIn {
        subresources: STATUS,
        generation: Generation::Spec,
        ..cluster(FLOW, "FlowSchema", "flowschemas")
    },
    BuiltIn {
        subresources: STATUS,
        generation: Generation::Spec,
        ..cluster(FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations")
    },
    BuiltIn {
        short: &["ing"],
        subresources: STATUS,
        generation: Generation::Spec,
        ..plain(NETWORKING, "Ingress", "ingresses")
    },
    BuiltIn { generation: Generation::Spec, ..cluster(NETWORKING, "IngressClass", "ingressclasses") },
    BuiltIn { short: &["ip"], ..cluster(NETWORKING, "IPAddress", "ipaddresses") },
    BuiltIn { subresources: STATUS, ..cluster(NETWORKING, "ServiceCIDR", "servicecidrs") },
    BuiltIn {
        on_put: OnPut::CreatesAndWantsVersion,
        ..cluster("node.k8s.io", "RuntimeClass", "runtimeclasses")
    },
    BuiltIn {
        short: &["pdb"],
        subresources: STATUS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        ..plain("policy", "PodDisruptionBudget", "poddisruptionbudgets")
    },
    BuiltIn { generation: Generation::Spec, ..cluster(RESOURCE, "DeviceClass", "deviceclasses") },
    BuiltIn { subresources: STATUS, ..plain(RESOURCE, "ResourceClaim", "resourceclaims") },
    plain(RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates"),
    BuiltIn {
        generation: Generation::Spec,
        fields: &["spec.nodeName", "spec.driver"],
        ..cluster(RESOURCE, "ResourceSlice", "resourceslices")
    },
    BuiltIn {
        short: &["pc"],
        generation: Generation::One,
        ..cluster("scheduling.k8s.io", "PriorityClass", "priorityclasses")
    },
    BuiltIn { on_put: OnPut::WantsVersion, ..cluster(STORAGE, "CSIDriver", "csidrivers") },
    BuiltIn { on_put: OnPut::WantsVersion, ..cluster(STORAGE, "CSINode", "csinodes") },
    BuiltIn { on_put: OnPut::WantsVersion, ..plain(STORAGE, "CSIStorageCapacity", "csistoragecapacities") },
    BuiltIn { short: &["sc"], ..cluster(STORAGE, "StorageClass", "storageclasses") },
    BuiltIn {
        subresources: STATUS,
        on_put: OnPut::WantsVersion,
        ..cluster(STORAGE, "VolumeAttachment", "volumeattachments")
    },
    BuiltIn { short: &["vac"], ..cluster(STORAGE, "VolumeAttributesClass", "volumeattributesclasses") },
];
