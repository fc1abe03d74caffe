//! Feeds: all followers of a resource read its changes from one shared log.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::cooperative;

use super::change::Change;

/// The most changes that a feed takes at once.
const AT_ONCE: usize = 64;

/// The log of one scope, and its readers.
#[derive(Debug)]
pub(super) struct Hub {
    /// Moves with each change, and at the end; written under the lock of the log.
    next: AtomicU64,
    /// Counts wake-ups; written under the lock of the log.
    wakings: AtomicU64,
    furthest_behind: usize,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// The newest changes; empty once everybody has read them.
    changes: VecDeque<Arc<Change>>,
    /// The wakers, by the number of the feed.
    waiting: Vec<(u64, Waker)>,
    feeds: usize,
    /// How many feeds have read everything.
    caught_up: usize,
    opened: u64,
    over: bool,
}

impl Hub {
    /// Creates a log without readers; a feed that falls further behind than this ends.
    pub(super) fn new(furthest_behind: usize) -> Arc<Self> {
        let (next, wakings) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { next, wakings, furthest_behind, log: Mutex::default() })
    }

    /// Reads everything from now on.
    pub(super) fn feed(self: &Arc<Self>) -> Feed {
        let mut log = self.lock();
        log.feeds += 1;
        log.caught_up += 1;
        log.opened += 1;
        let (hub, id, next) = (self.clone(), log.opened, self.next.load(Ordering::Relaxed));
        Feed { hub, id, next, taken: VecDeque::new(), listed: None }
    }

    /// Returns whether it has no readers.
    pub(super) fn is_deserted(&self) -> bool {
        self.lock().feeds == 0
    }

    /// Adds a change; [`Hub::wake`] wakes the readers, once no lock is held.
    ///
    /// The cost does not depend on the number of readers.
    pub(super) fn publish(&self, change: Arc<Change>) {
        let mut log = self.lock();
        if log.caught_up == log.feeds {
            log.changes.clear();
        }
        if log.changes.len() == self.furthest_behind {
            log.changes.pop_front();
        }
        log.changes.push_back(change);
        log.caught_up = 0;
        self.next.fetch_add(1, Ordering::Release);
    }

    /// Ends all feeds once they have read everything.
    pub(super) fn end(&self) {
        let mut log = self.lock();
        if !std::mem::replace(&mut log.over, true) {
            self.next.fetch_add(1, Ordering::Release);
        }
    }

    /// Wakes the waiting readers, each once, however many changes came.
    pub(super) fn wake(&self) {
        let waiting = {
            let mut log = self.lock();
            self.wakings.fetch_add(1, Ordering::Release);
            std::mem::take(&mut log.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The changes of one scope, for one reader.
///
/// It ends when the server ends it, and when it is so far behind that the log has lost what comes next.
#[derive(Debug)]
pub(crate) struct Feed {
    hub: Arc<Hub>,
    id: u64,
    /// The number of the first change that is not taken yet.
    next: u64,
    taken: VecDeque<Arc<Change>>,
    /// The waker that is listed, and the number of the waking that it waits for.
    listed: Option<(u64, Waker)>,
}

impl Feed {
    /// Returns the next change; `None` is the end.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<Change>>> {
        // One reader with much to read does not keep others from theirs.
        pin!(cooperative(poll_fn(|cx| self.poll_taken(cx)))).poll(cx)
    }

    fn poll_taken(&mut self, cx: &Context<'_>) -> Poll<Option<Arc<Change>>> {
        if let Some(change) = self.taken.pop_front() {
            return Poll::Ready(Some(change));
        }
        if self.is_listed(cx.waker()) && self.hub.next.load(Ordering::Acquire) == self.next {
            return Poll::Pending;
        }
        let hub = self.hub.clone();
        let mut log = hub.lock();
        let there = hub.next.load(Ordering::Relaxed) - u64::from(log.over);
        let unread = usize::try_from(there - self.next).unwrap_or(usize::MAX);
        let Some(first) = log.changes.len().checked_sub(unread) else {
            return Poll::Ready(None);
        };
        if unread == 0 && log.over {
            return Poll::Ready(None);
        }
        let take = unread.min(AT_ONCE);
        self.taken.extend(log.changes.range(first..first + take).cloned());
        self.next += take as u64;
        if take == unread {
            log.caught_up += usize::from(unread > 0);
            self.list(&mut log, cx.waker());
        }
        drop(log);
        self.taken.pop_front().map_or(Poll::Pending, |change| Poll::Ready(Some(change)))
    }

    fn is_listed(&self, waker: &Waker) -> bool {
        let now = self.hub.wakings.load(Ordering::Acquire);
        self.listed.as_ref().is_some_and(|(at, listed)| *at == now && listed.will_wake(waker))
    }

    /// Registers to be woken by the next change.
    fn list(&mut self, log: &mut Log, waker: &Waker) {
        if self.is_listed(waker) {
            return;
        }
        let now = self.hub.wakings.load(Ordering::Relaxed);
        if self.listed.as_ref().is_some_and(|(at, _)| *at == now) {
            log.waiting.retain(|(id, _)| *id != self.id);
        }
        log.waiting.push((self.id, waker.clone()));
        match &mut self.listed {
            Some((at, listed)) => {
                *at = now;
                listed.clone_from(waker);
            }
            None => self.listed = Some((now, waker.clone())),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut log = self.hub.lock();
        let there = self.hub.next.load(Ordering::Relaxed) - u64::from(log.over);
        log.feeds -= 1;
        log.caught_up -= usize::from(self.next == there);
        log.waiting.retain(|(id, _)| *id != self.id);
        if log.caught_up == log.feeds {
            log.changes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;
    use crate::store::{ResourceId, Scope, Store};
    use serde_json::json;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes this many changes.
    fn changes(count: usize) -> Vec<Arc<Change>> {
        let (mut store, id) = (Store::new(0, count), ResourceId::new("", "configmaps"));
        (0..count).for_each(|at| drop(store.put(&id, &format!("n/{at}"), json!({}))));
        store.changes_after(&id, 0).expect("kept")
    }

    fn read(feed: &mut Feed, waker: &Waker) -> (Vec<u64>, bool) {
        let (mut cx, mut versions) = (Context::from_waker(waker), Vec::new());
        loop {
            match feed.poll_next(&mut cx) {
                Poll::Ready(Some(change)) => versions.push(change.version),
                Poll::Ready(None) => return (versions, true),
                Poll::Pending => return (versions, false),
            }
        }
    }

    // A14
    #[test]
    fn a_feed_is_woken_once_for_all_that_has_come_and_reads_it_in_order() {
        let (hub, woken) = (Hub::new(1_000), Arc::new(Woken::default()));
        let (waker, mut feed, mut late) = (Waker::from(woken.clone()), hub.feed(), hub.feed());
        assert_eq!(read(&mut feed, &waker), (vec![], false));
        let mut expected = Vec::new();
        for change in changes(200) {
            expected.push(change.version);
            hub.publish(change);
        }
        hub.wake();
        hub.wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(read(&mut feed, &waker), (expected.clone(), false));
        assert_eq!(read(&mut late, &waker), (expected, false));
        hub.publish(changes(1).remove(0));
        hub.wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 3);
        assert_eq!(hub.lock().changes.len(), 1, "what all have read is gone");
        hub.end();
        assert_eq!(read(&mut feed, &waker), (vec![1], true));
    }

    // A14
    #[test]
    fn what_is_not_read_is_kept_for_those_who_will_and_a_reader_that_goes_leaves_nothing() {
        let hub = Hub::new(1_000);
        let (waker, mut feed, behind) = (Waker::noop(), hub.feed(), hub.feed());
        for change in changes(10) {
            hub.publish(change);
            assert_eq!(read(&mut feed, waker).0.len(), 1);
        }
        assert_eq!(hub.lock().changes.len(), 10);
        drop(behind);
        assert_eq!(hub.lock().changes.len(), 0);
        drop(feed);
        assert!(hub.is_deserted() && hub.lock().waiting.is_empty());
    }

    // A15
    #[test]
    fn a_feed_that_is_too_far_behind_ends_and_others_go_on() {
        let hub = Hub::new(100);
        let (waker, mut feed, mut near, mut slow) = (Waker::noop(), hub.feed(), hub.feed(), hub.feed());
        for (at, change) in changes(101).into_iter().enumerate() {
            if at == 100 {
                assert_eq!(read(&mut near, waker).0.len(), 100, "a hundred behind is not too far");
            }
            hub.publish(change);
            assert_eq!(read(&mut feed, waker).0.len(), 1);
        }
        assert_eq!(read(&mut slow, waker), (vec![], true));
        assert_eq!(hub.lock().changes.len(), 100);
    }

    // A14
    #[test]
    fn a_change_reaches_the_scopes_that_hold_it() {
        let (mut store, id) = (Store::new(0, 99), ResourceId::new("", "configmaps"));
        let scope = |namespace: Option<&str>, name: Option<&str>| Scope {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        let scopes = [
            scope(None, None),
            scope(Some("a"), None),
            scope(None, Some("x")),
            scope(Some("a"), Some("x")),
            scope(Some("b"), Some("x")),
        ];
        let mut feeds = scopes.clone().map(|scope| store.follow(&id, scope));
        let keys = ["a/x", "a/y", "b/x", "x"];
        keys.iter().for_each(|key| drop(store.put(&id, key, json!({}))));
        for (feed, scope) in feeds.iter_mut().zip(scopes) {
            let held = (1..).zip(keys).filter(|(_, key)| scope.holds(key)).map(|(version, _)| version);
            assert_eq!(read(feed, Waker::noop()).0, held.collect::<Vec<u64>>(), "{scope:?}");
        }
    }
}
