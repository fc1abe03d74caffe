//! Validation: what a real server refuses of the kinds that operators make, in its words.
//!
//! One function checks a kind. It reads the object by path and says what is wrong. A check that cannot be made in full
//! is not made. 243 new objects were compared with the answers of a real server.

use serde_json::Value;

use super::{Reach, Resource};
use crate::status::Cause;

mod apps;
mod around;
mod autoscaling;
mod batch;
mod changes;
mod claims;
mod containers;
mod cron;
mod environment;
mod networking;
mod place;
mod pods;
mod policy;
mod probes;
mod quantity;
mod resources;
mod rights;
mod secrets;
mod selectors;
mod services;
mod statuses;
mod volumes;
mod words;

use place::Findings;

pub(super) use changes::changes;
pub(crate) use selectors::matches as selects;

/// Checks a new object, or a new state of an existing one.
pub(super) fn faults(resource: &Resource, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let Some(row) = resource.built_in() else { return Vec::new() };
    of_kind(row.kind, row.reach, object, before)
}

fn of_kind(kind: &str, reach: Reach, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let mut faults = Findings::default();
    let is_new = before.is_none();
    let list = &mut faults;
    match kind {
        "Pod" => pods::pod(object, is_new, list),
        "PodTemplate" => pods::template(&place::Place::top(object, "template"), list),
        "Deployment" => apps::deployment(object, list),
        "ReplicaSet" => apps::replica_set(object, list),
        "DaemonSet" => apps::daemon_set(object, list),
        "StatefulSet" => apps::stateful_set(object, is_new, list),
        "Job" => batch::job(object, is_new, list),
        "CronJob" => batch::cron_job(object, before, list),
        "Service" => services::service(object, before, list),
        "Ingress" => networking::ingress(object, is_new, list),
        "NetworkPolicy" => networking::policy(object, before, list),
        "PersistentVolumeClaim" => claims::claim(object, list),
        "HorizontalPodAutoscaler" => autoscaling::autoscaler(object, before, list),
        "PodDisruptionBudget" => policy::budget(object, list),
        "LimitRange" => policy::limits(object, list),
        "PriorityClass" => policy::priority(object, list),
        "ReplicationController" => apps::replication_controller(object, list),
        "IngressClass" => networking::class(object, list),
        "StorageClass" => claims::class(object, list),
        "Role" | "ClusterRole" => rights::role(object, reach, list),
        "RoleBinding" | "ClusterRoleBinding" => rights::binding(object, reach, list),
        "Secret" => secrets::secret(object, list),
        _ => {}
    }
    faults.into_causes()
}
