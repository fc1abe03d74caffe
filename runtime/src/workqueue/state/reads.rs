//! What the shell and curious callers read of the state.

use tokio::time::Instant;

use super::*;
use crate::metrics::QueueReport;
use crate::workqueue::clock::ClockOrigin;
use crate::workqueue::inspect::{Depth, KeyState, Standing};

/// How many keys with a timer one look at a queue takes in, since workers wait meanwhile.
const LOOKED_AT: usize = 20_000;

impl<K: QueueKey> State<K> {
    /// Returns before when nothing can be handed out: start is now, never is not without a change.
    pub(in crate::workqueue) fn due(&self) -> At {
        let first = match &self.retry_rate {
            _ if self.ready() > 0 => At::START,
            Some(retry_rate) if !self.awaiting_token.is_empty() => {
                self.delayed.earliest().min(retry_rate.opens())
            }
            _ => self.delayed.earliest(),
        };
        if first >= At::LATEST {
            At::NEVER
        } else {
            first.max(self.rate.as_ref().map_or(At::START, Bucket::opens))
        }
    }

    /// Whether nothing is left to hand out, and nothing will come.
    pub(in crate::workqueue) fn ended(&self) -> bool {
        match self.mode {
            Mode::Open => false,
            Mode::Draining => self.ready() == 0 && self.again == 0,
            Mode::Discarding => true,
        }
    }

    /// Whether all that was accepted before the shutdown is done.
    pub(in crate::workqueue) fn drained(&self) -> bool {
        self.mode != Mode::Open && self.ready() == 0 && self.flights.is_empty()
    }

    pub(in crate::workqueue) fn is_shut_down(&self) -> bool {
        self.mode != Mode::Open
    }

    /// Whether it matters when a key is added: something falls due meanwhile, or times are kept.
    #[inline]
    pub(in crate::workqueue) fn asks_for_time(&self) -> bool {
        !self.delayed.is_empty() || !self.awaiting_token.is_empty() || self.stats.keeps_times()
    }

    pub(in crate::workqueue) fn entry(&self, key: &K) -> Option<&Entry<K>> {
        self.entries.find(key).map(|id| &self.entries.slab[id])
    }

    pub(in crate::workqueue) fn ready(&self) -> usize {
        self.ready.len() + self.listed.len()
    }

    pub(in crate::workqueue) fn ready_at(&self, priority: Priority) -> usize {
        let listed = if priority == Priority::Low { self.listed.len() } else { 0 };
        self.ready.len_of(priority) + listed
    }

    pub(in crate::workqueue) fn delayed(&self) -> usize {
        self.delayed.len() - self.held
    }

    pub(in crate::workqueue) fn held(&self) -> usize {
        self.held
    }

    pub(in crate::workqueue) fn awaiting_token(&self) -> usize {
        self.awaiting_token.len()
    }

    pub(in crate::workqueue) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    pub(in crate::workqueue) fn terminal(&self) -> usize {
        self.terminal.len()
    }

    pub(in crate::workqueue) fn awaiting_change(&self) -> Vec<K> {
        self.terminal.iter(&self.entries.slab).map(|entry| entry.key.clone()).collect()
    }

    pub(in crate::workqueue) fn in_flight_since(
        &self,
        origin: ClockOrigin,
    ) -> impl Iterator<Item = (K, Option<Instant>)> {
        self.flying().map(move |entry| {
            let since = (entry.since != At::NEVER).then(|| origin.instant(entry.since));
            (entry.key.clone(), since)
        })
    }

    fn flying(&self) -> impl Iterator<Item = &Entry<K>> {
        self.flights.iter(&self.entries.slab)
    }

    /// Walks all keys that stand somewhere, in the order in which one wants to see them.
    pub(in crate::workqueue) fn standing_somewhere(
        &self,
        origin: ClockOrigin,
    ) -> impl Iterator<Item = (K, KeyState)> {
        let slab = &self.entries.slab;
        let told = move |entry: &Entry<K>| (entry.key.clone(), KeyState::of(entry, origin));
        let line = move |priority| self.ready.line(priority, slab);
        let list = self.first_list();
        let is_behind = move |entry: &&Entry<K>| list.is_some_and(|list| entry.arrival.is_behind(list));
        let low = line(Priority::Low).take_while(move |entry| !is_behind(entry));
        let listed =
            self.listed.iter().map(move |(key, mark)| (key.clone(), KeyState::listed(mark.since, origin)));
        let low_behind = line(Priority::Low).skip_while(move |entry| !is_behind(entry));
        let waiting = self.delayed.ids().map(|id| &slab[id]);
        let first = self.flying().chain(line(Priority::High)).chain(line(Priority::Normal)).chain(low);
        let last =
            low_behind.chain(self.awaiting_token.iter(slab)).chain(waiting).chain(self.terminal.iter(slab));
        first.map(told).chain(listed).chain(last.map(told))
    }

