//! From keys in a queue to runs of a reconciler.
//!
//! A [`Controller`] names what feeds it: the reconciled kind, and the kinds it [`owns`](Controller::owns). Every
//! change of these, as the informers apply it, is mapped to keys; a key's own writes wake nobody, strangers'
//! always do. N workers take keys from the queue, whose gate is the controller's rate limit: **over any window of
//! length w, the reconciles started are at most burst + rate × w, whatever caused them**. No two runs of one key
//! overlap. A panic is an error of its run.
//!
//! Not promised: that every intermediate state is seen (runs look at the present), nor any order between keys.

mod action;
mod reconciler;
mod context;
mod feed;
mod enqueue;
mod worker;
mod plan;

pub use action::{Action, Cleanup, Terminal};
pub use context::Context;
pub(crate) use feed::Synced;
pub use plan::ControllerError;
pub(crate) use plan::{Plan, Planned, Stop};
pub use reconciler::Reconciler;
pub use worker::Panics;

use std::{fmt, marker::PhantomData, time::Duration};

use crate::{informer::Watched, workqueue::RateLimit, writes::WaitForOwn};

use feed::Feed;

/// Runs a [`Reconciler`] for every object of a kind, whenever something may have changed.
///
/// Built here, run by a [`Manager`](crate::manager::Manager).
#[must_use = "a controller runs once a manager has it"]
pub struct Controller<K: Watched, R> {
    question: K::Question,
    reconciler: R,
    settings: Settings,
    owned: Vec<Feed>,
    reads: Vec<plan::Read>,
    kind: PhantomData<fn() -> K>,
}

/// The settings of a controller, with their defaults.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) workers: usize,
    pub(crate) finalizer: Option<String>,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) floor: Duration,
    pub(crate) panics: Panics,
    pub(crate) wait_for_own: WaitForOwn,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            namespace: None,
            workers: 1,
            finalizer: None,
            rate_limit: None,
            floor: Duration::from_secs(1),
            panics: Panics::Contain,
            wait_for_own: WaitForOwn::Parked,
        }
    }
}

impl<K: Watched<Question = ()>, R: Reconciler<K>> Controller<K, R> {
    /// Reconciles every object of a kind that its type names.
    pub fn new(reconciler: R) -> Self {
        Self::of((), reconciler)
    }
}

impl<K: Watched, R: Reconciler<K>> Controller<K, R> {
    /// Reconciles every object of what a marker asks for: `Controller::for_kind(Dynamic::new(kind), ..)`.
    pub fn for_kind(marker: K, reconciler: R) -> Self {
        Self::of(marker.question(), reconciler)
    }

    fn of(question: K::Question, reconciler: R) -> Self {
        Self {
            question,
            reconciler,
            settings: Settings::default(),
            owned: Vec::new(),
            reads: Vec::new(),
            kind: PhantomData,
        }
    }

    /// Names the controller; `<plural>.<group>` unless it is named. It is the field manager of its writes.
    ///
    /// Two controllers of one manager can't have the same name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Watches one namespace only, for the reconciled kind and all that feed the controller; an empty one means all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Watches a kind whose objects the reconciled ones control, and wakes the owner of each that changes.
    ///
    /// The owner is the one whose reference says `controller: true`, compared by group, kind and name; when an
    /// object changes owners, both wake. Deletions that were missed while a watch was down are found by the next
    /// list and wake the owner too.
    pub fn owns<C: Watched<Question = ()>>(self) -> Self {
        self.owns_question::<C>(())
    }

    /// Watches owned objects of what a marker asks for, as [`owns`](Self::owns) does.
    pub fn owns_for<C: Watched>(self, marker: C) -> Self {
        self.owns_question::<C>(marker.question())
    }

    fn owns_question<C: Watched>(mut self, question: C::Question) -> Self {
        let asked = feed::Asked::of::<C>(&question);
        if self.owned.iter().any(|feed| feed.asked == asked) {
            return self;
        }
        let open = Box::new(move |factory: &_, namespace: Option<&str>, source| {
            let informer = feed::informer_of::<C>(factory, question, namespace);
            feed::open(informer, namespace, source, move |hub| enqueue::Owned { hub: hub.clone(), source })
        });
        self.owned.push(Feed { asked, open });
        self
    }

    /// Says what the reconciler reads: it starts only after every informer of `W` has synced.
    ///
    /// Where the program asked for no informer of `W`, one is asked for, in the controller's namespace.
    /// Without any `reads`, it waits for everything that the program asked the manager for before the start.
    /// Never does it wait for a kind that only another controller named.
    pub fn reads<W: Watched<Question = ()>>(mut self) -> Self {
        self.reads.push(plan::read::<W>());
        self
    }

    /// Holds every object with this finalizer, and runs `cleanup` before it may go.
    ///
    /// The finalizer is added before an object is first reconciled, and removed once cleanup says done. It must
    /// be a qualified name, such as `example.dev/volume`.
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.settings.finalizer = Some(finalizer.into());
        self
    }

    /// Sets how many reconciles run at once: 1 unless set. Zero is refused at the start.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Bounds the reconciles started, whatever causes them; not bounded unless set.
    ///
    /// Without it, retries of failures share 10 a second, burst 100, and first runs are not slowed.
    pub fn rate_limit(mut self, rate: RateLimit) -> Self {
        self.settings.rate_limit = Some(rate);
        self
    }

    /// Sets how soon a real change brings a failed key forward: 1 s unless set.
    ///
    /// A key that backs off runs, once something changed, after the lesser of its back-off and this.
    pub fn floor(mut self, floor: Duration) -> Self {
        self.settings.floor = floor;
        self
    }

    /// Says what a panic does: [`Panics::Contain`] unless set.
    pub fn panics(mut self, panics: Panics) -> Self {
        self.settings.panics = panics;
        self
    }

    /// Runs keys again before their caches show what they wrote: what tests compare with.
    #[doc(hidden)]
    pub fn never_wait_for_own_writes(mut self) -> Self {
        self.settings.wait_for_own = WaitForOwn::Never;
        self
    }

    pub(crate) fn plan(self) -> Plan {
        plan::plan(self)
    }
}

impl<K: Watched, R> fmt::Debug for Controller<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = K::kind(&self.question);
        f.debug_struct("Controller").field("kind", &kind).field("settings", &self.settings).finish()
    }
}
