//! What is forgotten leaves nothing behind.

use super::*;
use crate::workqueue::clock::At;
use crate::workqueue::state::{Next, State};
use crate::workqueue::{ItemExponentialFailure, Outcome};

// Q18
#[test]
fn a_million_forgotten_keys_leave_no_memory_behind() {
    const KEYS: u32 = 1_000_000;
    let mut state = State::unlimited(std::sync::Arc::new(ItemExponentialFailure::default()));
    for key in 0..KEYS {
        state.add_after(key, secs(1), Priority::Normal, &At::START);
    }
    assert_eq!(state.known(), KEYS as usize);
    let later = At::START.after(secs(2));
    for _ in 0..KEYS {
        let Next::Run(turn) = state.take(&later) else { panic!("all are due") };
        let grant = state.grant(turn);
        state.finish(grant.id, Outcome::Forget, grant.priority, &later);
    }
    assert_eq!((state.known(), state.delayed()), (0, 0));
    assert!(state.capacity() <= 4096, "{}", state.capacity());
}

// Q18
#[test]
fn a_delayed_key_costs_little_beyond_itself() {
    use crate::workqueue::entries::Entry;
    let entry = size_of::<Entry<u64>>() - size_of::<u64>();
    // the heap's node, and the table's number and tag at its emptiest
    assert!(entry + 16 + 12 <= 76, "{entry}");
}
