//! The resource requests and limits of containers.

use super::around::Around;
use super::place::{Findings, Place};
use super::quantity::Quantity;
use crate::selector::check_label_key;

const NEGATIVE: &str = "must be greater than or equal to 0";
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Checks the requests and limits of a container.
pub(super) fn check(place: &Place<'_, '_>, around: &Around<'_>, faults: &mut Findings) {
    let (limits, requests) = (place.at("limits"), place.at("requests"));
    for (name, amount) in limits.entries().chain(requests.entries()) {
        container_name(name, &amount, faults);
        amount_of(name, &amount, faults);
    }
    for (name, request) in requests.entries() {
        let (Some(asked), limit) = (Quantity::read(request.value()), limits.at(name)) else { continue };
        let overcommits = is_native(name) && !name.starts_with("hugepages-");
        let Some(most) = Quantity::read(limit.value()) else {
            if !overcommits {
                limits.required(faults, "Limit must be set for non overcommitable resources");
            }
            continue;
        };
        let shown = |place: &Place<'_, '_>| match place.value().as_str() {
            Some(text) => text.to_owned(),
            None => place.value().to_string(),
        };
        let why = match () {
            () if asked != most && !overcommits => "must be equal to",
            () if asked > most => "must be less than or equal to",
            () => continue,
        };
        let why = format!("{why} {name} limit of {}", shown(&limit));
        requests.invalid_as(faults, &format!("{:?}", shown(&request)), &why);
    }
    let any =
        |starts: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| starts(name));
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        place.forbidden(faults, "HugePages require cpu or memory");
    }
    // Each of these faults names all claims of the pod.
    for claim in place.at("claims").items() {
        if faults.is_full() {
            break;
        }
        let name = claim.at("name").text();
        if name.is_empty() {
            claim.required(faults, "");
        } else if !around.claims.contains(name) {
            let known: Vec<&str> = around.claims.iter().copied().collect();
            let known = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let message =
                format!("Not found: {name:?}: must be one of the names in pod.spec.resourceClaims{known}");
            faults.add(|| crate::status::Cause::new("FieldValueNotFound", claim.to_string(), message));
        }
    }
}

/// Checks an amount: not negative, and whole for countable resources.
pub(super) fn amount_of(name: &str, place: &Place<'_, '_>, faults: &mut Findings) {
    let Some(amount) = Quantity::read(place.value()) else { return };
    if amount < Quantity::ZERO {
        place.invalid(faults, NEGATIVE);
    }
    if !is_native(name) && !name.starts_with("requests.") && !amount.is_whole() {
        place.invalid(faults, "must be an integer");
    }
}

/// Checks the name of a resource of containers.
pub(super) fn container_name(name: &str, place: &Place<'_, '_>, faults: &mut Findings) {
    let shown = format!("{name:?}");
    let before = faults.len();
    resource_name(name, place, faults);
    if !name.contains('/') {
        let fine = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if !fine {
            place.invalid_as(faults, &shown, "must be a standard resource for containers");
        }
    } else if faults.len() == before && !is_native(name) && name.starts_with("requests.") {
        place.invalid_as(faults, &shown, "doesn't follow extended resource name standard");
    }
}

/// Checks the name of a resource.
pub(super) fn resource_name(name: &str, place: &Place<'_, '_>, faults: &mut Findings) {
    let shown = format!("{name:?}");
    if let Err(why) = check_label_key(name) {
        place.invalid_as(faults, &shown, &why);
    } else if !name.contains('/')
        && !STANDARD.contains(&name)
        && !name.starts_with("hugepages-")
        && !name.starts_with("requests.hugepages-")
    {
        place.invalid_as(faults, &shown, "must be a standard resource type or fully qualified");
    }
}

/// Returns whether a resource is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}
