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
        frames::{DecodedEvent, Frames},
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
    let watch = WatchReader {
        source: WatchBody { chunks: Chunks::new(body), expires, deadlines },
        frames,
        block: Vec::new(),
        events: VecDeque::new(),
        last: None,
        in_bulk: pool.is_some(),
        pool,
        ended: false,
    };
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })
    .boxed()
}

/// The body of a watch, with its deadlines.
struct WatchBody {
    chunks: Chunks,
    /// When the server should have ended the watch, and the timeout that was asked for.
    expires: Option<(Instant, Duration)>,
    deadlines: Deadlines,
}

impl WatchBody {
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

struct WatchReader<K> {
    source: WatchBody,
    frames: Frames,
    /// Decodes initial events; changes are decoded where they are read, which costs least.
    pool: Option<DecodePool<Vec<DecodedEvent<K>>>>,
    /// Whole lines that are to be decoded next; empty between two chunks.
    block: Vec<u8>,
    events: VecDeque<DecodedEvent<K>>,
    /// What follows all that is still being decoded.
    last: Option<DecodedEvent<K>>,
    /// Whether initial events come, which the server sends as fast as it can.
    in_bulk: bool,
    /// Whether the body has ended.
    ended: bool,
}

enum WatchInput<K> {
    Chunk(Result<Option<Bytes>, ListWatchError>),
    Decoded(Option<Vec<DecodedEvent<K>>>),
}

impl<K: Object> WatchReader<K> {
    async fn next(&mut self) -> Option<DecodedEvent<K>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if matches!(&event, Ok(WatchEvent::Bookmark { initial_events: InitialEventsMark::End, .. })) {
                    self.in_bulk = false;
                }
                if event.is_err() {
                    self.ended = true;
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
        if !self.in_bulk && self.pool.as_ref().is_some_and(DecodePool::is_idle) {
            (self.pool, self.block) = (None, Vec::new());
        }
        let working = self.pool.as_mut().filter(|pool| !pool.is_idle());
        let came = match (working, self.ended) {
            (Some(pool), false) if !pool.is_busy() && self.in_bulk => {
                tokio::select! {
                    biased;
                    decoded = pool.next() => WatchInput::Decoded(decoded),
                    chunk = self.source.next() => WatchInput::Chunk(chunk),
                }
            }
            (Some(pool), _) => WatchInput::Decoded(pool.next().await),
            (None, false) => WatchInput::Chunk(match self.source.at_once() {
                Some(chunk) => chunk,
                None => self.source.next().await,
            }),
            (None, true) => {
                self.events.push_back(self.last.take()?);
                return Some(());
            }
        };
        match came {
            WatchInput::Chunk(Ok(Some(chunk))) => self.decode(chunk),
            WatchInput::Chunk(end) => self.end(end.err()),
            WatchInput::Decoded(events) => self.events.extend(events.into_iter().flatten()),
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
        let decoder = self.frames.decoder();
        if pool.is_idle() && block.len() < WORTH_A_TASK {
            decoder.lines(block, &mut self.events);
            block.clear();
        } else {
            let block = std::mem::replace(block, Vec::with_capacity(ROOM_FOR_A_TASK));
            let decoder = decoder.clone();
            pool.begin(move || {
                let mut events = Vec::new();
                decoder.lines(&block, &mut events);
                events
            });
        }
        if let Some(error) = end {
            self.end(error);
        }
    }

    fn end(&mut self, error: Option<ListWatchError>) {
        self.ended = true;
        self.last = match error {
            Some(error) => Some(Err(error)),
            None => self.frames.finish(),
        };
    }
}
