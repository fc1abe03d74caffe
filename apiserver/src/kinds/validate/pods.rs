//! Pods and their templates.

use serde_json::Value;

use super::around::{Around, Within, profile};
use super::place::{Findings, Place};
use super::{containers, selectors, volumes, words};

/// Checks a template of pods.
pub(super) fn template(place: &Place<'_, '_>, faults: &mut Findings) {
    template_with(place, &[], faults);
}

/// Checks a template of pods to which volumes are added that are right.
pub(super) fn template_with<'v>(
    place: &Place<'_, 'v>,
    added: &[(&'v str, &'v Value)],
    faults: &mut Findings,
) {
    // The server names these without `metadata`.
    let metadata = &place.value()["metadata"];
    selectors::labels(&place.at("labels").of(&metadata["labels"]), faults);
    let annotations = place.at("annotations").of(&metadata["annotations"]);
    for (key, _) in annotations.entries() {
        selectors::key(&annotations, &key.to_lowercase(), faults);
    }
    let spec = place.at("spec");
    spec_with(&spec, Within::Template, added, faults);
    if spec.at("ephemeralContainers").len() > 0 {
        spec.at("ephemeralContainers").forbidden(faults, "ephemeral containers not allowed in pod template");
    }
}

/// Checks a Pod; a new one has no containers that were added later.
pub(super) fn pod(object: &Value, is_new: bool, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    spec_with(&spec, Within::Pod, &[], faults);
    if is_new && spec.at("ephemeralContainers").len() > 0 {
        spec.at("ephemeralContainers").forbidden(faults, "cannot be set on create");
    }
}

