//! The objects of a program: who it is, what it may do, its webhooks, and how it runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{facts::ProgramFacts, yaml::YamlWriter};

/// What a process needs to end after its grace period: it hands its Lease over, and closes what it serves.
const FAREWELL_SECONDS: u64 = 10;
/// How long a replica that shares the work takes to get its slots, once it may.
const JOIN_SECONDS: u64 = 5;
/// The user of images without root: `nonroot` of distroless.
const USER: u32 = 65_532;
/// The label of what belongs to the program.
pub(super) const LABEL: &str = "app.kubernetes.io/name";

/// An object, and the file that it is in.
pub(super) struct Manifest {
    pub(super) file: &'static str,
    pub(super) object: Value,
}

/// What people choose: values, or expressions of Helm.
pub(super) struct Chosen {
    pub(super) namespace: Value,
    pub(super) image: Value,
    pub(super) replicas: Value,
    pub(super) resources: Value,
    /// Further fields of the pod, and of its container.
    pub(super) pod: Vec<(&'static str, &'static str)>,
    pub(super) container: Vec<(&'static str, &'static str)>,
    /// Helm: it makes the namespace, and leaves CRDs and webhooks to the program.
    pub(super) is_chart: bool,
}

/// A program, and what people choose.
pub(super) struct Layout<'a> {
    pub(super) name: &'a str,
    pub(super) program: &'a ProgramFacts,
    pub(super) chosen: Chosen,
}

/// Returns the resources that a program gets unless people choose others. A limit would depend on the size of its caches.
pub(super) fn resources() -> Value {
    json!({"requests": {"cpu": "50m", "memory": "64Mi"}})
}

