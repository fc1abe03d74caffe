//! The hot paths of the embedded API server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use watchkeeper::kube::{Client, client::Body};
use watchkeeper_apiserver::ApiServer;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHERS: usize = 100;

/// Reads one object this many times.
pub(super) async fn get(rounds: usize) -> anyhow::Result<()> {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    create(&client, 0).await?;
    for _ in 0..rounds {
        let request = Request::get(format!("{CONFIG_MAPS}/object-0")).header("accept", "application/json");
        whole(&client, request.body(Body::empty())?).await?;
    }
    Ok(())
}

/// Sends this many events to a hundred watchers, after each write to all of them.
pub(super) async fn deliver(rounds: usize) -> anyhow::Result<()> {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    let heard = Arc::new(AtomicUsize::new(0));
    for _ in 0..WATCHERS {
        let request = Request::get(format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"));
        let response = client.send(request.body(Body::empty())?).await?;
        let (mut pieces, heard) = (response.into_body().into_data_stream(), heard.clone());
        tokio::spawn(async move {
            while let Some(Ok(piece)) = pieces.next().await {
                heard.fetch_add(memchr::memchr_iter(b'\n', &piece).count(), Ordering::Relaxed);
            }
        });
    }
    // The namespace begins with no object of its own: what is heard was written here.
    for at in 0..rounds / WATCHERS {
        create(&client, at).await?;
        while heard.load(Ordering::Relaxed) < (at + 1) * WATCHERS {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

async fn create(client: &Client, at: usize) -> anyhow::Result<()> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"object-{at}"}},"data":{{"at":"{at}"}}}}"#
    );
    let request = Request::post(CONFIG_MAPS).header("content-type", "application/json");
    whole(client, request.body(Body::from(body.into_bytes()))?).await
}

async fn whole(client: &Client, request: Request<Body>) -> anyhow::Result<()> {
    let response = client.send(request).await?;
    anyhow::ensure!(response.status().is_success(), "{}", response.status());
    response.into_body().collect_bytes().await?;
    Ok(())
}
