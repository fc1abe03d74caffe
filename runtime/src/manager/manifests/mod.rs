//! What a program needs in a cluster, as manifests: plain YAML, a kustomization, or a chart of Helm.

mod yaml;
mod facts;
mod objects;
mod helm;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(super) use self::facts::{GeneratedApi, HttpPort, ProgramFacts, WebhookPort, port_of};
use self::{
    helm::{ChartDefaults, chart},
    objects::{Chosen, Layout, Manifest, files, resources},
    yaml::YamlWriter,
};
use crate::{
    error::Error,
    object::{is_dns_label, is_domain},
};

/// The manifests of a program; made by [`Manager::manifests`](super::Manager::manifests).
///
/// They are the Namespace, the CRDs of all [kinds](super::Manager::kind), the ServiceAccount with its
/// [`Rules`](super::Rules), the webhook configurations without `caBundle`, the Service of the webhooks, the policies with
/// their bindings, and the Deployment. A chart makes no Namespace. The same program prints the same text. There are no Secrets: the program makes its certificates itself. Certificates from files are mounted from a
/// Secret: for webhooks it is named like cert-manager's Certificate, or else after the Service with `-tls` at the end, and
/// for [`Http::tls`](super::Http::tls) after the program with `-http-tls` at the end.
///
/// Everything is in the namespace of the manager's client, or of [`Manager::offline`](super::Manager::offline). The
/// namespace `default` itself is not printed.
///
/// ```
/// # use watchkeeper::prelude::*;
/// # fn print(operator: impl Fn(Manager) -> Manager) -> Result<(), watchkeeper::Error> {
/// let manager = operator(Manager::offline("websites")); // no cluster, no kubeconfig
/// print!("{}", manager.manifests()?.image("registry.example.dev/websites:1.2.0").yaml()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "manifests are made to be printed"]
pub struct Manifests {
    name: String,
    image: Option<String>,
    version: Option<String>,
    replicas: Option<u32>,
    program: ProgramFacts,
}

impl Manifests {
    pub(super) fn new(program: ProgramFacts) -> Self {
        let name = program.name.split('.').next().unwrap_or_default().to_owned();
        Self { name, image: None, version: None, replicas: None, program }
    }

    /// Names the program: its Deployment, ServiceAccount, roles and chart. By default it is the first part of the first
    /// controller's name.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the image. By default it is the program's name. Without a tag it gets the program's version, or else
    /// `latest`.
    pub fn image(self, image: impl Into<String>) -> Self {
        Self { image: Some(image.into()), ..self }
    }

    /// Sets the program's version, which is that of the chart.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Sets how many replicas run. By default these are two with a leader election or if they share the work, and else one.
    pub fn replicas(self, replicas: u32) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// Writes all manifests as one stream of YAML.
    ///
    /// # Errors
    /// [`Error::Manifests`] if a name, the image or the version is not valid, or if several replicas would do the same
    /// work.
    pub fn yaml(&self) -> Result<String, Error> {
        let manifests = self.plain()?;
        Ok(YamlWriter::default().documents(manifests.iter().map(|manifest| &manifest.object)))
    }

