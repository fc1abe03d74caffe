//! Where the clusters of a fleet come from: kubeconfigs in Secrets, ClusterProfiles, or a stream.

use std::{collections::BTreeMap, mem, sync::Arc};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    CustomResource, Resource,
    config::{
        AuthInfo, Cluster as ClusterAddress, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::client;
use crate::{
    controller::Cluster,
    informer::{External, SharedInformer, Watched},
    store::Lister,
    users_code::contained,
};

/// The label of Secrets that hold a kubeconfig, unless a fleet says otherwise.
const LABEL: &str = "watchkeeper.dev/kubeconfig";
/// Where such a Secret holds it.
const KEY: &str = "kubeconfig";

/// A cluster came, with its client, or left.
pub(super) type FleetChange = (Arc<str>, Option<kube::Client>);

/// Says which clusters there are.
pub(super) enum FleetSource {
    Secrets(NamedClusters<Secret>, KubeconfigKey),
    Profiles(NamedClusters<External<ClusterProfile>>, AccessProviders),
    Changes(BoxStream<'static, FleetChange>),
}

impl FleetSource {
    pub(super) fn secrets(namespace: String) -> Self {
        Self::Secrets(NamedClusters::new(namespace, LABEL), KubeconfigKey(KEY.to_owned()))
    }

    pub(super) fn profiles(
        namespace: String,
        access: impl Fn(&str) -> Option<AuthInfo> + Send + Sync + 'static,
    ) -> Self {
        Self::Profiles(NamedClusters::new(namespace, ""), AccessProviders(Box::new(access)))
    }

    pub(super) fn stream(changes: impl Stream<Item = FleetChange> + Send + 'static) -> Self {
        Self::Changes(changes.boxed())
    }

    /// Chooses objects by labels, and where Secrets hold their kubeconfig.
    pub(super) fn select(&mut self, labels: &str, in_key: &str) {
        match self {
            Self::Secrets(objects, KubeconfigKey(key)) => {
                labels.clone_into(&mut objects.labels);
                in_key.clone_into(key);
            }
            Self::Profiles(objects, _) => labels.clone_into(&mut objects.labels),
            Self::Changes(_) => {}
        }
    }

    /// Asks the manager's own cluster for what it needs.
    pub(super) fn join(&mut self, own: &Cluster) {
        match self {
            Self::Secrets(objects, _) => objects.join(own),
            Self::Profiles(objects, _) => objects.join(own),
            Self::Changes(_) => {}
        }
    }

    /// Follows it; `None`: it has not joined a manager.
    pub(super) fn changes(self) -> Option<BoxStream<'static, FleetChange>> {
        Some(match self {
            Self::Secrets(objects, key) => follow(objects.informer?, key),
            Self::Profiles(objects, access) => follow(objects.informer?, access),
            Self::Changes(changes) => changes,
        })
    }
}

/// Objects of the manager's own cluster, each of which says how to reach a cluster with its name.
pub(super) struct NamedClusters<W: Watched> {
    namespace: String,
    labels: String,
    informer: Option<SharedInformer<W>>,
}

impl<W: Watched<DynamicType = ()>> NamedClusters<W> {
    fn new(namespace: String, labels: &str) -> Self {
        Self { namespace, labels: labels.to_owned(), informer: None }
    }

    fn join(&mut self, own: &Cluster) {
        let informer = own.informer::<W>().namespace(self.namespace.as_str()).label_selector(&self.labels);
        self.informer = Some(informer.expect("it has parsed before").build());
    }
}

/// Reads how to reach a cluster from an object.
trait ReadsCluster<K>: Send + Sync + 'static {
    /// What can't be used, for the log: the object's name follows.
    const WHAT: &'static str;

    /// Returns all that says how to reach the cluster; `None`: nothing does so far. While that is the same, nothing has changed.
    fn text(&self, object: &K) -> Result<Option<Vec<u8>>, String>;

    /// Makes a kubeconfig of it, or says why that fails.
    fn kubeconfig(&self, text: &[u8]) -> Result<Kubeconfig, String>;
}

/// Where Secrets hold their kubeconfig.
pub(super) struct KubeconfigKey(String);

impl ReadsCluster<Secret> for KubeconfigKey {
    const WHAT: &'static str = "kubeconfig in the Secret";

    fn text(&self, secret: &Secret) -> Result<Option<Vec<u8>>, String> {
        let kubeconfig = secret.data.as_ref().and_then(|data| data.get(&self.0));
        let kubeconfig = kubeconfig.ok_or_else(|| format!("its key {:?} is missing", self.0))?;
        Ok(Some(kubeconfig.0.clone()))
    }

