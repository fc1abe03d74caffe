//! The columns and cells of kinds that are only stored.

use serde_json::{Value, json};

use super::super::cells::{items, number, object_age, selector, text, text_or_none};
use super::super::printer::{AGE, NAME, Printer, col, definition, told};

const VOLUME: &str = definition!("core.v1.PersistentVolumeSpec");
const VOLUME_STATUS: &str = definition!("core.v1.PersistentVolumeStatus");
const CLAIM: &str = definition!("core.v1.PersistentVolumeClaimSpec");
const CLAIM_STATUS: &str = definition!("core.v1.PersistentVolumeClaimStatus");
const CLASS: &str = definition!("storage.v1.StorageClass");
const PRIORITY: &str = definition!("scheduling.v1.PriorityClass");

/// Finds the printer of a kind.
pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    let printer = match (group, kind) {
        ("", "PersistentVolume") => &PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => &PERSISTENT_VOLUME_CLAIM,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => &WEBHOOKS,
        ("networking.k8s.io", "Ingress") => &INGRESS,
        ("networking.k8s.io", "NetworkPolicy") => &NETWORK_POLICY,
        ("policy", "PodDisruptionBudget") => &DISRUPTION_BUDGET,
        ("scheduling.k8s.io", "PriorityClass") => &PRIORITY_CLASS,
        ("storage.k8s.io", "StorageClass") => &STORAGE_CLASS,
        _ => return None,
    };
    Some(printer)
}

fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

/// Reads a text; `<unset>` if it is absent.
fn or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    match text(object, pointer) {
        "" => "<unset>",
        text => text,
    }
}

fn phase(object: &Value) -> &str {
    if text(object, "/metadata/deletionTimestamp").is_empty() {
        text(object, "/status/phase")
    } else {
        "Terminating"
    }
}

/// Writes access modes in short, each once, in the server's order.
fn modes(object: &Value, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = items(object, pointer);
    let named =
        SHORT.iter().filter(|(mode, _)| given.iter().any(|given| given == mode)).map(|(_, short)| *short);
    named.collect::<Vec<_>>().join(",")
}

static PERSISTENT_VOLUME: Printer = Printer {
    columns: &[
        NAME,
        col("Capacity", VOLUME, "capacity"),
        col("Access Modes", VOLUME, "accessModes"),
        col("Reclaim Policy", VOLUME, "persistentVolumeReclaimPolicy"),
        col("Status", VOLUME_STATUS, "phase"),
        col("Claim", VOLUME, "claimRef"),
        told("StorageClass", "StorageClass of the pv"),
        told("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
        col("Reason", VOLUME_STATUS, "reason"),
        AGE,
        col("VolumeMode", VOLUME, "volumeMode").wide(),
    ],
    cells: |object, now| {
        let claim = match text(object, "/spec/claimRef/name") {
            "" => String::new(),
            claim => format!("{}/{claim}", text(object, "/spec/claimRef/namespace")),
        };
        let capacity = match text(object, "/spec/capacity/storage") {
            "" => "0",
            capacity => capacity,
        };
        vec![
            name(object),
            json!(capacity),
            json!(modes(object, "/spec/accessModes")),
            json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
            json!(phase(object)),
            json!(claim),
            json!(text(object, "/spec/storageClassName")),
            json!(or_unset(object, "/spec/volumeAttributesClassName")),
            json!(text(object, "/status/reason")),
            object_age(object, now),
            json!(or_unset(object, "/spec/volumeMode")),
        ]
    },
};

static PERSISTENT_VOLUME_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        col("Status", CLAIM_STATUS, "phase"),
        col("Volume", CLAIM, "volumeName"),
        col("Capacity", CLAIM_STATUS, "capacity"),
        col("Access Modes", CLAIM_STATUS, "accessModes"),
        told("StorageClass", "StorageClass of the pvc"),
        told("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
        AGE,
        col("VolumeMode", CLAIM, "volumeMode").wide(),
    ],
    cells: |object, now| {
        let volume = text(object, "/spec/volumeName");
        let (capacity, modes) = match (volume, text(object, "/status/capacity/storage")) {
            ("", _) => (String::new(), String::new()),
            (_, "") => ("0".to_owned(), modes(object, "/status/accessModes")),
            (_, capacity) => (capacity.to_owned(), modes(object, "/status/accessModes")),
        };
        vec![
            name(object),
            json!(phase(object)),
            json!(volume),
            json!(capacity),
            json!(modes),
            json!(text(object, "/spec/storageClassName")),
            json!(or_unset(object, "/spec/volumeAttributesClassName")),
            object_age(object, now),
            json!(or_unset(object, "/spec/volumeMode")),
        ]
    },
};

static WEBHOOKS: Printer = Printer {
    columns: &[
        NAME,
        told("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration")
            .of("integer"),
        AGE,
    ],
    cells: |object, now| vec![name(object), json!(items(object, "/webhooks").len()), object_age(object, now)],
};

