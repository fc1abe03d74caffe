//! One run of an operator: a server, a script, and what goes wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};
use watchkeeper_apiserver::inside::{Prepared, begin_of_second};

use crate::changes;
use crate::exit;
use crate::harness::{DELETED, Harness, Meddling, Rest, Sent, panic_text};
use crate::owed;
use crate::place::Case;
use crate::plan::{Plan, paused_runtime};
use crate::supervise::supervise;
use crate::timeline::{Line, Who};
use crate::visit::Visit;
use crate::world::{Difference, World};

/// How long nothing must happen for all to be at rest.
const QUIET: Duration = Duration::from_secs(30);
/// How long a calm run is looked at when it is at rest.
const CALM: Duration = Duration::from_secs(900);
/// How many requests an operator may send for each of a calm run, and besides, while it has this time to come to rest;
/// with more time it may send more.
const BOUND: (usize, usize, Duration) = (20, 500, Duration::from_secs(600));
/// How much later the second of two calm runs begins, so that times that they write differ.
const LATER: Duration = Duration::from_secs(67);

/// What a story says where the user could not do what the script says.
const OF_REFUSED_STEPS: &str = "a step of the user was refused that is not refused in a calm run, or the other way \
    round: so the end need not be the same, and the check is only whether a restarted operator finds work";
/// What a story says where kube's runtime may have dropped a run.
const OF_PAGES: &str = "this is not the operator's fault if it lists through kube's runtime, which runs a reconciler \
    when a page of a list brings an object, and shows its store the pages only after the last. A run in between sees \
    the old object, or none, and is not repeated. This became known on a page that was not the last";

/// What a run without trouble came to.
#[derive(Clone, Debug)]
pub(crate) struct Calm {
    pub(crate) world: World,
    pub(crate) meddled: BTreeSet<Meddling>,
    pub(crate) requests: usize,
    /// The steps of the script that were refused.
    pub(crate) refused: BTreeSet<usize>,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) sent: Vec<Sent>,
    pub(crate) steps: usize,
    pub(crate) calm: Calm,
    pub(crate) faults: Vec<Fault>,
    /// Something planned found nothing to act on.
    pub(crate) inert: bool,
    pub(crate) lines: Vec<Line>,
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
    /// A user waited in vain for a state to which a calm run comes.
    InVain(Vec<String>),
    /// Two runs without trouble differ, so that there is nothing to compare with: where, and what may be done.
    Chance(String),
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
            Self::Ended(how) => {
                let mut how: Vec<(&str, usize)> = how.iter().map(|how| (how.as_str(), 1)).collect();
                how.dedup_by(|next, one| {
                    next.0 == one.0 && {
                        one.1 += next.1;
                        true
                    }
                });
                let told = |(how, times): &(&str, usize)| match times {
                    1 => (*how).to_owned(),
                    times => format!("{how} ({times} times)"),
                };
                let how: Vec<String> = how.iter().map(told).collect();
                write!(
                    f,
                    "the operator ends by itself: {}\nwhere it may, because the kubelet starts it again, say so by \
                     `.may_end()`",
                    how.join("; ")
                )
            }
            Self::InVain(what) => write!(f, "a user waits in vain: {}", what.join("; ")),
            Self::Chance(what) => f.write_str(what),
            Self::Claim(what) => write!(f, "a claim does not hold: {what}"),
        }
    }
}

/// Plays one case; without a calm run to compare with it is one.
pub(crate) fn play(plan: &Plan, case: &Case, calm: Option<&Calm>, tell: bool) -> Played {
    let prepared = plan.prepared();
    let play = |asked| on_a_runtime(on_stage(plan, prepared, case, calm, asked, tell));
    let played = play(Asked::AtRest);
    // The restarted operator has done the work. Only a run without that restart shows whether this one would have done it in time.
    match played.faults[..] {
        [Fault::LeftWork(_), ..] => play(Asked::AfterPatience),
        _ => played,
    }
}

