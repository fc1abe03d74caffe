//! Many watchers beside a paced writer: from the start of a write to its event.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::{sync::watch, time::MissedTickBehavior};
use watchkeeper::kube::{Client, client::Body};

use super::load::{CONFIG_MAPS, open, whole};
use crate::{
    clock::{micros_since, wall_nanos},
    job::{Job, Question},
    kit::Spent,
    measure::{Measures, Sorted, measures},
};

/// One watcher in so many measures, where all hear everything: reading the time from each event would cost more
/// than the event.
const A_SAMPLE: usize = 50;

/// What all watchers share.
#[derive(Default)]
struct Heard {
    events: AtomicUsize,
    delays: Mutex<Vec<f64>>,
}

/// Measures one server.
pub(super) async fn measure(client: &Client, job: &Job) -> anyhow::Result<Measures> {
    let apart = job.question == Question::Apart;
    let heard = Arc::new(Heard::default());
    let (told, over) = watch::channel(());
    let mut watchers = Vec::new();
    for at in 0..job.users {
        let path = if apart { namespace(client, at).await? } else { CONFIG_MAPS.to_owned() };
        let request = Request::get(format!("{path}?watch=1&resourceVersion=0"));
        let body = open(client, request.body(Body::empty())?).await?.into_body();
        let measuring = apart || at % A_SAMPLE == 0;
        watchers.push(tokio::spawn(listen(body, measuring, heard.clone(), over.clone())));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    heard.events.store(0, Ordering::Relaxed);
    heard.delays.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let expected = job.events * if apart { 1 } else { job.users };
    let spent = Spent::from_now();
    write(client, job, apart).await?;
    let wrote = spent.wall();
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, async {
        while heard.events.load(Ordering::Relaxed) < expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .with_context(|| format!("{} of {expected} events came", heard.events.load(Ordering::Relaxed)))?;
    let cpu = spent.cpu() * 1e6 / expected as f64;
    drop(told);
    for watcher in watchers {
        watcher.await?;
    }
    let delays = std::mem::take(&mut *heard.delays.lock().unwrap_or_else(PoisonError::into_inner));
    let delays = Sorted::new(delays);
    Ok(measures([
        ("rate", job.events as f64 / wrote),
        ("p50", delays.median() / 1e3),
        ("p99", delays.at(0.99) / 1e3),
        ("cpu", cpu),
    ]))
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
async fn write(client: &Client, job: &Job, apart: bool) -> anyhow::Result<()> {
    let a_second = job.events as u64 / job.seconds;
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / a_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut writes = tokio::task::JoinSet::new();
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
    }
    while let Some(written) = writes.join_next().await {
        written??;
    }
    Ok(())
}

async fn listen(body: Body, measuring: bool, heard: Arc<Heard>, mut over: watch::Receiver<()>) {
    let mut pieces = body.into_data_stream();
    loop {
        let piece = tokio::select! {
            biased;
            piece = pieces.next() => piece,
            _ = over.changed() => return,
        };
        let Some(Ok(piece)) = piece else { return };
        let events = memchr::memchr_iter(b'\n', &piece).count();
        heard.events.fetch_add(events, Ordering::Relaxed);
        if measuring && let Some(sent) = sent(&piece) {
            heard.delays.lock().unwrap_or_else(PoisonError::into_inner).push(micros_since(sent));
        }
    }
}

/// Reads when the first object of a piece was sent: the piece is no newer than that.
fn sent(piece: &[u8]) -> Option<u64> {
    let start = memchr::memmem::find(piece, br#""data":{"at":""#)? + 14;
    let text = piece.get(start..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_when_its_object_was_sent() {
        let line = br#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","data":{"at":"17"}}}"#;
        assert_eq!(sent(line), Some(17));
        assert_eq!(sent(b"{}\n"), None);
    }
}
