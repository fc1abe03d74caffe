//! The Pod that is listed and watched: as varied as those of a cluster, 3.7 KB as a server sends it.
//!
//! Names, UIDs, images, environment and volumes differ from Pod to Pod, because a cache that compresses or shares what
//! objects have in common would look too good on equal ones. A Pod's number decides all that it says.

use crate::gadget::{name, namespace};

/// The path of Pods.
pub(crate) const PATH: &str = "/api/v1/pods";

/// How many pods an application has.
const AN_APPLICATION: usize = 8;

const WORDS: [&str; 16] = [
    "billing", "orders", "catalog", "search", "mailer", "ledger", "avatar", "gateway", "session", "pricing",
    "stock", "courier", "audit", "reports", "webhook", "ranking",
];
const PARTS: [&str; 8] = ["api", "worker", "cache", "proxy", "sync", "web", "batch", "events"];
const SETTINGS: [&str; 12] = [
    "DATABASE_URL",
    "REDIS_HOST",
    "LOG_LEVEL",
    "FEATURE_FLAGS",
    "SENTRY_DSN",
    "REGION",
    "QUEUE_NAME",
    "TIMEOUT_MS",
    "MAX_CONNECTIONS",
    "TRACE_ENDPOINT",
    "BUCKET",
    "HTTP_PROXY",
];

/// Numbers that look random, and are the same in every run.
struct Digits(u64);

impl Digits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn hex(&mut self, length: usize) -> String {
        let mut hex = String::with_capacity(length + 16);
        while hex.len() < length {
            hex.push_str(&format!("{:016x}", self.next()));
        }
        hex.truncate(length);
        hex
    }

    /// Makes a suffix as Kubernetes does.
    fn suffix(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length).map(|_| char::from(LETTERS[self.below(LETTERS.len())])).collect()
    }

    fn uid(&mut self) -> String {
        let hex = self.hex(32);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    fn address(&mut self) -> String {
        format!("10.{}.{}.{}", self.below(256), self.below(256), self.below(254) + 1)
    }

    fn time(&mut self) -> String {
        let (day, hour) = (self.below(28) + 1, self.below(24));
        format!("2026-01-{day:02}T{hour:02}:{:02}:{:02}Z", self.below(60), self.below(60))
    }
}

/// Writes a pod as the server does.
pub(crate) fn json(at: usize, version: u64) -> String {
    let mut of_app = Digits((at / AN_APPLICATION) as u64);
    let app = format!("{}-{}", of_app.pick(&WORDS), of_app.pick(&PARTS));
    let (hash, owner) = (of_app.suffix(10), of_app.uid());
    let image = format!(
        "registry.example.dev/{}/{app}:v{}.{}",
        of_app.pick(&WORDS),
        of_app.below(4),
        of_app.below(60)
    );
    let digest = of_app.hex(64);
    let mut own = Digits(!(at as u64));
    let (name, namespace, uid) = (name(at), namespace(at), own.uid());
    let (created, started, ready) = (own.time(), own.time(), own.time());
    let (token, container) = (own.suffix(5), own.hex(64));
    let (node, host, address) = (own.below(500), own.address(), own.address());
    let (cpu, memory) = (100 + 50 * of_app.below(20), 64 + 32 * of_app.below(30));
    let port = 8_000 + of_app.below(1_000);
    let env: Vec<_> = (0..5)
        .map(|_| {
            format!(
                r#"{{"name":"{}","value":"{}.{app}.svc:{}"}}"#,
                of_app.pick(&SETTINGS),
                of_app.hex(12),
                of_app.below(9_000)
            )
        })
        .collect();
    let env = env.join(",");
    let fields = r#"{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:volumes":{}}}"#;
    let status_fields = r#"{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:lastTransitionTime":{}}},"f:containerStatuses":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}}"#;
    let managed = format!(
        r#"[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{created}","fieldsType":"FieldsV1","fieldsV1":{fields}}},{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{ready}","fieldsType":"FieldsV1","subresource":"status","fieldsV1":{status_fields}}}]"#
    );
    let metadata = format!(
        r#"{{"name":"{name}","generateName":"{app}-{hash}-","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","generation":1,"creationTimestamp":"{created}","labels":{{"app":"{app}","pod-template-hash":"{hash}"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{app}-{hash}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}],"managedFields":{managed}}}"#
    );
    let volumes = format!(
        r#"[{{"name":"config","configMap":{{"name":"{app}-config-{hash}","defaultMode":420}}}},{{"name":"kube-api-access-{token}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}]"#
    );
    let mounts = format!(
        r#"[{{"name":"config","mountPath":"/etc/{app}"}},{{"name":"kube-api-access-{token}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}]"#
    );
    let spec = format!(
        r#"{{"volumes":{volumes},"containers":[{{"name":"main","image":"{image}","args":["--port={port}"],"ports":[{{"name":"http","containerPort":{port},"protocol":"TCP"}}],"env":[{env}],"resources":{{"requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}}},"volumeMounts":{mounts},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"{app}","nodeName":"node-{node}","securityContext":{{}},"schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}}"#
    );
    let status = format!(
        r#"{{"phase":"Running","conditions":[{{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"{ready}"}},{{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"{created}"}}],"hostIP":"{host}","podIP":"{address}","podIPs":[{{"ip":"{address}"}}],"startTime":"{created}","containerStatuses":[{{"name":"main","state":{{"running":{{"startedAt":"{started}"}}}},"lastState":{{}},"ready":true,"restartCount":{restarts},"image":"{image}","imageID":"{image}@sha256:{digest}","containerID":"containerd://{container}","started":true}}],"qosClass":"Burstable"}}"#,
        restarts = own.below(4),
    );
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{spec},"status":{status}}}"#)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn what_is_served_is_a_pod_of_about_3700_bytes() -> Result<(), serde_json::Error> {
        let text = json(7, 8);
        let pod: Pod = serde_json::from_str(&text)?;
        assert_eq!(pod.metadata.name.as_deref(), Some("gadget-0000007"));
        assert!((3_500..3_900).contains(&text.len()), "{}", text.len());
        Ok(())
    }

    #[test]
    fn pods_differ_and_each_is_the_same_in_every_run() {
        let uids: std::collections::HashSet<_> = (0..1_000_u64).map(|at| Digits(!at).uid()).collect();
        assert_eq!(uids.len(), 1_000);
        assert_eq!(json(9, 1), json(9, 1));
    }
}
