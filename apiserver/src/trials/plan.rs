//! What all runs of a trial share: the operator, its user, and what is claimed of the end.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::changes::Changes;
use super::visit::Visit;
use super::world::RandomField;
use crate::kit::Kit;
use crate::server::{ApiServer, Builder, ForMemory, Prepared};

pub(super) type Operator = Arc<dyn Fn(kube::Client) -> LocalBoxFuture<'static, String> + Send + Sync>;
pub(super) type Visitor = Arc<dyn Fn(Visit) -> LocalBoxFuture<'static, ()> + Send + Sync>;
pub(super) type Claim = Arc<dyn Fn(Kit) -> LocalBoxFuture<'static, ()> + Send + Sync>;

pub(super) type ChangeClaim = Arc<dyn Fn(&Changes) + Send + Sync>;

/// What all runs share.
pub(super) struct Plan {
    pub(super) operator: Operator,
    pub(super) visitor: Visitor,
    pub(super) claims: Vec<Claim>,
    pub(super) change_claims: Vec<ChangeClaim>,
    pub(super) patience: Duration,
    pub(super) random: Vec<RandomField>,
    /// The plurals of kinds whose objects the operator may delete, also those that others made.
    pub(super) may_delete: BTreeSet<String>,
    /// The operator may end by itself.
    pub(super) may_end: bool,
    pub(super) crds: Vec<Value>,
    pub(super) namespaces: Vec<String>,
    /// Made by the first run.
    pub(super) prepared: OnceLock<Prepared>,
}

impl Plan {
    /// Gives the server that each trial starts with a copy of.
    ///
    /// # Panics
    /// When the server refuses a definition, saying why; within a runtime.
    pub(super) fn prepared(&self) -> &Prepared {
        self.prepared.get_or_init(|| paused_runtime().block_on(self.server().prepare()))
    }

    fn server(&self) -> Builder<ForMemory> {
        let builder = ApiServer::in_memory();
        let builder = self.namespaces.iter().fold(builder, |builder, name| builder.namespace(name));
        self.crds.iter().fold(builder, |builder, crd| builder.crd_object(crd.clone()))
    }
}

/// Makes a runtime of one thread whose time passes when nothing else is to be done.
pub(super) fn paused_runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime of one thread needs no more than a file descriptor")
}