    fn kubeconfig(&self, text: &[u8]) -> Result<Kubeconfig, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        // The error may show what stands there, such as a token.
        let kubeconfig =
            Kubeconfig::from_yaml(text).map_err(|_| "it is not a kubeconfig in YAML".to_owned())?;
        match outside(&kubeconfig) {
            None => Ok(kubeconfig),
            Some(outside) => Err(format!(
                "{outside} is not in it: put tokens, certificates and keys into the kubeconfig itself"
            )),
        }
    }
}

/// What is read of a ClusterProfile of the cluster inventory API.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ClusterProfile",
    namespaced,
    status = "ProfileStatus",
    schema = "disabled"
)]
pub(super) struct ClusterProfileSpec {}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProfileStatus {
    #[serde(default)]
    access_providers: Vec<AccessProvider>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct AccessProvider {
    name: String,
    cluster: ClusterAddress,
}

/// Gives credentials by the name of an access provider.
pub(super) struct AccessProviders(Box<dyn Fn(&str) -> Option<AuthInfo> + Send + Sync>);

impl AccessProviders {
    fn access(&self, provider: &str) -> Option<AuthInfo> {
        contained(|| (self.0)(provider)).flatten()
    }
}

impl ReadsCluster<ClusterProfile> for AccessProviders {
    const WHAT: &'static str = "ClusterProfile";

