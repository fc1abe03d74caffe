//! Installs the CRD of a custom resource, before the manager starts.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::{
    ByteString, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::Status,
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::lineage::{LINEAGE, Succession, fingerprint, succession};
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
    /// The authority of the webhook that converts the objects, unless the CRD names it. CRDs are compared without it.
    bundle: Option<ByteString>,
    /// The CRD has all versions of the program: one that it leaves out was dropped.
    is_whole: bool,
    /// The version that the program uses.
    version: String,
    name: String,
    backoff: Backoff,
    /// Since when the server fails, and when that is logged again.
    failing: Option<(Instant, Option<Reminder>)>,
    dry_run: bool,
}

/// What is asked of the server.
#[derive(Clone, Copy, Debug)]
enum InstallStep {
    Apply,
    /// Whether the server has accepted the CRD.
    Established,
    /// Whether discovery shows the resource.
    Discovered,
    /// Whether the objects can be listed and watched.
    ///
    /// A server reports a CRD as established a moment before it serves it (404), and then refuses watches while its
    /// cache fills (429). Only a list that the cache answers shows when it is ready: at any version, and with a
    /// selector.
    Listed,
}

/// Whether a step is done; an error says why it never will be.
type StepState = Result<bool, String>;

impl Installer {
    pub(super) fn new(
        client: Client,
        definition: CustomResourceDefinition,
        version: String,
        seed: u64,
        dry_run: bool,
    ) -> Self {
        let [first, longest] = WAITS;
        let backoff = Backoff::new(BackoffSchedule::doubling(first, longest), seed);
        let (name, bundle) = (definition.name_any(), None);
        Self { name, client, definition, bundle, is_whole: false, version, backoff, failing: None, dry_run }
    }

    /// Has the server trust an authority when it calls the conversion webhook, from the first moment.
    #[cfg(feature = "webhooks")]
    pub(super) fn trusting(self, bundle: Option<ByteString>) -> Self {
        Self { bundle, ..self }
    }

    /// Says that the CRD has all versions of the program.
    #[cfg(feature = "webhooks")]
    pub(super) fn of_whole_kind(self) -> Self {
        Self { is_whole: true, ..self }
    }

    pub(super) async fn install(mut self) -> Result<(), Error> {
        self.finish(InstallStep::Apply).await?;
        if self.dry_run {
            return Ok(());
        }
        self.finish(InstallStep::Established).await?;
        self.finish(InstallStep::Discovered).await?;
        // The conversion webhook may be this program, which answers only once it runs.
        let conversion = self.definition.spec.conversion.as_ref();
        match conversion.is_some_and(|conversion| conversion.strategy == "Webhook") {
            true => Ok(()),
            false => self.finish(InstallStep::Listed).await,
        }
    }

