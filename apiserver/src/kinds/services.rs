//! Services that change their type: what goes with the old one.

use serde_json::{Value, json};

use super::maps::maps;
use crate::object::{child_mut, map_mut};

/// Drops what a service's new type does not use, if the update leaves it as it was.
///
/// A real server does the same. What the update itself sets stays, so that the checks refuse it.
pub(super) fn change_type(before: &Value, new: &mut Value) {
    let (old, spec) = (&before["spec"], &new["spec"]);
    let ends = |uses: fn(&Value) -> bool| uses(old) && !uses(spec);
    let mut unused = Vec::new();
    if ends(has_addresses) {
        unused.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if ends(has_health_port) {
        unused.push("healthCheckNodePort");
    }
    let balances_no_more = ends(is_balancer);
    if balances_no_more {
        unused.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if ends(is_seen_from_outside) {
        unused.push("externalTrafficPolicy");
    }
    unused.retain(|field| old[*field] == spec[*field]);
    let frees_ports = ends(has_node_ports) && node_ports(old) == node_ports(spec);
    if unused.is_empty() && !frees_ports && !balances_no_more {
        return;
    }
    let map = map_mut(new);
    if balances_no_more && map.contains_key("status") {
        child_mut(map, "status").insert("loadBalancer".into(), json!({}));
    }
    let spec = child_mut(map, "spec");
    spec.retain(|field, _| !unused.contains(&field.as_str()));
    if frees_ports {
        for port in maps(spec, "ports") {
            port.remove("nodePort");
        }
    }
}

/// Returns the type; a service without one gets the default later.
fn kind(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("ClusterIP")
}

fn has_addresses(spec: &Value) -> bool {
    matches!(kind(spec), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn is_balancer(spec: &Value) -> bool {
    kind(spec) == "LoadBalancer"
}

fn has_node_ports(spec: &Value) -> bool {
    kind(spec) == "NodePort" || (is_balancer(spec) && spec["allocateLoadBalancerNodePorts"] != false)
}

fn has_health_port(spec: &Value) -> bool {
    is_balancer(spec) && spec["externalTrafficPolicy"] == "Local"
}

fn is_seen_from_outside(spec: &Value) -> bool {
    let has_addresses = spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty());
    matches!(kind(spec), "NodePort" | "LoadBalancer") || (kind(spec) == "ClusterIP" && has_addresses)
}

/// Lists the ports of nodes, in order.
fn node_ports(spec: &Value) -> Vec<i64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let mut numbers: Vec<i64> =
        ports.filter_map(|port| port["nodePort"].as_i64()).filter(|number| *number != 0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
