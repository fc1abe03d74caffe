//! Reads answers: bodies in chunks with deadlines, refusals as a Status.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::{
    task::coop::consume_budget,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    clock::after,
    flight_recorder::LineRecorder,
    list_watch::{
        AnyItem, Deadlines, ListOptions, ListWatchError, WatchStream,
        decode_pool::{ROOM_FOR_A_TASK, WORTH_A_TASK, decoded},
        frames::{DecodedEvent, EventDecoder, INITIAL_EVENTS_END, Lines, SpareBuffer, next_line},
        json::NotJson,
        list_body::{ListBody, ListHead, not_json},
        retry_after::retry_after,
        status::status_of_answer,
    },
    object::AnyObject,
};

/// Most bytes of a refusal that are read.
const LARGEST_REFUSAL: usize = 64 << 10;

pub(super) fn connection(error: kube::Error) -> ListWatchError {
    ListWatchError::Connection(Box::new(error))
}

/// Waits for the next chunk of a body; `None` at the end.
async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, ListWatchError> {
    // A body that is always ready must let others run.
    consume_budget().await;
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame.map_err(connection)?.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Reads why a request was refused; what has not come within the limit is left out.
pub(super) async fn refusal(answer: Response<Body>, limit: Duration) -> ListWatchError {
    let (parts, mut body) = answer.into_parts();
    let (mut text, until) = (Vec::new(), after(Instant::now(), limit));
    // What was said before the body broke off is better than nothing.
    while let Ok(Ok(Some(chunk))) = timeout_at(until, next_chunk(&mut body)).await {
        text.extend_from_slice(&chunk[..chunk.len().min(LARGEST_REFUSAL - text.len())]);
        if text.len() >= LARGEST_REFUSAL {
            break;
        }
    }
    let mut refusal = ListWatchError::from_status(status_of_answer(parts.status, &text));
    if let ListWatchError::Status { retry_after: wait, .. } = &mut refusal {
        *wait = retry_after(&parts.headers).or(*wait);
    }
    refusal
}

/// Decodes an item of a list; `None`: it is not kept.
pub(super) type DecodeItem = Arc<dyn Fn(&str) -> Result<Option<AnyItem>, NotJson> + Send + Sync>;

/// Reads a list: what it says about itself, and its items, each as a function decodes it.
pub(super) async fn list(
    body: Body,
    largest: usize,
    silence: Duration,
    decode: DecodeItem,
) -> Result<(ListHead, Vec<AnyItem>), ListWatchError> {
    let (list, batches) = (ListBody::new(largest), VecDeque::new());
    let reader = ListReader { body, list, batches, silence, ended: false };
    let batches = stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.batch().await?.map(|batch| (batch, reader)))
    });
    let decode = move |batch: ItemBatch| {
        let items =
            batch.items().filter_map(|item| decode(item).transpose()).collect::<Result<Vec<_>, NotJson>>();
        Ok((items.map_err(|NotJson| not_json())?, batch.head))
    };
    let (mut batches, mut items, mut head) = (pin!(decoded(batches, decode)), Vec::new(), None);
    while let Some(batch) = batches.next().await {
        let (more, last) = batch?;
        items.extend(more);
        head = last;
    }
    Ok((head.ok_or(ListWatchError::CutShort)?, items))
}

/// Reads a list, and gathers its items until there are enough to be decoded together.
struct ListReader {
    body: Body,
    list: ListBody,
    /// All but the last are full.
    batches: VecDeque<ItemBatch>,
    /// How long to wait for a chunk.
    silence: Duration,
    ended: bool,
}

/// Texts of items, one behind the other.
struct ItemBatch {
    text: String,
    /// Where each item ends.
    ends: Vec<usize>,
    /// What the list says about itself, after its last item.
    head: Option<ListHead>,
}

impl ListReader {
    /// Waits for the next items, and says whether they are worth a task; `None` after the last.
    async fn batch(&mut self) -> Result<Option<(ItemBatch, bool)>, ListWatchError> {
        while self.batches.len() < 2 && !self.ended {
            let chunk = timeout(self.silence, next_chunk(&mut self.body)).await;
            match chunk.map_err(|_| ListWatchError::Deadline(self.silence))?? {
                Some(chunk) => self.list.feed(&chunk, |item| {
                    let batch = open_batch(&mut self.batches);
                    batch.text.push_str(item);
                    batch.ends.push(batch.text.len());
                    Ok(())
                })?,
                None => {
                    self.ended = true;
                    open_batch(&mut self.batches).head = Some(self.list.finish()?);
                }
            }
        }
        let Some(batch) = self.batches.pop_front() else { return Ok(None) };
        let worth_a_task = batch.text.len() >= WORTH_A_TASK;
        Ok(Some((batch, worth_a_task)))
    }
}

