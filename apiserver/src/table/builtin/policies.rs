//! The columns and cells of autoscalers, certificate requests, quotas and components.

use serde_json::{Value, json};

use super::super::cells::{duration, items, number, object_age, text, text_or_none};
use super::super::printer::{AGE, NAME, Printer, col, definition, told};

const SCALER: &str = definition!("autoscaling.v2.HorizontalPodAutoscalerSpec");
const SCALER_STATUS: &str = definition!("autoscaling.v2.HorizontalPodAutoscalerStatus");
const REQUEST: &str = definition!("certificates.v1.CertificateSigningRequestSpec");
const REQUEST_STATUS: &str = definition!("certificates.v1.CertificateSigningRequestStatus");

/// Finds the printer of a kind.
pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    match (group, kind) {
        ("", "ResourceQuota") => Some(&QUOTA),
        ("", "ComponentStatus") => Some(&COMPONENT),
        ("autoscaling", "HorizontalPodAutoscaler") => Some(&AUTOSCALER),
        ("certificates.k8s.io", "CertificateSigningRequest") => Some(&CERTIFICATE),
        _ => None,
    }
}

static COMPONENT: Printer = Printer {
    columns: &[
        NAME,
        told("Status", "Status of the component conditions"),
        told("Message", "Message of the component conditions"),
        told("Error", "Error of the component conditions"),
    ],
    cells: |object, _| {
        let of = |field: &str| json!(text(object, &format!("/conditions/0/{field}")));
        let healthy = if of("status") == "True" { "Healthy" } else { "Unhealthy" };
        vec![json!(text(object, "/metadata/name")), json!(healthy), of("message"), of("error")]
    },
};

static AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        col("Reference", SCALER, "scaleTargetRef"),
        col("Targets", SCALER, "metrics"),
        col("MinPods", SCALER, "minReplicas"),
        col("MaxPods", SCALER, "maxReplicas"),
        col("Replicas", SCALER_STATUS, "currentReplicas"),
        AGE,
    ],
    cells: |object, now| {
        let of = |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}")).to_owned();
        let least =
            object["spec"]["minReplicas"].as_i64().map_or("<unset>".to_owned(), |least| least.to_string());
        vec![
            json!(text(object, "/metadata/name")),
            json!(format!("{}/{}", of("kind"), of("name"))),
            json!(targets(object)),
            json!(least),
            json!(number(object, "/spec/maxReplicas")),
            json!(number(object, "/status/currentReplicas")),
            object_age(object, now),
        ]
    },
};

/// Writes what an autoscaler aims at, and what there is; two of it, and the number of the others.
fn targets(object: &Value) -> String {
    const SHOWN: usize = 2;
    let mut targets: Vec<String> = items(object, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(at, metric)| target(object, at, metric))
        .collect();
    // Version 1 has one target, with its own field names.
    if let Some(percent) = object["spec"]["targetCPUUtilizationPercentage"].as_i64() {
        let current = percents(&object["status"]["currentCPUUtilizationPercentage"], "<unknown>");
        targets.push(format!("cpu: {current}/{percent}%"));
    }
    if targets.is_empty() {
        return "<none>".to_owned();
    }
    let more = targets.len().saturating_sub(SHOWN);
    let shown = targets[..targets.len().min(SHOWN)].join(", ");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

fn percents(value: &Value, absent: &str) -> String {
    value.as_i64().map_or(absent.to_owned(), |percent| format!("{percent}%"))
}

fn target(object: &Value, at: usize, metric: &Value) -> String {
    let (field, name) = match text(metric, "/type") {
        "Resource" => ("resource", format!("{}: ", text(metric, "/resource/name"))),
        "ContainerResource" => {
            ("containerResource", format!("{}: ", text(metric, "/containerResource/name")))
        }
        "Pods" => ("pods", String::new()),
        "Object" => ("object", String::new()),
        _ => ("external", String::new()),
    };
    let (wanted, status) = (&metric[field]["target"], items(object, "/status/currentMetrics").get(at));
    let current =
        |kind: &str| status.map(|status| status[field]["current"][kind].clone()).unwrap_or_default();
    let quantity = |value: Value| value.as_str().unwrap_or("<unknown>").to_owned();
    match (wanted["averageValue"].as_str(), field) {
        (Some(average), "object" | "external") => {
            format!("{}/{average} (avg)", quantity(current("averageValue")))
        }
        (Some(average), _) => format!("{name}{}/{average}", quantity(current("averageValue"))),
        (None, "resource" | "containerResource") => {
            let current = percents(&current("averageUtilization"), "<unknown>");
            format!("{name}{current}/{}", percents(&wanted["averageUtilization"], "<auto>"))
        }
        (None, _) => format!("{}/{}", quantity(current("value")), text(wanted, "/value")),
    }
}

static CERTIFICATE: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        col("SignerName", REQUEST, "signerName"),
        col("Requestor", REQUEST, "request"),
        col("RequestedDuration", REQUEST, "expirationSeconds"),
        col("Condition", REQUEST_STATUS, "conditions"),
    ],
    cells: |object, now| {
        let asked = object["spec"]["expirationSeconds"].as_i64().map_or("<none>".to_owned(), duration);
        vec![
            json!(text(object, "/metadata/name")),
            object_age(object, now),
            json!(text_or_none(object, "/spec/signerName")),
            json!(text(object, "/spec/username")),
            json!(asked),
            json!(condition(object)),
        ]
    },
};

fn condition(object: &Value) -> String {
    let conditions = items(object, "/status/conditions");
    let is = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let mut words = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if is("Failed") {
        words.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        words.push_str(",Issued");
    }
    words
}

static QUOTA: Printer = Printer {
    columns: &[
        NAME,
        told("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
        told(
            "Limit",
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        ),
        AGE,
    ],
    cells: |object, now| {
        let used = |wanted: bool| {
            let hard = object["status"]["hard"].as_object().into_iter().flatten();
            let lines = hard.filter(|(name, _)| name.starts_with("limits.") == wanted).map(|(name, hard)| {
                let used = object["status"]["used"][name].as_str().unwrap_or("0");
                format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
            });
            lines.collect::<Vec<_>>().join(", ")
        };
        let name = json!(text(object, "/metadata/name"));
        vec![name, json!(used(false)), json!(used(true)), object_age(object, now)]
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_shows_two_targets() {
        let metric = |name: &str| json!({"type": "Resource", "resource": {"name": name, "target": {"averageUtilization": 80}}});
        let mut object = json!({"spec": {"metrics": [metric("cpu"), metric("memory"), metric("disk")]}});
        object["status"]["currentMetrics"] = json!([{"resource": {"current": {"averageUtilization": 20}}}]);
        assert_eq!(targets(&object), "cpu: 20%/80%, memory: <unknown>/80% + 1 more...");
        assert_eq!(targets(&json!({"spec": {"targetCPUUtilizationPercentage": 7}})), "cpu: <unknown>/7%");
        assert_eq!(targets(&json!({})), "<none>");
    }

    #[test]
    fn a_request_shows_where_it_stands() {
        let object = json!({"status": {"conditions": [{"type": "Approved"}], "certificate": "x"}});
        assert_eq!(condition(&object), "Approved,Issued");
        assert_eq!(condition(&json!({})), "Pending");
    }
}
