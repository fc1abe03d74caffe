//! Tests on the embedded API server, under paused time.

use k8s_openapi::{api::batch::v1::Job, jiff::Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;
use watchkeeper::{Running, prelude::*, versions::RoundTrip, webhook::Webhooks};
use watchkeeper_apiserver::{ApiServer, InMemory};

use super::{
    controller::{now, operator},
    mistakes::{GOOD, lines, mistakes, object, printed, shown},
    schedule::{Mistake, Schedule},
    v1::{ConcurrencyPolicy, CronJob},
    v2,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Starts a server and the operator, which has installed its kind then.
async fn start() -> (ApiServer<InMemory>, Running) {
    let server = ApiServer::in_memory().start().await;
    let running = run(&server);
    sleep(MINUTE).await;
    (server, running)
}

fn run(server: &ApiServer<InMemory>) -> Running {
    // Objects in the namespace of the Service are not sent to webhooks.
    let webhooks = Webhooks::new("127.0.0.1:0").service("kube-system", "cronjobs");
    let running = operator(Manager::new(server.client()), webhooks).spawn();
    server.webhooks(&running);
    running
}

fn cron_job(name: &str, spec: Value) -> CronJob {
    serde_json::from_value(object("v1", name, spec)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn kubectl_prints_every_mistake_as_the_readme_shows_it() {
    let (server, running) = start().await;
    server.create(&cron_job(GOOD, json!({}))).await;
    for (title, object) in mistakes() {
        let said = printed(&server.client(), "default", &object).await;
        assert_eq!(lines(&said), lines(&shown(title)), "{title}");
    }
    let both = object("v2", "report", json!({"schedule": {"minute": "5", "expression": "@often"}}));
    assert_eq!(
        printed(&server.client(), "default", &both).await,
        "The CronJob \"report\" is invalid: \n\
         * spec.schedule.expression: Forbidden: leave it out, or the other fields\n\
         * spec.schedule.expression: Invalid value: \"@often\": must be @yearly, @monthly, @weekly, @daily or \
         @hourly, or have five fields"
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn defaults_are_set_in_both_versions_and_what_a_user_says_stays() {
    let (server, running) = start().await;
    let first = server.create(&cron_job("report", json!({}))).await.spec.runs;
    let second: v2::CronJob =
        serde_json::from_value(object("v2", "second", json!({"suspend": true}))).unwrap();
    let second = server.create(&second).await.spec.runs;
    for (runs, suspend) in [(first, false), (second, true)] {
        assert_eq!(runs.concurrency_policy, ConcurrencyPolicy::Allow);
        assert_eq!(runs.suspend, Some(suspend));
        assert_eq!((runs.successful_jobs_history_limit, runs.failed_jobs_history_limit), (Some(3), Some(1)));
    }
    running.stop().await.unwrap();
}

// `*` may be written or left out, and `expression` may be next to other fields: v1 does not tell these apart.
#[test]
fn no_version_loses_anything() {
    RoundTrip::<CronJob>::new().objects(100).only_in("v2", "spec.schedule").check();
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_read_and_written_in_both_versions() {
    let (server, running) = start().await;
    let written: v2::CronJob =
        serde_json::from_value(object("v2", "report", json!({"schedule": {"minute": "*/5"}}))).unwrap();
    server.create(&written).await;
    let read = server.get::<CronJob>("report").await.unwrap();
    assert_eq!(read.spec.schedule, "*/5 * * * *");
    server.patch_merge::<CronJob>("report", json!({"spec": {"schedule": "@hourly"}})).await;
    let read = server.get::<v2::CronJob>("report").await.unwrap();
    assert_eq!(read.spec.schedule, v2::CronSchedule::from("@hourly"));
    assert_eq!(read.spec.schedule.expression.as_deref(), Some("@hourly"));
    running.stop().await.unwrap();
}

/// Waits until the middle of a minute, when no schedule is due.
async fn middle_of_a_minute() {
    let past = now().as_second().rem_euclid(60);
    sleep(Duration::from_secs(u64::try_from(90 - past).unwrap())).await;
}

/// Lists the jobs' times, in minutes before now.
async fn ages(server: &ApiServer<InMemory>) -> Vec<i64> {
    let jobs = server.list::<Job>("default").await;
    let time = |job: &Job| job.annotations()["batch.tutorial.kubebuilder.io/scheduled-at"].parse().unwrap();
    let mut ages: Vec<_> =
        jobs.iter().map(|job| now().duration_since(time(job)).as_mins()).collect::<Vec<i64>>();
    ages.sort();
    ages
}

/// Ends all jobs, as the controller of jobs does.
async fn end(server: &ApiServer<InMemory>, how: &str) {
    for job in server.list::<Job>("default").await {
        let is_complete = how == "Complete";
        let first = if is_complete { "SuccessCriteriaMet" } else { "FailureTarget" };
        let began = &job.metadata.creation_timestamp;
        let ended = json!({
            "startTime": began,
            "completionTime": began.as_ref().filter(|_| is_complete),
            "conditions": [{"type": first, "status": "True"}, {"type": how, "status": "True"}],
        });
        if job.status.as_ref().is_none_or(|status| status.conditions.is_none()) {
            server.patch_status::<Job>(&job.name_any(), ended).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_when_it_is_due_and_the_status_names_it_while_it_runs() {
    let (server, running) = start().await;
    middle_of_a_minute().await;
    server.create(&cron_job("report", json!({}))).await;
    sleep(Duration::from_secs(29)).await;
    assert_eq!(ages(&server).await, [0; 0], "it is not due yet");
    sleep(Duration::from_secs(2)).await;
    let jobs = server.list::<Job>("default").await;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let cron_job = server.get::<CronJob>("report").await.unwrap();
    let status = cron_job.status.unwrap();
    let due = status.last_schedule_time.unwrap().0;
    assert_eq!(due.as_second().rem_euclid(60), 0);
    assert_eq!(job.name_any(), format!("report-{}", due.as_second()));
    assert_eq!(job.labels()["app"], "report");
    assert_eq!(job.owner_references()[0].uid, cron_job.metadata.uid.unwrap());
    assert_eq!(status.active[0].uid, job.metadata.uid);
    assert!(status.conditions.is_true("Available") && status.conditions.is_true("Progressing"));
    end(&server, "Complete").await;
    sleep(Duration::from_secs(1)).await;
    let status = server.get::<CronJob>("report").await.unwrap().status.unwrap();
    assert_eq!(status.active, []);
    assert!(status.conditions.is_true("Available") && status.conditions.is_false("Progressing"));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn as_many_ended_jobs_are_kept_as_the_limits_say() {
    let (server, running) = start().await;
    middle_of_a_minute().await;
    server.create(&cron_job("report", json!({"successfulJobsHistoryLimit": 2}))).await;
    for _ in 0..4 {
        sleep(MINUTE).await;
        end(&server, "Complete").await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ages(&server).await, [0, 1], "the latest two");
    for _ in 0..3 {
        sleep(MINUTE).await;
        end(&server, "Failed").await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ages(&server).await, [0, 3, 4], "the latest that failed, and two that succeeded");
    let status = server.get::<CronJob>("report").await.unwrap().status.unwrap();
    assert!(status.conditions.is_true("Degraded") && status.conditions.is_false("Available"));
    running.stop().await.unwrap();
}

// Without jobs that are left, only the status knows what has started.
#[tokio::test(start_paused = true)]
async fn a_time_counts_once_even_if_its_job_is_gone() {
    let (server, running) = start().await;
    middle_of_a_minute().await;
    server.create(&cron_job("report", json!({"successfulJobsHistoryLimit": 0}))).await;
    sleep(Duration::from_secs(40)).await;
    end(&server, "Complete").await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(ages(&server).await, [0; 0]);
    sleep(MINUTE).await;
    assert_eq!(ages(&server).await, [0], "the next one starts");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_is_joined_waited_for_or_replaced() {
    for (policy, while_it_runs, after_it) in
        [("Allow", &[0, 1, 2][..], &[0, 1, 2][..]), ("Forbid", &[2], &[0, 2]), ("Replace", &[0], &[0])]
    {
        let (server, running) = start().await;
        middle_of_a_minute().await;
        server.create(&cron_job("report", json!({"concurrencyPolicy": policy}))).await;
        sleep(MINUTE * 3).await;
        assert_eq!(ages(&server).await, while_it_runs, "{policy}");
        end(&server, "Complete").await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ages(&server).await, after_it, "{policy}: the time that was missed is made up for");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_one_starts_nothing_and_a_deadline_says_what_is_too_late() {
    let (server, running) = start().await;
    for (deadline, wanted) in [(json!(10), &[][..]), (json!(40), &[0]), (Value::Null, &[0])] {
        middle_of_a_minute().await;
        let spec = json!({"suspend": true, "startingDeadlineSeconds": deadline});
        server.create(&cron_job("report", spec)).await;
        sleep(MINUTE * 5).await;
        // Something has it reconciled meanwhile.
        server.patch_merge::<CronJob>("report", json!({"spec": {"failedJobsHistoryLimit": 2}})).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ages(&server).await, [0; 0], "it is suspended");
        server.patch_merge::<CronJob>("report", json!({"spec": {"suspend": false}})).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ages(&server).await, wanted, "{deadline}");
        server.delete::<CronJob>("report").await;
        sleep(MINUTE).await;
        assert_eq!(ages(&server).await, [0; 0], "jobs go with their owner");
    }
    running.stop().await.unwrap();
}

// Before the operator was there, nobody refused it.
#[tokio::test(start_paused = true)]
async fn a_schedule_that_was_stored_broken_is_a_condition() {
    let server = ApiServer::in_memory().crd::<CronJob>().start().await;
    server.create(&cron_job("report", json!({"schedule": "every day"}))).await;
    let running = run(&server);
    sleep(MINUTE).await;
    let status = server.get::<CronJob>("report").await.unwrap().status.unwrap();
    let condition = status.conditions.get("Degraded").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "InvalidSchedule"));
    running.stop().await.unwrap();
}

fn mistakes_in(text: &str) -> Vec<String> {
    let found = Schedule::parse(text).err().unwrap_or_default();
    found.into_iter().map(|Mistake { part, why, .. }| format!("{}: {why}", part.unwrap_or("all"))).collect()
}

#[test]
fn every_mistake_is_named() {
    for text in ["* * * * *", "*/5 0-4,22 1 JAN MON-FRI", "@hourly", " 5  4 * * 7 ", "0 0 29 2 *"] {
        assert_eq!(mistakes_in(text), [""; 0], "{text}");
    }
    let minute = "minute: must be 0-59, or a list, a range or steps of these";
    let weekday = "dayOfWeek: must be 0-7 or SUN-SAT, or a list, a range or steps of these";
    for (text, wanted) in [
        ("61 * * * *", &[minute][..]),
        ("61 * * * 9", &[minute, weekday]),
        ("MON * * * *", &[minute]),
        ("*/0 * * * *", &[minute]),
        ("5-1 * * * *", &[minute]),
        ("@every 1h", &["all: has 2 fields; it needs five: minute, hour, day, month, weekday"]),
        ("@often", &["all: must be @yearly, @monthly, @weekly, @daily or @hourly, or have five fields"]),
        ("", &["all: has 0 fields; it needs five: minute, hour, day, month, weekday"]),
        ("0 0 30 2 *", &["all: is never due"]),
    ] {
        assert_eq!(mistakes_in(text), wanted, "{text}");
    }
}

#[test]
fn times_are_found_before_and_after() {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let schedule = Schedule::parse("*/10 * * * *").unwrap();
    let now = time("2026-11-25T11:20:00.5Z");
    assert_eq!(schedule.last_until(now), Some(time("2026-11-25T11:20:00Z")));
    assert_eq!(schedule.next_after(now), Some(time("2026-11-25T11:30:00Z")));
    let due = time("2026-11-25T11:20:00Z");
    assert_eq!(
        (schedule.last_until(due), schedule.next_after(due)),
        (Some(due), Some(time("2026-11-25T11:30:00Z")))
    );
}