/// Plays a calm run again, some time later, and tells it.
pub(crate) fn play_again(plan: &Plan) -> Played {
    let prepared = plan.prepared();
    on_a_runtime(async {
        sleep(LATER).await;
        on_stage(plan, prepared, &Case::default(), None, Asked::AtRest, true).await
    })
}

fn on_a_runtime(stage: impl Future<Output = Played>) -> Played {
    let (runtime, local) = (paused_runtime(), LocalSet::new());
    let played = runtime.block_on(local.run_until(Box::pin(stage)));
    drop(local);
    runtime.shutdown_background();
    played
}

/// Returns how many requests are too many.
fn bound(plan: &Plan, calm: Option<&Calm>) -> usize {
    let Some(calm) = calm else { return 20_000 };
    let times = plan.patience.as_secs_f64() / BOUND.2.as_secs_f64();
    ((calm.requests * BOUND.0 + BOUND.1) as f64 * times.max(1.0)) as usize
}

/// When the harness restarts the operator to see whether it finds work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// As soon as all is at rest.
    AtRest,
    /// When the operator has had all of its time.
    AfterPatience,
}

async fn on_stage(
    plan: &Plan,
    prepared: &Prepared,
    case: &Case,
    calm: Option<&Calm>,
    asked: Asked,
    tell: bool,
) -> Played {
    begin_of_second().await;
    let server = Arc::new(prepared.start());
    let harness = Harness::new(server, case, bound(plan, calm), plan.patience, tell);
    let _under_way = exit::under_way(case, &harness);
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
    let judge = Judge { plan, harness: &harness, calm, asked };
    let world = judge.end(case, &mut faults).await;
    life.abort();
    judge.explain(&faults);
    let book = harness.book();
    let (meddled, requests, refused) = (book.meddled.clone(), book.sent.len(), book.refused.clone());
    let calm = Calm { world, meddled, requests, refused };
    let (sent, lines) = (book.sent.clone(), book.lines.clone());
    drop(book);
    let steps = done.load(std::sync::atomic::Ordering::Relaxed);
    Played { sent, steps, calm, faults, inert: harness.is_inert(), lines }
}

struct Judge<'a> {
    plan: &'a Plan,
    harness: &'a Harness,
    calm: Option<&'a Calm>,
    asked: Asked,
}

