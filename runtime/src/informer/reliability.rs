//! Whether an informer's cache can be relied on, and when it lists to compare.

use std::{collections::VecDeque, future::pending, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    clock::until,
    delta_fifo::Extent,
    object::ObjectKey,
    reflector::{CacheStatus, Doubt, FetchReport, Server},
};

/// How often at most an informer lists because answers contradict its cache, or reports lost history for that.
const ONCE_IN: Duration = Duration::from_secs(60);

/// The status of a cache, part by part.
#[derive(Debug)]
pub(crate) struct Reliability {
    pub(super) server: Server,
    parts: Vec<Part>,
    /// Changes when a list has replaced a part.
    listed: watch::Sender<()>,
}

/// One extent, with a reflector of its own.
#[derive(Debug)]
struct Part {
    extent: Extent,
    /// Signalled when a list becomes due.
    due_anew: Notify,
    state: Mutex<PartState>,
}

#[derive(Debug, Default)]
struct PartState {
    status: CacheStatus,
    /// How many losses of its watch count already, although changes from before them are still queued.
    early_cuts: usize,
    /// When it last listed to compare, and last reported lost history.
    compared: Option<Instant>,
    told: Option<Instant>,
    /// When it is to list.
    due: Option<Instant>,
    /// How often a list was asked for, how many of these were to be answered by the list that began last, and how many
    /// the cache has answered.
    lists: ListCounts,
}

#[derive(Debug, Default)]
struct ListCounts {
    asked: u64,
    begun: u64,
    /// What the lists answer that the cache has not taken yet, the oldest first.
    queued: VecDeque<u64>,
    done: u64,
}

impl Reliability {
    pub(super) fn new(server: Server, extents: impl IntoIterator<Item = Extent>) -> Self {
        let part = |extent| Part { extent, due_anew: Notify::new(), state: Mutex::default() };
        Self { server, parts: extents.into_iter().map(part).collect(), listed: watch::channel(()).0 }
    }

    /// Notes at once that a watch is lost.
    pub(super) fn watch_lost(&self, extent: &Extent) {
        let Some(part) = self.part(extent) else { return };
        {
            let mut state = part.state.lock();
            state.early_cuts += 1;
            state.status.cut = Some(Instant::now());
        }
        self.server.note_change();
    }

    /// Takes a report once everything that was queued before it has been handled.
    pub(super) fn handled(&self, extent: &Extent, report: &FetchReport) {
        let Some(part) = self.part(extent) else { return };
        {
            let mut state = part.state.lock();
            match report {
                FetchReport::WatchLost => state.early_cuts = state.early_cuts.saturating_sub(1),
                FetchReport::WatchBack if state.early_cuts == 0 => state.status.cut = None,
                FetchReport::Current { losses } => state.status.losses = *losses,
                _ => return,
            }
        }
        self.server.note_change();
    }

    /// Says why the cache can't be relied on, if so; of several parts, the doubt that lasts longest.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        let doubts = self.parts.iter().filter_map(|part| self.server.doubt(&part.state.lock().status));
        doubts.max_by_key(|doubt| doubt.until)
    }

    /// Relists the part that holds a key, unless it was listed less than a minute ago; returns whether it does.
    pub(crate) fn compare(&self, key: &ObjectKey) -> bool {
        let Some(part) = self.parts.iter().find(|part| part.extent.holds(key)) else { return false };
        let now = Instant::now();
        let due = is_due(&mut part.state.lock().compared, now);
        if due {
            part.list_at(now);
        }
        due
    }

    /// Requests a relist of an extent as soon as the limit allows; returns whether none was due.
    pub(super) fn list_soon(&self, extent: &Extent) -> bool {
        let Some(part) = self.part(extent) else { return false };
        let (now, compared) = (Instant::now(), part.state.lock().compared);
        part.list_at(compared.map_or(now, |compared| now.max(compared + ONCE_IN)))
    }

    /// Reports to the server's reflectors that it lost the history which the part that holds a key has followed.
    pub(crate) fn report_history_loss(&self, key: &ObjectKey) {
        let part = self.parts.iter().find(|part| part.extent.holds(key));
        if part.is_some_and(|part| is_due(&mut part.state.lock().told, Instant::now())) {
            self.server.report_history_loss();
        }
    }

    /// Ends when the reflector of an extent is to list.
    pub(super) async fn wants_list(&self, extent: &Extent) {
        match self.part(extent) {
            Some(part) => part.wants_list().await,
            None => pending().await,
        }
    }

    /// Relists all parts, and ends once the cache shows what these lists show.
    pub(super) async fn listed_anew(&self) {
        let mut changes = self.listed.subscribe();
        let ask = |part: &Part| {
            let asked = {
                let mut state = part.state.lock();
                state.lists.asked += 1;
                state.lists.asked
            };
            part.list_at(Instant::now());
            asked
        };
        let asked: Vec<_> = self.parts.iter().map(ask).collect();
        while self.parts.iter().zip(&asked).any(|(part, asked)| part.state.lock().lists.done < *asked) {
            // The sender is here.
            let _ = changes.changed().await;
        }
    }

    /// A list of an extent is about to be queued for the cache.
    pub(super) fn listed(&self, extent: &Extent) {
        if let Some(part) = self.part(extent) {
            let lists = &mut part.state.lock().lists;
            // Another list may begin before the cache takes this one.
            lists.queued.push_back(lists.begun);
        }
    }

    /// The list of an extent that was queued first has replaced what the cache showed.
    pub(super) fn replaced(&self, extent: &Extent) {
        if let Some(part) = self.part(extent) {
            let mut state = part.state.lock();
            let lists = &mut state.lists;
            lists.done = lists.queued.pop_front().unwrap_or(lists.done);
            drop(state);
            self.listed.send_replace(());
        }
    }

    /// Relists the part of an extent, even if it was listed lately.
    pub(super) fn list_anew(&self, extent: &Extent) {
        if let Some(part) = self.part(extent) {
            part.list_at(Instant::now());
        }
    }

    fn part(&self, extent: &Extent) -> Option<&Part> {
        self.parts.iter().find(|part| part.extent == *extent)
    }
}

