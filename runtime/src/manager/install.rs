//! Installing the definition of a custom resource: what an operator does before it starts.

use std::{future::Future, time::Duration};

use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{Patch, PatchParams},
    core::Status,
};
use tokio::time::{Instant, sleep, timeout};

use super::Manager;
use crate::{
    backoff::{Backoff, BackoffSchedule, random_seed},
    clock::readable,
    controller::Writes,
    error::Error,
    plain::said,
    reflector::{Reminder, rounded, unreachable},
};

/// How long a definition may take until it is served, by a server that answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long it may take without an answer to probes.
const UNPROBED: Duration = Duration::from_secs(1);
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a server that is out of reach is left alone at first, and at most; jitter up to doubles it.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(2_400)];

impl Manager {
    /// Installs, or updates, the definition of a custom resource, and waits until the type's version is served.
    ///
    /// This is a forced server-side apply as field manager `watchkeeper`: it takes over the fields that the definition sets,
    /// and leaves other fields to their owners.
    ///
    /// Only the version of the type is waited for, not the others of the definition. Where a webhook converts objects, no
    /// object is asked for: that webhook may be part of this program, and answer only once the manager runs.
    ///
    /// A server that is not there yet, or answers that it can't now, is asked again until it does, however long that
    /// takes; the log says so when that begins, after 30 s, and then ever more seldom. After a second the probes are
    /// served meanwhile, where HTTP is to be served as far as was said before this call: `/healthz` passes, `/readyz`
    /// does not.
    ///
    /// # Errors
    /// [`Error::Definition`] where the server refuses it for good (it names the right that is missing), or answers but
    /// does not serve it within 30 s; [`Error::Client`] where no request can be made.
    pub fn install_crd<K: CustomResourceExt>(
        &self,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<K> {
        // Not the manager but its client goes along: the future may be sent to another thread.
        let seed = self.seed.unwrap_or_else(random_seed);
        let writes = if self.dry_run.is_on() { Writes::Tried } else { Writes::Sent };
        let version = K::api_resource().version;
        let install = Installer::new(self.direct.clone(), K::crd(), version, seed, writes).install();
        let (serve, cluster) = (self.serve.clone(), self.cluster.clone());
        let (inspector, metrics, client) = (self.inspector(), self.metrics(), self.direct.clone());
        // Boxed: the futures of programs that await it stay small.
        Box::pin(async move {
            tokio::pin!(install);
            if let Ok(installed) = timeout(UNPROBED, &mut install).await {
                return installed;
            }
            // A port that can't be had ends the start later.
            let port = serve.bind(&cluster).unwrap_or_else(|error| {
                tracing::warn!(%error, "probes are not answered while CRDs are installed");
                Default::default()
            });
            let mut served = serve.start(port, &inspector, &metrics, &client);
            let installed = install.await;
            served.stop().await;
            installed
        })
    }
}

/// A definition on its way to a server.
struct Installer {
    client: Client,
    definition: CustomResourceDefinition,
    /// The version that the program uses.
    version: String,
    name: String,
    backoff: Backoff,
    failing: Option<Failing>,
    writes: Writes,
}

/// Since when the server fails, and when the log says so again, once it has.
struct Failing {
    since: Instant,
    reminder: Option<Reminder>,
}

/// What a look at a definition showed.
enum Look {
    Done,
    NotYet,
    Refused(String),
}

/// A request under way.
type RequestFuture<T> = BoxFuture<'static, Result<T, kube::Error>>;

impl Installer {
    fn new(
        client: Client,
        definition: CustomResourceDefinition,
        version: String,
        seed: u64,
        writes: Writes,
    ) -> Self {
        let [first, longest] = WAITS;
        let backoff = Backoff::new(BackoffSchedule::doubling(first, longest), seed);
        Self { name: definition.name_any(), client, definition, version, backoff, failing: None, writes }
    }

    async fn install(mut self) -> Result<(), Error> {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let (name, definition) = (self.name.clone(), self.definition.clone());
        let applied = {
            let (api, name, definition) = (api.clone(), name.clone(), definition.clone());
            move || -> RequestFuture<CustomResourceDefinition> {
                let (api, name, patch) = (api.clone(), name.clone(), Patch::Apply(definition.clone()));
                let who = PatchParams::apply("watchkeeper").force();
                Box::pin(async move { api.patch(&name, &who, &patch).await })
            }
        };
        self.insist(applied).await?;
        if self.writes == Writes::Tried {
            return Ok(());
        }
        self.look_until_done(&established(api, name)).await?;
        let spec = definition.spec;
        let discovery = format!("/apis/{}/{}", spec.group, self.version);
        let found = discovered(self.client.clone(), discovery.clone(), spec.names.plural.clone());
        self.look_until_done(&found).await?;
        // The conversion webhook may be this program, which answers only once it runs.
        if spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook") {
            return Ok(());
        }
        let path = format!("{discovery}/{}", spec.names.plural);
        self.look_until_done(&listed(self.client.clone(), path)).await
    }

    /// Looks again and again; an outage in between costs none of the patience.
    async fn look_until_done(
        &mut self,
        look: &(impl Fn() -> RequestFuture<Look> + Sync),
    ) -> Result<(), Error> {
        let mut looked = Duration::ZERO;
        while looked < PATIENCE {
            match self.insist(look).await? {
                Look::Done => return Ok(()),
                Look::Refused(why) => return Err(self.refused(why)),
                Look::NotYet => sleep(LOOK_EVERY).await,
            }
            looked += LOOK_EVERY;
        }
        Err(self.refused(format!("the server has not established and served it within {PATIENCE:?}")))
    }

