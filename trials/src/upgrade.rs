//! Which trials of an upgrade there are.

use std::collections::HashSet;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use watchkeeper_apiserver::Verb;

use crate::cases::{OF_A_SORT, singles};
use crate::harness::Sent;
use crate::oracle::{Baselines, RunOutcome, run_schedule};
use crate::schedule::{Place, PlannedTrouble, Schedule};
use crate::settings::Settings;
use crate::trouble::{ForeignChange, Moment, Replacement, Trouble};

/// Lists the trials; `first` is the run of the old version alone.
pub(crate) fn schedules(trials: &Settings, baselines: &Baselines, first: &RunOutcome) -> Vec<Schedule> {
    let steps = first.steps;
    let at_rest: Vec<Vec<PlannedTrouble>> = (0..=steps).map(|step| vec![after(step)]).collect();
    let killed = killed(first);
    let there_and_back = (0..=steps).flat_map(|there| {
        (there..=steps).flat_map(move |back| {
            let both = vec![after(there), after(back)];
            let again = [both.clone(), vec![after(steps)]].concat();
            [both, again]
        })
    });
    let (after_it, troubles) = after_each(trials, baselines, &at_rest);
    let mut all: Vec<_> = [at_rest.clone(), killed.clone(), there_and_back.collect(), after_it].concat();
    let mut others: Vec<_> = singles(first, &|_| true).into_iter().map(|one| vec![one]).collect();
    others.extend(troubles);
    let one = [at_rest, killed].concat();
    let mut random = SmallRng::seed_from_u64(trials.seed);
    // An operator that sends nothing has no requests at which to try anything.
    let pairs = if others.is_empty() || one.is_empty() { 0 } else { trials.pairs };
    for _ in 0..pairs {
        let mut planned = others[random.random_range(0..others.len())].clone();
        // A trouble of the new version comes with the replacement that starts it.
        if planned.len() == 1 {
            planned.extend(one[random.random_range(0..one.len())].clone());
        }
        all.push(planned);
    }
    all.retain(|planned| planned.iter().all(|one| (trials.wanted)(one.trouble)));
    let begins = trials.plan.begins();
    all.into_iter().map(|planned| Schedule { begins, ..Schedule::of(planned) }).collect()
}

fn after(step: usize) -> PlannedTrouble {
    PlannedTrouble { place: Place::Step(step), trouble: Trouble::Replaced(Replacement::AtRest) }
}

fn at(sent: &Sent, how: Replacement) -> PlannedTrouble {
    PlannedTrouble { place: Place::Request(sent.place.clone()), trouble: Trouble::Replaced(how) }
}

/// Kills a version at each of its requests; where it elects a leader, both may run for a while.
fn killed(first: &RunOutcome) -> Vec<Vec<PlannedTrouble>> {
    let is_lease = |sent: &Sent| sent.info.resource == "leases" && sent.info.verb.is_some_and(Verb::writes);
    let elects = first.sent.iter().any(is_lease);
    let sent = first.sent.iter().filter(|sent| sent.place.nth <= OF_A_SORT);
    let each = |sent: &Sent| {
        let kills = kills(sent);
        let rolls = elects.then_some(Replacement::Rolling);
        kills.into_iter().chain(rolls).map(|how| vec![at(sent, how)]).collect::<Vec<_>>()
    };
    sent.flat_map(each).collect()
}

fn kills(sent: &Sent) -> Vec<Replacement> {
    let moments: &[Moment] = match sent.info.verb {
        Some(Verb::Watch) => &[Moment::Before],
        _ => &[Moment::Before, Moment::After],
    };
    moments.iter().map(|moment| Replacement::Killed(*moment)).collect()
}

/// Kills the new version at each of its requests, whenever it took over, and has what it looks after deleted; gives what
/// else may go wrong with it as well.
fn after_each(
    trials: &Settings,
    baselines: &Baselines,
    at_rest: &[Vec<PlannedTrouble>],
) -> (Vec<Vec<PlannedTrouble>>, Vec<Vec<PlannedTrouble>>) {
    let (mut all, mut others, mut known) = (Vec::new(), Vec::new(), HashSet::new());
    for planned in at_rest {
        let schedule = Schedule { begins: trials.plan.begins(), ..Schedule::of(planned.clone()) };
        let outcome = run_schedule(&trials.plan, &schedule, Some(baselines), false);
        let of_new = |sent: &&Sent| sent.is_of_new && sent.place.nth <= OF_A_SORT;
        for sent in outcome.sent.iter().filter(of_new) {
            if !known.insert(sent.place.clone()) {
                continue;
            }
            let with = |one: PlannedTrouble| [planned.clone(), vec![one]].concat();
            all.extend(kills(sent).into_iter().map(|how| with(at(sent, how))));
            for trouble in Trouble::at(&sent.info, &sent.there) {
                let one = with(PlannedTrouble { place: Place::Request(sent.place.clone()), trouble });
                match trouble {
                    Trouble::Stranger(ForeignChange::Deletes, ..) => all.push(one),
                    _ => others.push(one),
                }
            }
        }
    }
    (all, others)
}