    /// Asks until a step is done; the time of an outage does not count.
    async fn finish(&mut self, step: InstallStep) -> Result<(), Error> {
        let mut looked = Duration::ZERO;
        while looked < PATIENCE {
            if self.retry(step).await?.map_err(|why| self.refused(why, None))? {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
            looked += LOOK_EVERY;
        }
        Err(self.refused(format!("the server has not established and served it within {PATIENCE:?}"), None))
    }

    /// Sends a request until it is answered, or refused for good.
    async fn retry(&mut self, step: InstallStep) -> Result<StepState, Error> {
        loop {
            let (code, why) = match timeout(DEADLINE, self.ask(step)).await {
                Ok(Ok(answer)) => {
                    self.succeeded();
                    return Ok(answer);
                }
                Ok(Err(kube::Error::Api(status))) if !passes(status.code) => {
                    return Err(self.refused(explained(&status), Some(status)));
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

    async fn ask(&self, step: InstallStep) -> kube::Result<StepState> {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let spec = &self.definition.spec;
        let path = format!("/apis/{}/{}", spec.group, self.version);
        let get = |path: &str| http::Request::get(path).body(Vec::new()).expect("names make a path");
        let found = match step {
            InstallStep::Apply => return self.apply(&api).await,
            InstallStep::Established => return api.get(&self.name).await.map(established),
            InstallStep::Discovered => self
                .client
                .request::<APIResourceList>(get(&path))
                .await
                .map(|list| list.resources.iter().any(|one| one.name == spec.names.plural)),
            InstallStep::Listed => {
                let query = "resourceVersion=0&fieldSelector=metadata.name%3Dnone";
                let path = format!("{path}/{}?{query}", spec.names.plural);
                self.client.request_text(get(&path)).await.map(|_| true)
            }
        };
        match found {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Ok(false)),
            // Permission to install does not imply permission to look or to list.
            Err(kube::Error::Api(status)) if !passes(status.code) => Ok(Ok(true)),
            found => found.map(Ok),
        }
    }

    /// Applies the CRD, unless the one in the cluster has replaced it.
    async fn apply(&self, api: &Api<CustomResourceDefinition>) -> Result<StepState, kube::Error> {
        let found = match api.get_opt(&self.name).await {
            // Permission to install does not imply permission to look.
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            found => found?,
        };
        let mut definition = self.definition.clone();
        let lineage = match found.as_ref().map(|found| succession(&definition, found, self.is_whole)) {
            None => fingerprint(&definition),
            Some(Succession::Apply(lineage)) => lineage,
            Some(Succession::Refuse(why)) => return Ok(Err(why)),
            Some(Succession::Replaced) => {
                let name = &self.name;
                tracing::warn!(
                    crd = %name,
                    "a later CRD {name} has replaced this program's: it stays (to install this one again, remove its \
                     annotation {LINEAGE})"
                );
                return Ok(Ok(true));
            }
        };
        definition.annotations_mut().insert(LINEAGE.to_owned(), lineage);
        let webhook = definition.spec.conversion.as_mut().and_then(|conversion| conversion.webhook.as_mut());
        if let Some(bundle) = &self.bundle
            && let Some(client) = webhook.and_then(|webhook| webhook.client_config.as_mut())
        {
            client.ca_bundle = Some(bundle.clone());
        }
        // If somebody else changes it meanwhile, it is compared again.
        definition.metadata.resource_version = match found {
            Some(found) if self.ends_conversion_of(&found) => {
                let own = |name: &str| definition.spec.versions.iter().any(|version| version.name == name);
                let versions = found.spec.versions.iter().map(|version| &*version.name);
                let dropped: Vec<_> = versions.filter(|name| !own(name)).collect();
                tracing::warn!(crd = %self.name, ?dropped, "drops versions that this program does not have any more");
                let ended = self.end_conversion(api, found).await?;
                if self.dry_run {
                    return Ok(Ok(true));
                }
                ended.metadata.resource_version
            }
            found => found.and_then(|found| found.metadata.resource_version),
        };
        let who = PatchParams::apply("watchkeeper").force();
        api.patch(&self.name, &who, &Patch::Apply(&definition)).await?;
        Ok(Ok(true))
    }

    /// Returns whether a webhook converts the kind, which has only one version now.
    fn ends_conversion_of(&self, found: &CustomResourceDefinition) -> bool {
        let conversion = found.spec.conversion.as_ref();
        self.is_whole
            && self.definition.spec.conversion.is_none()
            && conversion.is_some_and(|conversion| conversion.webhook.is_some())
    }

    /// Takes the conversion out of a CRD, together with the versions that it was for.
    ///
    /// An apply would leave what others wrote into it, such as the authority, and the server refuses that without the rest.
    async fn end_conversion(
        &self,
        api: &Api<CustomResourceDefinition>,
        found: CustomResourceDefinition,
    ) -> Result<CustomResourceDefinition, kube::Error> {
        let part = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": {
                "versions": self.definition.spec.versions,
                "conversion": {"strategy": "None", "webhook": null},
            },
        });
        let who = PatchParams { field_manager: Some("watchkeeper".to_owned()), ..PatchParams::default() };
        api.patch(&self.name, &who, &Patch::Merge(part)).await
    }

    /// Logs from time to time that the server fails, but not that it is overloaded for a moment.
    fn log_failure(&mut self, code: u16, why: &str, wait: Duration) {
        let now = Instant::now();
        let (since, reminder) = self.failing.get_or_insert((now, None));
        let lasting = now - *since;
        let still = match reminder {
            Some(reminder) => match reminder.is_due(now) {
                true => format!("still after {}: ", readable(lasting)),
                false => return,
            },
            None if code != 429 || lasting >= Duration::from_secs(1) => {
                *reminder = Some(Reminder::begin(now));
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
        if let Some((since, Some(_))) = self.failing.take() {
            let (name, lasted) = (&self.name, readable(since.elapsed()));
            tracing::info!(crd = %name, "the server answers again after {lasted}: installing {name}");
        }
    }

    fn refused(&self, why: String, status: Option<Box<Status>>) -> Error {
        Error::Definition { name: self.name.clone(), why, status }
    }
}

/// Reads whether the server has accepted a CRD.
fn established(found: CustomResourceDefinition) -> StepState {
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    let says = |kind: &str, status: &str| conditions.iter().find(|c| c.type_ == kind && c.status == status);
    match says("NamesAccepted", "False") {
        _ if says("Established", "True").is_some() => Ok(true),
        Some(refused) => Err(said(refused.message.as_deref().unwrap_or_default()).to_string()),
        None => Ok(false),
    }
}

/// Returns whether the same request may succeed later.
pub(super) fn passes(code: u16) -> bool {
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
