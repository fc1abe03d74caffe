//! Version v2: the schedule has a field for each of its parts.

use std::fmt;

use watchkeeper::prelude::*;

use super::v1::{self, CronJobStatus, Runs};

/// Starts jobs by a schedule.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v2",
    kind = "CronJob",
    namespaced,
    status = "CronJobStatus"
)]
pub(crate) struct CronJobSpec {
    /// The times at which jobs start, in UTC.
    pub(crate) schedule: CronSchedule,
    #[serde(flatten)]
    pub(crate) runs: Runs,
}

/// The parts of a schedule; one that is left out is `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CronSchedule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) minute: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hour: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) day_of_month: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) month: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) day_of_week: Option<String>,
    /// A schedule that does not have these parts, in their place: `@hourly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expression: Option<String>,
}

impl CronSchedule {
    pub(crate) fn parts(&self) -> [&Option<String>; 5] {
        [&self.minute, &self.hour, &self.day_of_month, &self.month, &self.day_of_week]
    }
}

impl From<&str> for CronSchedule {
    fn from(text: &str) -> Self {
        let part = |part: &str| (part != "*").then(|| part.to_owned());
        let parts: Result<[Option<String>; 5], _> = text.split(' ').map(part).collect::<Vec<_>>().try_into();
        match parts {
            Ok([minute, hour, day_of_month, month, day_of_week]) => {
                Self { minute, hour, day_of_month, month, day_of_week, expression: None }
            }
            Err(_) => Self { expression: Some(text.to_owned()), ..Self::default() },
        }
    }
}

impl fmt::Display for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expression {
            Some(expression) => f.write_str(expression),
            None => f.write_str(&self.parts().map(|part| part.as_deref().unwrap_or("*")).join(" ")),
        }
    }
}

impl From<CronJob> for v1::CronJob {
    fn from(CronJob { metadata, spec, status }: CronJob) -> Self {
        let spec = v1::CronJobSpec { schedule: spec.schedule.to_string(), runs: spec.runs };
        Self { metadata, spec, status }
    }
}

impl From<v1::CronJob> for CronJob {
    fn from(v1::CronJob { metadata, spec, status }: v1::CronJob) -> Self {
        let spec = CronJobSpec { schedule: spec.schedule.as_str().into(), runs: spec.runs };
        Self { metadata, spec, status }
    }
}
