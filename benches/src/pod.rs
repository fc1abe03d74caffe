//! The Pod that is listed and watched: 2.6 KB as a server sends it, 1.6 KB without managedFields.

/// The path of Pods.
pub(crate) const PATH: &str = "/api/v1/pods";

use crate::gadget::{name, namespace};

/// Writes a pod as the server does.
pub(crate) fn json(at: usize, version: u64) -> String {
    let (name, namespace, node, ip) = (name(at), namespace(at), at % 500, at % 250);
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","generateName":"gadget-","namespace":"{namespace}","uid":"1d8b8a4e-6f0c-4b39-b2cb-{at:012x}","resourceVersion":"{version}","generation":1,"creationTimestamp":"2026-01-15T08:30:00Z","labels":{{"app":"gadget","pod-template-hash":"7d9c8b6f5"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"gadget-7d9c8b6f5","uid":"9b1c7f34-0a2d-4c61-8f0e-000000000001","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-15T08:30:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:pod-template-hash":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"9b1c7f34-0a2d-4c61-8f0e-000000000001\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"turner\"}}":{{".":{{}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:name":{{}},"f:ports":{{}},"f:resources":{{}}}}}},"f:dnsPolicy":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}}}}}}}},{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-15T08:30:20Z","fieldsType":"FieldsV1","subresource":"status","fieldsV1":{{"f:status":{{"f:conditions":{{"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:status":{{}},"f:lastTransitionTime":{{}}}}}},"f:containerStatuses":{{}},"f:phase":{{}},"f:podIP":{{}},"f:startTime":{{}}}}}}}}]}},"spec":{{"containers":[{{"name":"turner","image":"registry.example.dev/gadgets/turner:v1","args":["--port=8080"],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"MODE","value":"production"}}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}},"imagePullPolicy":"IfNotPresent","terminationMessagePath":"/dev/termination-log"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-{node}","securityContext":{{}},"schedulerName":"default-scheduler","priority":0}},"status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-15T08:30:20Z"}},{{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-15T08:30:00Z"}}],"hostIP":"10.0.0.{ip}","podIP":"10.1.0.{ip}","startTime":"2026-01-15T08:30:00Z","containerStatuses":[{{"name":"turner","state":{{"running":{{"startedAt":"2026-01-15T08:30:18Z"}}}},"lastState":{{}},"ready":true,"restartCount":0,"image":"registry.example.dev/gadgets/turner:v1","imageID":"sha256:7d9c8b6f57d9c8b6f57d9c8b6f5","started":true}}],"qosClass":"Burstable"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn what_is_served_is_a_pod_of_about_2600_bytes() -> Result<(), serde_json::Error> {
        let text = json(7, 8);
        let pod: Pod = serde_json::from_str(&text)?;
        assert_eq!(pod.metadata.name.as_deref(), Some("gadget-0000007"));
        assert!((2_500..2_700).contains(&text.len()), "{}", text.len());
        Ok(())
    }
}
