//! The controller: it starts jobs, removes old ones, and keeps the status.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use watchkeeper::{Error, clock::Moment, prelude::*, webhook::Webhooks};

use super::{
    rules::{Rules, Usual},
    schedule::{Mistake, Schedule},
    v1::{ConcurrencyPolicy, CronJob, CronJobStatus},
    v2,
};

/// The annotation of a job: when the schedule was due.
const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// Starts the jobs of cron jobs.
struct CronJobs;

impl Reconciler<CronJob> for CronJobs {
    type Error = Error;

    async fn reconcile(&self, cron_job: Arc<CronJob>, cx: &Context<CronJob>) -> Result<Action, Self::Error> {
        let now = now();
        let runs = &cron_job.spec.runs;
        let owned = cx.owned::<Job>();
        let jobs = || owned.iter().filter(|job| job.metadata.deletion_timestamp.is_none());
        let of_outcome =
            |outcome: Option<Outcome>| jobs().filter(move |job| Outcome::of(job) == outcome).cloned();

        let (failed, succeeded) = (of_outcome(Some(Outcome::Failed)), of_outcome(Some(Outcome::Succeeded)));
        let failed = remove_beyond(runs.failed_jobs_history_limit, failed.collect(), cx).await?;
        remove_beyond(runs.successful_jobs_history_limit, succeeded.collect(), cx).await?;

        let mut active = of_outcome(None).collect::<Vec<_>>();
        let mut status = cron_job.status.clone().unwrap_or_default();
        let started = jobs().filter_map(|job| scheduled_at(job)).map(Time);
        status.last_schedule_time = started.chain(status.last_schedule_time).max();

        let schedule = Schedule::parse(&cron_job.spec.schedule);
        let is_suspended = runs.suspend.unwrap_or_default();
        if let Ok(schedule) = &schedule
            && !is_suspended
            && let Some(due) = due(&cron_job, &status, schedule, now)
            && (active.is_empty() || runs.concurrency_policy != ConcurrencyPolicy::Forbid)
        {
            if runs.concurrency_policy == ConcurrencyPolicy::Replace {
                for job in active.drain(..) {
                    cx.delete(&job).propagation(Propagation::Background).await?;
                }
            }
            active.push(Arc::new(cx.create(job_for(&cron_job, due)).await?));
            status.last_schedule_time = Some(Time(due));
        }

        status.active = active.iter().map(|job| reference(job)).collect();
        set_conditions(&mut status, is_suspended, &schedule, failed);
        cx.patch_status(&cron_job, status).await?;
        let next = schedule.ok().filter(|_| !is_suspended).and_then(|schedule| schedule.next_after(now));
        Ok(next.map_or_else(Action::await_change, |next| {
            Action::requeue_after(next.duration_since(now).unsigned_abs())
        }))
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
}

impl Outcome {
    /// Returns `None` for a job that runs.
    fn of(job: &Job) -> Option<Self> {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().filter(|condition| condition.status == "True").find_map(
            |condition| match condition.type_.as_str() {
                "Complete" => Some(Self::Succeeded),
                "Failed" => Some(Self::Failed),
                _ => None,
            },
        )
    }
}

/// Returns the time of the schedule at which a job is to start now, if there is one.
fn due(cron_job: &CronJob, status: &CronJobStatus, schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let created = cron_job.metadata.creation_timestamp.clone();
    let handled = status.last_schedule_time.clone().or(created).map(|time| time.0);
    let deadline = cron_job.spec.runs.starting_deadline_seconds;
    let earliest = deadline.map(|seconds| now - SignedDuration::from_secs(seconds.into()));
    schedule.last_until(now).filter(|due| Some(*due) > handled.max(earliest))
}

/// Builds the job for a time; the same time gives the same name.
fn job_for(cron_job: &CronJob, due: Timestamp) -> Job {
    let template = cron_job.spec.runs.job_template.clone();
    let mut job = Job { spec: template.spec, ..Job::default() };
    let metadata = template.metadata.unwrap_or_default();
    job.metadata.name = Some(format!("{}-{}", cron_job.name_any(), due.as_second()));
    job.metadata.labels = metadata.labels;
    let scheduled = BTreeMap::from([(SCHEDULED_AT.to_owned(), due.to_string())]);
    job.metadata.annotations = Some(metadata.annotations.into_iter().flatten().chain(scheduled).collect());
    job
}

/// Removes the oldest jobs beyond a limit, and returns how many are left.
async fn remove_beyond(
    limit: Option<u32>,
    mut jobs: Vec<Arc<Job>>,
    cx: &Context<CronJob>,
) -> Result<usize, Error> {
    let kept = limit.map_or(jobs.len(), |limit| jobs.len().min(limit as usize));
    jobs.sort_by_key(|job| Reverse(job.status.as_ref().and_then(|status| status.start_time.clone())));
    for job in &jobs[kept..] {
        cx.delete(job).propagation(Propagation::Background).await?;
    }
    Ok(kept)
}

fn set_conditions(
    status: &mut CronJobStatus,
    is_suspended: bool,
    schedule: &Result<Schedule, Vec<Mistake>>,
    failed: usize,
) {
    let active = status.active.len();
    let (is_available, reason, message) = match schedule {
        Err(_) => (false, "InvalidSchedule", "the schedule can't be read".to_owned()),
        Ok(_) if is_suspended => (false, "Suspended", "no more jobs start".to_owned()),
        Ok(_) if failed > 0 => (false, "JobsFailed", format!("jobs that failed: {failed}")),
        Ok(_) => (true, "Scheduled", format!("jobs that run: {active}")),
    };
    let is_degraded = matches!(reason, "InvalidSchedule" | "JobsFailed");
    status.conditions.set(Condition::new("Available", is_available, reason, &message));
    status.conditions.set(Condition::new("Degraded", is_degraded, reason, &message));
    status.conditions.set(Condition::new("Progressing", active > 0, reason, message));
}

fn scheduled_at(job: &Job) -> Option<Timestamp> {
    job.annotations().get(SCHEDULED_AT)?.parse().ok()
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the time of day, which follows a paused clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::try_from(Moment::now().time()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The operator: the kind with its versions, its webhooks, and the controller.
pub(crate) fn operator(manager: Manager, webhooks: Webhooks) -> Manager {
    manager
        .kind::<CronJob>()
        .webhooks(
            webhooks.defaults::<CronJob>(Usual).validates::<CronJob>(Rules).validates::<v2::CronJob>(Rules),
        )
        .leader_election("cronjobs")
        .controller(Controller::new(CronJobs).owns::<Job>())
}
