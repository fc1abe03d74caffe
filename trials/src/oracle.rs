//! One run of an operator: a server, a script, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};
use watchkeeper_apiserver::inside::{Prepared, begin_of_second};

use crate::changes;
use crate::exit;
use crate::foreign_additions;
use crate::harness::{DELETED, ForeignWrite, Harness, Rest, Sent, panic_text};
use crate::life::Version;
use crate::plan::{Plan, paused_runtime};
use crate::played;
use crate::recording::Effect;
use crate::replace::{self, KindVersions, View};
use crate::schedule::Schedule;
use crate::supervise::supervise;
use crate::timeline::{Actor, Line};
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::world::{Difference, World};

/// How long nothing must happen for all to be at rest.
const QUIET: Duration = Duration::from_secs(30);
/// How long the baseline run is watched when it is at rest.
const BASELINE_TIME: Duration = Duration::from_secs(900);
/// How long any other run is watched, at most: an operator may wait for a minute after an error.
const LOOK_AGAIN: Duration = Duration::from_secs(70);
/// How many requests an operator may send for each of the baseline run, and besides, while it has this time to come to rest;
/// with more time it may send more.
const BOUND: (usize, usize, Duration) = (20, 500, Duration::from_secs(600));
/// How much later the second of two baseline runs begins, so that times that they write differ.
const LATER: Duration = Duration::from_secs(67);

/// What a story says where the user could not do what the script says.
const OF_REFUSED_STEPS: &str = "a step of the user was refused that is not refused in a baseline run, or the other way \
    round: so the end need not be the same, and the check is only whether a restarted operator finds work";
/// What a story says where kube's runtime may have dropped a run.
const OF_PAGES: &str = "this is not the operator's fault if it lists through kube's runtime, which runs a reconciler \
    when a page of a list brings an object, and shows its store the pages only after the last. A run in between sees \
    the old object, or none, and is not repeated. This became known on a page that was not the last";

/// What a run without trouble came to.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    pub(crate) world: World,
    /// The same, as the end of a rollback is compared with it; none where there is nothing to roll back.
    pub(crate) rolled_back: Option<World>,
    /// The versions in which the kinds are read.
    pub(crate) versions: KindVersions,
    pub(crate) foreign_writes: BTreeSet<ForeignWrite>,
    /// What was deleted in another system, and how often.
    pub(crate) external_deleted: BTreeMap<String, usize>,
    pub(crate) requests: usize,
    /// The steps of the script that were refused.
    pub(crate) refused: BTreeSet<usize>,
}

/// The runs with which others are compared.
#[derive(Clone, Debug)]
pub(crate) struct Baselines {
    /// That of the only version, or of the old one.
    pub(crate) old: Baseline,
    pub(crate) new: Option<Baseline>,
}

impl From<Baseline> for Baselines {
    fn from(old: Baseline) -> Self {
        Self { old, new: None }
    }
}

impl Baselines {
    fn of(&self, version: Version) -> &Baseline {
        self.new.as_ref().filter(|_| version == Version::New).unwrap_or(&self.old)
    }

    fn each(&self) -> impl Iterator<Item = &Baseline> {
        std::iter::once(&self.old).chain(&self.new)
    }

