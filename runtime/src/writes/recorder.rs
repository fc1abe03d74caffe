//! Sends events to the server in the background, so that runs never wait for them.
//!
//! An event is recorded under a lock that is never held for long, and sent by a task of the controller, one after the
//! other. What the server refuses is dropped; what did not get through is sent again, after a pause that grows. Memory
//! is bounded (see `series`), so that a sink which hangs costs events, and nothing else.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::events::v1::{Event as Body, EventSeries},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    WriteError,
    child::{UniqueObject, encode},
    event::Event,
    overload::Sender,
    request::{ApiVerb, MediaType, ObjectRequest, Target},
    series::{EventKey, OnServer, Recorded, Series, SeriesCache},
    writer::Author,
};
use crate::{
    backoff::{Backoff, BackoffSchedule},
    clock::{WallClock, until},
    object::{Kind, ObjectKey, cut_to, is_domain, is_name},
};

/// The annotation of an event that names the trace of the run that told it.
pub const TRACE_ID_ANNOTATION: &str = "watchkeeper.dev/trace-id";

/// Where events of objects go that are in no namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// How long to wait after a failure, at first and at most.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How long events that wait may take when the controller ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the log says that events are refused or do not get through.
const SAY_EVERY: Duration = Duration::from_secs(300);

/// Records the events of one controller.
pub(crate) struct Recorder {
    sender: Sender,
    controller: Arc<str>,
    /// The controller, as Kubernetes takes names of controllers.
    reporting_controller: String,
    reporting_instance: String,
    clock: WallClock,
    cache: Mutex<SeriesCache>,
    /// There is something new to send.
    called: Notify,
    dropped: Counter,
    seed: u64,
}

impl Recorder {
    pub(crate) fn new(
        sender: Sender,
        author: &Author,
        clock: WallClock,
        seed: u64,
        dropped: Counter,
    ) -> Arc<Self> {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".to_owned());
        Arc::new(Self {
            sender,
            controller: author.controller.clone(),
            reporting_controller: qualified(&author.controller),
            reporting_instance: cut_to(host, 128),
            clock,
            cache: Mutex::new(SeriesCache::new(seed)),
            called: Notify::new(),
            dropped,
            seed,
        })
    }

    /// Takes an event, which is sent in the background.
    pub(crate) fn record(&self, regarding: UniqueObject, event: Event, trace_id: Option<&Arc<str>>) {
        let key = EventKey { regarding: Arc::new(regarding), event };
        match self.cache.lock().note(key, Instant::now(), self.now(), trace_id) {
            Recorded::ToSend => self.called.notify_one(),
            Recorded::Folded => {}
            Recorded::Dropped => drop(self.dropped.inc()),
        }
    }