/// Returns the batch that the next item goes into.
fn open_batch(batches: &mut VecDeque<ItemBatch>) -> &mut ItemBatch {
    if batches.back().is_none_or(|last| last.text.len() >= WORTH_A_TASK) {
        let (text, ends) = (String::with_capacity(ROOM_FOR_A_TASK), Vec::new());
        batches.push_back(ItemBatch { text, ends, head: None });
    }
    batches.back_mut().expect("one is open")
}

impl ItemBatch {
    fn items(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }
}

/// The events of some lines.
type DecodedEvents = Box<dyn Iterator<Item = DecodedEvent> + Send>;

/// Reads a watch as events; the stream ends with the body, or with an error.
pub(super) fn events(
    body: Body,
    decoder: EventDecoder,
    options: &ListOptions,
    deadlines: Deadlines,
    recorder: LineRecorder,
) -> WatchStream<dyn AnyObject> {
    let lasts = |timeout: Duration| after(Instant::now(), timeout.saturating_add(deadlines.watch_slack));
    let spare = SpareBuffer::default();
    let reader = WatchReader {
        body,
        lines: Lines::new(decoder.largest, spare.clone()),
        expires: options.timeout.map(|timeout| (lasts(timeout), timeout)),
        silence: deadlines.watch_silence,
        in_bulk: options.initial_events,
        end: None,
        recorder: recorder.clone(),
    };
    let blocks = stream::unfold(reader, |mut reader| async move { Some((reader.block().await?, reader)) });
    // The flag goes to the decoder as well: a task decodes all that it was given.
    let blocks = blocks.map_ok(|block: LineBlock| {
        let worth_a_task = block.worth_a_task;
        (block, worth_a_task)
    });
    let lazily = move |lines, recorder| {
        Box::new(decoder.clone().events(lines, spare.clone(), recorder)) as DecodedEvents
    };
    let at_once = |events: DecodedEvents| Box::new(events.collect::<Vec<_>>().into_iter()) as DecodedEvents;
    let events = decoded(blocks, move |block| {
        let events = lazily(block.lines, (!block.is_recorded).then(|| recorder.clone()));
        Ok(if block.worth_a_task { at_once(events) } else { events })
    });
    let events = events.map_ok(stream::iter);
    let events = events.flat_map(|events| match events {
        Ok(events) => events.left_stream(),
        Err(error) => stream::iter([Err(error)]).right_stream(),
    });
    let until_error = stream::unfold(Some(Box::pin(events)), |events| async move {
        let mut events = events?;
        let event = events.next().await?;
        let rest = event.is_ok().then_some(events);
        Some((event, rest))
    });
    until_error.boxed()
}

/// Whole lines that were there at once.
struct LineBlock {
    lines: Vec<u8>,
    /// They are many: decoded in a task of their own.
    worth_a_task: bool,
    is_recorded: bool,
}

/// Reads the body of a watch, under its deadlines.
struct WatchReader {
    body: Body,
    lines: Lines,
    /// When the server should have ended the watch, and the timeout that was asked for.
    expires: Option<(Instant, Duration)>,
    silence: Duration,
    /// Initial events come, which the server sends as fast as it can.
    in_bulk: bool,
    /// How the body ended, once it has.
    end: Option<Result<(), ListWatchError>>,
    recorder: LineRecorder,
}

impl WatchReader {
    /// Waits for whole lines; `None` after the end.
    ///
    /// Changes are not worth a task: they are decoded where they are read, which costs least.
    async fn block(&mut self) -> Option<Result<LineBlock, ListWatchError>> {
        while self.end.is_none() && self.lines.whole < WORTH_A_TASK {
            let chunk = match next_chunk(&mut self.body).now_or_never() {
                Some(chunk) => chunk,
                None if self.lines.whole > 0 => break,
                None => {
                    let idle = after(Instant::now(), self.silence);
                    let (until, lost) = match self.expires {
                        Some((expires, timeout)) if expires < idle => {
                            (expires, ListWatchError::Deadline(timeout))
                        }
                        _ => (idle, ListWatchError::Idle(self.silence)),
                    };
                    timeout_at(until, next_chunk(&mut self.body)).await.unwrap_or(Err(lost))
                }
            };
            match chunk {
                Ok(Some(chunk)) => self.lines.add(&chunk),
                Ok(None) => self.end = Some(self.lines.finish()),
                Err(error) => self.end = Some(Err(error)),
            }
        }
        if self.lines.whole == 0 {
            return self.end.replace(Ok(()))?.err().map(Err);
        }
        let lines = self.lines.take();
        self.recorder.came();
        let (worth_a_task, is_recorded) = (self.in_bulk && lines.len() >= WORTH_A_TASK, self.in_bulk);
        if is_recorded {
            // Other blocks may be read before this one is decoded.
            let mut start = 0;
            while let Some(line) = next_line(&lines, &mut start) {
                self.recorder.line(line);
            }
        }
        self.in_bulk = self.in_bulk && memchr::memmem::find(&lines, INITIAL_EVENTS_END.as_bytes()).is_none();
        Some(Ok(LineBlock { lines, worth_a_task, is_recorded }))
    }
}
