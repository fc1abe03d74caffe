//! Recent: objects as values, as long as they have been in use lately.
//!
//! Objects are stored as text: a tree of values takes several times its JSON. What is worked on is parsed once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// The limit on the JSON bytes of kept values.
const MOST: usize = 256 << 10;

/// The values that were read or written last.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    values: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
    /// The number of the oldest value.
    first: u64,
}

/// The place of an object's value among the recent ones; it may have been removed.
#[derive(Debug, Default)]
pub(super) struct SeenTicket(AtomicU64);

impl Recent {
    /// Keeps a value whose JSON has this length; removes the oldest ones.
    pub(super) fn keep(&self, ticket: &SeenTicket, value: Arc<Value>, length: usize) {
        let mut gone = Vec::new();
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = ring.first + ring.values.len() as u64;
        ring.bytes += length;
        ring.values.push_back((value, length));
        while ring.bytes > MOST
            && let Some((value, length)) = ring.values.pop_front()
        {
            ring.bytes -= length;
            ring.first += 1;
            gone.push(value);
        }
        // Ticket numbers start at one, so a new ticket is never found.
        ticket.0.store(number + 1, Ordering::Relaxed);
        // Dropping a large value takes time, so it is dropped elsewhere.
        drop(ring);
    }

    /// Returns a value that is still there.
    pub(super) fn get(&self, ticket: &SeenTicket) -> Option<Arc<Value>> {
        let number = ticket.0.load(Ordering::Relaxed).checked_sub(1)?;
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(number.checked_sub(ring.first)?).ok()?;
        ring.values.get(at).map(|(value, _)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_values_go() {
        let recent = Recent::default();
        let tickets: [SeenTicket; 3] = Default::default();
        assert_eq!(recent.get(&tickets[0]), None);
        recent.keep(&tickets[0], Arc::new(1.into()), MOST);
        assert_eq!(recent.get(&tickets[0]).as_deref(), Some(&1.into()));
        recent.keep(&tickets[1], Arc::new(2.into()), MOST / 2);
        recent.keep(&tickets[2], Arc::new(3.into()), MOST / 2);
        let there = tickets.each_ref().map(|ticket| recent.get(ticket).map(|value| Value::clone(&value)));
        assert_eq!(there, [None, Some(2.into()), Some(3.into())]);
    }
}
