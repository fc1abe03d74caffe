//! The environment of containers.

use super::place::{Findings, Place};
use super::words;

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// Checks the variables of a container and their sources.
pub(super) fn check(container: &Place<'_, '_>, faults: &mut Findings) {
    for variable in container.at("env").items() {
        let name = variable.at("name");
        if name.text().is_empty() {
            name.required(faults, "");
        } else {
            name.each(faults, words::variable(name.text()));
        }
        value_from(&variable, faults);
    }
    let from = container.at("envFrom");
    for source in from.items() {
        let prefix = source.at("prefix");
        prefix.each(faults, words::variable(prefix.text()));
        let given = ["configMapRef", "secretRef"].into_iter().filter(|kind| source.at(kind).is_set());
        let mut count = 0;
        for kind in given {
            count += 1;
            let of = source.at(kind);
            let name = of.at("name");
            if name.text().is_empty() {
                name.required(faults, "");
            } else {
                name.each(faults, words::subdomain(name.text()));
            }
        }
        // The server names the list, not the item.
        match count {
            0 => from.invalid_as(faults, "\"\"", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => from.invalid_as(faults, "\"\"", "may not have more than one field specified at a time"),
        }
    }
}

fn value_from(variable: &Place<'_, '_>, faults: &mut Findings) {
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return;
    }
    let field = from.at("fieldRef");
    if field.is_set() {
        object_field(&field, faults);
    }
    let amount = from.at("resourceFieldRef");
    if amount.is_set() {
        let resource = amount.at("resource");
        let large = ["requests.hugepages-", "limits.hugepages-"];
        if resource.text().is_empty() {
            resource.required(faults, "");
        } else if !large.into_iter().any(|start| resource.text().starts_with(start)) {
            resource.one_of(faults, &RESOURCES);
        }
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let of = from.at(kind);
        if !of.is_set() {
            continue;
        }
        let (name, key) = (of.at("name"), of.at("key"));
        name.each(faults, words::subdomain(name.text()));
        if key.text().is_empty() {
            key.required(faults, "");
        } else {
            key.each(faults, words::config_key(key.text()));
        }
    }
    let file = from.at("fileKeyRef");
    if file.is_set() {
        for needed in ["key", "volumeName", "path"] {
            let needed = file.at(needed);
            if needed.text().is_empty() {
                needed.required(faults, "");
            }
        }
    }
    let count = SOURCES.into_iter().filter(|kind| from.at(kind).is_set()).count();
    let why = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable.at("value").text().is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    from.invalid_as(faults, "\"\"", why);
}

fn object_field(place: &Place<'_, '_>, faults: &mut Findings) {
    let path = place.at("fieldPath");
    let text = path.text();
    if text.is_empty() {
        path.required(faults, "");
        return;
    }
    if text.contains('[') {
        let is_map =
            ["metadata.labels['", "metadata.annotations['"].into_iter().any(|map| text.starts_with(map));
        if !is_map && text.ends_with("']") {
            let why = format!("error converting fieldPath: field label does not support subscript: {text}");
            path.invalid(faults, &why);
        }
        return;
    }
    match text {
        "metadata.annotations"
        | "metadata.labels"
        | "spec.restartPolicy"
        | "spec.schedulerName"
        | "status.phase" => {
            path.one_of(faults, &FIELDS);
        }
        "spec.host" => {}
        text if FIELDS.contains(&text) => {}
        text => {
            let why = format!("error converting fieldPath: field label not supported: {text}");
            path.invalid(faults, &why);
        }
    }
}