    /// Writes a kustomization: the texts of its files by their names.
    ///
    /// # Errors
    /// As [`yaml`](Self::yaml).
    pub fn kustomize(&self) -> Result<BTreeMap<String, String>, Error> {
        let (manifests, writer) = (self.plain()?, YamlWriter::default());
        let mut names: Vec<&str> = manifests.iter().map(|manifest| manifest.file).collect();
        names.dedup();
        let mut files = files(&manifests, writer);
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names,
        });
        files.insert("kustomization.yaml".to_owned(), writer.document(&kustomization));
        Ok(files)
    }

    /// Writes a chart of Helm: the texts of its files by their paths.
    ///
    /// Helm installs the CRDs, and never changes or deletes them; the program does the former. The webhook configurations
    /// have no webhooks: the program adds these, and Helm deletes them with the configurations. So a release is upgraded
    /// without a conflict, and before the old replicas are gone no call goes to a webhook that they do not have. The
    /// release's namespace is the program's; until the program runs, CRDs that are converted name the one that the chart was
    /// printed for. Names are not the release's, so that a cluster has one release.
    ///
    /// # Errors
    /// As [`yaml`](Self::yaml).
    pub fn helm(&self) -> Result<BTreeMap<String, String>, Error> {
        self.plain()?;
        let (repository, tag) = &self.tagged_image();
        let (version, replicas) = (self.version.as_deref(), self.chosen_replicas());
        let layout = Layout { name: &self.name, program: &self.program, chosen: helm::chosen() };
        Ok(chart(&layout, &ChartDefaults { version, repository, tag, replicas }))
    }

    /// Makes the objects as they are written outside Helm, if they are valid.
    fn plain(&self) -> Result<Vec<Manifest>, Error> {
        self.check()?;
        let (image, tag) = self.tagged_image();
        let chosen = Chosen {
            namespace: self.program.namespace.as_str().into(),
            image: format!("{image}:{tag}").into(),
            replicas: self.chosen_replicas().into(),
            resources: resources(),
            pod: Vec::new(),
            container: vec![("imagePullPolicy", "IfNotPresent")],
            is_chart: false,
        };
        let manifests = Layout { name: &self.name, program: &self.program, chosen }.objects();
        manifests.iter().try_for_each(|manifest| check_object(&manifest.object))?;
        Ok(manifests)
    }

    /// Returns the image, and its tag or digest.
    fn tagged_image(&self) -> (&str, String) {
        let image = self.image.as_deref().unwrap_or(&self.name);
        let name = image.rfind('/').map_or(0, |slash| slash + 1);
        match image[name..].rfind(':') {
            Some(colon) => (&image[..name + colon], image[name + colon + 1..].to_owned()),
            // A tag has no `+`.
            None => (image, self.version.as_deref().unwrap_or("latest").replace('+', "-")),
        }
    }

    fn chosen_replicas(&self) -> u32 {
        self.replicas.unwrap_or(if self.program.is_elected { 2 } else { 1 })
    }

    fn check(&self) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::Manifests(problem));
        let Self { name, version, program, .. } = self;
        if !is_dns_label(name) {
            return refused(format!(
                "{name:?} can't be the program's name: use a-z, 0-9 and '-', 63 at most"
            ));
        }
        if !is_dns_label(&program.namespace) {
            let namespace = &program.namespace;
            return refused(format!("{namespace:?} can't be a namespace: use a-z, 0-9 and '-', 63 at most"));
        }
        let (image, tag) = self.tagged_image();
        let is_image = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        if image.is_empty() || tag.is_empty() || !image.bytes().chain(tag.bytes()).all(is_image) {
            let image = self.image.as_deref().unwrap_or_default();
            return refused(format!(
                "{image:?} is not an image: write it as registry.example.dev/{name}:1.0.0"
            ));
        }
        if let Some(version) = version.as_ref().filter(|version| !is_version(version)) {
            return refused(format!("{version:?} is not a version: write it as 1.2.3"));
        }
        if self.chosen_replicas() > 1 && program.has_controllers && !program.is_elected {
            let replicas = self.chosen_replicas();
            return refused(format!(
                "{replicas} replicas would all do the same work: add `.leader_election(..)` or `.sharded(..)`"
            ));
        }
        match program.api.port.as_ref().and_then(|port| port.service.as_ref()) {
            Some((place, service)) if *place != program.namespace => refused(format!(
                "the Service {place}/{service} of the webhooks is not in the program's namespace {}, so that it leads \
                 nowhere: print the manifests for {place}, or leave `Webhooks::service` out",
                program.namespace
            )),
            _ => Ok(()),
        }
    }
}

/// Writes objects as one stream of YAML.
#[cfg(feature = "cli")]
pub(crate) fn write_documents(objects: &[Value]) -> String {
    YamlWriter::default().documents(objects)
}

/// Checks the name of an object that the program's own names may have spoilt.
fn check_object(object: &Value) -> Result<(), Error> {
    let (kind, name) = (&object["kind"], object["metadata"]["name"].as_str().unwrap_or_default());
    let is_service = kind == "Service";
    let fits = if is_service { is_dns_label } else { is_domain };
    if fits(name) {
        return Ok(());
    }
    let kind = kind.as_str().unwrap_or_default();
    let remedy = if is_service { "`Webhooks::service`" } else { "`Webhooks::named`" };
    Err(Error::Manifests(format!("{name:?} can't be the name of a {kind}: choose another by {remedy}")))
}

/// Returns whether a text is a semantic version, as far as Helm looks at it.
fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    core.split('.').count() == 3 && core.split('.').all(is_number) && text.bytes().all(fits)
}
