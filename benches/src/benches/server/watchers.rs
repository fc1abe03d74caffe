//! Many watchers and a paced writer: from the start of a write to its event.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, sleep, timeout},
};
use watchkeeper::kube::{Client, client::Body};

use super::load::{CONFIG_MAPS, open, whole};
use crate::{
    clock::{micros_since, wall_nanos},
    job::{Job, Question},
    kit::Spent,
    measure::{Measures, Sorted, measures},
};

/// One watcher in this many measures if all get every event: reading the time from each event would cost more
/// than the event.
const A_SAMPLE: usize = 50;

/// How long each part may take.
struct Deadlines {
    /// All watches are open.
    opening: Duration,
    /// All writes are answered.
    writes: Duration,
    /// All events have come, after the writes.
    events: Duration,
}

impl Deadlines {
    /// All of them together are shorter than what one run may take.
    fn of(job: &Job) -> Self {
        let writes = Duration::from_secs(job.seconds.saturating_add(45));
        Self { opening: Duration::from_secs(60), writes, events: Duration::from_secs(60) }
    }
}

/// What all watchers share.
#[derive(Default)]
struct Heard {
    events: AtomicUsize,
    delays: Mutex<Vec<f64>>,
}

impl Heard {
    fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// Forgets what came so far.
    fn begin(&self) {
        self.events.store(0, Ordering::Relaxed);
        self.delays.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn delays(&self) -> Sorted {
        Sorted::new(std::mem::take(&mut *self.delays.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Measures one server.
pub(super) async fn measure(client: &Client, job: &Job) -> anyhow::Result<Measures> {
    measure_within(client, job, &Deadlines::of(job)).await
}

/// Measures one server; what a deadline cuts short has the figures of what there was until then.
async fn measure_within(client: &Client, job: &Job, deadlines: &Deadlines) -> anyhow::Result<Measures> {
    let apart = job.question == Question::Apart;
    let heard = Arc::new(Heard::default());
    let mut watchers = JoinSet::new();
    match timeout(deadlines.opening, watch(client, job, &heard, &mut watchers)).await {
        Ok(opened) => opened?,
        Err(_) => return Ok(measures([("watches", watchers.len() as f64)])),
    }
    sleep(Duration::from_millis(200)).await;
    heard.begin();
    let expected = job.events * if apart { 1 } else { job.users };
    let spent = Spent::from_now();
    let answered = AtomicUsize::new(0);
    let in_time = timeout(deadlines.writes, write(client, job, apart, &answered)).await;
    let wrote = spent.wall();
    in_time.unwrap_or(Ok(()))?;
    let _ = timeout(deadlines.events, all_came(&heard, expected, &mut watchers)).await;
    let (came, wall, cpu) = (heard.events(), spent.wall(), spent.cpu());
    let mut reached = measures([
        ("watches", watchers.len() as f64),
        ("rate", answered.load(Ordering::Relaxed) as f64 / wrote),
        ("delivered", came as f64 / wall),
        ("came", came.min(expected) as f64 / expected as f64 * 100.0),
    ]);
    let delays = heard.delays();
    if came > 0 {
        reached.insert("cpu".to_owned(), cpu * 1e6 / came as f64);
    }
    if delays.most().is_finite() {
        reached.extend(measures([("p50", delays.median() / 1e3), ("p99", delays.at(0.99) / 1e3)]));
    }
    Ok(reached)
}

/// Opens all watches.
async fn watch(
    client: &Client,
    job: &Job,
    heard: &Arc<Heard>,
    watchers: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let apart = job.question == Question::Apart;
    for at in 0..job.users {
        let path = if apart { namespace(client, at).await? } else { CONFIG_MAPS.to_owned() };
        let request = Request::get(format!("{path}?watch=1&resourceVersion=0"));
        let body = open(client, request.body(Body::empty())?).await?.into_body();
        let measuring = apart || at % A_SAMPLE == 0;
        watchers.spawn(listen(body, measuring, heard.clone()));
    }
    Ok(())
}

/// Waits until all events came, or no watch is left.
async fn all_came(heard: &Heard, expected: usize, watchers: &mut JoinSet<()>) {
    while heard.events() < expected {
        while watchers.try_join_next().is_some() {}
        if watchers.is_empty() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Makes a namespace of a watcher's own; gives the path of its config maps.
async fn namespace(client: &Client, at: usize) -> anyhow::Result<String> {
    let body =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{at:04}")}});
    let request = Request::post("/api/v1/namespaces").header("content-type", "application/json");
    whole(client, request.body(Body::from(body.to_string().into_bytes()))?).await?;
    Ok(format!("/api/v1/namespaces/team-{at:04}/configmaps"))
}

/// Creates objects at a rate, each with the time at which it was sent; a slow server does not slow the pace down.
async fn write(client: &Client, job: &Job, apart: bool, answered: &AtomicUsize) -> anyhow::Result<()> {
    let a_second = (job.events as u64 / job.seconds.max(1)).clamp(1, 1_000_000);
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / a_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut writes = JoinSet::new();
    for at in 0..job.events {
        ticks.tick().await;
        let path = match apart {
            true => format!("/api/v1/namespaces/team-{:04}/configmaps", at % job.users),
            false => CONFIG_MAPS.to_owned(),
        };
        let client = client.clone();
        writes.spawn(async move {
            let name = format!("written-{at:06}");
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"at":"{}"}}}}"#,
                wall_nanos()
            );
            let request = Request::post(path).header("content-type", "application/json");
            whole(&client, request.body(Body::from(body.into_bytes()))?).await
        });
        while let Some(written) = writes.try_join_next() {
            written??;
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    while let Some(written) = writes.join_next().await {
        written??;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn listen(body: Body, measuring: bool, heard: Arc<Heard>) {
    let mut pieces = body.into_data_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        let events = memchr::memchr_iter(b'\n', &piece).count();
        heard.events.fetch_add(events, Ordering::Relaxed);
        if measuring && let Some(sent) = sent(&piece) {
            heard.delays.lock().unwrap_or_else(PoisonError::into_inner).push(micros_since(sent));
        }
    }
}

/// Reads when the first object of a chunk was sent, which is a bound on the chunk's age.
fn sent(piece: &[u8]) -> Option<u64> {
    let start = memchr::memmem::find(piece, br#""data":{"at":""#)? + 14;
    let text = piece.get(start..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Method, Response};
    use http_body::Frame;
    use http_body_util::{Empty, StreamBody};

    use super::*;
    use crate::job::Bench;

    #[test]
    fn an_event_says_when_its_object_was_sent() {
        let line = br#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","data":{"at":"17"}}}"#;
        assert_eq!(sent(line), Some(17));
        assert_eq!(sent(b"{}\n"), None);
    }

    /// A server that answers those methods alone; each of its watches tells of one object after a second.
    fn server(answered: &'static [Method]) -> Client {
        let answer = move |request: Request<Body>| async move {
            if !answered.contains(request.method()) {
                std::future::pending::<()>().await;
            }
            let event = futures::stream::once(async {
                sleep(Duration::from_secs(1)).await;
                let object = format!("{{\"data\":{{\"at\":\"{}\"}}}}\n", wall_nanos());
                Ok::<_, Infallible>(Frame::data(Bytes::from(object)))
            });
            let body = match request.method() == Method::GET {
                true => StreamBody::new(event.chain(futures::stream::pending())).boxed_unsync(),
                false => Empty::new().boxed_unsync(),
            };
            Ok::<_, Infallible>(Response::new(body))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_reach_its_end_has_the_figures_of_what_it_reached() -> anyhow::Result<()> {
        let job = Job::new(Bench::Server, 0).question(Question::Together).users(2).events(4).seconds(1);
        let silent = measure(&server(&[]), &job).await?;
        assert_eq!(silent, measures([("watches", 0.0)]));
        let reads = measure(&server(&[Method::GET]), &job).await?;
        assert_eq!([reads["watches"], reads["rate"], reads["came"]], [2.0, 0.0, 25.0]);
        assert!(reads.contains_key("p99") && reads["delivered"] > 0.0);
        let all = measure(&server(&[Method::GET, Method::POST]), &job).await?;
        assert!(all["rate"] > 0.0 && all["came"] < 100.0);
        Ok(())
    }
}
