//! Volumes of pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::place::{Findings, Place};
use super::{claims, words};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Every source, in the order of the server's checks.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flexVolume",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "cinder",
    "quobyte",
    "csi",
    "ephemeral",
    "image",
];

/// Checks volumes; returns the names of those that are right.
///
/// A volume of the name of an added one is replaced by it, and not checked.
pub(super) fn check<'v>(
    place: &Place<'_, 'v>,
    added: &[(&'v str, &'v Value)],
    faults: &mut Findings,
) -> BTreeSet<&'v str> {
    let added: BTreeSet<&str> = added.iter().map(|(name, _)| *name).collect();
    let mut right = BTreeSet::new();
    for volume in place.items() {
        let name = volume.at("name");
        if added.contains(name.text()) {
            continue;
        }
        let before = faults.len();
        source(&volume, faults);
        if name.text().is_empty() {
            name.required(faults, "");
        } else {
            name.each(faults, words::label(name.text()));
        }
        if right.contains(name.text()) {
            name.duplicate(faults, name.value());
        }
        if faults.len() == before {
            right.insert(name.text());
        }
    }
    right
}

fn source(volume: &Place<'_, '_>, faults: &mut Findings) {
    let mut found = SOURCES.into_iter().filter(|source| volume.at(source).is_set());
    let Some(first) = found.next() else {
        volume.required(faults, "must specify a volume type");
        return;
    };
    let place = volume.at(first);
    match first {
        "hostPath" => {
            let path = place.at("path");
            if path.text().is_empty() {
                path.required(faults, "");
            } else {
                no_way_up(&path, faults);
                host_path_type(&place.at("type"), faults);
            }
        }
        "secret" | "configMap" => {
            let name = place.at(if first == "secret" { "secretName" } else { "name" });
            if name.text().is_empty() {
                name.required(faults, "");
            }
            mode(&place.at("defaultMode"), faults);
            keys(&place.at("items"), faults);
        }
        "persistentVolumeClaim" => required(&place.at("claimName"), faults),
        "nfs" => {
            required(&place.at("server"), faults);
            let path = place.at("path");
            required(&path, faults);
            if !path.text().starts_with('/') {
                path.invalid_as(faults, &format!("{:?}", path.text()), "must be an absolute path");
            }
        }
        "projected" => {
            mode(&place.at("defaultMode"), faults);
            projected(&place, faults);
        }
        "downwardAPI" => mode(&place.at("defaultMode"), faults),
        "ephemeral" => {
            let template = place.at("volumeClaimTemplate");
            if template.is_set() {
                claims::spec(&template.at("spec"), faults);
            } else {
                template.required(faults, "");
            }
        }
        _ => {}
    }
    for more in found {
        volume.at(more).forbidden(faults, "may not specify more than 1 volume type");
    }
}

fn required(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.text().is_empty() {
        place.required(faults, "");
    }
}

fn mode(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.number().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        place.invalid(faults, MODE);
    }
}

fn keys(place: &Place<'_, '_>, faults: &mut Findings) {
    for item in place.items() {
        required(&item.at("key"), faults);
        let path = item.at("path");
        required(&path, faults);
        local(&path, faults);
        mode(&item.at("mode"), faults);
    }
}

/// Refuses paths that lead out of their folder.
pub(super) fn local(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.text().starts_with('/') {
        place.invalid(faults, "must be a relative path");
    }
    no_way_up(place, faults);
    let first = place.text();
    if first.starts_with("..") && !first.starts_with("../") {
        place.invalid(faults, "must not start with '..'");
    }
}

/// Refuses paths with `..` among their parts.
pub(super) fn no_way_up(place: &Place<'_, '_>, faults: &mut Findings) {
    if place.text().split('/').any(|part| part == "..") {
        place.invalid(faults, "must not contain '..'");
    }
}

fn host_path_type(place: &Place<'_, '_>, faults: &mut Findings) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    place.one_of_if_set(faults, &TYPES);
}

fn projected(place: &Place<'_, '_>, faults: &mut Findings) {
    let sources = place.at("sources");
    for source in sources.items() {
        for kind in ["secret", "configMap"] {
            let one = source.at(kind);
            if one.is_set() {
                required(&one.at("name"), faults);
                keys(&one.at("items"), faults);
            }
        }
        let token = source.at("serviceAccountToken");
        let lasts = token.at("expirationSeconds");
        if lasts.number().is_some_and(|seconds| seconds < 600) {
            lasts.invalid(faults, "may not specify a duration less than 10 minutes");
        }
        if lasts.number().is_some_and(|seconds| seconds > 1 << 32) {
            lasts.invalid(faults, "may not specify a duration larger than 2^32 seconds");
        }
        if token.is_set() && token.at("path").text().is_empty() {
            place.at("path").required(faults, "");
        }
        let kinds = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        if kinds.into_iter().filter(|kind| source.at(kind).is_set()).count() > 1 {
            source.forbidden(faults, "may not specify more than 1 volume type per source");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::kinds::validate::pods;

    // A31
    #[test]
    fn many_volumes_and_mounts_are_looked_up_and_not_searched() {
        let volumes: Value = (0..40_000).map(|n| json!({"name": format!("v-{n}"), "emptyDir": {}})).collect();
        let mounts: Value =
            (0..40_000).map(|n| json!({"name": format!("v-{n}"), "mountPath": format!("/{n}")})).collect();
        let pod =
            json!({"spec": {"containers": [{"name": "c", "volumeMounts": mounts}], "volumes": volumes}});
        let (began, mut faults) = (Instant::now(), Findings::default());
        pods::pod(&pod, true, &mut faults);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
