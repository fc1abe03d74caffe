//! Ingresses and network policies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::place::{Findings, Place};
use super::words::{self, Network};
use super::{probes, selectors};

/// Checks an Ingress; a new one also for an annotation that duplicates a field.
pub(super) fn ingress(object: &Value, is_new: bool, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let (rules, default, class) = (spec.at("rules"), spec.at("defaultBackend"), spec.at("ingressClassName"));
    if rules.len() == 0 && !default.is_set() {
        let shown = if rules.is_set() { "[]" } else { "null" };
        spec.invalid_as(faults, shown, "either `defaultBackend` or `rules` must be specified");
    }
    if default.is_set() {
        backend(&default, faults);
    }
    for rule in rules.items() {
        host(&rule.at("host"), true, faults);
        let http = rule.at("http");
        let paths = http.at("paths");
        if http.is_set() && paths.len() == 0 {
            paths.required(faults, "");
        }
        for one in paths.items() {
            path(&one, faults);
        }
    }
    for tls in spec.at("tls").items() {
        for name in tls.at("hosts").items() {
            host(&name, false, faults);
        }
        let secret = tls.at("secretName");
        if !secret.text().is_empty() {
            secret.each(faults, words::subdomain(secret.text()));
        }
    }
    if class.is_set() {
        class.each(faults, words::subdomain(class.text()));
    }
    let annotation = &object["metadata"]["annotations"]["kubernetes.io/ingress.class"];
    if is_new && class.is_set() && annotation.is_string() && annotation != class.value() {
        let place = Place::top(object, "annotations");
        place
            .at("kubernetes.io/ingress.class")
            .of(annotation)
            .invalid(faults, "must match `ingressClassName` when both are specified");
    }
}

fn host(place: &Place<'_, '_>, may_be_absent: bool, faults: &mut Findings) {
    let name = place.text();
    if name.is_empty() && may_be_absent {
        return;
    }
    if may_be_absent && name.parse::<std::net::IpAddr>().is_ok() {
        place.invalid(faults, "must be a DNS name, not an IP address");
    }
    place.each(faults, if name.contains('*') { words::wildcard(name) } else { words::subdomain(name) });
}

