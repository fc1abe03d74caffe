//! Claims of storage.

use serde_json::Value;

use super::place::{Findings, Place};
use super::quantity::Quantity;
use super::{selectors, words};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks a PersistentVolumeClaim.
pub(super) fn claim(object: &Value, faults: &mut Findings) {
    spec(&Place::top(object, "spec"), faults);
}

/// Checks a StorageClass.
pub(super) fn class(object: &Value, faults: &mut Findings) {
    let provisioner = Place::top(object, "provisioner");
    if provisioner.text().is_empty() {
        provisioner.required(faults, "");
    }
    Place::top(object, "reclaimPolicy").one_of_if_set(faults, &["Delete", "Retain"]);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    Place::top(object, "volumeBindingMode").one_of_if_set(faults, &modes);
}

/// Checks the requests of a claim.
pub(super) fn spec(place: &Place<'_, '_>, faults: &mut Findings) {
    let modes = place.at("accessModes");
    if modes.len() == 0 {
        modes.required(faults, "at least 1 access mode is required");
    }
    selectors::selector(&place.at("selector"), faults);
    let (mut single, mut others) = (false, false);
    for mode in modes.items() {
        // The server names the list, not the item.
        modes.of(mode.value()).one_of(faults, &MODES);
        single |= mode.text() == "ReadWriteOncePod";
        others |= MODES[..3].contains(&mode.text());
    }
    if single && others {
        modes.forbidden(faults, "may not use ReadWriteOncePod with other access modes");
    }
    let resources = place.at("resources");
    let map = serde_json::Map::from_iter([("storage".to_owned(), storage(place).clone())]);
    let shown = Value::Object(map);
    let resources = resources.of(&shown);
    for (_, amount) in resources.entries() {
        match Quantity::read(amount.value()) {
            None if !amount.is_set() => amount.required(faults, ""),
            Some(size) if size <= Quantity::ZERO => amount.invalid(faults, "must be greater than zero"),
            _ => {}
        }
    }
    let class = place.at("storageClassName");
    if !class.text().is_empty() {
        class.each(faults, words::subdomain(class.text()));
    }
    place.at("volumeMode").one_of_if_set(faults, &["Block", "Filesystem"]);
    // The older `dataSource` of a kind that the server does not know is dropped by it, not refused.
    let source = place.at("dataSourceRef");
    if source.is_set() {
        data_source(&source, faults);
    }
}

fn storage<'v>(place: &Place<'_, 'v>) -> &'v Value {
    &place.value()["resources"]["requests"]["storage"]
}

fn data_source(place: &Place<'_, '_>, faults: &mut Findings) {
    for field in ["name", "kind"] {
        let field = place.at(field);
        if field.text().is_empty() {
            field.required(faults, "");
        }
    }
    let (group, kind) = (place.at("apiGroup"), place.at("kind"));
    if group.text().is_empty() {
        if kind.text() != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            place.invalid_as(faults, &format!("{:?}", kind.text()), why);
        }
    } else {
        group.each(faults, words::subdomain(group.text()));
    }
}
