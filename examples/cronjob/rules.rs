//! Defaults and rules.

use watchkeeper::{
    prelude::*,
    webhook::{Change, Defaulter, Request, Review, Validator},
};

use super::{
    schedule::{Mistake, Schedule},
    v1, v2,
};

/// The longest name: a job's has 11 characters more, and 63 at most.
const LONGEST_NAME: usize = 52;

/// Sets what a user left out. Objects of v2 come converted.
pub(crate) struct Usual;

impl Defaulter<v1::CronJob> for Usual {
    fn default(&self, cron_job: &mut v1::CronJob, _: &Request) {
        let runs = &mut cron_job.spec.runs;
        runs.suspend.get_or_insert(false);
        runs.successful_jobs_history_limit.get_or_insert(3);
        runs.failed_jobs_history_limit.get_or_insert(1);
    }
}

/// Refuses names that are too long, and schedules that are wrong, in the fields of the version that a user wrote.
pub(crate) struct Rules;

impl Validator<v1::CronJob> for Rules {
    async fn validate(&self, change: Change<'_, v1::CronJob>, review: &mut Review) {
        let cron_job = change.object();
        check_name(cron_job, review);
        let schedule = &cron_job.spec.schedule;
        for Mistake { part, text, why } in Schedule::parse(schedule).err().into_iter().flatten() {
            let why = part.map(|part| format!("{part} {text:?} {why}")).unwrap_or(why);
            review.field("spec.schedule").invalid(schedule, why);
        }
    }
}

impl Validator<v2::CronJob> for Rules {
    async fn validate(&self, change: Change<'_, v2::CronJob>, review: &mut Review) {
        let cron_job = change.object();
        check_name(cron_job, review);
        let schedule = &cron_job.spec.schedule;
        let has_parts = schedule.parts().iter().any(|part| part.is_some());
        if schedule.expression.is_some() && has_parts {
            review.field("spec.schedule.expression").forbidden("leave it out, or the other fields");
        }
        for Mistake { part, text, why } in Schedule::parse(&schedule.to_string()).err().into_iter().flatten()
        {
            let field = if schedule.expression.is_some() { Some("expression") } else { part };
            let path = field.map_or("spec.schedule".to_owned(), |field| format!("spec.schedule.{field}"));
            review.field(path).invalid(text, why);
        }
    }
}

fn check_name(cron_job: &impl ResourceExt, review: &mut Review) {
    let name = cron_job.name_any();
    if name.len() > LONGEST_NAME {
        review
            .field("metadata.name")
            .invalid(name, format!("must be no more than {LONGEST_NAME} characters"));
    }
}