    /// Shows at most so many keys of each place; of those with a timer it looks at a bounded number.
    pub(in crate::workqueue) fn by_place(&self, origin: ClockOrigin, each: usize) -> Standing<K> {
        let slab = &self.entries.slab;
        let told = |entry: &Entry<K>| (entry.key.clone(), KeyState::of(entry, origin));
        let mut keys: Vec<_> = self.flying().take(each).map(told).collect();
        let line = |priority| self.ready.line(priority, slab).map(told);
        let lines = line(Priority::High).chain(line(Priority::Normal)).chain(line(Priority::Low));
        let listed =
            self.listed.iter().map(|(key, mark)| (key.clone(), KeyState::listed(mark.since, origin)));
        keys.extend(lines.chain(listed).take(each));
        keys.extend(self.awaiting_token.iter(slab).take(each).map(told));
        let (mut backing_off, mut delayed, mut held) = (0, 0, 0);
        for entry in self.delayed.ids().take(LOOKED_AT).map(|id| &slab[id]) {
            let shown = match KeyState::of(entry, origin) {
                KeyState::BackingOff { .. } => &mut backing_off,
                KeyState::Held { .. } => &mut held,
                _ => &mut delayed,
            };
            *shown += 1;
            if *shown <= each {
                keys.push(told(entry));
            }
        }
        keys.extend(self.terminal.iter(slab).take(each).map(told));
        Standing { depth: Depth::of(self), oldest: self.oldest(origin), keys, backing_off }
    }

    /// Returns since when the key has been ready that waits longest for a worker.
    fn oldest(&self, origin: ClockOrigin) -> Option<Instant> {
        let first = |priority| self.ready.line(priority, &self.entries.slab).next();
        let lines = Priority::ALL.into_iter().filter_map(first).map(|entry| entry.since);
        let listed = self.listed.iter().next().map(|(_, mark)| mark.since);
        let oldest = lines.chain(listed).filter(|since| *since != At::NEVER).min();
        oldest.map(|since| origin.instant(since))
    }

    #[cfg(test)]
    pub(in crate::workqueue) fn lists(&self) -> usize {
        self.listed.lists()
    }

    /// Returns since when a key waits in a shared list, if it does.
    pub(in crate::workqueue) fn listed_since(&self, key: &K) -> Option<At> {
        self.listed.mark(key).map(|mark| mark.since)
    }

    pub(in crate::workqueue) fn known(&self) -> usize {
        self.entries.len() + self.listed.len()
    }

    /// Counts from now on how long things take.
    pub(in crate::workqueue) fn keep_times(&mut self) {
        self.stats.keep_times();
    }

    /// Returns how all stands, for whoever keeps statistics.
    pub(in crate::workqueue) fn report(&self, now: At) -> QueueReport {
        let runs = || self.flying().map(|entry| now.since(entry.since));
        let times = self.stats.times();
        QueueReport {
            depth: Priority::ALL.map(|priority| (priority.as_str(), self.ready_at(priority))),
            waiting: [
                ("delayed", self.delayed()),
                ("held", self.held()),
                ("awaits_retry_token", self.awaiting_token()),
                ("awaits_change", self.terminal()),
            ],
            in_flight: self.in_flight(),
            adds: self.stats.adds,
            retries: self.stats.retries,
            waits: times.waits,
            runs: times.runs,
            unfinished: runs().fold(Duration::ZERO, Duration::saturating_add),
            longest: runs().max().unwrap_or_default(),
        }
    }

    #[cfg(test)]
    pub(in crate::workqueue) fn capacity(&self) -> usize {
        self.entries.capacity().max(self.delayed.capacity())
    }
}
