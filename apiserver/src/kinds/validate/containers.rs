//! Containers: of a pod from its start, before it, and into it later.

use std::collections::BTreeSet;

use serde_json::Value;

use super::around::{Around, Within, profile};
use super::place::{Findings, Place};
use super::{environment, probes, resources, volumes, words};

/// Checks all containers of a pod's specification.
pub(super) fn check(spec: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    let (containers, first) = (spec.at("containers"), spec.at("initContainers"));
    let mut names = BTreeSet::new();
    if containers.len() == 0 {
        containers.required(faults, "");
    }
    for container in containers.items() {
        common(&container, around, faults);
        let name = container.at("name");
        if !names.insert(name.text()) {
            name.duplicate(faults, name.value());
        }
        probes::of_container(&container, around, faults);
        restarts(&container, faults);
    }
    host_ports(containers.items(), faults);
    names.remove("");
    for container in first.items() {
        common(&container, around, faults);
        restarts(&container, faults);
        let name = container.at("name");
        if !names.insert(name.text()) && !name.text().is_empty() {
            name.duplicate(faults, name.value());
        }
        host_ports(std::iter::once(container), faults);
        if container.at("restartPolicy").text() == "Always" {
            probes::of_container(&container, around, faults);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            let field = container.at(field);
            if field.is_set() {
                field.forbidden(faults, "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
    ephemeral(spec, around, faults);
}

fn common(container: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    let (name, image) = (container.at("name"), container.at("image"));
    if name.text().is_empty() {
        name.required(faults, "");
    } else {
        name.each(faults, words::label(name.text()));
    }
    if image.text().is_empty() {
        image.required(faults, "");
    } else if around.within == Within::Pod && image.text().trim() != image.text() {
        image.invalid(faults, "must not have leading or trailing whitespace");
    }
    container.at("terminationMessagePolicy").one_of(faults, &["File", "FallbackToLogsOnError"]);
    ports(&container.at("ports"), faults);
    environment::check(container, faults);
    mounts(container, around, faults);
    container.at("imagePullPolicy").one_of(faults, &["Always", "IfNotPresent", "Never"]);
    resources::check(&container.at("resources"), around, faults);
    security(&container.at("securityContext"), faults);
}

fn ports(place: &Place<'_, '_>, faults: &mut Findings) {
    let mut names = BTreeSet::new();
    for port in place.items() {
        let (name, own, host) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() {
            let wrong = words::port_name(name.text());
            if wrong.is_empty() && !names.insert(name.text()) {
                name.duplicate(faults, name.value());
            }
            name.each(faults, wrong);
        }
        if own.number().unwrap_or(0) == 0 {
            own.required(faults, "");
        } else {
            own.within(faults, 1, 65_535);
        }
        if host.number().unwrap_or(0) != 0 {
            host.within(faults, 1, 65_535);
        }
        port.at("protocol").one_of(faults, &["SCTP", "TCP", "UDP"]);
    }
}

fn host_ports<'p, 'v: 'p>(containers: impl Iterator<Item = Place<'p, 'v>>, faults: &mut Findings) {
    let mut taken = BTreeSet::new();
    for container in containers {
        let ports = container.at("ports");
        for port in ports.items() {
            let host = port.at("hostPort");
            let number = host.number().unwrap_or(0);
            let key = format!("{}/{}/{number}", port.at("protocol").text(), port.at("hostIP").text());
            if number != 0 && !taken.insert(key.clone()) {
                host.duplicate(faults, &Value::String(key));
            }
        }
    }
}

fn mounts(container: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let is_known = |name: &str| around.volumes.contains(name);
    let mut paths = BTreeSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.text().is_empty() {
            name.required(faults, "");
        }
        if !is_known(name.text()) {
            name.not_found(faults);
        }
        if path.text().is_empty() {
            path.required(faults, "");
        }
        if !paths.insert(path.text()) {
            path.invalid_as(faults, &format!("{:?}", path.text()), "must be unique");
        }
        // The server names these without the index.
        let inside = mounts.at("subPath").of(mount.at("subPath").value());
        if !inside.text().is_empty() {
            if inside.text().starts_with('/') {
                inside.invalid(faults, "must be a relative path");
            }
            volumes::no_way_up(&inside, faults);
        }
        let spread = mounts.at("mountPropagation").of(mount.at("mountPropagation").value());
        spread.one_of_if_set(faults, &["Bidirectional", "HostToContainer", "None"]);
        let privileged = container.at("securityContext").at("privileged").is_true();
        if spread.text() == "Bidirectional" && !privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            spread.forbidden(faults, why);
        }
    }
    for device in devices.items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        if name.text().is_empty() {
            name.required(faults, "");
        }
        if !is_known(name.text()) {
            name.not_found(faults);
        }
        if path.text().is_empty() {
            path.required(faults, "");
        }
    }
}

/// Checks the policy of restarts and its rules.
fn restarts(container: &Place<'_, '_>, faults: &mut Findings) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if !policy.is_set() && rules.len() > 0 {
        policy.required(faults, "must specify restartPolicy when restart rules are used");
    }
    policy.one_of_if_set(faults, &["Always", "Never", "OnFailure"]);
    if rules.len() > 20 {
        rules.too_many(faults, 20);
    }
}

fn security(place: &Place<'_, '_>, faults: &mut Findings) {
    for field in ["runAsUser", "runAsGroup"] {
        place.at(field).within(faults, 0, i64::from(i32::MAX));
    }
    place.at("procMount").one_of_if_set(faults, &["Default", "Unmasked"]);
    profile(&place.at("seccompProfile"), faults);
    if place.at("allowPrivilegeEscalation").value() == false && place.at("privileged").is_true() {
        let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        place.invalid(faults, why);
    }
}

/// Checks the containers that were added to a pod while it runs.
fn ephemeral(spec: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    const DISALLOWED: [&str; 7] = [
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "restartPolicy",
        "startupProbe",
    ];
    let lists = [spec.at("containers"), spec.at("initContainers")];
    let others: BTreeSet<&str> = lists
        .iter()
        .flat_map(|list| list.value().as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    let mut names = others.clone();
    let added = spec.at("ephemeralContainers");
    for container in added.items() {
        common(&container, around, faults);
        let name = container.at("name");
        if !names.insert(name.text()) {
            name.duplicate(faults, name.value());
        }
        let about = container.at("targetContainerName");
        if !about.text().is_empty() && !others.contains(about.text()) {
            about.not_found(faults);
        }
        for field in DISALLOWED {
            let field = container.at(field);
            if field.is_set() {
                field.forbidden(faults, "cannot be set for an Ephemeral Container");
            }
        }
        if container.at("resources").len() > 0 {
            container.at("resources").forbidden(faults, "cannot be set for an Ephemeral Container");
        }
    }
}
