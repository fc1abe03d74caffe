//! The cells of each built-in kind.

use serde_json::{Value, json};

use super::super::cells::{
    age, duration, fields, items, join, labels, number, object_age, or_none, selector, since, text,
    text_or_none,
};

fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

pub(super) fn config_map(object: &Value, now: i64) -> Vec<Value> {
    let count = fields(object, "/data") + fields(object, "/binaryData");
    vec![name(object), json!(count), object_age(object, now)]
}

pub(super) fn secret(object: &Value, now: i64) -> Vec<Value> {
    let kind = json!(text(object, "/type"));
    vec![name(object), kind, json!(fields(object, "/data")), object_age(object, now)]
}

pub(super) fn service_account(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), object_age(object, now)]
}

pub(super) fn namespace(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(text(object, "/status/phase")), object_age(object, now)]
}

pub(super) fn lease(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(text(object, "/spec/holderIdentity")), object_age(object, now)]
}

pub(super) fn pod(object: &Value, now: i64) -> Vec<Value> {
    let statuses = items(object, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let total = items(object, "/spec/containers").len();
    let restarts: i64 = statuses.iter().map(|status| number(status, "/restartCount")).sum();
    let gates = items(object, "/spec/readinessGates");
    let conditions = items(object, "/status/conditions");
    let passed = gates.iter().filter(|gate| {
        let wanted = text(gate, "/conditionType");
        conditions.iter().any(|found| text(found, "/type") == wanted && text(found, "/status") == "True")
    });
    let gates = match gates.len() {
        0 => "<none>".to_owned(),
        total => format!("{}/{total}", passed.count()),
    };
    vec![
        name(object),
        json!(format!("{ready}/{total}")),
        json!(pod_status(object)),
        json!(restarts.to_string()),
        object_age(object, now),
        json!(text_or_none(object, "/status/podIP")),
        json!(text_or_none(object, "/spec/nodeName")),
        json!(text_or_none(object, "/status/nominatedNodeName")),
        json!(gates),
    ]
}

/// Returns a pod's status: why its last container waits or ended, otherwise its phase.
fn pod_status(object: &Value) -> &str {
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        return match text(object, "/status/reason") {
            "NodeLost" => "Unknown",
            _ => "Terminating",
        };
    }
    let of_containers = items(object, "/status/containerStatuses").iter().rev().find_map(|status| {
        let reasons = ["/state/waiting/reason", "/state/terminated/reason"];
        reasons.into_iter().map(|reason| text(status, reason)).find(|reason| !reason.is_empty())
    });
    let of_pod = Some(text(object, "/status/reason")).filter(|reason| !reason.is_empty());
    of_containers.or(of_pod).unwrap_or_else(|| text(object, "/status/phase"))
}

