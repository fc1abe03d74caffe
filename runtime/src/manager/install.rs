//! Installs the CRD of a custom resource, before the manager starts.

use std::time::Duration;

use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::Status,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    backoff::{Backoff, BackoffSchedule},
    clock::readable,
    error::Error,
    plain::said,
    reflector::{Reminder, rounded, unreachable},
};

/// How long a server that answers may take until it serves the CRD.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Probes are not answered for this long.
pub(super) const UNPROBED: Duration = Duration::from_secs(1);
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The first and the longest wait after a failure; jitter adds up to as much again.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(2_400)];

/// Installs one CRD.
pub(super) struct Installer {
    client: Client,
    definition: CustomResourceDefinition,
    /// The version that the program uses.
    version: String,
    name: String,
    backoff: Backoff,
    failing: Option<ServerFailure>,
    is_dry_run: bool,
}

/// Since when the server fails, and when that is logged again.
struct ServerFailure {
    since: Instant,
    reminder: Option<Reminder>,
}

/// The state of a CRD.
enum CrdState {
    Done,
    NotYet,
    Refused(String),
}

/// A request under way.
type RequestFuture<T> = BoxFuture<'static, Result<T, kube::Error>>;

impl Installer {
    pub(super) fn new(
        client: Client,
        definition: CustomResourceDefinition,
        version: String,
        seed: u64,
        is_dry_run: bool,
    ) -> Self {
        let [first, longest] = WAITS;
        let backoff = Backoff::new(BackoffSchedule::doubling(first, longest), seed);
        Self { name: definition.name_any(), client, definition, version, backoff, failing: None, is_dry_run }
    }

    pub(super) async fn install(mut self) -> Result<(), Error> {
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
        self.retry(applied).await?;
        if self.is_dry_run {
            return Ok(());
        }
        self.wait_until_ready(&established(api, name)).await?;
        let spec = definition.spec;
        let discovery = format!("/apis/{}/{}", spec.group, self.version);
        let found = discovered(self.client.clone(), discovery.clone(), spec.names.plural.clone());
        self.wait_until_ready(&found).await?;
        // The conversion webhook may be this program, which answers only once it runs.
        if spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook") {
            return Ok(());
        }
        let path = format!("{discovery}/{}", spec.names.plural);
        self.wait_until_ready(&listed(self.client.clone(), path)).await
    }

    /// Asks until the CRD is ready; the time of an outage does not count.
    async fn wait_until_ready(
        &mut self,
        look: &(impl Fn() -> RequestFuture<CrdState> + Sync),
    ) -> Result<(), Error> {
        let mut looked = Duration::ZERO;
        while looked < PATIENCE {
            match self.retry(look).await? {
                CrdState::Done => return Ok(()),
                CrdState::Refused(why) => return Err(self.refused(why)),
                CrdState::NotYet => sleep(LOOK_EVERY).await,
            }
            looked += LOOK_EVERY;
        }
        Err(self.refused(format!("the server has not established and served it within {PATIENCE:?}")))
    }

    /// Sends a request until it is answered, or refused for good.
    async fn retry<T>(&mut self, ask: impl Fn() -> RequestFuture<T>) -> Result<T, Error> {
        loop {
            let (code, why) = match timeout(DEADLINE, ask()).await {
                Ok(Ok(answer)) => {
                    self.succeeded();
                    return Ok(answer);
                }
                Ok(Err(kube::Error::Api(status))) if !passes(status.code) => {
                    let (name, why) = (self.name.clone(), explained(&status));
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
            self.log_failure(code, &why, wait);
            sleep(wait).await;
        }
    }

    /// Logs from time to time that the server fails, but not that it is overloaded for a moment.
    fn log_failure(&mut self, code: u16, why: &str, wait: Duration) {
        let now = Instant::now();
        let failing = self.failing.get_or_insert(ServerFailure { since: now, reminder: None });
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
            "{still}the CRD {name} can't be installed yet: {why}; trying again in {wait:?}"
        );
    }

    fn succeeded(&mut self) {
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

/// Asks whether the server has accepted the CRD.
fn established(
    api: Api<CustomResourceDefinition>,
    name: String,
) -> impl Fn() -> RequestFuture<CrdState> + Sync {
    move || {
        let (api, name) = (api.clone(), name.clone());
        Box::pin(async move {
            let found = api.get(&name).await?;
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            let says =
                |kind: &str, status: &str| conditions.iter().find(|c| c.type_ == kind && c.status == status);
            Ok(match says("NamesAccepted", "False") {
                _ if says("Established", "True").is_some() => CrdState::Done,
                Some(refused) => {
                    CrdState::Refused(said(refused.message.as_deref().unwrap_or_default()).to_string())
                }
                None => CrdState::NotYet,
            })
        })
    }
}

/// Asks whether discovery shows the resource.
fn discovered(client: Client, path: String, plural: String) -> impl Fn() -> RequestFuture<CrdState> + Sync {
    move || {
        let request = http::Request::get(&path).body(Vec::new()).expect("names make a path");
        let (client, plural) = (client.clone(), plural.clone());
        Box::pin(async move {
            match client.request::<APIResourceList>(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(CrdState::NotYet),
                // Permission to install does not imply permission to look.
                Err(kube::Error::Api(status)) if !passes(status.code) => Ok(CrdState::Done),
                answer => answer.map(|list| match list.resources.iter().any(|one| one.name == plural) {
                    true => CrdState::Done,
                    false => CrdState::NotYet,
                }),
            }
        })
    }
}

/// Asks whether the objects at a path can be watched.
///
/// A server reports a CRD as established a moment before it serves it (404), and then refuses watches while its
/// cache fills (429). Only a list that the cache answers shows when it is ready: at any version, and with a selector.
fn listed(client: Client, path: String) -> impl Fn() -> RequestFuture<CrdState> + Sync {
    let path = format!("{path}?resourceVersion=0&fieldSelector=metadata.name%3Dnone");
    move || {
        let request = http::Request::get(&path).body(Vec::new()).expect("names make a path");
        let client = client.clone();
        Box::pin(async move {
            match client.request_text(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(CrdState::NotYet),
                // Permission to install does not imply permission to list.
                Err(kube::Error::Api(status)) if !passes(status.code) => Ok(CrdState::Done),
                answer => answer.map(|_| CrdState::Done),
            }
        })
    }
}

/// Returns whether the same request may succeed later.
fn passes(code: u16) -> bool {
    matches!(code, 404 | 408 | 409 | 425 | 429) || code >= 500
}

/// Explains a refusal, and what to do.
fn explained(status: &Status) -> String {
    let said = said(&status.message);
    match StatusCode::from_u16(status.code) {
        Ok(StatusCode::FORBIDDEN) => format!(
            "a permission is missing: allow this user to `get`, `create` and `patch` \
             customresourcedefinitions.apiextensions.k8s.io ({said})"
        ),
        Ok(StatusCode::UNAUTHORIZED) => {
            format!("the server does not accept the credentials: renew the token or certificate ({said})")
        }
        _ => format!("the server refuses it ({}): {said}", status.code),
    }
}
