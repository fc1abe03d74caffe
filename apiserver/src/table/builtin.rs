//! The columns of built-in kinds, as the real server prints them.

mod kinds;
mod policies;
mod stored;

use super::printer::{AGE, NAME, Printer, PrinterColumn, col, definition, told};

const CONTAINERS: PrinterColumn = told("Containers", "Names of each container in the template.").wide();
const IMAGES: PrinterColumn = told("Images", "Images referenced by each container in the template.").wide();

const POD: &str = definition!("core.v1.PodStatus");
const POD_SPEC: &str = definition!("core.v1.PodSpec");
const SERVICE: &str = definition!("core.v1.ServiceSpec");
const NODE: &str = definition!("core.v1.NodeSystemInfo");
const EVENT: &str = definition!("core.v1.Event");
const DAEMONS: &str = definition!("apps.v1.DaemonSetStatus");
const REPLICAS: &str = definition!("apps.v1.ReplicaSetStatus");
const CRON: &str = definition!("batch.v1.CronJobSpec");

/// Finds the printer of a built-in kind; the other kinds have none.
pub(super) fn printer(group: &str, version: &str, kind: &str) -> Option<&'static Printer> {
    let printer = match (group, version, kind) {
        ("", "v1", "ConfigMap") => &CONFIG_MAP,
        ("", "v1", "Secret") => &SECRET,
        ("", "v1", "Pod") => &PODS,
        ("", "v1", "Service") => &SERVICES,
        ("", "v1", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "v1", "Namespace") => &NAMESPACE,
        ("", "v1", "Node") => &NODES,
        ("" | "events.k8s.io", "v1", "Event") => &EVENTS,
        ("apps", "v1", "Deployment") => &DEPLOYMENT,
        ("apps", "v1", "ReplicaSet") => &REPLICA_SET,
        ("apps", "v1", "StatefulSet") => &STATEFUL_SET,
        ("apps", "v1", "DaemonSet") => &DAEMON_SET,
        ("batch", "v1", "Job") => &JOB,
        ("batch", "v1", "CronJob") => &CRON_JOB,
        ("coordination.k8s.io", "v1", "Lease") => &LEASE,
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding") => &CLUSTER_ROLE_BINDING,
        ("rbac.authorization.k8s.io", "v1", "RoleBinding") => &ROLE_BINDING,
        _ => return stored::printer(group, kind).or_else(|| policies::printer(group, kind)),
    };
    Some(printer)
}

static CONFIG_MAP: Printer = Printer {
    columns: &[NAME, col("Data", definition!("core.v1.ConfigMap"), "data"), AGE],
    cells: kinds::config_map,
};

static SECRET: Printer = Printer {
    columns: &[
        NAME,
        col("Type", definition!("core.v1.Secret"), "type"),
        col("Data", definition!("core.v1.Secret"), "data"),
        AGE,
    ],
    cells: kinds::secret,
};

static PODS: Printer = Printer {
    columns: &[
        NAME,
        told("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        told("Status", "The aggregate status of the containers in this pod."),
        told(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        ),
        AGE,
        col("IP", POD, "podIP").wide(),
        col("Node", POD_SPEC, "nodeName").wide(),
        col("Nominated Node", POD, "nominatedNodeName").wide(),
        col("Readiness Gates", POD_SPEC, "readinessGates").wide(),
    ],
    cells: kinds::pod,
};

static SERVICES: Printer = Printer {
    columns: &[
        NAME,
        col("Type", SERVICE, "type"),
        col("Cluster-IP", SERVICE, "clusterIP"),
        col("External-IP", SERVICE, "externalIPs"),
        col("Port(s)", SERVICE, "ports"),
        AGE,
        col("Selector", SERVICE, "selector").wide(),
    ],
    cells: kinds::service,
};

static SERVICE_ACCOUNT: Printer = Printer { columns: &[NAME, AGE], cells: kinds::service_account };

static NAMESPACE: Printer =
    Printer { columns: &[NAME, told("Status", "The status of the namespace"), AGE], cells: kinds::namespace };

static NODES: Printer = Printer {
    columns: &[
        NAME,
        told("Status", "The status of the node"),
        told("Roles", "The roles of the node"),
        AGE,
        col("Version", NODE, "kubeletVersion"),
        col("Internal-IP", definition!("core.v1.NodeStatus"), "addresses").wide(),
        col("External-IP", definition!("core.v1.NodeStatus"), "addresses").wide(),
        col("OS-Image", NODE, "osImage").wide(),
        col("Kernel-Version", NODE, "kernelVersion").wide(),
        col("Container-Runtime", NODE, "containerRuntimeVersion").wide(),
    ],
    cells: kinds::node,
};

static EVENTS: Printer = Printer {
    columns: &[
        col("Last Seen", EVENT, "lastTimestamp"),
        col("Type", EVENT, "type"),
        col("Reason", EVENT, "reason"),
        col("Object", EVENT, "involvedObject"),
        col("Subobject", definition!("core.v1.ObjectReference"), "fieldPath").wide(),
        col("Source", EVENT, "source").wide(),
        col("Message", EVENT, "message"),
        col("First Seen", EVENT, "firstTimestamp").wide(),
        col("Count", EVENT, "count").wide(),
        NAME.wide(),
    ],
    cells: kinds::event,
};

static DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        told("Ready", "Number of the pod with ready state"),
        col("Up-to-date", definition!("apps.v1.DeploymentStatus"), "updatedReplicas"),
        col("Available", definition!("apps.v1.DeploymentStatus"), "availableReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        col("Selector", definition!("apps.v1.DeploymentSpec"), "selector").wide(),
    ],
    cells: kinds::deployment,
};

static REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        col("Desired", definition!("apps.v1.ReplicaSetSpec"), "replicas").of("integer"),
        col("Current", REPLICAS, "replicas").of("integer"),
        col("Ready", REPLICAS, "readyReplicas").of("integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        col("Selector", definition!("apps.v1.ReplicaSetSpec"), "selector").wide(),
    ],
    cells: kinds::replica_set,
};

static STATEFUL_SET: Printer = Printer {
    columns: &[NAME, told("Ready", "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES],
    cells: kinds::stateful_set,
};

static DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        col("Desired", DAEMONS, "desiredNumberScheduled").of("integer"),
        col("Current", DAEMONS, "currentNumberScheduled").of("integer"),
        col("Ready", DAEMONS, "numberReady").of("integer"),
        col("Up-to-date", DAEMONS, "updatedNumberScheduled").of("integer"),
        col("Available", DAEMONS, "numberAvailable").of("integer"),
        col("Node Selector", POD_SPEC, "nodeSelector"),
        AGE,
        CONTAINERS,
        IMAGES,
        col("Selector", definition!("apps.v1.DaemonSetSpec"), "selector").wide(),
    ],
    cells: kinds::daemon_set,
};

static JOB: Printer = Printer {
    columns: &[
        NAME,
        told("Status", "Status of the job."),
        col("Completions", definition!("batch.v1.JobStatus"), "succeeded"),
        told("Duration", "Time required to complete the job."),
        AGE,
        CONTAINERS,
        IMAGES,
        col("Selector", definition!("batch.v1.JobSpec"), "selector").wide(),
    ],
    cells: kinds::job,
};

static CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        col("Schedule", CRON, "schedule"),
        col("Timezone", CRON, "timeZone"),
        col("Suspend", CRON, "suspend").of("boolean"),
        col("Active", definition!("batch.v1.CronJobStatus"), "active").of("integer"),
        col("Last Schedule", definition!("batch.v1.CronJobStatus"), "lastScheduleTime"),
        AGE,
        CONTAINERS,
        IMAGES,
        col("Selector", definition!("batch.v1.JobSpec"), "selector").wide(),
    ],
    cells: kinds::cron_job,
};

static LEASE: Printer = Printer {
    columns: &[NAME, col("Holder", definition!("coordination.v1.LeaseSpec"), "holderIdentity"), AGE],
    cells: kinds::lease,
};

static ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        told(
            "Role",
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        AGE,
        told("Users", "Users in the roleBinding").wide(),
        told("Groups", "Groups in the roleBinding").wide(),
        told("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
    ],
    cells: kinds::role_binding,
};

static CLUSTER_ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        col("Role", definition!("rbac.v1.ClusterRoleBinding"), "roleRef"),
        AGE,
        told("Users", "Users in the clusterRoleBinding").wide(),
        told("Groups", "Groups in the clusterRoleBinding").wide(),
        told("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
    ],
    cells: kinds::role_binding,
};
