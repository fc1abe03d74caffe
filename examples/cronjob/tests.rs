//! Tests on the embedded API server, under paused time.

use k8s_openapi::api::batch::v1::Job;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::sleep;
use watchkeeper::{Running, prelude::*, versions::RoundTrip, webhook::Webhooks};
use watchkeeper_apiserver::{ApiServer, InMemory};

use super::{
    controller::now,
    operator,
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

/// Makes a cron job of a version, right but for what the members of `spec` say; null leaves one out.
fn object(version: &str, name: &str, spec: Value) -> Value {
    let pod = json!({"restartPolicy": "OnFailure", "containers": [{"name": "a", "image": "b"}]});
    let schedule = if version == "v1" { json!("* * * * *") } else { json!({}) };
    let mut whole = json!({"schedule": schedule, "jobTemplate": {"metadata": {"labels": {"app": "report"}},
        "spec": {"template": {"spec": pod}}}});
    for (name, value) in spec.as_object().unwrap() {
        match value {
            Value::Null => drop(whole.as_object_mut().unwrap().remove(name)),
            value => whole[name] = value.clone(),
        }
    }
    json!({"apiVersion": format!("batch.tutorial.kubebuilder.io/{version}"), "kind": "CronJob",
        "metadata": {"name": name}, "spec": whole})
}

fn cron_job(name: &str, spec: Value) -> CronJob {
    serde_json::from_value(object("v1", name, spec)).unwrap()
}

/// Creates or changes an object as `kubectl apply` does, and returns why that is refused.
async fn refused(server: &ApiServer<InMemory>, object: &Value) -> Box<Status> {
    let (version, name) =
        (object["apiVersion"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
    let path = format!("/apis/{version}/namespaces/default/cronjobs");
    let request = match server.get::<CronJob>(name).await {
        Some(_) => http::Request::patch(format!("{path}/{name}?fieldValidation=Strict"))
            .header("content-type", "application/merge-patch+json"),
        None => http::Request::post(format!("{path}?fieldValidation=Strict")),
    };
    match server.client().request::<Value>(request.body(object.to_string().into_bytes()).unwrap()).await {
        Err(kube::Error::Api(status)) => status,
        other => panic!("{object} is not refused: {other:?}"),
    }
}

/// Shows a refusal as kubectl does.
fn printed(status: &Status) -> String {
    let Some(details) = status.details.as_ref().filter(|_| status.reason == "Invalid") else {
        return format!("Error from server ({}): {}", status.reason, status.message);
    };
    let causes = details.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
    let causes: Vec<_> = causes.collect();
    let causes = if causes.len() == 1 { causes.concat() } else { format!("\n* {}", causes.join("\n* ")) };
    format!("The {} {:?} is invalid: {causes}", details.kind, details.name)
}

#[tokio::test(start_paused = true)]
async fn kubectl_prints_every_mistake_as_the_readme_shows_it() {
    let (server, running) = start().await;
    let long = "a".repeat(53);
    let v1 = |spec: Value| object("v1", "report", spec);
    let v2 = |spec: Value| object("v2", "report", spec);
    let readme = include_str!("README.md");
    server.create(&cron_job("good", json!({}))).await;
    for (title, object) in [
        ("a schedule in words", v1(json!({"schedule": "every day"}))),
        ("a schedule of four fields", v1(json!({"schedule": "* * * *"}))),
        ("a minute out of range", v1(json!({"schedule": "61 * * * *"}))),
        ("no schedule", v1(json!({"schedule": null}))),
        ("a number as schedule", v1(json!({"schedule": 5}))),
        ("a name of 53 characters", object("v1", &long, json!({}))),
        ("an unknown policy", v1(json!({"concurrencyPolicy": "Sometimes"}))),
        ("a negative limit", v1(json!({"successfulJobsHistoryLimit": -1}))),
        ("a text as suspend", v1(json!({"suspend": "yes"}))),
        ("no job template", v1(json!({"jobTemplate": null}))),
        ("a template without containers", v1(json!({"jobTemplate": {"spec": {"template": {"spec": {}}}}}))),
        ("an unknown field", v1(json!({"timezone": "UTC"}))),
        ("two: name and schedule", object("v1", &long, json!({"schedule": "61 * * * *"}))),
        (
            "two: policy and limit",
            v1(json!({"concurrencyPolicy": "Sometimes", "failedJobsHistoryLimit": -1})),
        ),
        ("two: limit and schedule", v1(json!({"failedJobsHistoryLimit": -1, "schedule": "61 * * * *"}))),
        ("an update with a wrong day", object("v1", "good", json!({"schedule": "* * * * 9"}))),
        ("v2: a minute out of range", v2(json!({"schedule": {"minute": "61"}}))),
        ("v2: minute and hour", v2(json!({"schedule": {"minute": "61", "hour": "24"}}))),
        ("v2: name and minute", object("v2", &long, json!({"schedule": {"minute": "61"}}))),
        ("v2: an unknown policy", v2(json!({"concurrencyPolicy": "Sometimes"}))),
        ("v2: no job template", v2(json!({"jobTemplate": null}))),
        ("v2: an update with a wrong day", object("v2", "good", json!({"schedule": {"dayOfWeek": "9"}}))),
    ] {
        let said = printed(&*refused(&server, &object).await);
        let row = readme.lines().find(|line| line.starts_with(&format!("| {title} |")));
        let row = row.unwrap_or_else(|| panic!("README.md has no row for {title}: {said}"));
        let shown = row.rsplit(" | ").next().unwrap().trim_end_matches(" |");
        let shown = shown.replace("<br>", "\n").replace('`', "").replace("aaa…", &long);
        assert_eq!(shown, said, "{title}");
    }
    let expression = json!({"schedule": {"minute": "5", "expression": "@often"}});
    assert_eq!(
        printed(&*refused(&server, &v2(expression)).await),
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

async fn end(server: &ApiServer<InMemory>, how: &str) {
    for job in server.list::<Job>("default").await {
        let ended = json!({"startTime": job.metadata.creation_timestamp, "conditions": [{"type": how, "status": "True"}]});
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