    /// Asks until there is an answer, or a refusal that time does not heal.
    async fn insist<T>(&mut self, ask: impl Fn() -> RequestFuture<T>) -> Result<T, Error> {
        loop {
            let (code, why) = match timeout(DEADLINE, ask()).await {
                Ok(Ok(answer)) => {
                    self.is_through();
                    return Ok(answer);
                }
                Ok(Err(kube::Error::Api(status))) if !passes(status.code) => {
                    let (name, why) = (self.name.clone(), spelled(&status));
                    return Err(Error::Definition { name, why, status: Some(status) });
                }
                Ok(Err(error @ (kube::Error::Auth(_) | kube::Error::BuildRequest(_)))) => {
                    return Err(error.into());
                }
                Ok(Err(kube::Error::Api(status))) => {
                    (status.code, format!("the server answers {}: {}", status.code, said(&status.message)))
                }
                Ok(Err(error)) => (0, unreachable(&error)),
                Err(_) => (0, format!("the server gave no answer within {DEADLINE:?}")),
            };
            let wait = self.backoff.next_delay();
            self.tell(code, &why, wait);
            sleep(wait).await;
        }
    }

    /// Says now and then that the server fails; not that it is overloaded for a moment.
    fn tell(&mut self, code: u16, why: &str, wait: Duration) {
        let now = Instant::now();
        let failing = self.failing.get_or_insert(Failing { since: now, reminder: None });
        let lasting = now - failing.since;
        let still = match &mut failing.reminder {
            Some(reminder) => match reminder.is_due(now) {
                true => format!("still after {}: ", readable(lasting)),
                false => return,
            },
            None if code != 429 || lasting >= Duration::from_secs(1) => {
                failing.reminder = Some(Reminder::begin(now));
                String::new()
            }
            None => return,
        };
        let (name, wait) = (&self.name, rounded(wait));
        tracing::warn!(
            crd = %name,
            "{still}the definition {name} can't be installed yet: {why}; trying again in {wait:?}"
        );
    }

    fn is_through(&mut self) {
        self.backoff.reset();
        if let Some(failing) = self.failing.take().filter(|failing| failing.reminder.is_some()) {
            let (name, lasted) = (&self.name, readable(failing.since.elapsed()));
            tracing::info!(crd = %name, "the server answers again after {lasted}: installing {name}");
        }
    }

    fn refused(&self, why: String) -> Error {
        Error::Definition { name: self.name.clone(), why, status: None }
    }
}

/// Looks whether the server has accepted the definition.
fn established(api: Api<CustomResourceDefinition>, name: String) -> impl Fn() -> RequestFuture<Look> + Sync {
    move || {
        let (api, name) = (api.clone(), name.clone());
        Box::pin(async move {
            let found = api.get(&name).await?;
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            let says =
                |kind: &str, status: &str| conditions.iter().find(|c| c.type_ == kind && c.status == status);
            Ok(match says("NamesAccepted", "False") {
                _ if says("Established", "True").is_some() => Look::Done,
                Some(refused) => {
                    Look::Refused(said(refused.message.as_deref().unwrap_or_default()).to_string())
                }
                None => Look::NotYet,
            })
        })
    }
}

/// Looks whether the server shows the resource among those of its version.
fn discovered(client: Client, path: String, plural: String) -> impl Fn() -> RequestFuture<Look> + Sync {
    move || {
        let request = http::Request::get(&path).body(Vec::new()).expect("names make a path");
        let (client, plural) = (client.clone(), plural.clone());
        Box::pin(async move {
            match client.request::<APIResourceList>(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Look::NotYet),
                // Permission to install does not imply permission to look.
                Err(kube::Error::Api(status)) if !passes(status.code) => Ok(Look::Done),
                answer => answer.map(|list| match list.resources.iter().any(|one| one.name == plural) {
                    true => Look::Done,
                    false => Look::NotYet,
                }),
            }
        })
    }
}

/// Looks whether the objects at a path can be watched.
///
/// A server says that a definition is established a moment before it serves it (404), and then refuses to watch
/// while its cache fills (429). Only a list that its cache answers tells: at any version, and with a selector.
fn listed(client: Client, path: String) -> impl Fn() -> RequestFuture<Look> + Sync {
    let path = format!("{path}?resourceVersion=0&fieldSelector=metadata.name%3Dnone");
    move || {
        let request = http::Request::get(&path).body(Vec::new()).expect("names make a path");
        let client = client.clone();
        Box::pin(async move {
            match client.request_text(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Look::NotYet),
                // Whoever may not list may still install.
                Err(kube::Error::Api(status)) if !passes(status.code) => Ok(Look::Done),
                answer => answer.map(|_| Look::Done),
            }
        })
    }
}

/// Returns whether a refusal may be another answer in a while.
fn passes(code: u16) -> bool {
    matches!(code, 404 | 408 | 409 | 425 | 429) || code >= 500
}

/// Spells a refusal, and what would mend it.
fn spelled(status: &Status) -> String {
    let said = said(&status.message);
    match StatusCode::from_u16(status.code) {
        Ok(StatusCode::FORBIDDEN) => format!(
            "a right is missing: allow this user to `get`, `create` and `patch` \
             customresourcedefinitions.apiextensions.k8s.io ({said})"
        ),
        Ok(StatusCode::UNAUTHORIZED) => {
            format!("the server does not accept the credentials: renew the token or certificate ({said})")
        }
        _ => format!("the server refuses it ({}): {said}", status.code),
    }
}
