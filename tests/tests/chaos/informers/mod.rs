//! Informers of every sort on a server that does everything wrong: what they show in the end is what is there.

mod ear;
mod ledger;
mod plan;
mod run;
mod state;
mod subject;
mod troubles;

use crate::seeds::{each, paused};

/// Runs one seed.
fn verdict(seed: u64) -> crate::seeds::Verdict {
    paused(run::run(plan::Plan::of(seed)))
}

// I2 I3 I4 I19 S2 R7 R14 R43
#[test]
fn informers_hold_whatever_the_server_does() {
    each("informers", 2_000, verdict);
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in 0..12 {
        let (one, two) = (verdict(seed), verdict(seed));
        let differs = one.trace.iter().zip(&two.trace).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.trace.len(), two.trace.len(), "seed {seed}");
        assert!(one.trace.len() > 20, "seed {seed} does something");
    }
}
