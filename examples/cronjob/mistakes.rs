//! Objects with mistakes, and what `kubectl` prints for them. The tests of the project give them to a real API server too.

use http::Request;
use kube::{Client, core::Status};
use serde_json::{Value, json};

/// The name of an object that exists, so that the mistake is in an update.
pub(crate) const GOOD: &str = "good";

/// Makes a cron job of a version, right but for what the members of `spec` say; null leaves one out.
pub(crate) fn object(version: &str, name: &str, spec: Value) -> Value {
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

/// Returns objects with mistakes, each with the row of README.md that shows what is printed.
pub(crate) fn mistakes() -> Vec<(&'static str, Value)> {
    let long = "a".repeat(53);
    let v1 = |spec: Value| object("v1", "report", spec);
    let v2 = |spec: Value| object("v2", "report", spec);
    vec![
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
        ("an update with a wrong day", object("v1", GOOD, json!({"schedule": "* * * * 9"}))),
        ("v2: a minute out of range", v2(json!({"schedule": {"minute": "61"}}))),
        ("v2: minute and hour", v2(json!({"schedule": {"minute": "61", "hour": "24"}}))),
        ("v2: name and minute", object("v2", &long, json!({"schedule": {"minute": "61"}}))),
        ("v2: an unknown policy", v2(json!({"concurrencyPolicy": "Sometimes"}))),
        ("v2: no job template", v2(json!({"jobTemplate": null}))),
        ("v2: an update with a wrong day", object("v2", GOOD, json!({"schedule": {"dayOfWeek": "9"}}))),
    ]
}

/// Returns the lines of a text, sorted: the API server names the mistakes that its schema finds in any order.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns what README.md shows in the last column of a row.
pub(crate) fn shown(title: &str) -> String {
    let row = include_str!("README.md").lines().find(|line| line.starts_with(&format!("| {title} |")));
    let row = row.unwrap_or_else(|| panic!("README.md has no row {title:?}"));
    let cell = row.rsplit(" | ").next().unwrap_or_default().trim_end_matches(" |");
    cell.replace("<br>", "\n").replace('`', "").replace("aaa…", &"a".repeat(53))
}

/// Creates or changes an object in a dry run, and returns what `kubectl apply` would print.
pub(crate) async fn printed(client: &Client, namespace: &str, object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, name) = (text(&object["apiVersion"]), text(&object["metadata"]["name"]));
    let path = format!("/apis/{version}/namespaces/{namespace}/cronjobs");
    let request = match name.as_str() {
        GOOD => Request::patch(format!("{path}/{name}?fieldValidation=Strict&dryRun=All"))
            .header("content-type", "application/merge-patch+json"),
        _ => Request::post(format!("{path}?fieldValidation=Strict&dryRun=All")),
    };
    let request = request.body(object.to_string().into_bytes()).expect("it is a request");
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) => refusal(&status),
        Err(error) => error.to_string(),
        Ok(_) => "it is taken".to_owned(),
    }
}

/// Shows a refusal as kubectl does.
fn refusal(status: &Status) -> String {
    let Some(details) = status.details.as_ref().filter(|_| status.reason == "Invalid") else {
        return format!("Error from server ({}): {}", status.reason, status.message);
    };
    let causes = details.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
    let causes: Vec<_> = causes.collect();
    let causes = if causes.len() == 1 { causes.concat() } else { format!("\n* {}", causes.join("\n* ")) };
    format!("The {} {:?} is invalid: {causes}", details.kind, details.name)
}
