//! What all runs of a trial share: the operator, its user, and what is claimed of the end.

use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::Value;

use super::visit::Visit;
use crate::kit::Kit;
use crate::server::{ApiServer, Builder, ForMemory};

pub(super) type Operator = Arc<dyn Fn(kube::Client) -> LocalBoxFuture<'static, String> + Send + Sync>;
pub(super) type Visitor = Arc<dyn Fn(Visit) -> LocalBoxFuture<'static, ()> + Send + Sync>;
pub(super) type Claim = Arc<dyn Fn(Kit) -> LocalBoxFuture<'static, ()> + Send + Sync>;

/// What all runs share.
pub(super) struct Plan {
    pub(super) operator: Operator,
    pub(super) visitor: Visitor,
    pub(super) claims: Vec<Claim>,
    pub(super) patience: Duration,
    pub(super) crds: Vec<Value>,
    pub(super) namespaces: Vec<String>,
}

impl Plan {
    pub(super) fn server(&self) -> Builder<ForMemory> {
        let builder = ApiServer::in_memory();
        let builder = self.namespaces.iter().fold(builder, |builder, name| builder.namespace(name));
        self.crds.iter().fold(builder, |builder, crd| builder.crd_object(crd.clone()))
    }
}
