//! What must hold of every run of a reconciler, kept beside it while it is tried.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::Kit;
use watchkeeper_tests::Website;

thread_local! {
    /// A trial has a thread of its own while it goes on.
    static SEEN: RefCell<Oracle> = RefCell::default();
}

/// What the runs of one trial have shown.
#[derive(Debug, Default)]
struct Oracle {
    /// Rises with each life of the operator.
    life: u32,
    running: BTreeSet<ObjectKey>,
    /// What the last run of a key was shown.
    last: BTreeMap<ObjectKey, Value>,
    broken: Vec<String>,
}

/// Begins a life of the operator: what ran in an earlier one runs no more.
pub(crate) fn begin() {
    SEEN.with_borrow_mut(|oracle| {
        let life = oracle.life + 1;
        let broken = std::mem::take(&mut oracle.broken);
        *oracle = Oracle { life, broken, ..Oracle::default() };
    });
}

/// A reconciler of websites that is looked at.
pub(crate) struct Watched<R> {
    inner: R,
    workers: usize,
    life: u32,
}

impl<R> Watched<R> {
    /// Looks at a reconciler of so many workers.
    pub(crate) fn new(inner: R, workers: usize) -> Self {
        Self { inner, workers, life: SEEN.with_borrow(|oracle| oracle.life) }
    }

    fn start(&self, site: &Website, key: &ObjectKey) -> Running {
        SEEN.with_borrow_mut(|oracle| {
            if oracle.life == self.life {
                if !oracle.running.insert(key.clone()) {
                    oracle.broken.push(format!("{key} runs twice at once"));
                }
                if oracle.running.len() > self.workers {
                    oracle.broken.push(format!("{} runs at once", oracle.running.len()));
                }
                oracle.last.insert(key.clone(), looked_at(site));
            }
        });
        Running { key: key.clone(), life: self.life }
    }
}

/// A run under way.
struct Running {
    key: ObjectKey,
    life: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        SEEN.with_borrow_mut(|oracle| {
            if oracle.life == self.life {
                oracle.running.remove(&self.key);
            }
        });
    }
}

impl<R: Reconciler<Website>> Reconciler<Website> for Watched<R> {
    type Error = R::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let _running = self.start(&site, cx.key());
        self.inner.reconcile(site, cx).await
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        let _running = self.start(&site, cx.key());
        self.inner.cleanup(site, cx).await
    }
}

/// What somebody else may change of a site: all but its status, and what the server and the runtime keep.
fn looked_at(site: &Website) -> Value {
    let meta = &site.metadata;
    serde_json::json!({ "uid": meta.uid, "labels": meta.labels, "annotations": meta.annotations,
        "owners": meta.owner_references, "spec": site.spec })
}

/// Claims that no key ran twice at once, no more ran than may, and each site was looked at as it is.
pub(crate) async fn holds(kit: Kit) {
    let sites = kit.list::<Website>("shop").await;
    let (broken, last) =
        SEEN.with_borrow_mut(|oracle| (std::mem::take(&mut oracle.broken), std::mem::take(&mut oracle.last)));
    assert_eq!(broken, [""; 0]);
    for site in sites {
        let key = ObjectKey::new("shop", site.name_any());
        assert_eq!(last.get(&key), Some(&looked_at(&site)), "a change of {key} was never looked at");
    }
}
