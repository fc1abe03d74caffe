//! Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::place::{Findings, Place};
use super::{probes, selectors, words};

/// Checks a Service.
pub(super) fn service(object: &Value, before: Option<&Value>, faults: &mut Findings) {
    let spec = Place::top(object, "spec");
    let kind = spec.at("type");
    let is_headless = spec.at("clusterIP").text() == "None"
        || spec.value()["clusterIPs"]
            .as_array()
            .is_some_and(|list| list.first().is_some_and(|one| one == "None"));
    let ports = spec.at("ports");
    if ports.len() == 0 && !is_headless && kind.text() != "ExternalName" {
        ports.required(faults, "");
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if is_headless => {
            let why = format!("may not be set to 'None' for {} services", kind.text());
            let addresses = spec.at("clusterIPs");
            let none = Value::Array(vec![json!("None")]);
            for address in addresses.of(&none).items() {
                address.invalid(faults, &why);
            }
        }
        "ExternalName" => external_name(&spec, faults),
        _ => {}
    }
    let mut names = BTreeSet::new();
    for one in ports.items() {
        port(&one, ports.len() > 1, &mut names, faults);
    }
    selectors::labels(&spec.at("selector"), faults);
    let affinity = spec.at("sessionAffinity");
    affinity.one_of(faults, &["ClientIP", "None"]);
    if affinity.text() == "ClientIP" {
        client_ip(&spec.at("sessionAffinityConfig"), faults);
    }
    addresses(&spec, before.is_none(), faults);
    external_addresses(&spec, before, faults);
    kind.one_of(faults, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    twice(&ports, kind.text(), faults);
    balancer(&spec, before, faults);
    traffic(&spec, faults);
}

fn external_name(spec: &Place<'_, '_>, faults: &mut Findings) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let field = spec.at(field);
        let given = if field.value().is_array() { field.len() > 0 } else { field.is_set() };
        if given {
            field.forbidden(faults, "may not be set for ExternalName services");
        }
    }
    let name = spec.at("externalName");
    let canonical = name.text().strip_suffix('.').unwrap_or(name.text());
    if canonical.is_empty() {
        name.required(faults, "");
    }
    for why in words::subdomain(canonical).into_iter().filter(|_| !canonical.is_empty()) {
        name.invalid_as(faults, &format!("{canonical:?}"), &why);
    }
}

fn port<'v>(place: &Place<'_, 'v>, needs_name: bool, names: &mut BTreeSet<&'v str>, faults: &mut Findings) {
    let name = place.at("name");
    if name.text().is_empty() {
        if needs_name {
            name.required(faults, "");
        }
    } else {
        name.each(faults, words::label(name.text()));
        if !names.insert(name.text()) {
            name.duplicate(faults, name.value());
        }
    }
    let number = place.at("port");
    let given = number.number().unwrap_or(0);
    if !(1..=65_535).contains(&given) {
        number.invalid_as(faults, &given.to_string(), "must be between 1 and 65535, inclusive");
    }
    place.at("protocol").one_of(faults, &["SCTP", "TCP", "UDP"]);
    probes::port(&place.at("targetPort"), faults);
    let application = place.at("appProtocol");
    if application.is_set() {
        selectors::key(&application, application.text(), faults);
    }
}

fn client_ip(place: &Place<'_, '_>, faults: &mut Findings) {
    let timeout = place.at("clientIP");
    let timeout = timeout.at("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
        timeout.invalid(faults, "must be greater than 0 and less than 86400");
    }
}

fn addresses(spec: &Place<'_, '_>, is_new: bool, faults: &mut Findings) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (one, all) = (spec.at("clusterIP"), spec.at("clusterIPs"));
    if !one.text().is_empty() && all.len() == 0 {
        // Without a list there is one of one.
        let list = Value::Array(vec![one.value().clone()]);
        for address in all.of(&list).items().filter(|address| address.text() != "None") {
            address.each(faults, words::address(address.text()));
        }
    } else if is_new && !one.text().is_empty() && all.value()[0] != *one.value() {
        all.invalid(faults, "first value must match `clusterIP`");
    } else if is_new && one.text().is_empty() && all.len() > 0 {
        all.invalid(faults, "must be empty when `clusterIP` is not specified");
    }
    let mut seen = BTreeSet::new();
    for family in spec.at("ipFamilies").items() {
        family.one_of(faults, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            family.duplicate(faults, family.value());
        }
    }
    spec.at("ipFamilyPolicy").one_of_if_set(faults, &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                all.invalid(faults, "'None' must be the first and only value");
            }
        } else {
            address.each(faults, words::address(address.text()));
        }
    }
    if all.len() > 2 {
        all.invalid(faults, "may only hold up to 2 values");
    }
}

