//! Which trials there are, in which order, and how a failure is made short.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::time::Instant;
use watchkeeper_apiserver::Verb;

use crate::cases::{pairs, singles};
use crate::exit::test_name;
use crate::harness::Sent;
use crate::life::Version;
use crate::oracle::{Baseline, Baselines, RunOutcome, Violation, run_baseline_again, run_schedule};
use crate::plan::Plan;
use crate::replay::{REPLAY, SHARE, line};
use crate::report::{Failure, Report};
use crate::schedule::Schedule;
use crate::settings::Settings;
use crate::share::Share;
use crate::timeline::{self, Length};
use crate::upgrade;
use crate::world::MACHINERY;

pub(crate) fn run(trials: &Settings) -> Report {
    let began = Instant::now();
    let plan = &trials.plan;
    let alone = |version| run_schedule(plan, &Schedule::calm(version), None, true);
    let first = alone(plan.begins());
    let second = plan.successor.as_ref().map(|_| alone(Version::New));
    let mut report = Report { requests: first.sent.len(), ..Report::default() };
    let second_failure = || baseline_failure(plan, Version::New, second.as_ref()?);
    if let Some(failure) = baseline_failure(plan, plan.begins(), &first).or_else(second_failure) {
        report.failures.push(failure);
    } else {
        let baselines = Baselines { old: first.baseline.clone(), new: second.map(|second| second.baseline) };
        let search = Search { trials, baselines: &baselines, steps: first.steps, began };
        match trials.replay.clone().or_else(|| std::env::var(REPLAY).ok()) {
            Some(trial) => search.replay(&trial, &mut report),
            None => search.search(&first, &mut report),
        }
    }
    report.elapsed = began.elapsed();
    report
}

/// Says what is wrong without any trouble: then there is nothing to compare with.
fn baseline_failure(plan: &Plan, version: Version, first: &RunOutcome) -> Option<Failure> {
    let again = run_baseline_again(plan, version);
    let faults = match first.faults.is_empty() {
        false => first.faults.clone(),
        true => vec![Violation::Chance(
            difference(&first.sent, &again.sent).or_else(|| other_end(&first.baseline, &again.baseline))?,
        )],
    };
    Some(failure(&Schedule::default(), faults, 0, &again, Length::Short))
}

/// Says where the ends of two runs without trouble differ.
fn other_end(first: &Baseline, again: &Baseline) -> Option<String> {
    let differences = again.world.differences(&first.world);
    let shown: Vec<String> =
        differences.iter().take(12).map(|difference| format!("\n  {difference}")).collect();
    (!differences.is_empty()).then(|| {
        format!(
            "two runs without trouble end differently:{}\nDoes the operator write the machine's time there, or what it \
             draws by chance? Say so of the field, by `.random::<Kind>(\"/path/to/it\")`",
            shown.concat()
        )
    })
}