pub(super) fn service(object: &Value, now: i64) -> Vec<Value> {
    let ports = items(object, "/spec/ports").iter().map(|port| {
        let protocol = match text(port, "/protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        match (number(port, "/port"), number(port, "/nodePort")) {
            (port, 0) => format!("{port}/{protocol}"),
            (port, node) => format!("{port}:{node}/{protocol}"),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        name(object),
        json!(text(object, "/spec/type")),
        json!(text_or_none(object, "/spec/clusterIP")),
        json!(external_ip(object)),
        json!(or_none(&ports)),
        object_age(object, now),
        json!(labels(object, "/spec/selector")),
    ]
}

fn external_ip(object: &Value) -> String {
    let given: Vec<&str> = items(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match text(object, "/spec/type") {
        "ExternalName" => text_or_none(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let balancers = items(object, "/status/loadBalancer/ingress").iter();
            let balancers = balancers.map(|ingress| match text(ingress, "/ip") {
                "" => text(ingress, "/hostname"),
                ip => ip,
            });
            let all: Vec<&str> = balancers.chain(given).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ => or_none(&given.join(",")).to_owned(),
    }
}

pub(super) fn node(object: &Value, now: i64) -> Vec<Value> {
    let conditions = items(object, "/status/conditions");
    let ready = conditions.iter().find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(|labels| labels.keys());
    let mut roles: Vec<&str> =
        labels.filter_map(|label| label.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        let addresses = items(object, "/status/addresses").iter();
        let mut of_kind = addresses.filter(|address| text(address, "/type") == kind);
        of_kind.next().map_or("<none>", |address| text(address, "/address"))
    };
    let info = |field: &str| match text(object, &format!("/status/nodeInfo/{field}")) {
        "" => json!("<unknown>"),
        known => json!(known),
    };
    vec![
        name(object),
        json!(status),
        json!(or_none(&roles.join(","))),
        object_age(object, now),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

/// Writes an event of either group.
pub(super) fn event(object: &Value, now: i64) -> Vec<Value> {
    let first_of = |pointers: &[&str]| {
        let found = pointers.iter().map(|pointer| text(object, pointer));
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_default().to_owned()
    };
    let first = first_of(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last = first_of(&[
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/firstTimestamp",
        "/eventTime",
    ]);
    let about = if object.get("regarding").is_some() { "/regarding" } else { "/involvedObject" };
    let kind = text(object, &format!("{about}/kind")).to_lowercase();
    let target = match text(object, &format!("{about}/name")) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = first_of(&["/source/component", "/reportingComponent", "/reportingController"]);
    let source = match first_of(&["/source/host", "/reportingInstance"]).as_str() {
        "" => component,
        host => format!("{component}, {host}"),
    };
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts.into_iter().map(|pointer| number(object, pointer)).find(|count| *count > 0);
    vec![
        json!(age(&last, now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(object, &format!("{about}/fieldPath"))),
        json!(source),
        json!(first_of(&["/message", "/note"]).trim()),
        json!(age(&first, now)),
        json!(count.unwrap_or(1)),
        name(object),
    ]
}

/// Writes the containers and images of a template.
fn template(object: &Value, pointer: &str) -> [Value; 2] {
    let containers = items(object, pointer);
    [json!(join(containers, "/name", ",")), json!(join(containers, "/image", ","))]
}

const CONTAINERS: &str = "/spec/template/spec/containers";

/// Reads the wanted number of replicas.
fn wanted(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

pub(super) fn deployment(object: &Value, now: i64) -> Vec<Value> {
    let ready = format!("{}/{}", number(object, "/status/readyReplicas"), wanted(object));
    let [containers, images] = template(object, CONTAINERS);
    vec![
        name(object),
        json!(ready),
        json!(number(object, "/status/updatedReplicas")),
        json!(number(object, "/status/availableReplicas")),
        object_age(object, now),
        containers,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub(super) fn replica_set(object: &Value, now: i64) -> Vec<Value> {
    let [containers, images] = template(object, CONTAINERS);
    vec![
        name(object),
        json!(wanted(object)),
        json!(number(object, "/status/replicas")),
        json!(number(object, "/status/readyReplicas")),
        object_age(object, now),
        containers,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub(super) fn stateful_set(object: &Value, now: i64) -> Vec<Value> {
    let ready = format!("{}/{}", number(object, "/status/readyReplicas"), wanted(object));
    let [containers, images] = template(object, CONTAINERS);
    vec![name(object), json!(ready), object_age(object, now), containers, images]
}

pub(super) fn daemon_set(object: &Value, now: i64) -> Vec<Value> {
    let count = |field: &str| json!(number(object, &format!("/status/{field}")));
    let [containers, images] = template(object, CONTAINERS);
    vec![
        name(object),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        json!(labels(object, "/spec/template/spec/nodeSelector")),
        object_age(object, now),
        containers,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

pub(super) fn job(object: &Value, now: i64) -> Vec<Value> {
    let succeeded = number(object, "/status/succeeded");
    let parallelism = number(object, "/spec/parallelism");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let start = text(object, "/status/startTime");
    let took = match text(object, "/status/completionTime") {
        _ if start.is_empty() => String::new(),
        "" => since(start, now),
        end => match (start.parse::<jiff::Timestamp>(), end.parse::<jiff::Timestamp>()) {
            (Ok(start), Ok(end)) => duration(end.as_second() - start.as_second()),
            _ => String::new(),
        },
    };
    let [containers, images] = template(object, CONTAINERS);
    vec![
        name(object),
        json!(job_status(object)),
        json!(completions),
        json!(took),
        object_age(object, now),
        containers,
        images,
        json!(selector(object, "/spec/selector")),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let is = |kind: &str| {
        let conditions = items(object, "/status/conditions").iter();
        let mut of_kind = conditions.filter(|condition| text(condition, "/type") == kind);
        of_kind.any(|condition| text(condition, "/status") == "True")
    };
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if !text(object, "/metadata/deletionTimestamp").is_empty() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub(super) fn cron_job(object: &Value, now: i64) -> Vec<Value> {
    let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match text(object, "/status/lastScheduleTime") {
        "" => "<none>".to_owned(),
        time => since(time, now),
    };
    let [containers, images] = template(object, "/spec/jobTemplate/spec/template/spec/containers");
    vec![
        name(object),
        json!(text(object, "/spec/schedule")),
        json!(text_or_none(object, "/spec/timeZone")),
        json!(suspend),
        json!(items(object, "/status/active").len()),
        json!(last),
        object_age(object, now),
        containers,
        images,
        json!(selector(object, "/spec/jobTemplate/spec/selector")),
    ]
}

pub(super) fn role_binding(object: &Value, now: i64) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = items(object, "/subjects");
    let of_kind = |kind: &str| {
        let subjects = subjects.iter().filter(|subject| text(subject, "/kind") == kind);
        let names = subjects.map(|subject| match (kind, text(subject, "/namespace")) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", text(subject, "/name"))
            }
            _ => text(subject, "/name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        json!(role),
        object_age(object, now),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}