fn spec_with<'v>(
    place: &Place<'_, 'v>,
    within: Within,
    added: &[(&'v str, &'v Value)],
    faults: &mut Findings,
) {
    let mut known = volumes::check(&place.at("volumes"), added, faults);
    known.extend(added.iter().map(|(name, _)| *name));
    let around = Around {
        volumes: known,
        grace: place.at("terminationGracePeriodSeconds").number().unwrap_or(30),
        claims: place.at("resourceClaims").items().map(|claim| claim.at("name").text()).collect(),
        within,
    };
    containers::check(place, &around, faults);
    host_network(place, within, faults);
    place.at("restartPolicy").one_of(faults, &["Always", "OnFailure", "Never"]);
    place.at("dnsPolicy").one_of(faults, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    selectors::labels(&place.at("nodeSelector"), faults);
    security(&place.at("securityContext"), faults);
    affinity(&place.at("affinity"), faults);
    spread(&place.at("topologySpreadConstraints"), faults);
    for (field, wrong) in [
        ("serviceAccountName", words::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", words::subdomain),
        ("hostname", words::label),
        ("subdomain", words::label),
        ("priorityClassName", words::subdomain),
        ("runtimeClassName", words::subdomain),
    ] {
        let name = place.at(field);
        if !name.text().is_empty() {
            name.each(faults, wrong(name.text()));
        }
    }
    place.at("activeDeadlineSeconds").within(faults, 1, i64::from(i32::MAX));
    tolerations(&place.at("tolerations"), faults);
    for alias in place.at("hostAliases").items() {
        let address = alias.at("ip");
        address.each(faults, words::address(address.text()));
        for host in alias.at("hostnames").items() {
            host.each(faults, words::subdomain(host.text()));
        }
    }
    place.at("preemptionPolicy").one_of_if_set(faults, &["PreemptLowerPriority", "Never"]);
}

fn host_network(place: &Place<'_, '_>, within: Within, faults: &mut Findings) {
    if !place.at("hostNetwork").is_true() {
        return;
    }
    for container in place.at("containers").items() {
        for port in container.at("ports").items() {
            let (host, own) = (port.at("hostPort"), port.at("containerPort"));
            let wanted = within == Within::Pod || host.number().unwrap_or(0) != 0;
            if wanted && host.number().unwrap_or(0) != own.number().unwrap_or(0) {
                host.invalid(faults, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn security(place: &Place<'_, '_>, faults: &mut Findings) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        place.at(field).within(faults, 0, i64::from(i32::MAX));
    }
    for group in place.at("supplementalGroups").items() {
        group.within(faults, 0, i64::from(i32::MAX));
    }
    place.at("fsGroupChangePolicy").one_of_if_set(faults, &["Always", "OnRootMismatch"]);
    profile(&place.at("seccompProfile"), faults);
}

fn tolerations(place: &Place<'_, '_>, faults: &mut Findings) {
    for toleration in place.items() {
        let (key, operator, effect) =
            (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        let shown = |place: &Place<'_, '_>| format!("{:?}", place.text());
        if !key.text().is_empty() {
            selectors::key(&key, key.text(), faults);
        } else if operator.text() != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            operator.invalid_as(faults, &shown(&operator), why);
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            effect.invalid_as(faults, &shown(&effect), why);
        }
        let value = toleration.at("value");
        match operator.text() {
            "" | "Equal" => {
                if let Err(why) = crate::selector::check_label_value(value.text()) {
                    operator.invalid_as(faults, &shown(&value), &why);
                }
            }
            "Exists" if !value.text().is_empty() => {
                operator.invalid_as(
                    faults,
                    &shown(&value),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            "Lt" | "Gt" => operator.unsupported(faults, &shown(&operator), &["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.unsupported(faults, &shown(&operator), &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            effect.one_of(faults, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

fn spread(place: &Place<'_, '_>, faults: &mut Findings) {
    for constraint in place.items() {
        let skew = constraint.at("maxSkew");
        if skew.number().unwrap_or(0) <= 0 {
            skew.invalid_as(faults, &skew.number().unwrap_or(0).to_string(), "must be greater than zero");
        }
        let key = constraint.at("topologyKey");
        if key.text().is_empty() {
            key.required(faults, "can not be empty");
        }
        constraint.at("whenUnsatisfiable").one_of(faults, &["DoNotSchedule", "ScheduleAnyway"]);
        selectors::selector(&constraint.at("labelSelector"), faults);
    }
}

fn affinity(place: &Place<'_, '_>, faults: &mut Findings) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let side = place.at(side);
        for term in side.at("requiredDuringSchedulingIgnoredDuringExecution").items() {
            affinity_term(&term, faults);
        }
        for weighted in side.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&weighted, faults);
            affinity_term(&weighted.at("podAffinityTerm"), faults);
        }
    }
    let node = place.at("nodeAffinity");
    let required = node.at("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        let terms = required.at("nodeSelectorTerms");
        if terms.len() == 0 {
            terms.required(faults, "must have at least one node selector term");
        }
        for term in terms.items() {
            node_term(&term, faults);
        }
    }
    for weighted in node.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&weighted, faults);
        node_term(&weighted.at("preference"), faults);
    }
}

fn weight(place: &Place<'_, '_>, faults: &mut Findings) {
    let weight = place.at("weight");
    let given = weight.number().unwrap_or(0);
    if !(1..=100).contains(&given) {
        weight.invalid_as(faults, &given.to_string(), "must be in the range 1-100");
    }
}

fn affinity_term(place: &Place<'_, '_>, faults: &mut Findings) {
    selectors::selector(&place.at("labelSelector"), faults);
    selectors::selector(&place.at("namespaceSelector"), faults);
    let key = place.at("topologyKey");
    if key.text().is_empty() {
        key.required(faults, "can not be empty");
    }
    selectors::key(&key, key.text(), faults);
}

fn node_term(place: &Place<'_, '_>, faults: &mut Findings) {
    for requirement in place.at("matchExpressions").items() {
        let (operator, values) = (requirement.at("operator"), requirement.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => {
                values.required(faults, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                values
                    .forbidden(faults, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Gt" | "Lt" if values.len() != 1 => {
                values.required(faults, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => {
                operator.invalid_as(faults, &format!("{other:?}"), "not a valid selector operator");
            }
        }
        let key = requirement.at("key");
        selectors::key(&key, key.text(), faults);
    }
}