/// Says where two runs without trouble differ.
///
/// When watches are opened again, and who leads, is left to chance by every informer and replica.
fn difference(first: &[Sent], again: &[Sent]) -> Option<String> {
    let asked = |sent: &[Sent]| -> Vec<String> {
        let is_machinery = |sent: &&Sent| MACHINERY.contains(&sent.info.resource.as_str());
        let asked = sent.iter().filter(|sent| sent.info.verb != Some(Verb::Watch) && !is_machinery(sent));
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

fn failure(
    schedule: &Schedule,
    faults: Vec<Violation>,
    tried: usize,
    outcome: &RunOutcome,
    length: Length,
) -> Failure {
    let (story, steps) = timeline::steps(&outcome.lines, length);
    Failure { trial: schedule.to_string(), test: test_name(), faults, tried, story, steps }
}

struct Search<'a> {
    trials: &'a Settings,
    baselines: &'a Baselines,
    steps: usize,
    began: Instant,
}

#[derive(Default)]
struct Found {
    singles: usize,
    pairs: usize,
    inert: usize,
    left_out: usize,
    left_out_from: Option<String>,
    failed: Option<(Schedule, Vec<Violation>)>,
}

impl Search<'_> {
    /// Plays one trial alone.
    fn replay(&self, trial: &str, report: &mut Report) {
        let mut schedule: Schedule =
            trial.parse().unwrap_or_else(|error| panic!("the trial to replay can't be read: {error}"));
        schedule.begins = self.trials.plan.begins();
        let outcome = run_schedule(&self.trials.plan, &schedule, Some(self.baselines), true);
        report.singles = 1;
        report.inert = usize::from(outcome.inert);
        if outcome.faults.is_empty() {
            // A replay that holds shows what happened all the same.
            eprintln!("the trial holds:\n{}", timeline::steps(&outcome.lines, Length::Whole).0);
        } else {
            report.failures.push(self.told(&schedule, &outcome, 1, Length::Whole));
        }
        if outcome.inert {
            eprintln!("the trouble never struck, or found nothing to act on");
        }
    }

    /// Tries each trouble alone, then pairs of them.
    fn search(&self, first: &RunOutcome, report: &mut Report) {
        let share = self.share();
        let all = match self.trials.plan.successor {
            Some(_) => upgrade::schedules(self.trials, self.baselines, first),
            None => self.singles_and_pairs(first),
        };
        let chosen =
            share.of(all).unwrap_or_else(|error| panic!("the trials to try can't be chosen: {error}"));
        let found = self.all(&chosen);
        (report.singles, report.pairs, report.inert) = (found.singles, found.pairs, found.inert);
        report.share = (share != Share::default()).then(|| share.to_string());
        report.left_out = found.left_out;
        report.go_on = found.left_out_from.clone().map(|from| {
            let share = Share { from: Some(from), ..share };
            line(SHARE, &share.to_string(), test_name().as_deref())
        });
        report.left_out_from = found.left_out_from;
        if let Some((schedule, faults)) = found.failed {
            report.failures.push(self.shrunk(schedule, &faults, report.singles + report.pairs));
        }
    }

    fn singles_and_pairs(&self, first: &RunOutcome) -> Vec<Schedule> {
        let singles = singles(first, &*self.trials.wanted);
        let pairs = pairs(&singles, self.trials.pairs, self.trials.seed);
        singles.into_iter().map(|one| Schedule::of(vec![one])).chain(pairs).collect()
    }

    fn share(&self) -> Share {
        let asked = std::env::var(SHARE).unwrap_or_default();
        let asked: Share = asked.parse().unwrap_or_else(|error| panic!("{SHARE} can't be read: {error}"));
        let set = self.trials.share.clone();
        Share { part: asked.part.or(set.part), from: asked.from.or(set.from) }
    }

    /// Plays cases on all cores until one fails; of those that fail it is the first in order.
    fn all(&self, cases: &[Schedule]) -> Found {
        let (next, tried, inert) =
            (AtomicUsize::new(0), [(); 2].map(|()| AtomicUsize::new(0)), AtomicUsize::new(0));
        let failed: Mutex<BTreeMap<usize, Vec<Violation>>> = Mutex::default();
        let (first_failed, first_left) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(schedule) = cases.get(at) else { return };
                if at > first_failed.load(Ordering::Relaxed) {
                    return;
                }
                if self.is_over() {
                    first_left.fetch_min(at, Ordering::Relaxed);
                    return;
                }
                let outcome = run_schedule(&self.trials.plan, schedule, Some(self.baselines), false);
                tried[usize::from(schedule.planned.len() > 1)].fetch_add(1, Ordering::Relaxed);
                inert.fetch_add(usize::from(outcome.inert), Ordering::Relaxed);
                if !outcome.faults.is_empty() {
                    first_failed.fetch_min(at, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).insert(at, outcome.faults);
                }
                let done = tried.iter().map(|tried| tried.load(Ordering::Relaxed)).sum();
                self.show_progress(done, cases.len());
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(cases.len().max(1));
        let name = test_name().unwrap_or_else(|| "trials".to_owned());
        thread::scope(|scope| {
            for _ in 0..threads {
                let started = thread::Builder::new().name(name.clone()).spawn_scoped(scope, work);
                started.expect("a thread needs no more than memory");
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next();
        let [singles, pairs] = tried.map(AtomicUsize::into_inner);
        let tried = singles + pairs;
        let left_out = if failed.is_none() { cases.len() - tried } else { 0 };
        let failed = failed.map(|(at, faults)| (cases[at].clone(), faults));
        let left_out_from =
            cases.get(first_left.into_inner()).filter(|_| left_out > 0).map(Schedule::to_string);
        Found { singles, pairs, inert: inert.into_inner(), left_out, left_out_from, failed }
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
    fn shrunk(&self, schedule: Schedule, faults: &[Violation], tried: usize) -> Failure {
        if let Some(failure) = self.chance(&schedule, faults, tried) {
            return failure;
        }
        let mut best = (schedule, None);
        let sort = faults.first().map(std::mem::discriminant);
        let shrink = |candidate: Schedule, best: &mut (Schedule, Option<RunOutcome>)| {
            let outcome = run_schedule(&self.trials.plan, &candidate, Some(self.baselines), true);
            let fails = !outcome.inert && outcome.faults.first().map(std::mem::discriminant) == sort;
            if fails {
                *best = (candidate, Some(outcome));
            }
        };
        if best.0.planned.len() > 1 {
            for one in best.0.planned.clone() {
                let begins = self.trials.plan.begins();
                shrink(Schedule { begins, ..Schedule::of(vec![one]) }, &mut best);
            }
        }
        for step in (1..=self.steps).rev() {
            let mut candidate = best.0.clone();
            candidate.without.push(step);
            candidate.without.sort_unstable();
            shrink(candidate, &mut best);
        }
        let (schedule, outcome) = best;
        let mut outcome =
            outcome.unwrap_or_else(|| run_schedule(&self.trials.plan, &schedule, Some(self.baselines), true));
        if outcome.faults.is_empty() {
            outcome.faults = faults.to_vec();
            outcome.faults.push(Violation::Chance(
                "the same trial holds when it is tried again: what happens depends on more than the trial. Does the \
                 operator draw on the process's random numbers, its hash maps' order, or the machine's clock?"
                    .to_owned(),
            ));
        }
        self.told(&schedule, &outcome, tried, Length::Short)
    }

    /// Finds out whether another end is what two runs without trouble differ by: some write times, or draw lots.
    fn chance(&self, schedule: &Schedule, faults: &[Violation], tried: usize) -> Option<Failure> {
        faults.iter().find(|fault| matches!(fault, Violation::AnotherEnd(_)))?;
        let again = run_baseline_again(&self.trials.plan, self.trials.plan.begins());
        let what = other_end(&self.baselines.old, &again.baseline)?;
        let faults =
            vec![Violation::Chance(format!("{what}\nThis showed when a trial seemed to fail: {schedule}"))];
        Some(failure(&Schedule::default(), faults, tried, &again, Length::Short))
    }

    fn told(&self, schedule: &Schedule, outcome: &RunOutcome, tried: usize, length: Length) -> Failure {
        if let Some(file) = &self.trials.diagram
            && let Err(error) = std::fs::write(file, timeline::mermaid(&outcome.lines))
        {
            eprintln!("the diagram can't be written to {}: {error}", file.display());
        }
        failure(schedule, outcome.faults.clone(), tried, outcome, length)
    }
}
