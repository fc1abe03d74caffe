//! What all runs of a trial share: the operator, its user, and what is claimed of the end.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::runtime::Runtime;
use watchkeeper_apiserver::inside::{self, Prepared};
use watchkeeper_apiserver::{ApiServer, Builder, ForMemory, Kit};

use crate::changes::Changes;
use crate::visit::Visit;
use crate::webhooks::Webhooks;
use crate::world::RandomField;

pub(crate) type Operator =
    Arc<dyn Fn(kube::Client, Webhooks) -> LocalBoxFuture<'static, String> + Send + Sync>;
pub(crate) type Visitor = Arc<dyn Fn(Visit) -> LocalBoxFuture<'static, ()> + Send + Sync>;
pub(crate) type Claim = Arc<dyn Fn(Kit) -> LocalBoxFuture<'static, ()> + Send + Sync>;

pub(crate) type ChangeClaim = Arc<dyn Fn(&Changes) + Send + Sync>;

/// What all runs share.
pub(crate) struct Plan {
    pub(crate) operator: Operator,
    pub(crate) visitor: Visitor,
    pub(crate) claims: Vec<Claim>,
    pub(crate) change_claims: Vec<ChangeClaim>,
    pub(crate) patience: Duration,
    pub(crate) random: Vec<RandomField>,
    /// The plurals of kinds whose objects the operator may delete, also those that others made.
    pub(crate) may_delete: BTreeSet<String>,
    /// The operator may end by itself.
    pub(crate) may_end: bool,
    pub(crate) crds: Vec<Value>,
    pub(crate) namespaces: Vec<String>,
    /// Made by the first run.
    pub(crate) prepared: OnceLock<Prepared>,
}

impl Plan {
    /// Gives the server that each trial starts with a copy of.
    ///
    /// # Panics
    /// When the server refuses a definition, saying why; within a runtime.
    pub(crate) fn prepared(&self) -> &Prepared {
        self.prepared.get_or_init(|| paused_runtime().block_on(inside::prepare(self.server())))
    }

    fn server(&self) -> Builder<ForMemory> {
        let builder = ApiServer::in_memory();
        let builder = self.namespaces.iter().fold(builder, |builder, name| builder.namespace(name));
        self.crds.iter().fold(builder, |builder, crd| builder.crd_object(crd.clone()))
    }
}

/// Makes a runtime of one thread whose time passes when nothing else is to be done.
pub(crate) fn paused_runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime of one thread needs no more than a file descriptor")
}