    fn text(&self, profile: &ClusterProfile) -> Result<Option<Vec<u8>>, String> {
        let providers = profile.status.iter().flat_map(|status| &status.access_providers);
        let names: Vec<_> = providers.clone().map(|provider| provider.name.as_str()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let mut known = providers.clone();
        let known = known.find(|provider| self.access(&provider.name).is_some());
        let known = known.ok_or_else(|| {
            format!("the program has credentials for none of its access providers, {}", names.join(", "))
        })?;
        serde_json::to_vec(known).map(Some).map_err(|error| error.to_string())
    }

    fn kubeconfig(&self, text: &[u8]) -> Result<Kubeconfig, String> {
        let provider: AccessProvider = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        // Those who write profiles have no say in what is read here.
        if provider.cluster.certificate_authority.is_some() {
            return Err(
                "it names a file in `certificate-authority`: say `certificate-authority-data`".to_owned()
            );
        }
        let name = provider.name;
        let auth_info =
            self.access(&name).ok_or_else(|| format!("there are no credentials for {name} any more"))?;
        let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
        Ok(Kubeconfig {
            clusters: vec![NamedCluster {
                name: name.clone(),
                cluster: Some(provider.cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name.clone(),
                auth_info: Some(auth_info),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: name.clone(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some(name),
            ..Kubeconfig::default()
        })
    }
}

/// Follows objects that say how to reach clusters.
fn follow<W, R>(objects: SharedInformer<W>, read: R) -> BoxStream<'static, FleetChange>
where
    W: Watched<Object: kube::Resource, Lister = Lister<<W as Watched>::Object>>,
    R: ReadsCluster<W::Object>,
{
    let changed = Arc::new(Notify::new());
    let notes = [(); 3].map(|()| {
        let changed = changed.clone();
        move || changed.notify_one()
    });
    let [came, moved, went] = notes;
    let handler = objects.handler().on_add(move |_, _| came()).on_update(move |_, _| moved());
    let registration = handler.on_delete(move |_| went()).register();
    // One that can't be used is known as well, so that it is logged once.
    let known = BTreeMap::<Arc<str>, Result<Vec<u8>, String>>::new();
    let following = (objects, registration, changed, read, known);
    let changes = stream::unfold(following, |mut following| async {
        let (objects, _, changed, read, known) = &mut following;
        changed.notified().await;
        let mut found = BTreeMap::new();
        for object in objects.lister().list().iter() {
            let name = object.meta().name.as_deref().unwrap_or_default();
            if let Some(text) = read.text(object).transpose() {
                found.insert(Arc::from(name), text);
            }
        }
        let before = mem::replace(known, found);
        let gone = before.keys().filter(|name| !known.contains_key(*name));
        let mut changes: Vec<FleetChange> = gone.map(|name| (name.clone(), None)).collect();
        for (name, text) in known.iter().filter(|(name, new)| before.get(*name) != Some(new)) {
            let kubeconfig = text.as_ref().map_err(Clone::clone).and_then(|text| read.kubeconfig(text));
            let connected = match kubeconfig {
                Ok(kubeconfig) => connected(kubeconfig).await,
                Err(why) => Err(why),
            };
            if let Err(why) = &connected {
                let what = R::WHAT;
                tracing::error!(object = &**name, "the {what} {name} can't be used: {why}");
            }
            changes.push((name.clone(), connected.ok()));
        }
        Some((stream::iter(changes), following))
    });
    changes.flatten().boxed()
}

/// Makes a client of a kubeconfig, or says why that fails.
async fn connected(kubeconfig: Kubeconfig) -> Result<kube::Client, String> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    client::client(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Names what a kubeconfig reads from this machine.
fn outside(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_cluster = clusters.filter(|cluster| cluster.certificate_authority.is_some());
    let of_cluster = of_cluster.map(|_| "the file of `certificate-authority`");
    let of_user = users.flat_map(|user| {
        [
            user.exec.as_ref().map(|_| "the program of `exec`"),
            user.auth_provider.as_ref().map(|_| "the program of `auth-provider`"),
            user.token_file.as_ref().map(|_| "the file of `tokenFile`"),
            user.client_certificate.as_ref().map(|_| "the file of `client-certificate`"),
            user.client_key.as_ref().map(|_| "the file of `client-key`"),
        ]
    });
    of_cluster.chain(of_user.flatten()).next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'{cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n"
        )
    }

    async fn reached(text: &[u8]) -> Result<(), String> {
        connected(KubeconfigKey(KEY.to_owned()).kubeconfig(text)?).await.map(drop)
    }

    // P31
    #[tokio::test]
    async fn a_kubeconfig_that_needs_something_of_this_machine_is_refused() {
        for (cluster, user, named) in [
            (", certificate-authority: /ca.crt", "token: a", "certificate-authority"),
            ("", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", "exec"),
            ("", "tokenFile: /var/run/token", "tokenFile"),
            ("", "client-certificate: /a.crt", "client-certificate"),
            ("", "client-key: /a.key", "client-key"),
        ] {
            let why = reached(kubeconfig(cluster, user).as_bytes()).await.unwrap_err();
            assert!(why.contains(named) && why.contains("put tokens"), "{why}");
        }
        assert!(reached(kubeconfig("", "token: a").as_bytes()).await.is_ok());
        let token = kubeconfig("", "token: {hunter2: []}");
        for rubbish in [&b"\xff"[..], b"", b"a: [", b"{}", token.as_bytes()] {
            let why = reached(rubbish).await.unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    fn profile(providers: serde_json::Value) -> ClusterProfile {
        let mut profile = ClusterProfile::new("north", ClusterProfileSpec {});
        profile.status = serde_json::from_value(providers).unwrap();
        profile
    }

    /// Knows a token for `known`.
    fn access() -> AccessProviders {
        let token = || AuthInfo { token: Some("hunter2".to_owned().into()), ..AuthInfo::default() };
        AccessProviders(Box::new(move |name| match name {
            "known" => Some(token()),
            "fails" => panic!("it fails"),
            _ => None,
        }))
    }

    // P31
    #[tokio::test]
    async fn a_profile_leads_to_the_first_provider_for_which_there_are_credentials() {
        let access = access();
        let server = |name: &str, more: serde_json::Value| {
            let mut cluster = json!({"server": "https://10.0.0.1:6443", "unheard-of": 1});
            cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"name": name, "cluster": cluster})
        };
        let providers =
            json!([server("other", json!({})), server("fails", json!({})), server("known", json!({}))]);
        let north =
            profile(json!({"accessProviders": providers, "properties": [{"name": "a", "value": "b"}]}));
        let text = access.text(&north).unwrap().unwrap();
        let kubeconfig = access.kubeconfig(&text).unwrap();
        let reached =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        assert_eq!(reached.cluster_url, "https://10.0.0.1:6443");
        assert!(reached.auth_info.token.is_some());
        assert!(!String::from_utf8(text).unwrap().contains("hunter2"));

        for waits in [json!(null), json!({}), json!({"accessProviders": []})] {
            assert_eq!(access.text(&profile(waits)), Ok(None));
        }
        let unknown = profile(json!({"accessProviders": [server("a", json!({})), server("b", json!({}))]}));
        let why = access.text(&unknown).unwrap_err();
        assert!(why.contains("none of its access providers, a, b"), "{why}");
        let file = server("known", json!({"certificate-authority": "/etc/passwd"}));
        let text = access.text(&profile(json!({"accessProviders": [file]}))).unwrap().unwrap();
        assert!(access.kubeconfig(&text).unwrap_err().contains("certificate-authority-data"));
    }
}
