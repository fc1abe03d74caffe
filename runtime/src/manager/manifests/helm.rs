//! A chart of Helm: the objects with expressions for what its users choose.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    objects::{Chosen, Layout, files, resources},
    yaml::YamlWriter,
};

/// The version of a program that does not say one.
const UNKNOWN_VERSION: &str = "0.1.0";

/// The namespace of the release; in quotes, since it may look like a number.
const NAMESPACE: &str = r#""{{ .Release.Namespace }}""#;
const IMAGE: &str = r#""{{ .Values.image.repository }}:{{ .Values.image.tag }}""#;
const PULL_POLICY: &str = "{{ .Values.image.pullPolicy }}";
const REPLICAS: &str = "{{ .Values.replicas }}";
const RESOURCES: &str = "{{ toJson .Values.resources }}";
const NODE_SELECTOR: &str = "{{ toJson .Values.nodeSelector }}";
const TOLERATIONS: &str = "{{ toJson .Values.tolerations }}";
const AFFINITY: &str = "{{ toJson .Values.affinity }}";
const PULL_SECRETS: &str = "{{ toJson .Values.imagePullSecrets }}";
/// What stays as it is in a template.
const EXPRESSIONS: [&str; 9] =
    [NAMESPACE, IMAGE, PULL_POLICY, REPLICAS, RESOURCES, NODE_SELECTOR, TOLERATIONS, AFFINITY, PULL_SECRETS];

/// Returns what people choose when they install the chart.
pub(super) fn chosen() -> Chosen {
    Chosen {
        namespace: NAMESPACE.into(),
        image: IMAGE.into(),
        replicas: REPLICAS.into(),
        resources: RESOURCES.into(),
        pod: vec![
            ("imagePullSecrets", PULL_SECRETS),
            ("nodeSelector", NODE_SELECTOR),
            ("tolerations", TOLERATIONS),
            ("affinity", AFFINITY),
        ],
        container: vec![("imagePullPolicy", PULL_POLICY)],
        is_chart: true,
    }
}

/// The defaults of a chart.
pub(super) struct ChartDefaults<'a> {
    pub(super) version: Option<&'a str>,
    pub(super) repository: &'a str,
    pub(super) tag: &'a str,
    pub(super) replicas: u32,
}

/// Writes the files of a chart.
pub(super) fn chart(layout: &Layout<'_>, defaults: &ChartDefaults<'_>) -> BTreeMap<String, String> {
    let writer = YamlWriter::default();
    let templates = files(&layout.objects(), YamlWriter { expressions: Some(&EXPRESSIONS) });
    let templates = templates.into_iter().map(|(file, text)| (format!("templates/{file}"), text));
    let definitions = layout.program.api.definitions.iter().map(|definition| {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        (format!("crds/{name}.yaml"), writer.document(&json!(definition)))
    });
    let (name, version) = (layout.name, defaults.version.unwrap_or(UNKNOWN_VERSION));
    let chart = json!({
        "apiVersion": "v2", "name": name, "description": format!("The operator {name}"), "type": "application",
        "version": version, "appVersion": version,
    });
    let values = json!({
        "image": {"repository": defaults.repository, "tag": defaults.tag, "pullPolicy": "IfNotPresent"},
        "imagePullSecrets": [], "replicas": defaults.replicas, "resources": resources(),
        "nodeSelector": {}, "tolerations": [], "affinity": {},
    });
    let others = [("Chart.yaml", chart), ("values.yaml", values)];
    let others = others.map(|(file, value)| (file.to_owned(), writer.document(&value)));
    templates.chain(definitions).chain(others).collect()
}