impl Layout<'_> {
    /// Makes all objects, in the order in which they are applied.
    pub(super) fn objects(&self) -> Vec<Manifest> {
        let (chosen, api) = (&self.chosen, &self.program.api);
        let in_file = |file| move |object| Manifest { file, object };
        let mut all = Vec::new();
        let is_of_the_cluster = |name: &str| name == "default" || name.starts_with("kube-");
        let is_system = chosen.namespace.as_str().is_some_and(is_of_the_cluster);
        if !chosen.is_chart && !is_system {
            let mut namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen.namespace},
            });
            // Other programs may be in another one, and need more.
            if chosen.namespace == self.name {
                namespace["metadata"]["labels"] = json!({"pod-security.kubernetes.io/enforce": "restricted"});
            }
            all.push(Manifest { file: "namespace.yaml", object: namespace });
        }
        if !chosen.is_chart {
            all.extend(api.definitions.iter().map(|one| json!(one)).map(in_file("crds.yaml")));
        }
        all.extend(self.rights().into_iter().map(in_file("rbac.yaml")));
        all.extend(self.service().into_iter().map(in_file("webhooks.yaml")));
        all.extend(api.configurations.iter().cloned().map(|mut configuration| {
            if let Some(fields) = configuration.as_object_mut().filter(|_| chosen.is_chart) {
                fields.remove("webhooks");
            }
            Manifest { file: "webhooks.yaml", object: configuration }
        }));
        all.extend(api.policies.iter().cloned().map(in_file("policies.yaml")));
        all.push(Manifest { file: "deployment.yaml", object: self.deployment() });
        all
    }

    /// Makes the ServiceAccount, its roles and their bindings.
    fn rights(&self) -> Vec<Value> {
        let (name, chosen, group) = (self.name, &self.chosen, "rbac.authorization.k8s.io");
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": chosen.namespace, "labels": {LABEL: name}},
        });
        let binding = |kind: &str, namespace: Option<&Value>| {
            let mut metadata = json!({"name": name});
            if let Some(namespace) = namespace {
                metadata["namespace"] = namespace.clone();
            }
            json!({
                "apiVersion": format!("{group}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": chosen.namespace}],
            })
        };
        let rules = self.program.rules.clone().with_name(name);
        let mut all = vec![account];
        if let Some(role) = rules.cluster_role() {
            all.extend([json!(role), binding("ClusterRole", None)]);
        }
        for role in rules.roles() {
            let mut role = json!(role);
            if role["metadata"]["namespace"] == *self.program.namespace {
                role["metadata"]["namespace"] = chosen.namespace.clone();
            }
            let binding = binding("Role", Some(&role["metadata"]["namespace"]));
            all.extend([role, binding]);
        }
        all
    }

    /// Makes the Service of the webhooks. Replicas that are not ready get no calls: they may not have a certificate.
    fn service(&self) -> Option<Value> {
        let (_, service) = self.program.api.port.as_ref()?.service.as_ref()?;
        Some(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "namespace": self.chosen.namespace, "labels": {LABEL: self.name}},
            "spec": {
                "selector": {LABEL: self.name},
                "ports": [{"name": "webhooks", "port": 443, "targetPort": "webhooks"}],
            },
        }))
    }

    fn deployment(&self) -> Value {
        let Self { name, program, chosen } = self;
        let mut pod = json!({
            "serviceAccountName": name,
            "terminationGracePeriodSeconds":
                program.grace_period.as_secs().saturating_add(FAREWELL_SECONDS).min(i32::MAX as u64),
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [self.container()],
        });
        chosen.pod.iter().for_each(|(field, expression)| pod[field] = json!(expression));
        let volume = |(at, secret)| json!({"name": format!("tls-{at}"), "secret": {"secretName": secret}});
        let volumes: Vec<Value> = self.mounts().into_values().enumerate().map(volume).collect();
        if !volumes.is_empty() {
            pod["volumes"] = volumes.into();
        }
        // Two that don't elect a leader would do the same work twice; but somebody must answer webhooks.
        let strategy = match program.is_elected || program.api.port.is_some() {
            true => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
            false => json!({"type": "Recreate"}),
        };
        let mut spec = json!({
            "replicas": chosen.replicas, "strategy": strategy, "selector": {"matchLabels": {LABEL: name}},
            "template": {"metadata": {"labels": {LABEL: name}}, "spec": pod},
        });
        if let Some(looks_on) = program.looks_on {
            // Otherwise all old replicas could be gone before a new one takes part.
            spec["minReadySeconds"] = json!(looks_on.as_secs() + JOIN_SECONDS);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": chosen.namespace, "labels": {LABEL: name}}, "spec": spec,
        })
    }

    fn container(&self) -> Value {
        let (chosen, http, webhooks) = (&self.chosen, &self.program.http, &self.program.api.port);
        let http_port = http.iter().map(|http| ("http", http.port));
        let ports = http_port.chain(webhooks.iter().map(|webhooks| ("webhooks", webhooks.port)));
        let ports: Vec<Value> =
            ports.map(|(name, port)| json!({"name": name, "containerPort": port})).collect();
        let mut container = json!({
            "name": "operator", "image": chosen.image, "resources": chosen.resources,
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
        });
        chosen.container.iter().for_each(|(field, expression)| container[field] = json!(expression));
        if !ports.is_empty() {
            container["ports"] = ports.into();
        }
        if let Some(http) = http {
            let scheme = if http.certificate.is_some() { "HTTPS" } else { "HTTP" };
            let get = |path: &str| json!({"path": path, "port": "http", "scheme": scheme});
            container["readinessProbe"] = json!({"httpGet": get("/readyz"), "periodSeconds": 5});
            // It fails if a leader has not renewed its Lease for longer than that lasts.
            container["livenessProbe"] = json!({"httpGet": get("/healthz"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6});
        }
        let mount =
            |(at, folder)| json!({"name": format!("tls-{at}"), "mountPath": folder, "readOnly": true});
        let mounts: Vec<Value> = self.mounts().into_keys().enumerate().map(mount).collect();
        if !mounts.is_empty() {
            container["volumeMounts"] = mounts.into();
        }
        container
    }

    /// Lists the folders of certificates, and the Secrets that are mounted there.
    fn mounts(&self) -> BTreeMap<String, String> {
        let program = &self.program;
        let http = program.http.as_ref().and_then(|http| http.certificate.clone());
        let http = http.map(|folder| (folder, format!("{}-http-tls", self.name)));
        let webhooks = program.api.port.as_ref().and_then(|port| port.files.clone());
        // One folder can have one Secret: that of the webhooks, which has a name of its own.
        let all = http.into_iter().chain(webhooks);
        all.map(|(folder, secret)| (folder.display().to_string(), secret)).collect()
    }
}

/// Writes the objects of each file.
pub(super) fn files(manifests: &[Manifest], writer: YamlWriter) -> BTreeMap<String, String> {
    let mut objects: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    manifests.iter().for_each(|one| objects.entry(one.file).or_default().push(&one.object));
    objects.into_iter().map(|(file, objects)| (file.to_owned(), writer.documents(objects))).collect()
}