    fn requests(&self) -> usize {
        self.each().map(|baseline| baseline.requests).sum()
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    pub(crate) sent: Vec<Sent>,
    pub(crate) steps: usize,
    pub(crate) baseline: Baseline,
    pub(crate) faults: Vec<Violation>,
    /// Something planned found nothing to act on.
    pub(crate) inert: bool,
    pub(crate) lines: Vec<Line>,
    /// What the operator changed, if there is to be a story.
    pub(crate) effects: Vec<Effect>,
}

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Violation {
    /// It never came to rest.
    NeverAtRest {
        /// What happened last.
        last: String,
        /// What it sent most often while nothing was wrong any more, and how often.
        moving: Vec<(String, usize)>,
    },
    /// It changes things although nothing happens.
    ChangesAtRest {
        /// How often while it was watched: for a quarter of an hour in the baseline run, for a minute at most in another.
        times: usize,
        /// What changed last.
        last: String,
    },
    /// The end is not that of the baseline run.
    AnotherEnd(Vec<Difference>),
    /// An operator that restarts at the end finds work: this one had missed something.
    LeftWork(Vec<Difference>),
    /// Objects are being deleted and never go.
    NeverGone(Vec<String>),
    /// It changed or deleted what somebody else made, which it does not do in the baseline run.
    ChangedForeign(Vec<String>),
    /// It undid what somebody else wrote.
    Undid(String),
    /// It sent more requests than any trouble explains.
    Flood {
        /// How many.
        requests: usize,
        /// How many the baseline run takes.
        baseline: usize,
    },
    /// The operator ended by itself.
    Ended(Vec<String>),
    /// A user waited in vain for a state to which the baseline run comes.
    InVain(Vec<String>),
    /// The new version changes what is there as it takes over, although nobody changed anything.
    ChangedByUpgrade(Vec<Difference>),
    /// The server refuses a definition of the new version.
    DefinitionRefused(Vec<String>),
    /// It deleted in another system what was in use: the baseline run does not delete it, or less often.
    DeletedInUse(Vec<String>),
    /// Both versions write the same object while both run.
    BothAtWork(String),
    /// Two runs without trouble differ, so that there is nothing to compare with: where, and what may be done.
    Chance(String),
    /// A claim of the test, or the script, panicked.
    Claim(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, differences: &[Difference]| {
            differences.iter().take(12).try_for_each(|difference| write!(f, "\n  {difference}"))?;
            match differences.len() {
                0..=12 => Ok(()),
                more => write!(f, "\n  … and {} more", more - 12),
            }
        };
        match self {
            Self::NeverAtRest { last, moving } => {
                write!(f, "it never comes to rest; last: {last}")?;
                if !moving.is_empty() {
                    f.write_str(
                        "\nwhat was still moving, in the time that it had when nothing was wrong any more:",
                    )?;
                }
                moving.iter().try_for_each(|(name, times)| write!(f, "\n  {name} ({times} times)"))
            }
            Self::ChangesAtRest { times, last } => {
                write!(f, "it changes things although nothing happens: {times} times; last: {last}")
            }
            Self::AnotherEnd(differences) => {
                f.write_str("the end is not that of the baseline run:")?;
                list(f, differences)
            }
            Self::LeftWork(differences) => {
                f.write_str("an operator that restarts at the end still finds work:")?;
                list(f, differences)
            }
            Self::NeverGone(names) => write!(f, "deleted, and never gone: {}", names.join(", ")),
            Self::ChangedForeign(what) => {
                write!(f, "it changes what somebody else made, as it never does in the baseline run:")?;
                what.iter().try_for_each(|what| write!(f, "\n  {what}"))
            }
            Self::Undid(what) => write!(f, "it undoes what somebody else wrote: {what}"),
            Self::Flood { requests, baseline } => {
                write!(f, "it sends {requests} requests and more, where the baseline run takes {baseline}")
            }
            Self::Ended(how) => show_ends(f, how),
            Self::InVain(what) => write!(f, "a user waits in vain: {}", what.join("; ")),
            Self::ChangedByUpgrade(differences) => {
                f.write_str("the new version changes what is there, although nobody changed anything:")?;
                list(f, differences)?;
                f.write_str("\nwhere that is meant, say so by `.may_change::<Kind>(\"/path\")`")
            }
            Self::DeletedInUse(what) => {
                write!(
                    f,
                    "it deletes in another system what it keeps there in the baseline run, or deletes less often: {}",
                    what.join(", ")
                )
            }
            Self::DefinitionRefused(refused) => f.write_str(&refused.join("\n")),
            Self::BothAtWork(last) => write!(
                f,
                "both versions are at work while both run: the old one sends {last} after the new one has written \
                 the same object"
            ),
            Self::Chance(what) => f.write_str(what),
            Self::Claim(what) => write!(f, "a claim does not hold: {what}"),
        }
    }
}

/// Says how an operator ended by itself, and how often.
fn show_ends(f: &mut fmt::Formatter<'_>, how: &[String]) -> fmt::Result {
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

/// Plays one case; without the baseline run to compare with it is one.
pub(crate) fn run_schedule(
    plan: &Plan,
    schedule: &Schedule,
    baseline: Option<&Baselines>,
    tell: bool,
) -> RunOutcome {
    let prepared = plan.prepared(schedule.begins);
    let run_schedule = |asked| on_paused_runtime(run_under(plan, prepared, schedule, baseline, asked, tell));
    let outcome = run_schedule(Asked::AtRest);
    // The restarted operator has done the work. Only a run without that restart shows whether this one would have done it in time.
    match outcome.faults[..] {
        [Violation::LeftWork(_), ..] => run_schedule(Asked::AfterPatience),
        _ => outcome,
    }
}

/// Plays the baseline run again, some time later, and tells it.
pub(crate) fn run_baseline_again(plan: &Plan, version: Version) -> RunOutcome {
    let prepared = plan.prepared(version);
    on_paused_runtime(async {
        sleep(LATER).await;
        run_under(plan, prepared, &Schedule::calm(version), None, Asked::AtRest, true).await
    })
}

fn on_paused_runtime(stage: impl Future<Output = RunOutcome>) -> RunOutcome {
    let (runtime, local) = (paused_runtime(), LocalSet::new());
    let outcome = runtime.block_on(local.run_until(Box::pin(stage)));
    drop(local);
    runtime.shutdown_background();
    outcome
}

/// Returns how many requests are too many.
fn bound(plan: &Plan, baseline: Option<&Baselines>) -> usize {
    let Some(baseline) = baseline else {
        // A replay takes as long as its recording, and this build may renew a Lease all the time.
        let played = plan.initial.as_deref().map_or(0, |recording| {
            recording.requests * BOUND.0 + usize::try_from(recording.took.as_secs()).unwrap_or(usize::MAX) * 4
        });
        return played.saturating_add(20_000);
    };
    let times = plan.patience.as_secs_f64() / BOUND.2.as_secs_f64();
    ((baseline.requests() * BOUND.0 + BOUND.1) as f64 * times.max(1.0)) as usize
}

/// When the harness restarts the operator to see whether it finds work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// As soon as all is at rest.
    AtRest,
    /// When the operator has had all of its time.
    AfterPatience,
}

async fn run_under(
    plan: &Plan,
    prepared: &Prepared,
    schedule: &Schedule,
    baseline: Option<&Baselines>,
    asked: Asked,
    tell: bool,
) -> RunOutcome {
    begin_of_second().await;
    let server = Arc::new(prepared.start());
    let given = (plan.patience, plan.upgraded.clone());
    let harness = Harness::new(server, schedule, given, bound(plan, baseline), tell);
    if let Some(recording) = &plan.initial {
        played::set_up(&harness, recording);
    }
    let _under_way = exit::under_way(schedule, &harness);
    let supervised = |(version, operator)| supervise(harness.clone(), version, operator);
    let lives: Vec<_> =
        plan.operators().into_iter().map(|one| tokio::task::spawn_local(supervised(one))).collect();
    let mut faults = Vec::new();
    harness.rest(Rest::OfAll, Duration::from_secs(1), Instant::now() + Duration::from_secs(60)).await;
    let done = Arc::new(AtomicUsize::new(0));
    let hidden = Arc::new(plan.hidden.for_an_upgrade(&plan.may_change));
    replace::after_step(&harness, 0, &hidden).await;
    let without = Arc::new(schedule.without.clone());
    let visit = Visit { harness: harness.clone(), without, done: done.clone(), hidden };
    if let Err(error) = tokio::task::spawn_local((plan.visitor)(visit)).await {
        faults.push(Violation::Claim(format!("the script panicked: {}", panic_text(&*error.into_panic()))));
    }
    harness.tell(Actor::User, || "is done".to_owned());
    let verdict = Oracle { plan, harness: &harness, baseline, asked };
    let end = verdict.end(schedule, &mut faults).await;
    lives.iter().for_each(tokio::task::JoinHandle::abort);
    verdict.explain(&faults);
    let state = harness.state();
    let (foreign_writes, requests, refused) =
        (state.foreign_writes.clone(), state.sent.len(), state.refused.clone());
    let external_deleted = state.external.deleted.clone();
    let End { world, rolled_back, versions } = end;
    let baseline =
        Baseline { world, rolled_back, versions, foreign_writes, external_deleted, requests, refused };
    let (sent, lines, effects) = (state.sent.clone(), state.lines.clone(), state.effects.clone());
    drop(state);
    let steps = done.load(std::sync::atomic::Ordering::Relaxed);
    RunOutcome { sent, steps, baseline, faults, inert: harness.is_inert(), lines, effects }
}

struct Oracle<'a> {
    plan: &'a Plan,
    harness: &'a Harness,
    baseline: Option<&'a Baselines>,
    asked: Asked,
}

