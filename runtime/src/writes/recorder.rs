//! Sends events to the server in the background, so that runs never wait for them.
//!
//! An event is recorded under a lock that nobody holds for long, and sent by a task of the controller, one after the
//! other. What the server refuses is dropped; what did not get through is sent again, after a pause that grows. Memory
//! is bounded (see `series`), so that a sink which hangs costs events, and nothing else.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::events::v1::{Event as Body, EventSeries},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    WriteError,
    event::{Event, Referred},
    overload::Sender,
    request::{ApiVerb, Path, Request, RequestBody, Target},
    series::{EventKey, OnServer, Outgoing, Recorded, SeriesCache},
    writer::Author,
};
use crate::{
    backoff::{Backoff, BackoffSchedule},
    clock::WallClock,
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

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.controller).finish_non_exhaustive()
    }
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

    /// Takes note of an event; it is sent by and by.
    pub(crate) fn record(&self, regarding: Referred, event: Event, trace_id: Option<&Arc<str>>) {
        let key = EventKey { regarding: Arc::new(regarding), event };
        let mut cache = self.cache();
        let due = cache.next_due();
        if cache.note(key, Instant::now(), self.now(), trace_id) == Recorded::Dropped {
            self.dropped.inc();
        }
        if cache.next_due() != due {
            self.called.notify_one();
        }
    }

    /// Sends events, for as long as the controller runs.
    pub(crate) fn run(&self) -> BoxFuture<'_, Infallible> {
        Box::pin(async move {
            let [first, longest] = WAITS;
            let mut backoff = Backoff::new(BackoffSchedule::doubling(first, longest), self.seed);
            let mut failing = FailingEvents::default();
            loop {
                let paused = self.sender.paused().map_or(Duration::ZERO, |asked| asked.left());
                sleep(paused).await;
                let due = self.cache().take_due(Instant::now());
                let Some(send) = due else {
                    self.wait().await;
                    continue;
                };
                match self.deliver(send).await {
                    Delivery::Done => {
                        backoff.reset();
                        failing.is_over(&self.controller);
                    }
                    Delivery::Rejected(error) => failing.tell(&self.controller, &error, "is dropped"),
                    Delivery::Retry(error) => {
                        failing.tell(&self.controller, &error, "waits");
                        let asked = error.retry_after().map_or(Duration::ZERO, |asked| asked.left());
                        sleep(backoff.next_delay().max(asked)).await;
                    }
                }
            }
        })
    }

    /// Sends what waits, for a moment: the controller has ended.
    pub(crate) fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let rest = async {
                while let Some(send) = self.take_unsent() {
                    if let Delivery::Retry(_) = self.deliver(send).await {
                        return;
                    }
                }
            };
            let _ = timeout(FLUSH_TIMEOUT, rest).await;
        })
    }

    fn take_unsent(&self) -> Option<Outgoing> {
        self.cache().take_unsent()
    }

    async fn wait(&self) {
        let due = self.cache().next_due();
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.called.notified() => {}
        }
    }

    /// Sends an event, or the update of its series; the result is recorded even if this future is dropped.
    async fn deliver(&self, send: Outgoing) -> Delivery {
        let mut in_flight = EventInFlight { recorder: self, send: Some(send) };
        let answer = match &in_flight.send {
            Some(send) => self.send(send).await,
            None => return Delivery::Done,
        };
        let Some(send) = in_flight.send.take() else { return Delivery::Done };
        let (mut cache, now) = (self.cache(), Instant::now());
        let key = &send.key;
        match answer {
            Ok(()) => cache.sent(key, send.count, now),
            Err(WriteError::AlreadyExists { .. }) if send.on_server == OnServer::Maybe => {
                // It got through the last time; only what has happened since is sent.
                cache.sent(key, 1, now);
            }
            Err(WriteError::AlreadyExists { .. }) => cache.rename(key, now),
            // It is too old for the server.
            Err(error) if error.is_not_found() && send.on_server == OnServer::Yes => {
                cache.put_back(key, OnServer::No, now);
            }
            Err(error) if may_pass(&error) => {
                let doubt = error.leaves_in_doubt() && send.on_server != OnServer::Yes;
                cache.put_back(key, if doubt { OnServer::Maybe } else { send.on_server }, now);
                return Delivery::Retry(error);
            }
            Err(error) => {
                cache.refused(key);
                self.dropped.inc();
                return Delivery::Rejected(error);
            }
        }
        Delivery::Done
    }

    async fn send(&self, send: &Outgoing) -> Result<(), WriteError> {
        let namespace = send.key.regarding.key.namespace().unwrap_or(DEFAULT_NAMESPACE);
        let target = Target { kind: Kind::of::<Body>(), key: ObjectKey::new(namespace, &send.name) };
        let problem = |error: serde_json::Error| WriteError::Codec {
            verb: "record",
            object: Box::new(target.clone()),
            problem: error.to_string(),
        };
        let (verb, path, content) = match send.on_server {
            OnServer::Yes => {
                let mut change = json!({ "series": series(send) });
                if let Some(annotations) = annotations(send) {
                    change["metadata"] = json!({ "annotations": annotations });
                }
                (ApiVerb::Patch, Path::Object, RequestBody::MergePatch(change))
            }
            OnServer::No | OnServer::Maybe => {
                let body = serde_json::to_value(self.body(send)).map_err(problem)?;
                (ApiVerb::Create, Path::Collection, RequestBody::Json(body))
            }
        };
        let query = format!("fieldManager={}", self.controller);
        let request = Request { operation: "record", verb, target: &target, path, query, content };
        // Not by the sender: what a server says of events alone must not hold back any write.
        request.send(self.sender.client()).await.map(drop)
    }

    fn body(&self, send: &Outgoing) -> Body {
        let Outgoing { key, name, first, count, .. } = send;
        let Event { weight, reason, note, action, related } = &key.event;
        let namespace = key.regarding.key.namespace().unwrap_or(DEFAULT_NAMESPACE);
        Body {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                annotations: annotations(send),
                ..ObjectMeta::default()
            },
            action: Some(action.clone()),
            event_time: Some(MicroTime(*first)),
            note: Some(note.clone()),
            reason: Some(reason.clone()),
            regarding: Some(key.regarding.reference()),
            related: related.as_ref().map(Referred::reference),
            reporting_controller: Some(self.reporting_controller.clone()),
            reporting_instance: Some(self.reporting_instance.clone()),
            series: (*count > 1).then(|| series(send)),
            type_: Some(weight.as_str().to_owned()),
            ..Body::default()
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn cache(&self) -> MutexGuard<'_, SeriesCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn annotations(send: &Outgoing) -> Option<BTreeMap<String, String>> {
    let trace_id = send.trace_id.as_ref()?;
    Some(BTreeMap::from([(TRACE_ID_ANNOTATION.to_owned(), trace_id.to_string())]))
}

