//! Which trials there are, in which order, and how a failure is made short.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use super::harness::Sent;
use super::place::{Case, Planned};
use super::plan::Plan;
use super::play::{Calm, Fault, Played, play};
use super::report::{Failure, REPLAY, Report};
use super::timeline;
use super::trouble::Trouble;
use super::world::MACHINERY;
use crate::route::Verb;

/// How many requests of one sort are tried; later ones are like them.
const OF_A_SORT: u32 = 3;

/// Returns whether a trouble is to be tried.
pub(super) type Wanted = Arc<dyn Fn(Trouble) -> bool + Send + Sync>;

/// What is tried, and how much of it.
pub(super) struct Settings {
    pub(super) plan: Plan,
    pub(super) wanted: Wanted,
    pub(super) pairs: usize,
    pub(super) seed: u64,
    pub(super) at_most: Option<Duration>,
    pub(super) diagram: Option<PathBuf>,
    pub(super) replay: Option<String>,
}

pub(super) fn run(trials: &Settings) -> Report {
    let began = Instant::now();
    let plan = &trials.plan;
    let first = play(plan, &Case::default(), None, false);
    let mut report = Report { requests: first.sent.len(), ..Report::default() };
    if let Some(failure) = calm_failure(trials, &first) {
        report.failures.push(failure);
        report.elapsed = began.elapsed();
        return report;
    }
    let search = Search { trials, calm: &first.calm, steps: first.steps, began };
    let replay = trials.replay.clone().or_else(|| std::env::var(REPLAY).ok());
    if let Some(replay) = replay {
        let case: Case =
            replay.parse().unwrap_or_else(|error| panic!("the trial to replay can't be read: {error}"));
        let played = play(plan, &case, Some(&first.calm), true);
        report.singles = 1;
        report.inert = usize::from(played.inert);
        if played.faults.is_empty() {
            // A replay that holds shows what happened all the same.
            eprintln!("the trial holds:\n{}", timeline::steps(&played.lines).0);
        } else {
            report.failures.push(search.told(&case, &played, 1));
        }
        if played.inert {
            eprintln!("the trouble never struck, or found nothing to act on");
        }
        report.elapsed = began.elapsed();
        return report;
    }
    let singles = singles(&first, &*trials.wanted);
    let found = search.all(singles.iter().map(|one| Case::of(vec![one.clone()])).collect());
    (report.singles, report.inert, report.left_out) = (found.tried, found.inert, found.left_out);
    report.left_out_from = found.left_out_from;
    let mut failed = found.failed.map(|(case, faults)| (case, faults, found.tried));
    if failed.is_none() {
        let found = search.all(pairs(&singles, trials.pairs, trials.seed));
        report.pairs = found.tried;
        report.inert += found.inert;
        report.left_out += found.left_out;
        report.left_out_from = report.left_out_from.or(found.left_out_from);
        failed = found.failed.map(|(case, faults)| (case, faults, report.singles + found.tried));
    }
    if let Some((case, faults, tried)) = failed {
        report.failures.push(search.shortest(case, &faults, tried));
    }
    report.elapsed = began.elapsed();
    report
}

/// Says what is wrong without any trouble: then there is nothing to compare with.
fn calm_failure(trials: &Settings, first: &Played) -> Option<Failure> {
    let again = play(&trials.plan, &Case::default(), None, true);
    let faults = match first.faults.is_empty() {
        false => first.faults.clone(),
        true => vec![Fault::Claim(difference(&first.sent, &again.sent)?)],
    };
    Some(failure(&Case::default(), faults, 0, &again))
}

/// Says where two runs without trouble differ.
///
/// When watches are opened again, and who leads, is left to chance by every informer and replica.
fn difference(first: &[Sent], again: &[Sent]) -> Option<String> {
    let asked = |sent: &[Sent]| -> Vec<String> {
        let beside = |sent: &&Sent| MACHINERY.contains(&sent.info.resource.as_str());
        let asked = sent.iter().filter(|sent| sent.info.verb != Some(Verb::Watch) && !beside(sent));
        asked.map(|sent| sent.place.to_string()).collect()
    };
    let (first, again) = (asked(first), asked(again));
    let at = first.iter().zip(&again).position(|(one, other)| one != other);
    let at = at.or((first.len() != again.len()).then(|| first.len().min(again.len())))?;
    let name = |requests: &[String]| requests.get(at).map_or("no more", String::as_str).to_owned();
    Some(format!(
        "two runs without trouble differ: request {} is `{}` in one and `{}` in the other. Does the operator draw on \
         the process's random numbers, its hash maps' order, or the machine's clock? Give it a seed",
        at + 1,
        name(&first),
        name(&again)
    ))
}

fn failure(case: &Case, faults: Vec<Fault>, tried: usize, played: &Played) -> Failure {
    let (story, steps) = timeline::steps(&played.lines);
    let test = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    Failure { trial: case.to_string(), test, faults, tried, story, steps }
}

