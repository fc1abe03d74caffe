//! Probes and what happens around a container's life.

use super::around::Around;
use super::place::{Findings, Place};
use super::words;

/// Checks the probes and the life cycle of a container.
pub(super) fn of_container(container: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    for hook in ["postStart", "preStop"] {
        let life = container.at("lifecycle");
        let hook = life.at(hook);
        if hook.is_set() {
            handler(&hook, around, faults, &["exec", "httpGet", "tcpSocket", "sleep"]);
        }
    }
    for (field, has_threshold) in
        [("livenessProbe", false), ("readinessProbe", true), ("startupProbe", false)]
    {
        let probe = container.at(field);
        if !probe.is_set() {
            continue;
        }
        check(&probe, around, faults);
        let (successes, ends) = (probe.at("successThreshold"), probe.at("terminationGracePeriodSeconds"));
        if has_threshold && ends.is_set() {
            ends.invalid(faults, "must not be set for readinessProbes");
        }
        if !has_threshold && successes.number() != Some(1) {
            successes.invalid(faults, "must be 1");
        }
    }
}

fn check(probe: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    handler(probe, around, faults, &["exec", "httpGet", "tcpSocket", "grpc"]);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.at(field).at_least(faults, 0);
    }
    let ends = probe.at("terminationGracePeriodSeconds");
    if ends.number().is_some_and(|seconds| seconds <= 0) {
        ends.invalid(faults, "must be greater than 0");
    }
}

fn handler(place: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings, kinds: &[&str]) {
    let mut given = kinds.iter().copied().filter(|kind| place.at(kind).is_set());
    let Some(kind) = given.next() else {
        place.required(faults, "must specify a handler type");
        return;
    };
    let action = place.at(kind);
    match kind {
        "exec" => {
            if action.at("command").len() == 0 {
                action.at("command").required(faults, "");
            }
        }
        "httpGet" => {
            if action.at("path").text().is_empty() {
                action.at("path").required(faults, "");
            }
            port(&action.at("port"), faults);
            action.at("scheme").one_of(faults, &["HTTP", "HTTPS"]);
            let headers = action.at("httpHeaders");
            for header in headers.items() {
                let name = header.at("name").text();
                for why in words::header(name) {
                    headers.invalid_as(faults, &format!("{name:?}"), &why);
                }
            }
        }
        "tcpSocket" | "grpc" => port(&action.at("port"), faults),
        _ => {
            let seconds = action.at("seconds").number().unwrap_or(0);
            if !(0..=around.grace).contains(&seconds) {
                let grace = around.grace;
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                action.invalid_as(faults, &seconds.to_string(), &why);
            }
        }
    }
    for more in given {
        place.at(more).forbidden(faults, "may not specify more than 1 handler type");
    }
}

/// Checks a port, given by its number or its name.
pub(super) fn port(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.value().is_string() {
        place.each(faults, words::port_name(place.text()));
        return;
    }
    let number = place.number().unwrap_or(0);
    if !(1..=65_535).contains(&number) {
        place.invalid_as(faults, &number.to_string(), "must be between 1 and 65535, inclusive");
    }
}