fn series(send: &Outgoing) -> EventSeries {
    let count = i32::try_from(send.count).unwrap_or(i32::MAX);
    EventSeries { count, last_observed_time: MicroTime(send.last) }
}

/// What became of an event that was sent.
enum Delivery {
    Done,
    /// The server will not have it.
    Rejected(WriteError),
    /// It may have it later.
    Retry(WriteError),
}

/// An event under way; where nobody waits for its answer any more, it is put back.
struct EventInFlight<'a> {
    recorder: &'a Recorder,
    send: Option<Outgoing>,
}

impl Drop for EventInFlight<'_> {
    fn drop(&mut self) {
        if let Some(send) = self.send.take() {
            let on_server = if send.on_server == OnServer::Yes { OnServer::Yes } else { OnServer::Maybe };
            self.recorder.cache().put_back(&send.key, on_server, Instant::now());
        }
    }
}

/// Returns whether the same may get through later.
fn may_pass(error: &WriteError) -> bool {
    match error {
        WriteError::Connection { .. } | WriteError::Deadline { .. } => true,
        WriteError::Refused { status, .. } => status.code == 429 || status.code >= 500,
        _ => false,
    }
}

/// What was logged about events that do not get through.
#[derive(Default)]
struct FailingEvents {
    said: Option<Instant>,
}

impl FailingEvents {
    fn tell(&mut self, controller: &str, error: &WriteError, fate: &str) {
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said = Some(Instant::now());
            tracing::warn!(controller, %error, "an event {fate}; reconciles go on");
        } else {
            tracing::debug!(controller, %error, "an event {fate}");
        }
    }

    fn is_over(&mut self, controller: &str) {
        if self.said.is_some_and(|said| said.elapsed() >= SAY_EVERY) {
            self.said = None;
            tracing::info!(controller, "events get through again");
        }
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
