//! One run of an operator: a server, a script, and what goes wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use super::changes;
use super::harness::{Harness, Meddling, Rest, Sent, panic_text};
use super::owed;
use super::place::Case;
use super::plan::{Plan, paused_runtime};
use super::supervise::supervise;
use super::timeline::{Line, Who};

use super::visit::Visit;
use super::world::{Difference, World};
use crate::server::Prepared;

/// How long nothing must happen for all to be at rest.
const QUIET: Duration = Duration::from_secs(30);
/// How long a calm run is looked at when it is at rest.
const CALM: Duration = Duration::from_secs(900);
/// How many requests an operator may send for each of a calm run, and besides.
const BOUND: (usize, usize) = (20, 500);

/// What a run without trouble came to.
#[derive(Clone, Debug)]
pub(super) struct Calm {
    pub(super) world: World,
    pub(super) meddled: BTreeSet<Meddling>,
    pub(super) requests: usize,
}

/// What a run came to.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) sent: Vec<Sent>,
    pub(super) steps: usize,
    pub(super) calm: Calm,
    pub(super) faults: Vec<Fault>,
    /// Something planned found nothing to act on.
    pub(super) inert: bool,
    pub(super) lines: Vec<Line>,
}

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// It never came to rest.
    NeverAtRest {
        /// What happened last.
        last: String,
    },
    /// It changes things although nothing happens.
    ChangesAtRest {
        /// How often within a quarter of an hour.
        times: usize,
        /// What changed last.
        last: String,
    },
    /// The end is not that of a calm run.
    AnotherEnd(Vec<Difference>),
    /// An operator that starts anew at the end finds work: this one had missed something.
    LeftWork(Vec<Difference>),
    /// Objects are being deleted and never go.
    NeverGone(Vec<String>),
    /// It changed or deleted what somebody else made, which it does not do in a calm run.
    Meddled(Vec<String>),
    /// It undid what somebody else wrote.
    Undid(String),
    /// It sent more requests than any trouble explains.
    Flood {
        /// How many.
        requests: usize,
        /// How many a calm run takes.
        calm: usize,
    },
    /// The operator ended by itself.
    Ended(Vec<String>),
    /// A claim of the test, or the script, panicked.
    Claim(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, differences: &[Difference]| {
            differences.iter().take(12).try_for_each(|difference| write!(f, "\n  {difference}"))?;
            match differences.len() {
                0..=12 => Ok(()),
                more => write!(f, "\n  … and {} more", more - 12),
            }
        };
        match self {
            Self::NeverAtRest { last } => write!(f, "it never comes to rest; last: {last}"),
            Self::ChangesAtRest { times, last } => {
                write!(
                    f,
                    "it changes things although nothing happens: {times} times in {CALM:?}; last: {last}"
                )
            }
            Self::AnotherEnd(differences) => {
                f.write_str("the end is not that of a calm run:")?;
                list(f, differences)
            }
            Self::LeftWork(differences) => {
                f.write_str("an operator that starts anew at the end still finds work:")?;
                list(f, differences)
            }
            Self::NeverGone(names) => write!(f, "deleted, and never gone: {}", names.join(", ")),
            Self::Meddled(what) => {
                write!(f, "it changes what somebody else made, as it never does in a calm run:")?;
                what.iter().try_for_each(|what| write!(f, "\n  {what}"))
            }
            Self::Undid(what) => write!(f, "it undoes what somebody else wrote: {what}"),
            Self::Flood { requests, calm } => {
                write!(f, "it sends {requests} requests and more, where a calm run takes {calm}")
            }
            Self::Ended(how) => write!(f, "the operator ends by itself: {}", how.join("; ")),
            Self::Claim(what) => write!(f, "a claim does not hold: {what}"),
        }
    }
}

/// Plays one case; without a calm run to compare with it is one.
pub(super) fn play(plan: &Plan, case: &Case, calm: Option<&Calm>, tell: bool) -> Played {
    let (prepared, runtime, local) = (plan.prepared(), paused_runtime(), LocalSet::new());
    let played = runtime.block_on(local.run_until(Box::pin(on_stage(plan, prepared, case, calm, tell))));
    drop(local);
    runtime.shutdown_background();
    played
}

async fn on_stage(plan: &Plan, prepared: &Prepared, case: &Case, calm: Option<&Calm>, tell: bool) -> Played {
    let server = Arc::new(prepared.start());
    let bound = calm.map_or(20_000, |calm| calm.requests * BOUND.0 + BOUND.1);
    let harness = Harness::new(server, case, bound, tell);
    let life = tokio::task::spawn_local(supervise(harness.clone(), plan.operator.clone()));
    let mut faults = Vec::new();
    harness.rest(Rest::OfAll, Duration::from_secs(1), Instant::now() + Duration::from_secs(60)).await;
    let done = Arc::new(AtomicUsize::new(0));
    let visit =
        Visit { harness: harness.clone(), without: Arc::new(case.without.clone()), done: done.clone() };
    if let Err(error) = tokio::task::spawn_local((plan.visitor)(visit)).await {
        faults.push(Fault::Claim(format!("the script panicked: {}", panic_text(&*error.into_panic()))));
    }
    harness.tell(Who::User, || "is done".to_owned());
    let judge = Judge { plan, harness: &harness, calm };
    let world = judge.end(case, &mut faults).await;
    life.abort();
    let book = harness.book();
    let calm = Calm { world, meddled: book.meddled.clone(), requests: book.sent.len() };
    let (sent, lines) = (book.sent.clone(), book.lines.clone());
    drop(book);
    let steps = done.load(std::sync::atomic::Ordering::Relaxed);
    Played { sent, steps, calm, faults, inert: harness.is_inert(), lines }
}

