//! Follows an open stream to its end: hands what it brings to the store.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, sleep};

use super::{
    ReflectorStore, StoreChange,
    difference::Checked,
    part::FetchPart,
    run::{End, ReflectorLoop},
    snapshot::Snapshot,
    state::{Brought, Ending, LIVED, Listed},
    stream::{Flow, Phase, next_batch, set_alarm},
    watch_error::rounded,
};
use crate::{
    clock::Lead,
    list_watch::{ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::Object,
};

/// How far the wall clock must run ahead for the machine to have been suspended.
const SUSPENDED: Duration = Duration::from_secs(30);

/// The error of an event whose object has no name that can be read.
const NAMELESS: &str = "an event is of an object whose name can't be read";

impl<K, L, S> ReflectorLoop<K, L, S>
where
    K: Object,
    L: ListerWatcher<K>,
    S: ReflectorStore<K>,
{
    /// Reads a stream to its end: first what belongs to the list, if it starts with one, then changes.
    pub(super) async fn follow(&mut self, stream: WatchStream<K>, mut snapshot: Option<Snapshot<K>>) {
        let (mut stream, mut batch) = (stream.fuse(), Vec::new());
        let mut ending = Ending { opened: Instant::now(), brought: Brought::Nothing };
        let opened = ending.opened;
        let mut lead = Lead::start(self.clock.clone());
        let mut alarm = Box::pin(sleep(LIVED));
        self.reporter.watch_opened();
        self.member.watch_opened();
        self.heard = 0;
        let end = loop {
            let until = match &snapshot {
                Some(snapshot) => Some(snapshot.overdue()),
                None => self.awaits_proof().then(|| ending.opened + LIVED),
            };
            let next = tokio::select! {
                biased;
                event = self.member.next_event() => {
                    let phase = snapshot.as_ref().map_or(Phase::Watch, |_| Phase::List);
                    match self.on_server_event(event, phase).await {
                        Some(end) => break end,
                        None => continue,
                    }
                }
                () = self.store.wants_list(), if snapshot.is_none() => break End::Contradicted,
                () = self.checks.due(), if snapshot.is_none() => match self.check().await {
                    Checked::Fine => continue,
                    Checked::Differs => break End::Contradicted,
                },
                next = next_batch(&mut stream, &mut batch, alarm.as_mut()) => next,
            };
            match next {
                Some(Flow::GoesOn) => {
                    if let Some(end) = self.take(&mut batch, &mut snapshot, &mut ending) {
                        break end;
                    }
                }
                Some(Flow::Ended) => break End::Closed,
                None if lead.measure() >= SUSPENDED => {
                    break End::Failed(ListWatchError::Suspended(rounded(lead.measure())));
                }
                None if until.is_some_and(|until| until <= Instant::now()) => match snapshot {
                    Some(_) => break End::Overdue,
                    // Open for so long without a failure: all is well, even if nothing happens.
                    None => self.reporter.healthy(FetchPart::Watch),
                },
                None => {}
            }
            set_alarm(alarm.as_mut(), until);
        };
        self.reporter.watch_ended(opened, self.heard);
        drop(stream);
        self.member.watch_ended();
        match snapshot {
            Some(_) => self.list_ended(end),
            None => self.watch_ended(end, ending),
        }
    }

    /// Returns whether a watch that stays open for a while would end a failure.
    ///
    /// Where watches hold changes back, only one that brings something does.
    fn awaits_proof(&self) -> bool {
        self.reporter.is_failing(FetchPart::Watch) && !self.state.is_blind()
    }

    /// Takes the events of a batch; returns how the stream ended, if it did.
    fn take(
        &mut self,
        batch: &mut Vec<Result<WatchEvent<K>, ListWatchError>>,
        snapshot: &mut Option<Snapshot<K>>,
        ending: &mut Ending,
    ) -> Option<End> {
        let now = Instant::now();
        self.heard += batch.len();
        let mut changes = Vec::with_capacity(batch.len());
        let mut end = None;
        for event in batch.drain(..) {
            match (event, snapshot.as_mut()) {
                (Err(error), _) => {
                    end = Some(End::Failed(error));
                    break;
                }
                (Ok(WatchEvent::Error(status)), _) => {
                    end = Some(End::Failed(ListWatchError::from_status(*status)));
                    break;
                }
                (Ok(WatchEvent::Unexpected(what)), _) => self.reporter.skipped(what),
                (Ok(event), None) => {
                    let nameless = event.item().is_some_and(|item| item.key().is_none());
                    changes.extend(change(event));
                    if nameless {
                        // Which object it is of is what only a list can tell.
                        end = Some(End::Failed(ListWatchError::Unreadable(NAMELESS.to_owned())));
                        break;
                    }
                }
                (Ok(event), Some(collected)) => {
                    let Some(version) = collected.take(event, now, &*self.store) else { continue };
                    let collected = snapshot.take();
                    match self.state.judged(&version) {
                        Listed::Whole(epoch) => {
                            collected
                                .into_iter()
                                .for_each(|list| self.replace(list.into_list(&version, epoch)));
                        }
                        Listed::More | Listed::TooOld | Listed::Endless(_) => {
                            // Still a list that failed, not a watch.
                            *snapshot = Some(Snapshot::new(now));
                            return Some(End::TooOld(version));
                        }
                    }
                    *ending = Ending { opened: now, brought: Brought::Progress };
                    // What follows is a watch, which has delivered.
                    self.part = FetchPart::Watch;
                    self.reporter.healthy(FetchPart::Watch);
                }
            }
        }
        self.apply(changes, ending);
        end
    }

    /// Hands changes to the store, then advances.
    fn apply(&mut self, changes: Vec<StoreChange<K>>, ending: &mut Ending) {
        if changes.is_empty() {
            return;
        }
        self.count = None;
        let version = changes.iter().rev().find_map(version_of).map(str::to_owned);
        self.store.apply(changes);
        if ending.brought == Brought::Nothing {
            self.reporter.healthy(FetchPart::Watch);
        }
        ending.brought = ending.brought.max(self.state.delivered(version.as_deref()));
        self.reporter.reached(self.state.version());
    }
}

fn change<K>(event: WatchEvent<K>) -> Option<StoreChange<K>> {
    match event {
        WatchEvent::Added(item) | WatchEvent::Modified(item) => Some(StoreChange::Upsert(item)),
        WatchEvent::Deleted(item) => Some(StoreChange::Delete(item)),
        WatchEvent::Bookmark { resource_version, .. } => Some(StoreChange::Bookmark(resource_version)),
        WatchEvent::Unexpected(_) | WatchEvent::Error(_) => None,
    }
}

fn version_of<K: Object>(change: &StoreChange<K>) -> Option<&str> {
    match change {
        StoreChange::Upsert(item) | StoreChange::Delete(item) => item.resource_version(),
        StoreChange::Bookmark(version) => Some(version.as_str()),
    }
    .filter(|version| !version.is_empty())
}
