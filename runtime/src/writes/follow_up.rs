//! Follows up what keys wait for: gives up what is overdue, asks after writes whose reply was lost, and whether caches are right.

use std::{convert::Infallible, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use super::{
    WriteError,
    expectation::Expectation,
    pending_writes::{AT_MOST, Overdue, Transition},
    question::{Lost, Question},
    request::{Path, Target},
    writer::{Memory, Writer},
};
use crate::object::ObjectKey;

/// How soon a question is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often it is asked at most whether caches are right: a storm that outlasts an outage begins anew.
const ASKED_WHETHER_CURRENT: u32 = 60;

/// A write whose reply is awaited; it is lost where this is dropped, be it by whoever gave up waiting.
pub(super) struct InFlightWrite<'a> {
    writer: &'a Writer,
    lost: Option<Lost>,
}

impl<'a> InFlightWrite<'a> {
    pub(super) fn new(writer: &'a Writer, key: &ObjectKey, target: &Target, path: Path) -> Self {
        let mut target = target.clone();
        if path == Path::Collection {
            // The name is the server's choice, or was not taken: what is asked for is the collection.
            target.key = ObjectKey::new(target.key.namespace().unwrap_or_default(), "");
        }
        Self { writer, lost: Some(Lost { key: key.clone(), target }) }
    }

    pub(super) fn settled(mut self) {
        self.lost = None;
    }
}

impl Drop for InFlightWrite<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.writer.lost(lost);
        }
    }
}

impl Writer {
    /// Attends to waiting keys, for as long as the controller runs.
    pub(crate) fn follow_up(&self) -> BoxFuture<'_, Infallible> {
        Box::pin(async move {
            // What runs say stands in their spans, which name the controller.
            let span = tracing::info_span!("follow_up", controller = %self.author.controller);
            self.attend().instrument(span).await
        })
    }

    async fn attend(&self) -> Infallible {
        let mut asking = FuturesUnordered::new();
        loop {
            let (alarm, questions) = {
                let mut memory = self.memory();
                (memory.alarm, std::mem::take(&mut memory.questions))
            };
            asking.extend(questions.into_iter().map(|question| self.ask(question)));
            tokio::select! {
                () = until(alarm) => self.tick(),
                () = self.follow_up_due.notified() => {}
                Some(()) = asking.next(), if !asking.is_empty() => {}
            }
        }
    }

    /// Holds a key in the queue exactly while it waits; called under the lock.
    pub(super) fn apply_transition(&self, key: &ObjectKey, transition: Transition) {
        match transition {
            Transition::Waits => self.keys.hold(key, AT_MOST),
            Transition::Released => self.keys.release(key),
            Transition::Unchanged => {}
        }
    }

    /// Sees to it that the follow-up task looks in time: nothing is due sooner than a tick after it began.
    pub(super) fn set_alarm(&self, memory: &mut Memory, now: Instant) {
        if memory.alarm.is_none() {
            memory.alarm = memory.next_tick(now);
            if memory.alarm.is_some() {
                self.follow_up_due.notify_one();
            }
        }
    }

    fn lost(&self, lost: Lost) {
        if self.is_cached(&lost.target) {
            self.wait_for(&lost.key, &lost.target, &Expectation::ReplyLost);
            self.follow_up_with(Question::After(lost));
        }
    }

    /// Has the server asked whether caches show the object that it has: what does not end may be computed from one that is gone.
    pub(crate) fn doubt_cache_of(&self, target: Target) {
        self.follow_up_with(Question::IsCurrent(target));
    }

    fn follow_up_with(&self, question: Question) {
        self.memory().questions.push(question);
        self.follow_up_due.notify_one();
    }

    async fn ask(&self, question: Question) {
        match question {
            Question::After(lost) => Box::pin(self.ask_after(lost)).await,
            Question::IsCurrent(target) => {
                // However many storms begin at once, the server is asked one question at a time.
                let _turn = self.comparing.lock().await;
                Box::pin(self.ask_whether_current(&target)).await;
            }
        }
    }

    /// Asks for an object, whose answer is held against the caches; a server that does not answer is asked again for a minute.
    async fn ask_whether_current(&self, target: &Target) {
        for _ in 0..ASKED_WHETHER_CURRENT {
            match self.fetch(target).await {
                Ok(_) | Err(WriteError::Forbidden { .. }) => return,
                Err(error) => {
                    tracing::debug!(object = %target, %error, "can't ask whether it is cached as it is");
                    pause_after(&error).await;
                }
            }
        }
    }

    fn tick(&self) {
        let now = Instant::now();
        let mut memory = self.memory();
        let (overdue, released) = memory.records.tick(now, &self.caches);
        let Memory { contradictions, records, .. } = &mut *memory;
        let contradicted = contradictions.tick(now, &self.caches, |source| records.delivered(source));
        memory.alarm = memory.next_tick(now);
        released.iter().for_each(|key| self.keys.release(key));
        drop(memory);
        contradicted.iter().for_each(|open| self.list_to_compare(open));
        overdue.iter().for_each(|overdue| self.report(overdue));
    }

    fn report(&self, Overdue { key, object, expectation, waited }: &Overdue<ObjectKey>) {
        if matches!(expectation, Expectation::NewerThan(_)) {
            tracing::debug!(%key, %object, "runs again although its cache shows no change yet");
            return;
        }
        self.counters.overdue.inc();
        tracing::warn!(%key, %object, ?waited, "the cache did not show this key's own write in time: reconciling anyway");
    }

    /// Asks the server what became of a write, until it says or nobody waits any more.
    async fn ask_after(&self, Lost { key, target }: Lost) {
        while self.memory().records.awaits_reply(&key, &target.key) {
            match self.what_became_of(&target).await {
                Ok(expectation) => return self.reply_found(&key, &target, &expectation),
                Err(error) => {
                    tracing::debug!(object = %target, %error, "can't ask after a write");
                    pause_after(&error).await;
                }
            }
        }
    }

    fn reply_found(&self, key: &ObjectKey, target: &Target, expectation: &Expectation) {
        let (mut memory, now) = (self.memory(), Instant::now());
        for source in self.sources_of(target) {
            let place = (source, &target.key);
            let transition = memory.records.reply_found(key, place, expectation.clone(), now, &self.caches);
            self.apply_transition(key, transition);
        }
    }

    /// Returns what the caches must show once they know as much as the server does now.
    async fn what_became_of(&self, target: &Target) -> Result<Expectation, WriteError> {
        let found = match target.key.name() {
            "" => Some(self.read(target, Path::Collection, "limit=1").await?),
            _ => self.fetch(target).await?,
        };
        let Some(found) = found else { return Ok(Expectation::Absent) };
        let version = found["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        Ok(version.map_or(Expectation::ReplyLost, Expectation::Reached))
    }
}

/// Waits before a question is asked again, for as long as the server wants quiet at least.
async fn pause_after(error: &WriteError) {
    let asked = error.retry_after().map_or(Duration::ZERO, |asked| asked.left());
    sleep(asked.max(ASK_AGAIN)).await;
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}