struct Judge<'a> {
    plan: &'a Plan,
    harness: &'a Harness,
    calm: Option<&'a Calm>,
}

impl Judge<'_> {
    /// Waits for the end, and says what is wrong with it.
    async fn end(&self, case: &Case, faults: &mut Vec<Fault>) -> World {
        let deadline = Instant::now() + self.plan.patience;
        let (world, left) = self.settled(case, deadline, faults).await;
        if faults.is_empty()
            && let Some(fault) = left
        {
            faults.push(fault);
        }
        self.on_the_way(faults);
        if faults.is_empty() {
            self.claims(faults).await;
        }
        if faults.is_empty() && self.calm.is_none() {
            self.stays_calm(faults).await;
        }
        world
    }

    /// Waits until all is at rest and as it should be, or the time is over.
    async fn settled(
        &self,
        case: &Case,
        deadline: Instant,
        faults: &mut Vec<Fault>,
    ) -> (World, Option<Fault>) {
        loop {
            if !self.harness.rest(Rest::OfAll, QUIET, deadline).await {
                let book = self.harness.book();
                let last = book.disturbance.clone();
                let fault = match (self.calm, book.ended.is_empty()) {
                    (_, false) => Fault::Ended(book.ended.clone()),
                    (Some(calm), _) if self.over_bound(&book.sent) => {
                        Fault::Flood { requests: book.sent.len(), calm: calm.requests }
                    }
                    _ => Fault::NeverAtRest { last },
                };
                drop(book);
                faults.push(fault);
                return (World::of(self.harness.server.core()), None);
            }
            let world = World::of(self.harness.server.core());
            let left = self.judge(&world, case).await;
            if left.is_none() || Instant::now() >= deadline {
                return (world, left);
            }
            sleep(QUIET).await;
        }
    }

    fn over_bound(&self, sent: &[Sent]) -> bool {
        self.calm.is_some_and(|calm| sent.len() > calm.requests * BOUND.0 + BOUND.1)
    }

    /// Says what is wrong with a world at rest.
    async fn judge(&self, world: &World, case: &Case) -> Option<Fault> {
        let terminating = world.terminating();
        if !terminating.is_empty() {
            return Some(Fault::NeverGone(terminating));
        }
        let calm = self.calm?;
        let touched = self.harness.book().touched_foreign;
        if touched || !case.without.is_empty() || case.planned.iter().any(|one| one.trouble.changes_the_end())
        {
            return self.fresh(world).await;
        }
        let differences = world.differences(&calm.world);
        (!differences.is_empty()).then_some(Fault::AnotherEnd(differences))
    }

    /// Starts the operator anew: where it finds work, the earlier one had missed something.
    async fn fresh(&self, world: &World) -> Option<Fault> {
        self.harness.tell(Who::User, || "starts the operator anew, to see whether it finds work".to_owned());
        self.harness.kill(None);
        self.harness.rest(Rest::OfAll, QUIET, Instant::now() + self.plan.patience).await;
        let again = World::of(self.harness.server.core());
        let differences = world.differences(&again);
        (!differences.is_empty()).then_some(Fault::LeftWork(differences))
    }

    /// What a run must not have done on its way, however it ended.
    fn on_the_way(&self, faults: &mut Vec<Fault>) {
        let book = self.harness.book();
        if let Some(calm) = self.calm {
            let more: Vec<&Meddling> = book.meddled.difference(&calm.meddled).collect();
            if !more.is_empty() {
                let shown = book.meddled_objects.iter();
                let shown = shown.filter(|what| more.iter().any(|(_, field)| what.ends_with(field.as_str())));
                faults.push(Fault::Meddled(shown.cloned().collect()));
            }
        }
        if !book.ended.is_empty() && faults.is_empty() {
            faults.push(Fault::Ended(book.ended.clone()));
        }
        drop(book);
        owed::check(self.harness);
        faults.extend(self.harness.book().undone.iter().cloned().map(Fault::Undid));
    }

    async fn claims(&self, faults: &mut Vec<Fault>) {
        for claim in &self.plan.claims {
            let asked = tokio::task::spawn_local(claim(self.harness.server.kit().clone()));
            if let Err(error) = asked.await {
                faults.push(Fault::Claim(panic_text(&*error.into_panic())));
            }
        }
        if self.plan.change_claims.is_empty() {
            return;
        }
        let changes = Arc::new(changes::of(self.harness));
        for claim in &self.plan.change_claims {
            let (claim, changes) = (claim.clone(), changes.clone());
            let held = tokio::task::spawn_local(async move { claim(&changes) });
            if let Err(error) = held.await {
                faults.push(Fault::Claim(panic_text(&*error.into_panic())));
            }
        }
    }

    /// Looks at a calm run when it is at rest: it changes nothing any more.
    async fn stays_calm(&self, faults: &mut Vec<Fault>) {
        let before = self.harness.book().changes;
        sleep(CALM).await;
        let book = self.harness.book();
        let times = book.changes - before;
        if times > 0 {
            faults.push(Fault::ChangesAtRest { times, last: book.disturbance.clone() });
        }
    }
}