    /// Sends events, for as long as the controller runs.
    pub(crate) fn run(&self) -> BoxFuture<'_, Infallible> {
        Box::pin(async move {
            let [first, longest] = WAITS;
            let mut backoff = Backoff::new(BackoffSchedule::doubling(first, longest), self.seed);
            let mut said = None;
            loop {
                let paused = self.sender.paused().map_or(Duration::ZERO, |asked| asked.left());
                sleep(paused).await;
                let due = self.cache.lock().take(Some(Instant::now()));
                let Some((key, series)) = due else {
                    self.wait().await;
                    continue;
                };
                let is_over = |said: &Instant| said.elapsed() >= SAY_EVERY;
                let Err(error) = self.deliver(&key, &series).await else {
                    backoff.reset();
                    if said.take_if(|said| is_over(said)).is_some() {
                        tracing::info!(controller = &*self.controller, "events get through again");
                    }
                    continue;
                };
                let (controller, fate) =
                    (&*self.controller, if may_pass(&error) { "waits" } else { "is dropped" });
                match said.as_ref().is_none_or(is_over) {
                    true => tracing::warn!(controller, %error, "an event {fate}; reconciles go on"),
                    false => tracing::debug!(controller, %error, "an event {fate}"),
                }
                said = said.filter(|said| !is_over(said)).or_else(|| Some(Instant::now()));
                if may_pass(&error) {
                    let asked = error.retry_after().map_or(Duration::ZERO, |asked| asked.left());
                    sleep(backoff.next_delay().max(asked)).await;
                }
            }
        })
    }

    /// Sends what waits, for a moment: the controller has ended.
    pub(crate) fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let rest = async {
                loop {
                    let Some((key, series)) = self.cache.lock().take(None) else { return };
                    if self.deliver(&key, &series).await.is_err_and(|error| may_pass(&error)) {
                        return;
                    }
                }
            };
            let _ = timeout(FLUSH_TIMEOUT, rest).await;
        })
    }

    async fn wait(&self) {
        let due = self.cache.lock().next_due();
        tokio::select! {
            () = until(due) => {}
            () = self.called.notified() => {}
        }
    }

    /// Sends an event, or the update of its series.
    ///
    /// # Errors
    /// It did not get through: it is sent again, or dropped if it never will.
    async fn deliver(&self, key: &EventKey, series: &Series) -> Result<(), WriteError> {
        let answer = self.send(key, series).await;
        let (mut cache, now) = (self.cache.lock(), Instant::now());
        match answer {
            Ok(()) => cache.sent(key, series.count, now),
            Err(WriteError::AlreadyExists { .. }) if series.on_server == OnServer::Maybe => {
                // It got through the last time; only what has happened since is sent.
                cache.sent(key, 1, now);
            }
            Err(WriteError::AlreadyExists { .. }) => cache.rename(key),
            // It is too old for the server.
            Err(error) if error.is_not_found() && series.on_server == OnServer::Yes => {
                cache.put_back(key, OnServer::No);
            }
            Err(error) if may_pass(&error) => {
                if !error.leaves_in_doubt() {
                    cache.put_back(key, series.on_server);
                }
                return Err(error);
            }
            Err(error) => {
                cache.refused(key);
                self.dropped.inc();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn send(&self, key: &EventKey, series: &Series) -> Result<(), WriteError> {
        let namespace = key.regarding.key.namespace().unwrap_or(DEFAULT_NAMESPACE);
        let target = &Target { kind: Kind::of::<Body>(), key: ObjectKey::new(namespace, &series.name) };
        let (verb, media_type, body) = match series.on_server {
            OnServer::Yes => {
                let mut change = json!({ "series": repeated(series) });
                if let Some(annotations) = annotations(series) {
                    change["metadata"] = json!({ "annotations": annotations });
                }
                (ApiVerb::Patch, MediaType::MergePatch, change)
            }
            OnServer::No | OnServer::Maybe => {
                (ApiVerb::Create, MediaType::Json, encode("record", target, &self.body(key, series))?)
            }
        };
        let mut request = ObjectRequest::new("record", verb, target, media_type, body);
        request.query = format!("fieldManager={}", self.controller);
        // Not by the sender: what a server says of events alone must not hold back any write.
        request.send(self.sender.client()).await.map(drop)
    }

    fn body(&self, key: &EventKey, series: &Series) -> Body {
        let Event { type_, reason, note, action, related } = &key.event;
        let namespace = key.regarding.key.namespace().unwrap_or(DEFAULT_NAMESPACE);
        Body {
            metadata: ObjectMeta {
                name: Some(series.name.clone()),
                namespace: Some(namespace.to_owned()),
                annotations: annotations(series),
                ..ObjectMeta::default()
            },
            action: Some(action.clone()),
            event_time: Some(MicroTime(series.first)),
            note: Some(note.clone()),
            reason: Some(reason.clone()),
            regarding: Some(key.regarding.reference()),
            related: related.as_ref().map(UniqueObject::reference),
            reporting_controller: Some(self.reporting_controller.clone()),
            reporting_instance: Some(self.reporting_instance.clone()),
            series: (series.count > 1).then(|| repeated(series)),
            type_: Some((*type_).to_owned()),
            ..Body::default()
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

fn annotations(series: &Series) -> Option<BTreeMap<String, String>> {
    let trace_id = series.trace_id.as_ref()?;
    Some(BTreeMap::from([(TRACE_ID_ANNOTATION.to_owned(), trace_id.to_string())]))
}

fn repeated(series: &Series) -> EventSeries {
    let count = i32::try_from(series.count).unwrap_or(i32::MAX);
    EventSeries { count, last_observed_time: MicroTime(series.last) }
}

/// Returns whether the same may get through later.
fn may_pass(error: &WriteError) -> bool {
    match error {
        WriteError::Connection { .. } | WriteError::Deadline { .. } => true,
        WriteError::Refused { status, .. } => status.code == 429 || status.code >= 500,
        _ => false,
    }
}

/// Names a controller as events want it: a name of at most 63 characters, perhaps behind a domain and a slash.
fn qualified(controller: &str) -> String {
    let fits = match controller.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(controller),
    };
    if fits {
        return controller.to_owned();
    }
    let plain: String = controller.chars().map(|c| if c == '/' { '.' } else { c }).take(63).collect();
    let name = plain.trim_matches(|edge: char| !edge.is_ascii_alphanumeric());
    if is_name(name) { name.to_owned() } else { "watchkeeper".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_name_is_made_to_fit() {
        let long = format!("{}.example.dev", "a".repeat(60));
        for (given, fits) in [
            ("websites.web.example.dev", "websites.web.example.dev"),
            ("example.dev/websites", "example.dev/websites"),
            ("a/b/c", "a.b.c"),
            ("-edgy-", "edgy"),
            ("///", "watchkeeper"),
            (&long, &long[..63]),
        ] {
            assert_eq!(qualified(given), fits);
        }
    }
}
