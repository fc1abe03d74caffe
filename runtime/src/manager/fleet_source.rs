//! Where the clusters of a fleet come from: kubeconfigs in Secrets, ClusterProfiles, or a stream.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use futures::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    CustomResource, Resource, ResourceExt,
    config::{
        AuthInfo, Cluster as ClusterAddress, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

use super::client::{self, why_no_client};
use crate::{
    chain::one_line,
    controller::Cluster,
    informer::{External, SharedInformer, Watched},
    store::Lister,
    users_code::contained,
};

/// The label of Secrets that hold a kubeconfig, unless a fleet says otherwise.
const LABEL: &str = "watchkeeper.dev/kubeconfig";
/// Where such a Secret holds it.
const KEY: &str = "kubeconfig";
/// How long a client may take to be made, which may run a program for credentials.
const CONNECTING: Duration = Duration::from_secs(60);
/// When that is tried again, once it failed.
const AGAIN: Duration = Duration::from_secs(30);

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
        assert!(!namespace.is_empty(), "a fleet needs the namespace of its Secrets");
        Self::Secrets(NamedClusters::new(namespace, LABEL), KubeconfigKey(KEY.to_owned()))
    }

    pub(super) fn profiles(
        namespace: String,
        access: impl Fn(&str) -> Option<AuthInfo> + Send + Sync + 'static,
    ) -> Self {
        // In another one somebody else could take a cluster's name.
        assert!(!namespace.is_empty(), "a fleet needs the namespace of its ClusterProfiles");
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

/// Objects of the manager's own cluster. Each says how to reach the cluster of its name.
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

/// The type of all Secrets of Cluster API.
const CLUSTER_API: &str = "cluster.x-k8s.io/secret";

/// Where Secrets hold their kubeconfig.
pub(super) struct KubeconfigKey(String);

impl ReadsCluster<Secret> for KubeconfigKey {
    const WHAT: &'static str = "kubeconfig in the Secret";

    fn text(&self, secret: &Secret) -> Result<Option<Vec<u8>>, String> {
        // Cluster API has its certificates and the data of its machines under the same label.
        let is_other =
            secret.type_.as_deref() == Some(CLUSTER_API) && !secret.name_any().ends_with("-kubeconfig");
        if is_other {
            return Ok(None);
        }
        let kubeconfig = secret.data.as_ref().and_then(|data| data.get(&self.0));
        let kubeconfig = kubeconfig.ok_or_else(|| format!("its key {:?} is missing", self.0))?;
        Ok(Some(kubeconfig.0.clone()))
    }

    fn kubeconfig(&self, text: &[u8]) -> Result<Kubeconfig, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        // The error may show what is there, such as a token.
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
    /// Not decoded here: one that is broken must not hide the others.
    #[serde(default)]
    access_providers: Value,
}

#[derive(Deserialize)]
struct AccessProvider {
    name: String,
    cluster: ClusterAddress,
}

/// Gives credentials by the name of an access provider.
type Access = dyn Fn(&str) -> Option<AuthInfo> + Send + Sync;

/// Reads the access providers of ClusterProfiles.
pub(super) struct AccessProviders(Box<Access>);

impl AccessProviders {
    fn access(&self, provider: &str) -> Option<AuthInfo> {
        contained(|| (self.0)(provider)).flatten()
    }
}

impl ReadsCluster<ClusterProfile> for AccessProviders {
    const WHAT: &'static str = "ClusterProfile";

    fn text(&self, profile: &ClusterProfile) -> Result<Option<Vec<u8>>, String> {
        let providers = profile.status.as_ref().and_then(|status| status.access_providers.as_array());
        let providers = providers.into_iter().flatten().filter_map(|one| Some((one["name"].as_str()?, one)));
        let providers: Vec<_> = providers.collect();
        if providers.is_empty() {
            return Ok(None);
        }
        let known = providers.iter().find(|(name, _)| self.access(name).is_some());
        let known = known.ok_or_else(|| {
            let names: Vec<_> = providers.iter().map(|(name, _)| format!("{name:?}")).collect();
            format!("the program has credentials for none of its access providers, {}", names.join(", "))
        })?;
        serde_json::to_vec(known.1).map(Some).map_err(|error| error.to_string())
    }

    fn kubeconfig(&self, text: &[u8]) -> Result<Kubeconfig, String> {
        let provider: AccessProvider = serde_json::from_slice(text)
            .map_err(|error| format!("its access provider does not say where the cluster is: {error}"))?;
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
    let (known, latest, connecting) = (BTreeMap::new(), BTreeMap::new(), FuturesUnordered::new());
    let plugins = RunningPlugins::default();
    let following = Following { objects, read, known, latest, changes: 0, connecting, plugins };
    let following = (following, registration, changed);
    let changes = stream::unfold(following, |(mut following, registration, changed)| async move {
        let changes = tokio::select! {
            biased;
            () = changed.notified() => following.look(),
            Some((name, change, made)) = following.connecting.next() => {
                following.made(name, change, made).into_iter().collect()
            }
        };
        Some((stream::iter(changes), (following, registration, changed)))
    });
    changes.flatten().boxed()
}

/// What objects say of clusters, and the clients that are being made for them.
struct Following<W: Watched, R> {
    objects: SharedInformer<W>,
    read: R,
    /// What each object says, by name; also of one that can't be used, so that it is logged once.
    known: BTreeMap<Arc<str>, Result<Vec<u8>, String>>,
    /// The last change of each object, by name.
    latest: BTreeMap<Arc<str>, u64>,
    /// How many changes there were.
    changes: u64,
    connecting: FuturesUnordered<BoxFuture<'static, Connected>>,
    plugins: RunningPlugins,
}

/// A cluster's name, the change of its object, and the client that was made of what it says since.
type Connected = (Arc<str>, u64, Result<kube::Client, String>);

impl<W, R> Following<W, R>
where
    W: Watched<Object: kube::Resource, Lister = Lister<<W as Watched>::Object>>,
    R: ReadsCluster<W::Object>,
{
    /// Looks at all objects: clusters whose objects say something else leave, and are connected again.
    fn look(&mut self) -> Vec<FleetChange> {
        let mut found = BTreeMap::new();
        for object in self.objects.lister().list().iter() {
            let name = object.meta().name.as_deref().unwrap_or_default();
            if let Some(text) = self.read.text(object).transpose() {
                found.insert(Arc::from(name), text);
            }
        }
        let before = mem::replace(&mut self.known, found);
        let is_left = |(name, text): &(&Arc<str>, &Result<_, _>)| self.known.get(*name) != Some(*text);
        let leave: Vec<FleetChange> =
            before.iter().filter(is_left).map(|(name, _)| (name.clone(), None)).collect();
        let come = self.known.iter().filter(|(name, text)| before.get(*name) != Some(*text));
        for (name, text) in come {
            self.changes += 1;
            self.latest.insert(name.clone(), self.changes);
            match text {
                Ok(text) => self.connect(name, text, self.changes, Duration::ZERO),
                Err(why) => Self::refuse(name, why),
            }
        }
        self.latest.retain(|name, _| self.known.contains_key(name));
        leave
    }

    /// Begins to make a client.
    fn connect(&self, name: &Arc<str>, text: &[u8], change: u64, after: Duration) {
        match self.read.kubeconfig(text) {
            Ok(kubeconfig) => {
                let (name, plugins) = (name.clone(), self.plugins.clone());
                self.connecting.push(Box::pin(async move {
                    sleep(after).await;
                    let client = connected(kubeconfig, &name, &plugins).await;
                    (name, change, client)
                }));
            }
            Err(why) => Self::refuse(name, &why),
        }
    }

    /// Takes a client, unless its object has changed since. What fails is tried again.
    fn made(
        &mut self,
        name: Arc<str>,
        change: u64,
        made: Result<kube::Client, String>,
    ) -> Option<FleetChange> {
        // Not by what it says: it may have said something else in between, and each attempt is tried again.
        if self.latest.get(&name) != Some(&change) {
            return None;
        }
        match made {
            Ok(client) => Some((name, Some(client))),
            Err(why) => {
                Self::refuse(&name, &why);
                if let Some(Ok(text)) = self.known.get(&name) {
                    self.connect(&name, text, change, AGAIN);
                }
                None
            }
        }
    }

    fn refuse(name: &str, why: &str) {
        let what = R::WHAT;
        tracing::error!(object = name, "the {what} {name} can't be used: {why}");
    }
}

/// The credentials plugins that were run, by cluster; clones are the same.
#[derive(Clone, Default)]
struct RunningPlugins(Arc<Mutex<BTreeMap<Arc<str>, Weak<()>>>>);

impl RunningPlugins {
    /// Notes that a cluster's plugin runs until what is returned is dropped; `None`: it runs already.
    fn begin(&self, cluster: &Arc<str>) -> Option<Arc<()>> {
        let mut plugins = self.0.lock();
        if plugins.get(cluster).is_some_and(|run| run.strong_count() > 0) {
            return None;
        }
        let run = Arc::new(());
        plugins.insert(cluster.clone(), Arc::downgrade(&run));
        Some(run)
    }
}

/// Makes a client of a cluster's kubeconfig, or says why that fails.
async fn connected(
    kubeconfig: Kubeconfig,
    cluster: &Arc<str>,
    plugins: &RunningPlugins,
) -> Result<kube::Client, String> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| one_line(&error))?;
    let url = &config.cluster_url;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return Err(format!("its server {:?} can't be reached: give https:// and a host", url.to_string()));
    }
    let plugin = config.auth_info.exec.as_ref().map(|exec| exec.command.clone().unwrap_or_default());
    let Some(plugin) = plugin else {
        return client::client(config).map_err(|error| why_no_client(None, &error));
    };
    // One that hangs can't be ended from here, and must not become many.
    let Some(run) = plugins.begin(cluster) else {
        return Err(format!("its credentials plugin `{plugin}` still runs since an earlier attempt"));
    };
    // It runs the program and waits for it. A thread of its own keeps nobody waiting, not even the end of this program.
    let (made, client) = oneshot::channel();
    let runtime = Handle::current();
    thread::spawn(move || {
        let _run = run;
        let _inside = runtime.enter();
        let _nobody_waits = made.send(client::client(config));
    });
    match timeout(CONNECTING, client).await {
        Ok(Ok(made)) => made.map_err(|error| why_no_client(Some(&plugin), &error)),
        Ok(Err(_)) => Err(format!("its credentials plugin `{plugin}` made this program panic")),
        Err(_) => Err(format!("its credentials plugin `{plugin}` takes more than {CONNECTING:?}")),
    }
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
    use kube::config::{ExecConfig, ExecInteractiveMode};
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
        let kubeconfig = KubeconfigKey(KEY.to_owned()).kubeconfig(text)?;
        connected(kubeconfig, &"a".into(), &RunningPlugins::default()).await.map(drop)
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
        for server in ["10.0.0.1:6443", "ftp://a", "/a"] {
            let text = kubeconfig("", "token: a").replace("http://127.0.0.1:1", server);
            let why = reached(text.as_bytes()).await.unwrap_err();
            assert!(why.contains("can't be reached: give https://"), "{server}: {why}");
        }
        let token = kubeconfig("", "token: {hunter2: []}");
        for rubbish in [&b"\xff"[..], b"", b"a: [", b"{}", token.as_bytes()] {
            let why = reached(rubbish).await.unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    // P31
    #[test]
    fn only_the_kubeconfigs_of_cluster_api_are_clusters() {
        let read = |type_: Option<&str>, name: &str| {
            let mut secret = Secret { type_: type_.map(str::to_owned), ..Secret::default() };
            secret.metadata.name = Some(name.to_owned());
            secret.data = Some([("value".to_owned(), k8s_openapi::ByteString(b"text".to_vec()))].into());
            KubeconfigKey("value".to_owned()).text(&secret).unwrap().is_some()
        };
        assert!(
            read(Some(CLUSTER_API), "north-kubeconfig")
                && read(None, "north")
                && read(Some("Opaque"), "north-ca")
        );
        assert!(!read(Some(CLUSTER_API), "north-ca") && !read(Some(CLUSTER_API), "north-md-0-x7"));
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
        assert!(why.contains(r#"none of its access providers, "a", "b""#), "{why}");
        // One that is broken hides no other, and is refused where it counts.
        let broken = |name: &str| json!({"name": name});
        let north = profile(json!({"accessProviders": [1, broken("other"), server("known", json!({}))]}));
        assert!(access.text(&north).unwrap().is_some());
        let text = access.text(&profile(json!({"accessProviders": [broken("known")]}))).unwrap().unwrap();
        assert!(access.kubeconfig(&text).unwrap_err().contains("where the cluster is"));
        let file = server("known", json!({"certificate-authority": "/etc/passwd"}));
        let text = access.text(&profile(json!({"accessProviders": [file]}))).unwrap().unwrap();
        assert!(access.kubeconfig(&text).unwrap_err().contains("certificate-authority-data"));
    }

    // P31
    #[cfg(unix)]
    #[tokio::test]
    async fn a_plugin_that_fails_is_named_without_what_it_was_told() {
        let reached = async |script: &'static str| {
            let exec = move || ExecConfig {
                api_version: Some("client.authentication.k8s.io/v1".to_owned()),
                command: Some("sh".to_owned()),
                args: Some(vec!["-c".to_owned(), script.to_owned()]),
                env: Some(vec![
                    [("name", "TOKEN"), ("value", "hunter2")].map(|(k, v)| (k.into(), v.into())).into(),
                ]),
                interactive_mode: Some(ExecInteractiveMode::Never),
                ..ExecConfig::default()
            };
            let access = AccessProviders(Box::new(move |_| {
                Some(AuthInfo { exec: Some(exec()), ..AuthInfo::default() })
            }));
            let provider = json!({"name": "any", "cluster": {"server": "http://127.0.0.1:1"}});
            let kubeconfig = access.kubeconfig(provider.to_string().as_bytes()).unwrap();
            connected(kubeconfig, &"a".into(), &RunningPlugins::default()).await.map(drop)
        };
        let credential = "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\
                          \"status\":{\"token\":\"a\"}}'";
        assert_eq!(reached(credential).await, Ok(()));
        let why = reached("echo $TOKEN; echo no luck >&2; exit 3").await.unwrap_err();
        assert!(why.contains("`sh` failed") && why.contains("no luck") && !why.contains("hunter2"), "{why}");
        let why = reached("echo $TOKEN").await.unwrap_err();
        assert!(why.contains("not an ExecCredential") && !why.contains("hunter2"), "{why}");
    }

    // P31
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_hangs_is_not_run_again_and_holds_up_no_other() {
        let exec = "exec: {command: sleep, args: ['3'], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}";
        let plugins = RunningPlugins::default();
        let reached = async |cluster: &str| {
            let kubeconfig = Kubeconfig::from_yaml(&kubeconfig("", exec)).unwrap();
            connected(kubeconfig, &cluster.into(), &plugins).await.map(drop).unwrap_err()
        };
        for (cluster, why) in [("a", "takes more than"), ("a", "still runs"), ("b", "takes more than")] {
            let said = reached(cluster).await;
            assert!(said.contains(why) && said.contains("`sleep`"), "{said}");
        }
    }
}
