//! Which troubles are tried: each at each request, and pairs of them.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::oracle::RunOutcome;
use crate::schedule::{Place, PlannedTrouble, Schedule};
use crate::trouble::Trouble;

/// How many requests of one sort are tried; later ones are like them.
pub(crate) const OF_A_SORT: u32 = 3;

/// Lists each trouble at each request.
pub(crate) fn singles(baseline: &RunOutcome, wanted: &dyn Fn(Trouble) -> bool) -> Vec<PlannedTrouble> {
    let mut all = Vec::new();
    for sent in baseline.sent.iter().filter(|sent| sent.place.nth <= OF_A_SORT) {
        for trouble in Trouble::at(&sent.info, &sent.there).into_iter().filter(|trouble| wanted(*trouble)) {
            all.push(PlannedTrouble { place: Place::Request(sent.place.clone()), trouble });
        }
    }
    all
}

pub(crate) fn pairs(singles: &[PlannedTrouble], count: usize, seed: u64) -> Vec<Schedule> {
    if singles.len() < 2 {
        return Vec::new();
    }
    let mut random = SmallRng::seed_from_u64(seed);
    let mut pick = || singles[random.random_range(0..singles.len())].clone();
    (0..count)
        .map(|_| Schedule::of(vec![pick(), pick()]))
        .filter(|schedule| schedule.planned[0] != schedule.planned[1])
        .collect()
}
