//! The events between a reflector and the others of its server.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::{
    ReflectorStore,
    fault::Fault,
    pages::Pages,
    run::{End, ReflectorLoop, WatchNotice},
    server::ServerEvent,
    sink::FetchReport,
    state::OnLoss,
    stream::Phase,
};
use crate::{
    list_watch::{ListWatchError, ListerWatcher},
    object::Object,
};

impl<K, L, S> ReflectorLoop<K, L, S>
where
    K: Object,
    L: ListerWatcher<K>,
    S: ReflectorStore<K>,
{
    /// Waits before the next attempt; an event of the server may end that early.
    pub(super) async fn sleep(&mut self, wait: Duration) {
        let (began, alarm) = (Instant::now(), sleep(wait));
        tokio::pin!(alarm);
        loop {
            tokio::select! {
                biased;
                event = self.member.next_event() => match event {
                    ServerEvent::HistoryLost if self.on_history_lost() == OnLoss::Asks => return,
                    ServerEvent::HistoryLost => {}
                    ServerEvent::Recovered => {
                        let again = self.state.on_recovery(Instant::now()).and_then(|step| began.checked_add(step));
                        if let Some(again) = again.filter(|again| *again < alarm.deadline()) {
                            alarm.as_mut().reset(again);
                        }
                    }
                },
                () = self.store.wants_list() => {
                    self.list_to_compare();
                    // Who waits for no failure, but for its time, need not wait any longer.
                    if self.state.is_well() {
                        return;
                    }
                }
                () = &mut alarm => return,
            }
        }
    }

    /// Takes an event of the server while a stream is open; returns how the stream ends, if it does.
    ///
    /// Asks while the stream is open, so that it need not be opened again if the server was not restored.
    pub(super) async fn on_server_event(&mut self, event: ServerEvent, phase: Phase) -> Option<End> {
        match (event, phase) {
            (ServerEvent::Recovered, _) => None,
            (ServerEvent::HistoryLost, Phase::List) => Some(End::Outdated),
            (ServerEvent::HistoryLost, Phase::Watch) => {
                self.asked_at = self.member.losses();
                match self.source.latest_version().await {
                    Ok(Some(latest)) if self.state.is_past(&latest) => return Some(End::HistoryLost),
                    Ok(_) => self.is_current(),
                    Err(error) if Fault::of(&error).leaves_unknown() => self.cant_tell(&error),
                    Err(error) => return Some(End::Failed(error)),
                }
                None
            }
        }
    }

    /// Sees to it that this kind is compared with what the server has left, once its turn comes.
    pub(super) fn compare_soon(&mut self) {
        let _: OnLoss = self.on_history_lost();
    }

    /// The same; says whether it is worth to wait no longer.
    fn on_history_lost(&mut self) -> OnLoss {
        self.drop_pages();
        let follows = self.state.on_history_lost(Instant::now());
        if follows == OnLoss::CantAsk {
            self.asked_at = self.member.losses();
            self.is_current();
        }
        follows
    }

    /// Forgets the pages of a list that begins again.
    fn drop_pages(&mut self) {
        if !self.pages.is_empty() {
            self.pages = Pages::new();
            self.reporter.list_given_up();
        }
    }

    /// Reports lost history to the others, unless they reported it.
    pub(super) fn found_loss(&mut self) {
        if self.asked_at == self.accounted {
            self.member.found_loss(self.asked_at);
        }
        let name = &self.reporter.name;
        warn!(kind = %name, "the server lost its history: listing {name} again");
    }

    /// Lets the store know that it shows what the server has, as far as that can be known.
    pub(super) fn is_current(&mut self) {
        if self.accounted < self.asked_at {
            self.accounted = self.asked_at;
            self.reporter.report(FetchReport::Current { losses: self.accounted });
        }
    }

    /// Goes on where the collection's version can't be asked for.
    pub(super) fn cant_tell(&mut self, error: &ListWatchError) {
        debug!(kind = %self.reporter.name, %error, "the latest version can't be asked for");
        self.note_reach(error);
        self.is_current();
    }

    /// Lists because the store's contents may be wrong.
    pub(super) fn list_to_compare(&mut self) {
        let name = &self.reporter.name;
        debug!(kind = %name, "listing {name} to compare");
        self.drop_pages();
        self.state.contradicted();
    }

    /// Takes note of what a failure says of the connection.
    pub(super) fn note_reach(&mut self, error: &ListWatchError) {
        let fault = Fault::of(error);
        if fault.is_an_answer() {
            self.member.got_through();
        }
        if fault == Fault::Unreachable {
            self.member.missed();
        }
        // A list that is refused so answers as little as a question that is.
        if fault.is_refused_for_good() {
            self.is_current();
        }
        let lost = fault.is_of_the_connection() && !matches!(error, ListWatchError::ClosedAtOnce);
        if lost && self.watch == WatchNotice::Fine && self.state.version().is_some() {
            self.watch = WatchNotice::Lost;
            self.reporter.report(FetchReport::WatchLost);
        }
    }

    /// Lets the store know of a watch that is open, or of a list, after there was neither.
    pub(super) fn watch_is_back(&mut self) {
        if self.watch == WatchNotice::Lost {
            self.watch = WatchNotice::Fine;
            self.reporter.report(FetchReport::WatchBack);
        }
    }
}