/// The objects at the end, as they are compared, and the versions in which they were read.
struct End {
    world: World,
    rolled_back: Option<World>,
    versions: KindVersions,
}

impl Oracle<'_> {
    /// Waits for the end, and says what is wrong with it.
    async fn end(&self, schedule: &Schedule, faults: &mut Vec<Violation>) -> End {
        let (end, mut left) = self.settled(schedule, faults).await;
        if faults.is_empty() && left.is_none() {
            left = self.stays_right(schedule).await;
        }
        if faults.is_empty()
            && let Some(fault) = left
        {
            faults.push(fault);
        }
        self.on_the_way(schedule, faults);
        if faults.is_empty() {
            self.claims(faults).await;
        }
        // A recorded operator may do something on its own, for example every five minutes.
        if faults.is_empty() && schedule.is_calm() && self.plan.initial.is_none() {
            self.stays_at_rest(faults).await;
        }
        end
    }

    /// Returns the run without trouble of the version that is at work.
    fn expected(&self) -> Option<&Baseline> {
        let version = self.harness.state().lives.at_work();
        self.baseline.map(|baselines| baselines.of(version))
    }

    /// Waits until all is at rest and as it should be, or the time is over.
    async fn settled(&self, schedule: &Schedule, faults: &mut Vec<Violation>) -> (End, Option<Violation>) {
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
                return (self.world().await, None);
            }
            let asks = self.expected().is_some_and(|baseline| self.has_another_end(baseline, schedule));
            if asks && self.asked == Asked::AfterPatience && Instant::now() < deadline() {
                sleep_until(deadline()).await;
                continue;
            }
            let end = self.world().await;
            let left = self.verdict(&end, schedule).await;
            let is_answered = matches!(left, None | Some(Violation::LeftWork(_)));
            if is_answered || Instant::now() >= deadline() {
                return (end, left);
            }
            sleep(QUIET).await;
        }
    }

    /// Reads all objects, each kind in the version of the run with which they are compared.
    async fn world(&self) -> End {
        let versions = self.expected().map(|baseline| &baseline.versions);
        let View { mut objects, versions, .. } = View::of(self.harness, versions).await;
        objects.extend(self.harness.state().external.objects());
        let hidden = &self.plan.hidden;
        let is_old = self.harness.state().lives.at_work() == Version::Old;
        let rolled_back =
            is_old.then(|| World::hiding(&objects, &hidden.for_a_rollback(&self.plan.may_change)));
        End { world: World::hiding(&objects, hidden), rolled_back, versions }
    }

    /// Says why it is never at rest.
    fn unrest(&self) -> Violation {
        let is_flooded = self.harness.is_flooded();
        let state = self.harness.state();
        let ends = !state.ended.is_empty() && (state.lives.has_ended() || !self.plan.may_end);
        match self.baseline {
            _ if ends => Violation::Ended(state.ended.clone()),
            Some(baseline) if is_flooded => {
                Violation::Flood { requests: state.sent.len(), baseline: baseline.requests() }
            }
            _ => {
                let moving = state.moving_since(state.wrong_until);
                Violation::NeverAtRest { last: state.disturbance.clone(), moving }
            }
        }
    }

    /// Says what is wrong with a world at rest.
    async fn verdict(&self, end: &End, schedule: &Schedule) -> Option<Violation> {
        let terminating = end.world.terminating();
        if !terminating.is_empty() {
            return Some(Violation::NeverGone(terminating));
        }
        let baseline = self.expected()?;
        if self.has_another_end(baseline, schedule) {
            return self.fresh(&end.world).await;
        }
        let differences = match (&end.rolled_back, &baseline.rolled_back) {
            (Some(end), Some(baseline)) => {
                let mut differences = end.differences(baseline);
                // The old version need not clear what only the new one reports.
                differences.retain(|one| !one.is_more_in_status());
                differences
            }
            _ => end.world.differences(&baseline.world),
        };
        (!differences.is_empty()).then_some(Violation::AnotherEnd(differences))
    }

    /// Returns whether the end need not be that of the baseline run: somebody else, or a step that was refused, made it so.
    fn has_another_end(&self, baseline: &Baseline, schedule: &Schedule) -> bool {
        let state = self.harness.state();
        state.touched_foreign
            || state.refused != baseline.refused
            || !schedule.without.is_empty()
            || schedule.planned.iter().any(|one| one.trouble.changes_the_end())
    }

    /// Restarts the operator: if it finds work, the earlier one had missed something.
    async fn fresh(&self, world: &World) -> Option<Violation> {
        self.harness.tell(Actor::User, || "restarts the operator, to see whether it finds work".to_owned());
        let at_work = self.harness.state().lives.at_work();
        self.harness.kill(at_work, None);
        let deadline = self.harness.deadline(Instant::now()) + QUIET;
        if !self.harness.rest(Rest::OfAll, QUIET, deadline).await {
            return Some(self.unrest());
        }
        let again = self.world().await.world;
        let mut differences = world.differences(&again);
        differences.extend(again.made_again(world));
        (!differences.is_empty()).then_some(Violation::LeftWork(differences))
    }

    /// What a run must not have done on its way, however it ended.
    fn on_the_way(&self, schedule: &Schedule, faults: &mut Vec<Violation>) {
        let depends = self.expected().is_some_and(|baseline| self.has_another_end(baseline, schedule));
        let state = self.harness.state();
        if !state.in_vain.is_empty() && faults.is_empty() && !depends {
            faults.push(Violation::InVain(state.in_vain.clone()));
        }
        if !state.refused_definitions.is_empty() {
            faults.insert(0, Violation::DefinitionRefused(state.refused_definitions.clone()));
        }
        // Where something else went wrong meanwhile, that may have changed it.
        if !state.changed_by_upgrade.is_empty() && faults.is_empty() && schedule.is_calm() {
            faults.push(Violation::ChangedByUpgrade(state.changed_by_upgrade.clone()));
        }
        if let Some(last) = &state.both_at_work {
            faults.insert(0, Violation::BothAtWork(last.clone()));
        }
        if let Some(baselines) = self.baseline {
            let known: BTreeSet<&ForeignWrite> =
                baselines.each().flat_map(|baseline| &baseline.foreign_writes).collect();
            let may = |(kind, field): &&ForeignWrite| field == DELETED && self.plan.may_delete.contains(kind);
            let more = state.foreign_writes.iter().filter(|one| !known.contains(one) && !may(one));
            let more: Vec<&ForeignWrite> = more.collect();
            if !more.is_empty() {
                let shown = state.foreign_objects_written.iter();
                let shown = shown.filter(|(of, _)| more.contains(&of)).map(|(_, what)| what.clone());
                faults.push(Violation::ChangedForeign(shown.collect()));
            }
        }
        let known = |path: &String, times: usize| {
            let of = |baseline: &Baseline| {
                baseline.external_deleted.get(path).is_some_and(|known| times <= *known)
            };
            self.baseline.is_none_or(|all| all.each().any(of))
        };
        let more = state.external.deleted.iter().filter(|(path, times)| !known(path, **times));
        let in_use: Vec<String> = more.map(|(path, _)| path.clone()).collect();
        if !in_use.is_empty() && !depends {
            faults.insert(0, Violation::DeletedInUse(in_use));
        }
        if !state.ended.is_empty() && faults.is_empty() && !self.plan.may_end {
            faults.push(Violation::Ended(state.ended.clone()));
        }
        drop(state);
        foreign_additions::check(self.harness);
        faults.extend(self.harness.state().undone.iter().cloned().map(Violation::Undid));
    }

    /// Adds to the story what it does not show by itself.
    fn explain(&self, faults: &[Violation]) {
        let (refused, paged) = {
            let state = self.harness.state();
            (state.refused.clone(), state.paged.clone())
        };
        if self.expected().is_some_and(|baseline| baseline.refused != refused) {
            self.harness.tell(Actor::Note, || OF_REFUSED_STEPS.to_owned());
        }
        let missed = |fault: &Violation| {
            matches!(
                fault,
                Violation::AnotherEnd(_)
                    | Violation::LeftWork(_)
                    | Violation::NeverGone(_)
                    | Violation::InVain(_)
            )
        };
        if faults.iter().any(missed) && !paged.is_empty() {
            self.harness.tell(Actor::Note, || format!("{OF_PAGES}: {}", paged.join(", ")));
        }
    }

    async fn claims(&self, faults: &mut Vec<Violation>) {
        for claim in &self.plan.claims {
            let asked = tokio::task::spawn_local(claim(self.harness.server.kit().clone()));
            if let Err(error) = asked.await {
                faults.push(Violation::Claim(panic_text(&*error.into_panic())));
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
                faults.push(Violation::Claim(panic_text(&*error.into_panic())));
            }
        }
    }

    /// Looks again at an end that was right: after an error an operator may do something much later.
    ///
    /// Not where a restart has looked already, nor in upgrades and replays, which watch for longer. A change of others fails no
    /// request that would be sent again later.
    async fn stays_right(&self, schedule: &Schedule) -> Option<Violation> {
        let baseline = self.expected()?;
        let of_others = schedule.planned.iter().all(|one| matches!(one.trouble, Trouble::Stranger(..)));
        let is_told = self.plan.initial.is_some() || self.plan.successor.is_some();
        if is_told || of_others || self.has_another_end(baseline, schedule) {
            return None;
        }
        let time = self.plan.patience.min(LOOK_AGAIN);
        // What changed something the first time may have come to rest by that.
        if self.changes_within(time).await.is_some()
            && let Some(fault) = self.changes_within(time).await
        {
            return Some(fault);
        }
        let end = self.world().await;
        self.verdict(&end, schedule).await
    }

    /// Says what is wrong if the operator changes something within a time.
    async fn changes_within(&self, time: Duration) -> Option<Violation> {
        let before = self.harness.state().changes;
        sleep(time).await;
        if self.harness.is_flooded() {
            return Some(self.unrest());
        }
        let state = self.harness.state();
        let times = state.changes - before;
        (times > 0).then(|| Violation::ChangesAtRest { times, last: state.disturbance.clone() })
    }

    /// Looks at the baseline run when it is at rest: it changes nothing any more.
    async fn stays_at_rest(&self, faults: &mut Vec<Violation>) {
        faults.extend(self.changes_within(BASELINE_TIME).await);
    }
}