static INGRESS: Printer = Printer {
    columns: &[
        NAME,
        told(
            "Class",
            "The name of the IngressClass resource that should be used for additional configuration",
        ),
        told("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
        told("Address", "Address is a list containing ingress points for the load-balancer"),
        told("Ports", "Ports of TLS configurations that open"),
        AGE,
    ],
    cells: |object, now| {
        let secure = !items(object, "/spec/tls").is_empty();
        let points = items(object, "/status/loadBalancer/ingress").iter();
        let points = points.map(|point| match text(point, "/ip") {
            "" => text(point, "/hostname"),
            ip => ip,
        });
        vec![
            name(object),
            json!(text_or_none(object, "/spec/ingressClassName")),
            json!(hosts(object)),
            json!(points.filter(|point| !point.is_empty()).collect::<Vec<_>>().join(",")),
            json!(if secure { "80, 443" } else { "80" }),
            object_age(object, now),
        ]
    },
};

/// Names the first three hosts of an ingress, and how many more there are.
fn hosts(object: &Value) -> String {
    const SHOWN: usize = 3;
    let rules = items(object, "/spec/rules");
    let named: Vec<&str> =
        rules.iter().map(|rule| text(rule, "/host")).filter(|host| !host.is_empty()).collect();
    match named.len() {
        0 => "*".to_owned(),
        count if count > SHOWN => format!("{} + {} more...", named[..SHOWN].join(","), rules.len() - SHOWN),
        _ => named.join(","),
    }
}

static NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, col("Pod-Selector", definition!("networking.v1.NetworkPolicySpec"), "podSelector"), AGE],
    cells: |object, now| {
        vec![name(object), json!(selector(object, "/spec/podSelector")), object_age(object, now)]
    },
};

static DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        told("Min Available", "The minimum number of pods that must be available."),
        told("Max Unavailable", "The maximum number of pods that may be unavailable."),
        told("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.")
            .of("integer"),
        AGE,
    ],
    cells: |object, now| {
        let limit = |pointer: &str| match object.pointer(pointer) {
            None | Some(Value::Null) => "N/A".to_owned(),
            Some(Value::String(share)) => share.clone(),
            Some(count) => count.to_string(),
        };
        vec![
            name(object),
            json!(limit("/spec/minAvailable")),
            json!(limit("/spec/maxUnavailable")),
            json!(number(object, "/status/disruptionsAllowed")),
            object_age(object, now),
        ]
    },
};

static PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        col("Value", PRIORITY, "value").of("integer"),
        col("Global-Default", PRIORITY, "globalDefault").of("boolean"),
        AGE,
        col("PreemptionPolicy", PRIORITY, "preemptionPolicy"),
    ],
    cells: |object, now| {
        vec![
            name(object),
            json!(number(object, "/value")),
            json!(object["globalDefault"] == true),
            object_age(object, now),
            json!(text(object, "/preemptionPolicy")),
        ]
    },
};

static STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        col("Provisioner", CLASS, "provisioner"),
        col("ReclaimPolicy", CLASS, "reclaimPolicy"),
        col("VolumeBindingMode", CLASS, "volumeBindingMode"),
        col("AllowVolumeExpansion", CLASS, "allowVolumeExpansion"),
        AGE,
    ],
    cells: |object, now| {
        let marks = object.pointer("/metadata/annotations").and_then(Value::as_object);
        let is_default = marks.into_iter().flatten().any(|(key, value)| {
            key.ends_with("storageclass.kubernetes.io/is-default-class") && value == "true"
        });
        let name = text(object, "/metadata/name");
        vec![
            json!(if is_default { format!("{name} (default)") } else { name.to_owned() }),
            json!(text(object, "/provisioner")),
            json!(text(object, "/reclaimPolicy")),
            json!(text(object, "/volumeBindingMode")),
            json!(object["allowVolumeExpansion"] == true),
            object_age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_kinds_have_a_cell_for_each_column() {
        for (group, kind, object, wanted) in [
            (
                "networking.k8s.io",
                "Ingress",
                json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}}),
                json!(["x", "<none>", "a,b,c + 1 more...", "", "80, 443"]),
            ),
            (
                "policy",
                "PodDisruptionBudget",
                json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}}),
                json!(["x", "50%", "N/A", 2]),
            ),
            (
                "",
                "PersistentVolumeClaim",
                json!({"spec": {"volumeName": "v", "storageClassName": "fast"},
                       "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                                  "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
                json!(["x", "Bound", "v", "1Gi", "RWO,RWX", "fast", "<unset>"]),
            ),
            (
                "",
                "PersistentVolume",
                json!({"spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "n", "name": "c"}}}),
                json!(["x", "1Gi", "", "", "", "n/c", "", "<unset>", ""]),
            ),
        ] {
            let printer = printer(group, kind).expect("a printer");
            let mut object = object;
            object["metadata"] = json!({"name": "x"});
            let cells = printer.cells(&object, 0);
            assert_eq!(cells.len(), printer.definitions().len(), "{kind}");
            let wanted = wanted.as_array().expect("cells");
            assert_eq!(&cells[..wanted.len()], wanted, "{kind}");
        }
    }

    #[test]
    fn every_column_is_described() {
        for (group, kind) in [
            ("", "PersistentVolume"),
            ("", "PersistentVolumeClaim"),
            ("networking.k8s.io", "NetworkPolicy"),
            ("scheduling.k8s.io", "PriorityClass"),
            ("storage.k8s.io", "StorageClass"),
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ] {
            let printer = printer(group, kind).expect("a printer");
            for definition in printer.definitions() {
                assert_ne!(definition["description"], "", "{kind} {}", definition["name"]);
            }
            assert_eq!(printer.cells(&json!({"metadata": {}}), 0).len(), printer.definitions().len());
        }
    }
}
