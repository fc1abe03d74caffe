//! Which behaviours are tested, by the ids in the tests' comments.

#![expect(clippy::print_stdout, reason = "the line is the point")]

use watchkeeper_tests::behaviours::{Demand, listed, proofs};

#[test]
fn every_behaviour_that_must_hold_has_a_test_with_its_id() {
    let (listed, proofs) = (listed(), proofs().unwrap());
    let demanded: Vec<_> = listed.iter().filter(|one| one.demand == Demand::Now).collect();
    let missing: Vec<_> = demanded.iter().filter(|one| !proofs.contains_key(&one.id)).collect();
    println!(
        "behaviours tested by id: {} of {} ({} of {} that must be)",
        listed.iter().filter(|one| proofs.contains_key(&one.id)).count(),
        listed.len(),
        demanded.len() - missing.len(),
        demanded.len()
    );
    assert!(missing.is_empty(), "no test carries {missing:#?}");
}

#[test]
fn no_test_carries_an_id_that_nobody_listed() {
    let listed: Vec<_> = listed().into_iter().map(|one| one.id).collect();
    let unknown: Vec<_> = proofs().unwrap().into_iter().filter(|(id, _)| !listed.contains(id)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
