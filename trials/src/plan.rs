//! What all runs of a trial share: the operator, its user, and what is claimed of the end.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::runtime::Runtime;
use watchkeeper_apiserver::inside::{self, Prepared, object};
use watchkeeper_apiserver::{ApiServer, Builder, ForMemory, Kit};

use crate::changes::Changes;
use crate::external::External;
use crate::harness::Harness;
use crate::life::{Life, Version};
use crate::recording::Recording;
use crate::visit::Visit;
use crate::webhooks::Webhooks;
use crate::world::{Hidden, RandomField};

pub(crate) type Operator =
    Arc<dyn Fn(kube::Client, Surroundings) -> LocalBoxFuture<'static, String> + Send + Sync>;
pub(crate) type Visitor = Arc<dyn Fn(Visit) -> LocalBoxFuture<'static, ()> + Send + Sync>;
pub(crate) type Claim = Arc<dyn Fn(Kit) -> LocalBoxFuture<'static, ()> + Send + Sync>;

/// What one life of an operator finds, but for the API server.
pub(crate) struct Surroundings {
    pub(crate) harness: Harness,
    pub(crate) life: Life,
}

impl Surroundings {
    pub(crate) fn webhooks(&self) -> Webhooks {
        Webhooks::new(&self.harness, self.life)
    }

    pub(crate) fn external(&self) -> External {
        External::new(&self.harness, self.life)
    }
}

pub(crate) type ChangeClaim = Arc<dyn Fn(&Changes) + Send + Sync>;

/// What all runs share.
pub(crate) struct Plan {
    /// The operator; in an upgrade the old version.
    pub(crate) operator: Operator,
    /// The new version, in an upgrade.
    pub(crate) successor: Option<Operator>,
    pub(crate) visitor: Visitor,
    pub(crate) claims: Vec<Claim>,
    pub(crate) change_claims: Vec<ChangeClaim>,
    pub(crate) patience: Duration,
    pub(crate) hidden: Hidden,
    /// What an upgrade may change of what is there.
    pub(crate) may_change: Vec<RandomField>,
    /// The plurals of kinds whose objects the operator may delete, also those that others made.
    pub(crate) may_delete: BTreeSet<String>,
    /// The operator may end by itself.
    pub(crate) may_end: bool,
    pub(crate) crds: Vec<Value>,
    /// The definitions that come with the new version.
    pub(crate) upgraded: Arc<Vec<Value>>,
    pub(crate) namespaces: Vec<String>,
    /// What is there before the operator starts.
    pub(crate) initial: Option<Arc<Recording>>,
    /// Made by the first run: with the definitions of the first version, and with those of the new one.
    pub(crate) prepared: [OnceLock<Prepared>; 2],
}

impl Plan {
    /// Gives the server that each trial starts with a copy of.
    ///
    /// # Panics
    /// When the server refuses a definition, saying why; within a runtime.
    pub(crate) fn prepared(&self, begins: Version) -> &Prepared {
        let prepared = &self.prepared[usize::from(begins == Version::New)];
        prepared.get_or_init(|| paused_runtime().block_on(inside::prepare(self.server(begins))))
    }

    fn server(&self, begins: Version) -> Builder<ForMemory> {
        let builder = ApiServer::in_memory();
        // What was recorded may be of a server like this one: what is made now gets other UIDs.
        let builder = if self.initial.is_some() { builder.seed(SEED_OF_REPLAYS) } else { builder };
        let builder = self.namespaces.iter().fold(builder, |builder, name| builder.namespace(name));
        let new: &[Value] = if begins == Version::New { &self.upgraded } else { &[] };
        let is_replaced = |crd: &&Value| new.iter().any(|new| object::name(new) == object::name(crd));
        let old = self.crds.iter().filter(|crd| !is_replaced(crd));
        old.chain(new).fold(builder, |builder, crd| builder.crd_object(crd.clone()))
    }

    /// Returns the version with which a trial begins.
    pub(crate) fn begins(&self) -> Version {
        if self.successor.is_some() { Version::Old } else { Version::Only }
    }

    /// Lists the versions, with their operators.
    pub(crate) fn operators(&self) -> Vec<(Version, Operator)> {
        let first = (self.begins(), self.operator.clone());
        let second = self.successor.clone().map(|operator| (Version::New, operator));
        std::iter::once(first).chain(second).collect()
    }
}

/// The seed of UIDs and names where a recording is played.
const SEED_OF_REPLAYS: u64 = 0x7265_706c_6179;

/// Makes a runtime of one thread whose time passes when nothing else is to be done.
pub(crate) fn paused_runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime of one thread needs no more than a file descriptor")
}