fn path(place: &Place<'_, '_>, faults: &mut Findings) {
    let (kind, path) = (place.at("pathType"), place.at("path"));
    let shown = format!("{:?}", path.text());
    match kind.text() {
        _ if !kind.is_set() => {
            kind.required(faults, "pathType must be specified");
            return;
        }
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                path.invalid_as(faults, &shown, "must be an absolute path");
            }
            for odd in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(odd) {
                    path.invalid(faults, &format!("must not contain '{odd}'"));
                }
            }
            for odd in ["/..", "/."] {
                if path.text().ends_with(odd) {
                    path.invalid(faults, &format!("cannot end with '{odd}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !path.text().starts_with('/') {
                path.invalid(faults, "must be an absolute path");
            }
        }
        _ => kind.one_of(faults, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&place.at("backend"), faults);
}

fn backend(place: &Place<'_, '_>, faults: &mut Findings) {
    let (service, resource) = (place.at("service"), place.at("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => {
            place.invalid_as(faults, "\"\"", "cannot set both resource and service backends");
        }
        (false, false) => place.invalid_as(faults, "\"\"", "resource or service backend is required"),
        (false, true) => {
            let group = resource.at("apiGroup");
            if group.is_set() {
                group.each(faults, words::subdomain(group.text()));
            }
            for field in ["kind", "name"] {
                let field = resource.at(field);
                match field.text() {
                    "" => field.required(faults, ""),
                    text => field.each(faults, words::path_segment(text)),
                }
            }
        }
        (true, false) => {
            let name = service.at("name");
            match name.text() {
                "" => name.required(faults, ""),
                text => name.each(faults, words::label(text)),
            }
            let port = service.at("port");
            let (name, number) = (port.at("name"), port.at("number"));
            match (!name.text().is_empty(), number.number().unwrap_or(0) != 0) {
                (true, true) => {
                    place.invalid_as(faults, "\"\"", "cannot set both port name & port number");
                }
                (true, false) => name.each(faults, words::port_name(name.text())),
                (false, true) => number.within(faults, 1, 65_535),
                (false, false) => place.required(faults, "port name or number is required"),
            }
        }
    }
}

/// Checks an IngressClass.
pub(super) fn class(object: &Value, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let controller = spec.at("controller");
    if controller.text().len() > 250 {
        controller.too_long(faults, 250);
    }
    domain_and_path(&controller, faults);
}

/// Refuses a text that is not a domain and a path, such as `acme.io/foo`.
pub(super) fn domain_and_path(place: &Place<'_, '_>, faults: &mut Findings) {
    match place.text().split_once('/') {
        _ if place.text().is_empty() => place.required(faults, ""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            for why in words::subdomain(domain) {
                place.invalid_as(faults, &format!("{domain:?}"), &why);
            }
        }
        _ => place.invalid(faults, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// Checks a NetworkPolicy.
pub(super) fn policy(object: &Value, before: Option<&Value>, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    selectors::selector(&spec.at("podSelector"), faults);
    let old = before.map(networks).unwrap_or_default();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(direction).items() {
            for port in rule.at("ports").items() {
                policy_port(&port, faults);
            }
            for one in rule.at(peers).items() {
                peer(&one, &old, faults);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        types.invalid(faults, "may not specify more than two policyTypes");
        return;
    }
    for kind in types.items() {
        kind.one_of(faults, &["Ingress", "Egress"]);
    }
}

/// Returns the networks that a policy names: an old one may stay even if today's rules refuse it.
fn networks(policy: &Value) -> BTreeSet<&str> {
    fn list(value: &Value) -> impl Iterator<Item = &Value> {
        value.as_array().into_iter().flatten()
    }
    let mut found = BTreeSet::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for peer in list(&policy["spec"][direction]).flat_map(|rule| list(&rule[peers])) {
            let block = &peer["ipBlock"];
            found.extend(
                std::iter::once(&block["cidr"]).chain(list(&block["except"])).filter_map(Value::as_str),
            );
        }
    }
    found
}

fn policy_port(place: &Place<'_, '_>, faults: &mut Findings) {
    place.at("protocol").one_of_if_set(faults, &["TCP", "UDP", "SCTP"]);
    let (port, end) = (place.at("port"), place.at("endPort"));
    if port.is_set() {
        if end.is_set() && port.value().is_string() {
            end.invalid(faults, "may not be specified when `port` is non-numeric");
        }
        probes::port(&port, faults);
        if let (Some(first), Some(last)) = (port.number(), end.number()) {
            if last < first {
                end.invalid_as(faults, &first.to_string(), "must be greater than or equal to `port`");
            }
            end.within(faults, 1, 65_535);
        }
    } else if end.is_set() {
        end.invalid(faults, "may not be specified when `port` is not specified");
    }
}

fn peer(place: &Place<'_, '_>, old: &BTreeSet<&str>, faults: &mut Findings) {
    let selecting = [place.at("podSelector"), place.at("namespaceSelector")];
    for selector in selecting.iter().filter(|selector| selector.is_set()) {
        selectors::selector(selector, faults);
    }
    let block = place.at("ipBlock");
    if block.is_set() {
        ip_block(&block, old, faults);
    }
    let selects = selecting.iter().any(Place::is_set);
    match (selects, block.is_set()) {
        (false, false) => place.required(faults, "must specify a peer"),
        (true, true) => place.forbidden(faults, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(place: &Place<'_, '_>, old: &BTreeSet<&str>, faults: &mut Findings) {
    let whole = place.at("cidr");
    if whole.text().is_empty() {
        whole.required(faults, "");
        return;
    }
    let read = |place: &Place<'_, '_>, faults: &mut Findings| match Network::read(place.text()) {
        Ok(network) => Some(network),
        Err(why) => {
            if !old.contains(place.text()) {
                place.invalid(faults, &why);
            }
            None
        }
    };
    let Some(network) = read(&whole, faults) else { return };
    for part in place.at("except").items() {
        if read(&part, faults).is_some_and(|part| !network.has_within(part)) {
            part.invalid(faults, "must be a strict subset of `cidr`");
        }
    }
}
