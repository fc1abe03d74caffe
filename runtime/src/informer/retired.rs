//! States that a burst of changes replaced, on their way back to the task that decodes, which drops them one by one.
//!
//! An allocator gives memory out again fastest if it is asked for next, on the thread that gave it back. Dropping one state
//! with each that is decoded takes 62,900 instructions an event, dropping those of a batch together 65,900. Where another
//! thread than the decoder's dropped them, the two waited for each other 23,000 times in 200,000 events. So whoever lets
//! go of a state last leaves it here: the processor, or a handler's task.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::CachedObject;

/// Most states that wait.
const MOST: usize = 256;

/// How many states are worth it.
const BURST: usize = 8;

/// Keeps what a burst retired for a moment: until as many events came, or two looks saw that none do.
#[derive(Debug)]
pub(super) struct Retired<K> {
    state: Mutex<State<K>>,
    /// States wait, and nobody looks yet.
    begun: Notify,
}

#[derive(Debug)]
struct State<K> {
    waiting: Vec<CachedObject<K>>,
    since_look: Came,
}

/// What came since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Nothing,
    More,
    /// Nobody looks, since nothing waits.
    Unwatched,
}

/// Whether there is to be another look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Looks {
    GoOn,
    End,
}

impl<K> Retired<K> {
    pub(super) fn new() -> Self {
        let state = State { waiting: Vec::new(), since_look: Came::Unwatched };
        Self { state: Mutex::new(state), begun: Notify::new() }
    }

    /// Leaves states to be dropped with events to come; a few, and more than can wait, are dropped now.
    ///
    /// A state that somebody else holds as well is left to that one.
    pub(super) fn retire(&self, states: &mut Vec<CachedObject<K>>) {
        states.retain(CachedObject::is_last);
        if states.len() >= BURST {
            let mut state = self.lock();
            let room = MOST.saturating_sub(state.waiting.len()).min(states.len());
            state.waiting.extend(states.drain(..room));
            if std::mem::replace(&mut state.since_look, Came::More) == Came::Unwatched {
                self.begun.notify_one();
            }
        }
        // Unlocked before the rest is dropped: that runs code of users.
        states.clear();
    }

    /// Drops one of those that wait.
    pub(super) fn drop_one(&self) {
        let one = self.lock().waiting.pop();
        drop(one);
    }

    /// Waits until states wait: from then on somebody must look.
    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Drops all that wait, if none came since the last look.
    pub(super) fn look(&self) -> Looks {
        let waiting = {
            let mut state = self.lock();
            if state.since_look == Came::More {
                state.since_look = Came::Nothing;
                return Looks::GoOn;
            }
            state.since_look = Came::Unwatched;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        Looks::End
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{list_watch::Item, store::Indexer};

    /// States, and the objects in them.
    #[derive(Default)]
    struct States(Vec<Weak<ConfigMap>>);

    impl States {
        fn make(&mut self, count: usize) -> Vec<CachedObject<ConfigMap>> {
            let objects: Vec<_> = (0..count).map(|_| named()).collect();
            self.0.extend(objects.iter().map(Arc::downgrade));
            let state = |object| Indexer::new().write(|batch| batch.hold(Item::Object(object)));
            objects.into_iter().map(|object| state(object).expect("it is typed")).collect()
        }

        fn held(&self) -> usize {
            self.0.iter().filter(|object| object.strong_count() > 0).count()
        }
    }

    fn named() -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".to_owned());
        Arc::new(object)
    }

    #[test]
    fn a_burst_waits_within_bounds_and_a_few_do_not() {
        let (retired, mut states) = (Retired::new(), States::default());
        retired.retire(&mut states.make(BURST - 1));
        assert_eq!(states.held(), 0);
        retired.retire(&mut states.make(BURST));
        retired.drop_one();
        assert_eq!(states.held(), BURST - 1);
        for _ in 0..MOST {
            retired.retire(&mut states.make(BURST));
        }
        assert_eq!(states.held(), MOST);
        assert_eq!(retired.look(), Looks::GoOn);
        assert_eq!(states.held(), MOST, "they have just come");
        assert_eq!(retired.look(), Looks::End);
        assert_eq!(states.held(), 0);
    }

    #[test]
    fn whoever_holds_a_state_last_retires_it() {
        let (retired, mut states) = (Retired::new(), States::default());
        let mut of_processor = states.make(BURST);
        let mut of_handler = of_processor.clone();
        retired.retire(&mut of_processor);
        drop(of_handler.pop());
        assert_eq!(states.held(), BURST - 1, "the handler's were the last, so that one is gone");
        of_handler.extend(states.make(1));
        retired.retire(&mut of_handler);
        assert_eq!(states.held(), BURST);
    }

    #[test]
    fn somebody_is_asked_to_look_once_a_burst() {
        let (retired, mut states) = (Retired::new(), States::default());
        assert_eq!(retired.begun().now_or_never(), None);
        for _ in 0..2 {
            (0..3).for_each(|_| retired.retire(&mut states.make(BURST)));
            assert_eq!(retired.begun().now_or_never(), Some(()));
            assert_eq!(retired.begun().now_or_never(), None);
            while retired.look() == Looks::GoOn {}
        }
    }
}