impl Part {
    /// Has the reflector list at some time, or before; says whether it was not to list.
    fn list_at(&self, due: Instant) -> bool {
        let before = {
            let mut state = self.state.lock();
            let before = state.due;
            state.due = Some(before.map_or(due, |before| before.min(due)));
            before
        };
        self.due_anew.notify_one();
        before.is_none()
    }

    async fn wants_list(&self) {
        loop {
            let due = {
                let (mut state, now) = (self.state.lock(), Instant::now());
                if state.due.is_some_and(|due| due <= now) {
                    (state.due, state.compared) = (None, Some(now));
                    state.lists.begun = state.lists.asked;
                    return;
                }
                state.due
            };
            tokio::select! {
                () = self.due_anew.notified() => {}
                () = until(due) => {}
            }
        }
    }
}

/// Returns whether something may be done again, and records it.
fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now - last >= ONCE_IN);
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::reflector::DoubtCause;

    fn reliability() -> (Server, Reliability) {
        let server = Server::default();
        (server.clone(), Reliability::new(server, [Extent::All]))
    }

    // C35
    #[tokio::test(start_paused = true)]
    async fn lost_history_is_in_doubt_until_the_cache_shows_an_answer() {
        let (server, reliability) = reliability();
        server.report_history_loss();
        assert_eq!(reliability.doubt().unwrap().cause, DoubtCause::HistoryLost);
        reliability.handled(&Extent::All, &FetchReport::Current { losses: 1 });
        assert_eq!(reliability.doubt(), None);
    }

    // C35
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_was_back_before_it_was_lost_again_ends_no_doubt() {
        let (_, reliability) = reliability();
        let cut = || reliability.doubt().map(|doubt| doubt.cause);
        reliability.watch_lost(&Extent::All);
        reliability.handled(&Extent::All, &FetchReport::WatchLost);
        reliability.watch_lost(&Extent::All);
        reliability.handled(&Extent::All, &FetchReport::WatchBack);
        assert_eq!(cut(), Some(DoubtCause::WatchCut));
        reliability.handled(&Extent::All, &FetchReport::WatchLost);
        assert_eq!(cut(), Some(DoubtCause::WatchCut));
        reliability.handled(&Extent::All, &FetchReport::WatchBack);
        assert_eq!(cut(), None);
    }

    // R50
    #[tokio::test(start_paused = true)]
    async fn a_cache_is_compared_at_most_once_a_minute() {
        let (server, reliability) = reliability();
        let key = ObjectKey::new("shop", "a");
        assert!(reliability.compare(&key));
        assert!(!reliability.compare(&key));
        let told = server.change_count();
        reliability.report_history_loss(&key);
        reliability.report_history_loss(&key);
        assert_eq!(server.change_count(), told + 1);
        tokio::time::advance(ONCE_IN).await;
        assert!(reliability.compare(&key));
    }

    // H7
    #[tokio::test(start_paused = true)]
    async fn a_list_that_began_before_it_was_asked_for_answers_nothing() {
        let ((_, cache), all) = (reliability(), Extent::All);
        let first = cache.listed_anew();
        tokio::pin!(first);
        assert!(first.as_mut().now_or_never().is_none());
        cache.wants_list(&all).await;
        let second = cache.listed_anew();
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        // The first list waits for the cache as the second one begins.
        cache.listed(&all);
        cache.wants_list(&all).await;
        cache.replaced(&all);
        assert!(first.now_or_never().is_some());
        assert!(second.as_mut().now_or_never().is_none());
        cache.listed(&all);
        cache.replaced(&all);
        assert!(second.now_or_never().is_some());
    }
}
