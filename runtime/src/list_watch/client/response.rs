//! Reads answers: bodies in chunks with deadlines, refusals as a Status.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::{
    task::coop::consume_budget,
    time::{Instant, timeout, timeout_at},
};

use super::deadlines::Deadlines;
use crate::{
    list_watch::{
        InitialEvents, InitialEventsMark, ListOptions, ListWatchError, WatchEvent, WatchStream,
        decode_pool::{DecodePool, ROOM_FOR_A_TASK, WORTH_A_TASK},
        frames::{Event, Frames},
        retry_after::retry_after,
        status::status_of_answer,
    },
    object::Object,
};

/// Most bytes of a refusal that are read.
const LARGEST_REFUSAL: usize = 64 << 10;

pub(super) fn connection(error: kube::Error) -> ListWatchError {
    ListWatchError::Connection(Box::new(error))
}

/// A body, chunk by chunk.
pub(super) struct Chunks {
    body: Body,
}

impl Chunks {
    pub(super) fn new(body: Body) -> Self {
        Self { body }
    }

    /// Waits for the next chunk, but not longer than the limit; `None` at the end.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<Option<Bytes>, ListWatchError> {
        timeout(limit, self.chunk()).await.map_err(|_| ListWatchError::Deadline(limit))?
    }

    /// Waits for the next chunk until a time; `None` at the end, and when the time is over.
    async fn next_until(&mut self, until: Option<Instant>) -> Result<Option<Bytes>, ListWatchError> {
        match until {
            Some(until) => timeout_at(until, self.chunk()).await.unwrap_or(Ok(None)),
            None => self.chunk().await,
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        // A body that is always ready must let others run.
        consume_budget().await;
        while let Some(frame) = self.body.frame().await {
            if let Ok(chunk) = frame.map_err(connection)?.into_data() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// Reads why a request was refused; what has not come within the limit is left out.
pub(super) async fn refusal(answer: Response<Body>, limit: Duration) -> ListWatchError {
    let (parts, body) = answer.into_parts();
    let (mut chunks, mut text) = (Chunks::new(body), Vec::new());
    let until = Instant::now().checked_add(limit);
    // What was said before the body broke off is better than nothing.
    while let Ok(Some(chunk)) = chunks.next_until(until).await {
        text.extend_from_slice(&chunk[..chunk.len().min(LARGEST_REFUSAL - text.len())]);
        if text.len() >= LARGEST_REFUSAL {
            break;
        }
    }
    let asked = retry_after(&parts.headers);
    match ListWatchError::from_status(status_of_answer(parts.status, &text)) {
        ListWatchError::Status { status, retry_after } => {
            ListWatchError::Status { status, retry_after: asked.or(retry_after) }
        }
        other => other,
    }
}

/// Reads a watch as events; the stream ends with the body, or with an error.
pub(super) fn events<K: Object>(
    body: Body,
    frames: Frames,
    options: &ListOptions,
    deadlines: Deadlines,
) -> WatchStream<K> {
    let lifetime = options.timeout;
    // A limit beyond the end of time is none.
    let expires = lifetime.and_then(|lifetime| {
        let until = Instant::now().checked_add(lifetime.saturating_add(deadlines.watch_slack))?;
        Some((until, lifetime))
    });
    let pool = DecodePool::new().filter(|_| options.initial_events == InitialEvents::Send);
    let watch = Watch {
        source: Source { chunks: Chunks::new(body), expires, deadlines },
        frames,
        block: Vec::new(),
        spare: Vec::new(),
        events: VecDeque::new(),
        last: None,
        coming: if pool.is_some() { Coming::InBulk } else { Coming::Changes },
        pool,
        reading: Reading::Open,
    };
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })
    .boxed()
}

/// The body of a watch, with its deadlines.
struct Source {
    chunks: Chunks,
    /// When the server should have ended the watch, and the timeout that was asked for.
    expires: Option<(Instant, Duration)>,
    deadlines: Deadlines,
}

impl Source {
    async fn next(&mut self) -> Result<Option<Bytes>, ListWatchError> {
        let silence = self.deadlines.watch_silence;
        let silent = Instant::now().checked_add(silence).map(|until| (until, ListWatchError::Idle(silence)));
        let expires = self.expires.map(|(until, lifetime)| (until, ListWatchError::Deadline(lifetime)));
        let Some((until, lost)) = silent.into_iter().chain(expires).min_by_key(|(until, _)| *until) else {
            return self.chunks.chunk().await;
        };
        match timeout_at(until, self.chunks.chunk()).await {
            Ok(chunk) => chunk,
            Err(_) => Err(lost),
        }
    }

    /// Returns what has come already, without waiting.
    fn at_once(&mut self) -> Option<Result<Option<Bytes>, ListWatchError>> {
        self.chunks.chunk().now_or_never()
    }
}

struct Watch<K> {
    source: Source,
    frames: Frames,
    /// Decodes initial events; changes are decoded where they are read, which costs least.
    pool: Option<DecodePool<Piece<K>>>,
    /// Whole lines that are to be decoded next; empty between two chunks.
    block: Vec<u8>,
    /// Pieces of work that are done, to be used again while there is more: memory that goes back and forth between
    /// threads is what allocators are slowest at.
    spare: Vec<Piece<K>>,
    events: VecDeque<Event<K>>,
    /// What follows all that is still being decoded.
    last: Option<Event<K>>,
    coming: Coming,
    reading: Reading,
}

/// What the stream brings: initial events come as fast as they are read, changes as they are made.
#[derive(Clone, Copy, PartialEq)]
enum Coming {
    InBulk,
    Changes,
}

/// Lines, and what they came to.
struct Piece<K> {
    block: Vec<u8>,
    events: Vec<Event<K>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Open,
    Ended,
}

enum Came<K> {
    Chunk(Result<Option<Bytes>, ListWatchError>),
    Decoded(Option<Piece<K>>),
}

impl<K: Object> Watch<K> {
    async fn next(&mut self) -> Option<Event<K>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if matches!(&event, Ok(WatchEvent::Bookmark { initial_events: InitialEventsMark::End, .. })) {
                    self.coming = Coming::Changes;
                }
                if event.is_err() {
                    self.reading = Reading::Ended;
                    (self.pool, self.last) = (None, None);
                    self.events.clear();
                }
                return Some(event);
            }
            self.advance().await?;
        }
    }

    /// Reads or decodes on; `None` where nothing is left.
    async fn advance(&mut self) -> Option<()> {
        if self.coming == Coming::Changes && self.pool.as_ref().is_some_and(DecodePool::is_idle) {
            (self.pool, self.spare, self.block) = (None, Vec::new(), Vec::new());
        }
        let working = self.pool.as_mut().filter(|pool| !pool.is_idle());
        let came = match (working, self.reading) {
            (Some(pool), Reading::Open) if !pool.is_busy() && self.coming == Coming::InBulk => {
                tokio::select! {
                    biased;
                    decoded = pool.next() => Came::Decoded(decoded),
                    chunk = self.source.next() => Came::Chunk(chunk),
                }
            }
            (Some(pool), _) => Came::Decoded(pool.next().await),
            (None, Reading::Open) => Came::Chunk(match self.source.at_once() {
                Some(chunk) => chunk,
                None => {
                    self.spare.clear();
                    self.source.next().await
                }
            }),
            (None, Reading::Ended) => {
                self.events.push_back(self.last.take()?);
                return Some(());
            }
        };
        match came {
            Came::Chunk(Ok(Some(chunk))) => self.decode(chunk),
            Came::Chunk(end) => self.end(end.err()),
            Came::Decoded(Some(mut piece)) => {
                self.events.extend(piece.events.drain(..));
                piece.block.clear();
                self.spare.push(piece);
            }
            Came::Decoded(None) => {}
        }
        Some(())
    }

    fn decode(&mut self, chunk: Bytes) {
        let Some(pool) = &mut self.pool else { return self.frames.feed(&chunk, &mut self.events) };
        let block = &mut self.block;
        let mut end = self.frames.gather(&chunk, block).err().map(Some);
        // As long as somebody holds a chunk, the connection reads into a new buffer.
        drop(chunk);
        while block.len() < WORTH_A_TASK && end.is_none() {
            match self.source.at_once() {
                None => break,
                Some(Ok(Some(chunk))) => end = self.frames.gather(&chunk, block).err().map(Some),
                Some(ended) => end = Some(ended.err()),
            }
        }
        if pool.is_idle() && block.len() < WORTH_A_TASK {
            self.frames.decode(block, &mut self.events);
            block.clear();
        } else {
            let decoder = self.frames.decoder().clone();
            let spare = self.spare.pop();
            let Piece { block: empty, mut events } = spare
                .unwrap_or_else(|| Piece { block: Vec::with_capacity(ROOM_FOR_A_TASK), events: Vec::new() });
            let block = std::mem::replace(block, empty);
            pool.begin(move || {
                decoder.lines(&block, &mut String::new(), &mut events);
                Piece { block, events }
            });
        }
        if let Some(error) = end {
            self.end(error);
        }
    }

    fn end(&mut self, error: Option<ListWatchError>) {
        self.reading = Reading::Ended;
        self.last = match error {
            Some(error) => Some(Err(error)),
            None => self.frames.finish(),
        };
    }
}