/// Lists each trouble at each request.
pub(super) fn singles(calm: &Played, wanted: &dyn Fn(Trouble) -> bool) -> Vec<Planned> {
    let mut all = Vec::new();
    for sent in calm.sent.iter().filter(|sent| sent.place.nth <= OF_A_SORT) {
        for trouble in Trouble::at(&sent.info, &sent.there).into_iter().filter(|trouble| wanted(*trouble)) {
            all.push(Planned { place: sent.place.clone(), trouble });
        }
    }
    all
}

fn pairs(singles: &[Planned], count: usize, seed: u64) -> Vec<Case> {
    if singles.len() < 2 {
        return Vec::new();
    }
    let mut random = SmallRng::seed_from_u64(seed);
    let mut pick = || singles[random.random_range(0..singles.len())].clone();
    (0..count)
        .map(|_| Case::of(vec![pick(), pick()]))
        .filter(|case| case.planned[0] != case.planned[1])
        .collect()
}

struct Search<'a> {
    trials: &'a Settings,
    calm: &'a Calm,
    steps: usize,
    began: Instant,
}

#[derive(Default)]
struct Found {
    tried: usize,
    inert: usize,
    left_out: usize,
    left_out_from: Option<String>,
    failed: Option<(Case, Vec<Fault>)>,
}

impl Search<'_> {
    /// Plays cases on all cores until one fails; of those that fail it is the first in order.
    fn all(&self, cases: Vec<Case>) -> Found {
        let (next, tried, inert) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let failed: Mutex<BTreeMap<usize, Vec<Fault>>> = Mutex::default();
        let (first_failed, first_left) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(at) else { return };
                if at > first_failed.load(Ordering::Relaxed) {
                    return;
                }
                if self.is_over() {
                    first_left.fetch_min(at, Ordering::Relaxed);
                    return;
                }
                let played = play(&self.trials.plan, case, Some(self.calm), false);
                tried.fetch_add(1, Ordering::Relaxed);
                inert.fetch_add(usize::from(played.inert), Ordering::Relaxed);
                if !played.faults.is_empty() {
                    first_failed.fetch_min(at, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).insert(at, played.faults);
                }
                self.show_progress(tried.load(Ordering::Relaxed), cases.len());
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(cases.len().max(1));
        thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next();
        let tried = tried.into_inner();
        let left_out = if failed.is_none() { cases.len() - tried } else { 0 };
        let failed = failed.map(|(at, faults)| (cases[at].clone(), faults));
        let left_out_from = cases.get(first_left.into_inner()).filter(|_| left_out > 0).map(Case::to_string);
        Found { tried, inert: inert.into_inner(), left_out, left_out_from, failed }
    }

    fn is_over(&self) -> bool {
        self.trials.at_most.is_some_and(|most| self.began.elapsed() > most)
    }

    /// Shows how far it is, on a terminal.
    fn show_progress(&self, done: usize, of: usize) {
        if std::io::stderr().is_terminal() && (done.is_multiple_of(20) || done == of) {
            let seconds = self.began.elapsed().as_secs();
            eprint!("\rtrials: {done} of {of}, {seconds} s{}", if done == of { "\n" } else { "" });
        }
    }

    /// Makes a failing case as short as it goes, and tells its story.
    fn shortest(&self, case: Case, faults: &[Fault], tried: usize) -> Failure {
        let mut best = (case, None);
        let sort = faults.first().map(std::mem::discriminant);
        let shrink = |candidate: Case, best: &mut (Case, Option<Played>)| {
            let played = play(&self.trials.plan, &candidate, Some(self.calm), true);
            let fails = !played.inert && played.faults.first().map(std::mem::discriminant) == sort;
            if fails {
                *best = (candidate, Some(played));
            }
        };
        if best.0.planned.len() > 1 {
            for one in best.0.planned.clone() {
                shrink(Case::of(vec![one]), &mut best);
            }
        }
        for step in (1..=self.steps).rev() {
            let mut candidate = best.0.clone();
            candidate.without.push(step);
            candidate.without.sort_unstable();
            shrink(candidate, &mut best);
        }
        let (case, played) = best;
        let mut played = played.unwrap_or_else(|| play(&self.trials.plan, &case, Some(self.calm), true));
        if played.faults.is_empty() {
            played.faults = faults.to_vec();
            played.faults.push(Fault::Claim(
                "the same trial holds when it is tried again: what happens depends on more than the trial. Does the \
                 operator draw on the process's random numbers, its hash maps' order, or the machine's clock?"
                    .to_owned(),
            ));
        }
        self.told(&case, &played, tried)
    }

    fn told(&self, case: &Case, played: &Played, tried: usize) -> Failure {
        if let Some(file) = &self.trials.diagram
            && let Err(error) = std::fs::write(file, timeline::mermaid(&played.lines))
        {
            eprintln!("the diagram can't be written to {}: {error}", file.display());
        }
        failure(case, played.faults.clone(), tried, played)
    }
}
