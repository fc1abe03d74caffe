//! Work that outlived the run or task that began it, as far as that can be told: somebody still holds a clone of the
//! context that it was given.

use std::{
    any::Any,
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::time::sleep;

use crate::object::ObjectKey;

/// How often those who wait look again.
const LOOK: Duration = Duration::from_millis(100);
/// How many are named in one line.
const NAMED: usize = 5;
/// Below this number nothing is forgotten before somebody asks.
const FEW: usize = 64;

/// Work that goes on although its run has ended, or was dropped.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    known: Mutex<KnownLeftovers>,
}

#[derive(Debug, Default)]
struct KnownLeftovers {
    all: Vec<Leftover>,
    /// How many there may be before those that have ended are forgotten.
    most: usize,
}

#[derive(Debug)]
struct Leftover {
    who: String,
    /// The key whose run left it; `None`: a task's.
    key: Option<ObjectKey>,
    held: Weak<dyn Any + Send + Sync>,
}

impl Leftovers {
    /// Notes what goes on for as long as somebody holds something.
    pub(crate) fn add(&self, who: String, key: Option<ObjectKey>, held: Weak<dyn Any + Send + Sync>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.all.len() >= known.most.max(FEW) {
            known.forget_ended();
            known.most = known.all.len() * 2;
        }
        known.all.push(Leftover { who, key, held });
    }

    /// Names what goes on, in one line; `None` if nothing does.
    pub(crate) fn named(&self) -> Option<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.forget_ended();
        let mut names: Vec<_> = known.all.iter().map(|leftover| leftover.who.as_str()).collect();
        names.dedup();
        let more = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!names.is_empty()).then(|| names.join(", ") + &more)
    }

    /// Returns whether something goes on of some keys, or of a task.
    pub(crate) fn goes_on_of(&self, is_of: impl Fn(&ObjectKey) -> bool) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.forget_ended();
        known.all.iter().any(|leftover| leftover.key.as_ref().is_none_or(&is_of))
    }

    /// Ends once nothing goes on.
    pub(crate) async fn ended(&self) {
        while self.named().is_some() {
            sleep(LOOK).await;
        }
    }
}

impl KnownLeftovers {
    fn forget_ended(&mut self) {
        self.all.retain(|leftover| leftover.held.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    // L17
    #[tokio::test(start_paused = true)]
    async fn what_somebody_still_holds_is_named_until_it_is_let_go() {
        let leftovers = Leftovers::default();
        assert_eq!(leftovers.named(), None);
        let held: Vec<Arc<dyn Any + Send + Sync>> = (0..1_000).map(|at| Arc::new(at) as _).collect();
        for (at, held) in held.iter().enumerate() {
            let key = ObjectKey::new("shop", at.to_string());
            leftovers.add(format!("maps {key}"), Some(key), Arc::downgrade(held));
        }
        let [first, ..] = &held[..] else { unreachable!() };
        let first = first.clone();
        drop(held);
        assert_eq!(leftovers.named().as_deref(), Some("maps shop/0"));
        assert!(
            leftovers.goes_on_of(|key| key.name() == "0") && !leftovers.goes_on_of(|key| key.name() == "1")
        );
        let ended = leftovers.ended();
        tokio::pin!(ended);
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut ended).await.is_err());
        drop(first);
        ended.await;
    }
}
