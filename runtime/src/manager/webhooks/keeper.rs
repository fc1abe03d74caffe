//! Keeps certificates: reads the Secret and the configurations, does the next step, and serves what is stored.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use k8s_openapi::ByteString;
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    objects::{BundleHolder, RawObjects},
    peers::{Peers, PortState},
};
use crate::{
    clock::WallClock,
    webhook::{Generation, LOOK_SOON, Rotation, Seen, StoredGenerations, issue},
};

/// How long reading and writing may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The key of the Secret's data that holds the generations.
const GENERATIONS: &str = "generations.json";

/// The certificate for new connections; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ServedLeaf(Arc<ArcSwapOption<CertifiedKey>>);

impl ResolvesServerCert for ServedLeaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// Keeps the certificates of one program, together with its other replicas.
pub(super) struct Keeper {
    pub(super) objects: RawObjects,
    /// The path of the Secret.
    pub(super) secret: String,
    pub(super) holders: Vec<BundleHolder>,
    pub(super) names: Vec<String>,
    pub(super) clock: WallClock,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) leaf: ServedLeaf,
    pub(super) rotation: Rotation,
    /// The certificate that is served.
    pub(super) served: Option<Generation>,
    pub(super) state: watch::Sender<PortState>,
    pub(super) peers: Peers,
}

/// Why certificates can't be kept now.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeeperError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("a certificate can't be made: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("no answer within {DEADLINE:?}")]
    Late,
}

impl Keeper {
    /// Looks again and again.
    pub(super) async fn run(mut self) {
        let mut failing = false;
        loop {
            let looked = timeout(DEADLINE, self.look()).await.unwrap_or(Err(KeeperError::Late));
            let wait = match looked {
                Ok(seconds) => {
                    failing = false;
                    seconds
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let waiting = match self.state.borrow().agreed {
                            true => "",
                            false => ", and kinds that are converted are not installed before",
                        };
                        let secret = &self.secret;
                        tracing::warn!(%error, secret, "webhook certificates can't be kept{waiting}; trying again");
                    }
                    LOOK_SOON
                }
            };
            sleep(
                Duration::from_secs(u64::try_from(wait).unwrap_or_default()).max(Duration::from_millis(100)),
            )
            .await;
        }
    }

    /// Does one step; returns after how many seconds the next one is due.
    async fn look(&mut self) -> Result<i64, KeeperError> {
        let mut secret = self.objects.read(&self.secret).await?;
        let stored = secret.as_ref().and_then(|secret| self.usable(secret));
        if let Some((stored, leaf)) = &stored
            && self.served.as_ref() != Some(&stored.current)
        {
            self.leaf.0.store(Some(leaf.clone()));
            self.served = Some(stored.current.clone());
            self.state.send_modify(|state| state.serves = true);
            tracing::info!(names = ?stored.current.names, "webhooks have a new certificate");
        }
        let stored = stored.map(|(stored, _)| stored);
        let bundle = stored.as_ref().map(StoredGenerations::bundle).unwrap_or_default();
        if self.state.borrow().bundle.as_ref() != Some(&bundle) && !bundle.is_empty() {
            self.state.send_modify(|state| state.bundle = Some(bundle.clone()));
        }
        let encoded = json!(ByteString(bundle.clone().into_bytes()));
        // After the bundle is known, which definitions need.
        // Nothing must call this program by a name that no certificate is for yet.
        let is_named = stored.as_ref().is_some_and(|stored| stored.current.is_for(&self.names));
        let agreed = self.look_at_peers(secret.as_mut(), is_named).await?;
        let (mut found, mut published, mut forbidden) = (Vec::new(), Vec::new(), None);
        for holder in &self.holders {
            match self.objects.read(holder.path()).await {
                Ok(Some(object)) => {
                    published.push(holder.has(&object, &encoded).then(|| bundle.clone()));
                    found.push((holder, object));
                }
                Ok(None) => {}
                // What can't be read counts as not published, so that no other authority takes over.
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    published.push(None);
                    forbidden = Some(status);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let now = self.clock.read().unix_micros() / 1_000_000;
        let seen = Seen { stored: stored.as_ref(), served: self.served.as_ref(), published: &published, now };
        let step = self.rotation.step(seen, &self.names, |names| issue(names, now))?;
        if step.publish.is_some() {
            for (holder, object) in found.iter().filter(|(holder, object)| !holder.has(object, &encoded)) {
                holder.publish(&self.objects, object, &encoded).await?;
            }
        }
        if let Some(store) = step.store {
            self.store(secret, &store).await?;
        }
        let look_again = if agreed { step.look_again } else { step.look_again.min(LOOK_SOON) };
        forbidden.map_or(Ok(look_again), |status| Err(kube::Error::Api(status).into()))
    }

    /// Enters this replica into the Secret, and finds out whether all replicas answer the same calls.
    async fn look_at_peers(
        &mut self,
        secret: Option<&mut Value>,
        is_named: bool,
    ) -> Result<bool, KeeperError> {
        let Some(secret) = secret else { return Ok(false) };
        let mut changed = secret.clone();
        let mut agreed = self.peers.look(&mut changed, Instant::now());
        if changed != *secret && self.objects.rewrite(&self.secret, &changed).await? {
            self.peers.written(Instant::now());
            // Others may have entered themselves at the same time: who comes second sees the first.
            let Some(written) = self.objects.read(&self.secret).await? else { return Ok(false) };
            *secret = written;
            agreed = self.peers.look(&mut secret.clone(), Instant::now());
        }
        let agreed = agreed && is_named;
        self.state.send_if_modified(|state| std::mem::replace(&mut state.agreed, agreed) != agreed);
        Ok(agreed)
    }

    /// Reads what is stored; `None` if it can't be served.
    fn usable(&self, secret: &Value) -> Option<(StoredGenerations, Arc<CertifiedKey>)> {
        let data: ByteString = serde_json::from_value(secret["data"][GENERATIONS].clone()).ok()?;
        let stored: StoredGenerations = serde_json::from_slice(&data.0).ok()?;
        let leaf = self.certified(&stored.current)?;
        Some((stored, leaf))
    }

    fn certified(&self, generation: &Generation) -> Option<Arc<CertifiedKey>> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(generation.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(generation.key.as_bytes()).ok()?;
        CertifiedKey::from_der(chain.ok()?, key, &self.provider).ok().map(Arc::new)
    }

    /// Writes the Secret, unless another replica has.
    async fn store(&self, secret: Option<Value>, store: &StoredGenerations) -> Result<(), KeeperError> {
        let name = self.secret.rsplit('/').next().unwrap_or_default();
        let mut secret = secret.unwrap_or_else(
            || json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": name}}),
        );
        let text = serde_json::to_vec(store).map_err(kube::Error::SerdeError)?;
        secret["data"] =
            json!({GENERATIONS: ByteString(text), "ca.crt": ByteString(store.bundle().into_bytes())});
        self.objects.write(&self.secret, &secret).await?;
        Ok(())
    }
}
