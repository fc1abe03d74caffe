//! Version v1, the hub: it is stored.

use k8s_openapi::{
    api::{batch::v1::JobTemplateSpec, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use watchkeeper::prelude::*;

use super::v2;

/// Starts jobs by a schedule.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v1",
    kind = "CronJob",
    namespaced,
    status = "CronJobStatus"
)]
#[informer(versions(v2::CronJob))]
pub(crate) struct CronJobSpec {
    /// The times at which jobs start, as in a crontab, in UTC: `*/5 * * * *`.
    pub(crate) schedule: String,
    #[serde(flatten)]
    pub(crate) runs: Runs,
}

/// What is the same in both versions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Runs {
    /// How many seconds late a job may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub(crate) starting_deadline_seconds: Option<u32>,
    /// What happens if the job before is still running.
    #[serde(default)]
    pub(crate) concurrency_policy: ConcurrencyPolicy,
    /// Whether no more jobs start. Those that run go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspend: Option<bool>,
    /// The job that starts.
    pub(crate) job_template: JobTemplateSpec,
    /// How many jobs that succeeded are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub(crate) successful_jobs_history_limit: Option<u32>,
    /// How many jobs that failed are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub(crate) failed_jobs_history_limit: Option<u32>,
}

/// What happens if the job before is still running: both run, the new one waits, or it replaces the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ConcurrencyPolicy {
    #[default]
    Allow,
    Forbid,
    Replace,
}

/// What runs, and when the last job started.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CronJobStatus {
    /// The jobs that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) active: Vec<ObjectReference>,
    /// The time of the schedule at which the last job started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_schedule_time: Option<Time>,
    /// `Available`, `Progressing` and `Degraded`.
    #[serde(default)]
    pub(crate) conditions: Conditions,
}