impl Judge<'_> {
    /// Waits for the end, and says what is wrong with it.
    async fn end(&self, case: &Case, faults: &mut Vec<Fault>) -> World {
        let (world, left) = self.settled(case, faults).await;
        if faults.is_empty()
            && let Some(fault) = left
        {
            faults.push(fault);
        }
        self.on_the_way(case, faults);
        if faults.is_empty() {
            self.claims(faults).await;
        }
        if faults.is_empty() && self.calm.is_none() {
            self.stays_calm(faults).await;
        }
        world
    }

    /// Waits until all is at rest and as it should be, or the time is over.
    async fn settled(&self, case: &Case, faults: &mut Vec<Fault>) -> (World, Option<Fault>) {
        let began = Instant::now();
        loop {
            // What was quiet in time is looked at until that is certain.
            let deadline = || self.harness.deadline(began) + QUIET;
            let until = deadline();
            if !self.harness.rest(Rest::OfAll, QUIET, until).await {
                // A trouble that came meanwhile gives time of its own.
                if !self.harness.is_flooded() && until < deadline() {
                    continue;
                }
                faults.push(self.unrest());
                return (self.world(), None);
            }
            let asks = self.calm.is_some_and(|calm| self.has_another_end(calm, case));
            if asks && self.asked == Asked::AfterPatience && Instant::now() < deadline() {
                sleep_until(deadline()).await;
                continue;
            }
            let world = self.world();
            let left = self.judge(&world, case).await;
            let is_answered = matches!(left, None | Some(Fault::LeftWork(_)));
            if is_answered || Instant::now() >= deadline() {
                return (world, left);
            }
            sleep(QUIET).await;
        }
    }

    fn world(&self) -> World {
        World::of(&self.harness.server, &self.plan.random)
    }

    /// Says why it is never at rest.
    fn unrest(&self) -> Fault {
        let is_flooded = self.harness.is_flooded();
        let book = self.harness.book();
        let ends = !book.ended.is_empty() && (book.ended_now || !self.plan.may_end);
        match self.calm {
            _ if ends => Fault::Ended(book.ended.clone()),
            Some(calm) if is_flooded => Fault::Flood { requests: book.sent.len(), calm: calm.requests },
            _ => Fault::NeverAtRest { last: book.disturbance.clone() },
        }
    }

    /// Says what is wrong with a world at rest.
    async fn judge(&self, world: &World, case: &Case) -> Option<Fault> {
        let terminating = world.terminating();
        if !terminating.is_empty() {
            return Some(Fault::NeverGone(terminating));
        }
        let calm = self.calm?;
        if self.has_another_end(calm, case) {
            return self.fresh(world).await;
        }
        let differences = world.differences(&calm.world);
        (!differences.is_empty()).then_some(Fault::AnotherEnd(differences))
    }

    /// Returns whether the end need not be that of the calm run: somebody else, or a step that was refused, made it so.
    fn has_another_end(&self, calm: &Calm, case: &Case) -> bool {
        let book = self.harness.book();
        book.touched_foreign
            || book.refused != calm.refused
            || !case.without.is_empty()
            || case.planned.iter().any(|one| one.trouble.changes_the_end())
    }

    /// Starts the operator anew: where it finds work, the earlier one had missed something.
    async fn fresh(&self, world: &World) -> Option<Fault> {
        self.harness.tell(Who::User, || "starts the operator anew, to see whether it finds work".to_owned());
        self.harness.kill(None);
        let deadline = self.harness.deadline(Instant::now()) + QUIET;
        self.harness.rest(Rest::OfAll, QUIET, deadline).await;
        let again = self.world();
        let differences = world.differences(&again);
        (!differences.is_empty()).then_some(Fault::LeftWork(differences))
    }

    /// What a run must not have done on its way, however it ended.
    fn on_the_way(&self, case: &Case, faults: &mut Vec<Fault>) {
        let depends = self.calm.is_some_and(|calm| self.has_another_end(calm, case));
        let book = self.harness.book();
        if !book.in_vain.is_empty() && faults.is_empty() && !depends {
            faults.push(Fault::InVain(book.in_vain.clone()));
        }
        if let Some(calm) = self.calm {
            let may = |(kind, field): &&Meddling| field == DELETED && self.plan.may_delete.contains(kind);
            let more = book.meddled.difference(&calm.meddled).filter(|one| !may(one));
            let more: Vec<&Meddling> = more.collect();
            if !more.is_empty() {
                let shown = book.meddled_objects.iter();
                let shown = shown.filter(|what| more.iter().any(|(_, field)| what.ends_with(field.as_str())));
                faults.push(Fault::Meddled(shown.cloned().collect()));
            }
        }
        if !book.ended.is_empty() && faults.is_empty() && !self.plan.may_end {
            faults.push(Fault::Ended(book.ended.clone()));
        }
        drop(book);
        owed::check(self.harness);
        faults.extend(self.harness.book().undone.iter().cloned().map(Fault::Undid));
    }

    /// Adds to the story what it does not show by itself.
    fn explain(&self, faults: &[Fault]) {
        let (refused, paged) = {
            let book = self.harness.book();
            (book.refused.clone(), book.paged.clone())
        };
        if self.calm.is_some_and(|calm| calm.refused != refused) {
            self.harness.tell(Who::Note, || OF_REFUSED_STEPS.to_owned());
        }
        let missed = |fault: &Fault| {
            matches!(
                fault,
                Fault::AnotherEnd(_) | Fault::LeftWork(_) | Fault::NeverGone(_) | Fault::InVain(_)
            )
        };
        if faults.iter().any(missed) && !paged.is_empty() {
            self.harness.tell(Who::Note, || format!("{OF_PAGES}: {}", paged.join(", ")));
        }
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