fn external_addresses(spec: &Place<'_, '_>, before: Option<&Value>, faults: &mut Findings) {
    let had = before.map(|old| texts(&old["spec"]["externalIPs"])).unwrap_or_default();
    for address in spec.at("externalIPs").items() {
        let is_old = had.contains(address.text());
        let wrong = if is_old { Vec::new() } else { words::address(address.text()) };
        if wrong.is_empty() {
            address.each(faults, words::of_an_end(address.text()));
        }
        address.each(faults, wrong);
    }
}

/// Returns the texts in a list.
fn texts(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Refuses duplicate ports, and node ports on services without them.
fn twice(ports: &Place<'_, '_>, kind: &str, faults: &mut Findings) {
    let of_node = |port: &Place<'_, '_>| port.at("nodePort").number().unwrap_or(0);
    for port in ports.items().filter(|port| kind == "ClusterIP" && of_node(port) != 0) {
        port.at("nodePort").forbidden(faults, "may not be used when `type` is 'ClusterIP'");
    }
    let mut nodes = BTreeSet::new();
    for port in ports.items().filter(|port| of_node(port) != 0) {
        if !nodes.insert((port.value()["protocol"].as_str(), of_node(&port))) {
            port.at("nodePort").duplicate(faults, &json!(of_node(&port)));
        }
    }
    let mut own = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.at("protocol").text().to_owned(), port.at("port").number());
        let number = number.unwrap_or(0);
        if !own.insert((protocol.clone(), number)) {
            // The server's own form of a port has other names for its fields.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            let message = format!("Duplicate value: {shown}");
            faults.add(|| crate::status::Cause::new("FieldValueDuplicate", port.to_string(), message));
        }
    }
}

fn balancer(spec: &Place<'_, '_>, before: Option<&Value>, faults: &mut Findings) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_balancer = spec.at("type").text() == "LoadBalancer";
    let ranges = spec.at("loadBalancerSourceRanges");
    // The server writes it with a capital.
    let ranges = spec.at("LoadBalancerSourceRanges").of(ranges.value());
    if ranges.len() > 0 {
        if !is_balancer {
            ranges.forbidden(faults, ONLY);
        }
        let had = before.map(|old| texts(&old["spec"]["loadBalancerSourceRanges"])).unwrap_or_default();
        for range in ranges.items() {
            let is_old = had.contains(range.text());
            if let (false, Err(why)) = (is_old, words::Network::read(range.text().trim())) {
                range.invalid_as(faults, &format!("{:?}", range.text().trim()), &why);
            }
        }
    }
    let allocates = spec.at("allocateLoadBalancerNodePorts");
    if allocates.is_set() && !is_balancer {
        allocates.forbidden(faults, ONLY);
    }
    let class = spec.at("loadBalancerClass");
    if class.is_set() && !is_balancer {
        class.forbidden(faults, ONLY);
    } else if class.is_set() {
        selectors::key(&class, class.text(), faults);
    }
}

fn traffic(spec: &Place<'_, '_>, faults: &mut Findings) {
    let kind = spec.at("type").text();
    let outside = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && spec.at("externalIPs").len() > 0);
    let external = spec.at("externalTrafficPolicy");
    if outside {
        external.one_of_if_set(faults, &["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        external.invalid(faults, "may only be set for externally-accessible services");
    }
    let health = spec.at("healthCheckNodePort");
    if health.number().unwrap_or(0) != 0 {
        if kind == "LoadBalancer" && external.text() == "Local" {
            health.within(faults, 1, 65_535);
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            health.invalid(faults, why);
        }
    }
    spec.at("internalTrafficPolicy").one_of_if_set(faults, &["Cluster", "Local"]);
    let spread = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    spec.at("trafficDistribution").one_of_if_set(faults, &spread);
}
