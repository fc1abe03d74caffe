//! A reconciler that counts its runs in the status, and can be held before and after that write.

use tokio::sync::{Semaphore, watch};
use watchkeeper::prelude::*;

use crate::{Record, Website, WebsiteStatus};

/// Counts its runs in the status, stopping before and after the write when told to.
#[derive(Debug)]
pub struct Counter {
    /// Its runs.
    pub record: Record,
    before_write: Arc<Gate>,
    after_write: Arc<Gate>,
}

impl Counter {
    /// Makes a counter that passes these gates.
    pub fn new(before_write: Arc<Gate>, after_write: Arc<Gate>) -> Self {
        Self { record: Record::default(), before_write, after_write }
    }
}

impl Reconciler<Website> for Counter {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        self.before_write.pass().await;
        let replicas = site.status.clone().unwrap_or_default().replicas + 1;
        cx.patch_status(&site, WebsiteStatus { replicas, ready_replicas: 0 }).await?;
        self.after_write.pass().await;
        Ok(Action::await_change())
    }
}

/// A place in a reconciler where a test may hold it.
#[derive(Debug)]
pub struct Gate {
    open: Semaphore,
    reached: watch::Sender<usize>,
}

impl Gate {
    /// Makes a gate that holds nobody.
    pub fn open() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(Semaphore::MAX_PERMITS), reached: watch::Sender::new(0) })
    }

    /// Creates a closed gate.
    pub fn shut() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(0), reached: watch::Sender::new(0) })
    }

    /// Lets this many more callers through.
    pub fn let_pass(&self, runs: usize) {
        self.open.add_permits(runs);
    }

    /// Waits until this many callers have arrived.
    pub async fn reached(&self, times: usize) {
        let reached = self.reached.subscribe().wait_for(|reached| *reached >= times).await.map(|_| ());
        reached.expect("the gate outlives the wait");
    }

    async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        self.open.acquire().await.expect("gates are never closed").forget();
    }
}
