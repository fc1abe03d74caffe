//! Keys that are forgotten leave no memory behind.

use super::*;
use crate::workqueue::clock::At;
use crate::workqueue::schedule::{Offer, Schedule};
use crate::workqueue::{ItemExponentialFailure, Outcome};

// Q18
#[test]
fn a_million_forgotten_keys_leave_no_memory_behind() {
    const KEYS: u32 = 1_000_000;
    let mut schedule = Schedule::unlimited(std::sync::Arc::new(ItemExponentialFailure::default()));
    for key in 0..KEYS {
        schedule.add_after(key, secs(1), Priority::Normal, &At::START);
    }
    assert_eq!(schedule.depth().known, KEYS as usize);
    let later = At::START.after(secs(2));
    for _ in 0..KEYS {
        let Offer::Run(grant) = schedule.take(&later, usize::MAX) else { panic!("all are due") };
        schedule.finish(grant.id, Outcome::Forget, grant.priority, &later);
    }
    assert_eq!(schedule.depth(), crate::workqueue::Depth::default());
    let Schedule { entries, ready, in_flight, .. } = &schedule;
    let lines =
        ready.lines().flat_map(|all| &all.lines).chain([in_flight]).map(|line| line.tickets.capacity());
    let most = lines.chain([entries.slab.capacity(), entries.table.capacity()]).max();
    assert!(most <= Some(4096), "{most:?}");
}

// Q18
#[test]
fn a_delayed_key_costs_little_beyond_itself() {
    use crate::workqueue::entries::{KeyEntry, Ticket};
    let entry = size_of::<KeyEntry<u64>>() - size_of::<u64>();
    let timer = size_of::<(At, Ticket)>();
    assert!(entry + timer <= 48, "{entry} and {timer}");
}
