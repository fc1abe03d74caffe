//! The built-in kinds: one row each.

use std::sync::Arc;

use serde_json::Value;

use super::more::MORE;
use super::row::{ALL, BuiltIn, Generation, OnPut, Reach, SCALE, STATUS, row};
use super::{Origin, Resource, ScalePaths, Served, VersionView};
use crate::schema::Schema;
use crate::store::ResourceId;
use crate::table::Columns;

const RBAC: &str = "rbac.authorization.k8s.io";
const WORKLOAD: &str =
    r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#;

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

/// Groups that exist without a kind of their own here.
pub(super) const MORE_GROUPS: [&str; 2] = ["authorization.k8s.io", "authentication.k8s.io"];

/// Returns every row.
pub(crate) fn built_in() -> impl Iterator<Item = &'static BuiltIn> {
    BUILT_IN.iter().chain(&MORE)
}

/// The table.
static BUILT_IN: [BuiltIn; 25] = [
    BuiltIn {
        short: &["ns"],
        reach: Reach::Cluster,
        subresources: &["finalize", "status"],
        fields: &["status.phase"],
        empty: r#"{"spec":{},"status":{}}"#,
        ..row("", "Namespace", "namespaces")
    },
    BuiltIn { short: &["cm"], ..row("", "ConfigMap", "configmaps") },
    BuiltIn { fields: &["type"], ..row("", "Secret", "secrets") },
    BuiltIn {
        short: &["po"],
        categories: ALL,
        subresources: &["ephemeralcontainers", "resize", "status"],
        generation: Generation::Spec,
        fields: POD_FIELDS,
        empty: r#"{"spec":{"containers":null},"status":{}}"#,
        ..row("", "Pod", "pods")
    },
    BuiltIn {
        short: &["no"],
        reach: Reach::Cluster,
        subresources: STATUS,
        fields: &["spec.unschedulable"],
        empty: r#"{"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}}"#,
        ..row("", "Node", "nodes")
    },
    BuiltIn {
        short: &["svc"],
        categories: ALL,
        subresources: STATUS,
        on_put: OnPut::Creates,
        fields: &["spec.clusterIP", "spec.type"],
        empty: r#"{"spec":{},"status":{"loadBalancer":{}}}"#,
        ..row("", "Service", "services")
    },
    BuiltIn { short: &["sa"], ..row("", "ServiceAccount", "serviceaccounts") },
    BuiltIn {
        short: &["ev"],
        on_put: OnPut::Creates,
        fields: EVENT_FIELDS,
        empty: r#"{"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#,
        ..row("", "Event", "events")
    },
    BuiltIn { short: &["ep"], on_put: OnPut::Creates, ..row("", "Endpoints", "endpoints") },
    BuiltIn {
        short: &["pvc"],
        subresources: STATUS,
        empty: r#"{"spec":{"resources":{}},"status":{}}"#,
        ..row("", "PersistentVolumeClaim", "persistentvolumeclaims")
    },
    BuiltIn {
        short: &["deploy"],
        categories: ALL,
        subresources: SCALE,
        generation: Generation::SpecAndAnnotations,
        empty: r#"{"spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#,
        ..row("apps", "Deployment", "deployments")
    },
    BuiltIn {
        short: &["sts"],
        categories: ALL,
        subresources: SCALE,
        generation: Generation::Spec,
        empty: r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}}"#,
        ..row("apps", "StatefulSet", "statefulsets")
    },
    BuiltIn {
        short: &["ds"],
        categories: ALL,
        subresources: STATUS,
        generation: Generation::Spec,
        empty: r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}}"#,
        ..row("apps", "DaemonSet", "daemonsets")
    },
    BuiltIn {
        short: &["rs"],
        categories: ALL,
        subresources: SCALE,
        generation: Generation::Spec,
        fields: &["status.replicas"],
        empty: r#"{"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}}"#,
        ..row("apps", "ReplicaSet", "replicasets")
    },
    BuiltIn { empty: r#"{"revision":0}"#, ..row("apps", "ControllerRevision", "controllerrevisions") },
    BuiltIn {
        categories: ALL,
        subresources: STATUS,
        generation: Generation::Spec,
        fields: &["status.successful"],
        empty: WORKLOAD,
        ..row("batch", "Job", "jobs")
    },
    BuiltIn {
        short: &["cj"],
        categories: ALL,
        subresources: STATUS,
        generation: Generation::Spec,
        empty: r#"{"spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}}"#,
        ..row("batch", "CronJob", "cronjobs")
    },
    BuiltIn { on_put: OnPut::Creates, empty: r#"{"rules":null}"#, ..row(RBAC, "Role", "roles") },
    BuiltIn {
        on_put: OnPut::Creates,
        empty: r#"{"roleRef":{"apiGroup":"","kind":"","name":""}}"#,
        ..row(RBAC, "RoleBinding", "rolebindings")
    },
    BuiltIn {
        reach: Reach::Cluster,
        on_put: OnPut::Creates,
        empty: r#"{"rules":null}"#,
        ..row(RBAC, "ClusterRole", "clusterroles")
    },
    BuiltIn {
        reach: Reach::Cluster,
        on_put: OnPut::Creates,
        empty: r#"{"roleRef":{"apiGroup":"","kind":"","name":""}}"#,
        ..row(RBAC, "ClusterRoleBinding", "clusterrolebindings")
    },
    BuiltIn {
        on_put: OnPut::CreatesAndWantsVersion,
        empty: r#"{"spec":{}}"#,
        ..row("coordination.k8s.io", "Lease", "leases")
    },
    BuiltIn {
        short: &["ev"],
        on_put: OnPut::Creates,
        fields: NEW_EVENT_FIELDS,
        empty: r#"{"eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}"#,
        ..row("events.k8s.io", "Event", "events")
    },
    BuiltIn {
        short: &["netpol"],
        generation: Generation::Spec,
        empty: r#"{"spec":{}}"#,
        ..row("networking.k8s.io", "NetworkPolicy", "networkpolicies")
    },
    BuiltIn {
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        reach: Reach::Cluster,
        subresources: STATUS,
        generation: Generation::Spec,
        on_put: OnPut::WantsVersion,
        empty: r#"{"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#,
        ..row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
    },
];

impl BuiltIn {
    /// Makes a version of a row's resource; `id` is its number.
    pub(super) fn served(&'static self, id: u64, version: &str, view: VersionView) -> Served {
        let has_scale = self.subresources.contains(&"scale");
        let selector = if self.kind == "Job" { "" } else { "status.selector" };
        let scale = has_scale.then(|| ScalePaths {
            spec: "spec.replicas".to_owned(),
            status: "status.replicas".to_owned(),
            selector: selector.to_owned(),
        });
        Served {
            id,
            group: self.group.to_owned(),
            version: version.to_owned(),
            kind: self.kind.to_owned(),
            served: true,
            schema: Schema::builtin(self.group, version, self.kind).unwrap_or_else(Schema::untyped),
            subresources: owned(self.subresources),
            scale,
            columns: Columns::builtin(self.group, version, self.kind),
            selectable: owned(self.fields),
            deprecation: None,
            view,
            conversion: None,
        }
    }

    /// Makes the resource of a row; `id` numbers its only version.
    pub(super) fn resource(&'static self, id: u64) -> Resource {
        let is_new_event = self.group == "events.k8s.io";
        let served =
            self.served(id, self.version, if is_new_event { VersionView::Events } else { VersionView::Same });
        let id = ResourceId::new(self.group, self.plural);
        Resource {
            storage: if is_new_event { ResourceId::new("", "events") } else { id.clone() },
            id,
            kind: self.kind.to_owned(),
            list_kind: if self.kind == "Endpoints" {
                "EndpointsList".to_owned()
            } else {
                format!("{}List", self.kind)
            },
            singular: self.kind.to_lowercase(),
            short_names: owned(self.short),
            categories: owned(self.categories),
            reach: self.reach,
            versions: vec![Arc::new(served)],
            stored_as: 0,
            origin: Origin::BuiltIn(self),
        }
    }

    /// Returns the fields an empty object shows besides metadata.
    pub(crate) fn empty_fields(&self) -> Value {
        if !self.empty.is_empty() {
            return serde_json::from_str(self.empty).unwrap_or_default();
        }
        Schema::builtin(self.group, self.version, self.kind).map(|schema| schema.zero()).unwrap_or_default()
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::facts;

    #[test]
    fn every_row_has_a_schema_and_a_binary_form() {
        for row in built_in() {
            let version = crate::object::api_version(row.group, row.version);
            assert!(Schema::builtin(row.group, row.version, row.kind).is_some(), "{}", row.kind);
            assert!(facts().kind(&version, row.kind).is_some(), "{}", row.kind);
            assert!(facts().kind(&version, &format!("{}List", row.kind)).is_some(), "{}List", row.kind);
        }
    }

    #[test]
    fn every_row_has_valid_empty_fields() {
        for row in built_in() {
            assert!(row.empty_fields().is_object(), "{}", row.kind);
        }
    }
}
