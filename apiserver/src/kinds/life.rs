//! Defaults of probes and of what happens around a container's life.

use serde_json::{Map, Value, json};

use super::maps::{map, put};

/// Fills in the probes and hooks of a container.
pub(super) fn container(container: &mut Map<String, Value>) {
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = map(container, probe) else { continue };
        for (field, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            if probe.get(field).is_none_or(|given| given.is_null() || *given == 0) {
                probe.insert(field.to_owned(), json!(value));
            }
        }
        if let Some(grpc) = map(probe, "grpc") {
            put(grpc, "service", json!(""));
        }
        request(probe);
    }
    let Some(life) = map(container, "lifecycle") else { return };
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = map(life, hook) {
            request(hook);
        }
    }
}

fn request(handler: &mut Map<String, Value>) {
    if let Some(request) = map(handler, "httpGet") {
        put(request, "path", json!("/"));
        put(request, "scheme", json!("HTTP"));
    }
}
