//! Triggers from outside the cluster, and code that blocks.

use futures::{Stream, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::{sync::mpsc, task::spawn_blocking};
use watchkeeper::prelude::*;

/// Turns a channel into the keys that are to be reconciled.
fn keys(from: mpsc::Receiver<ObjectKey>) -> impl Stream<Item = ObjectKey> + Send {
    stream::unfold(from, async |mut from| Some((from.recv().await?, from)))
}

/// Computes something for so long that it may not run on a thread of the runtime.
fn checksum(map: &ConfigMap) -> u32 {
    let values = map.data.iter().flatten().flat_map(|(_, value)| value.bytes());
    values.fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

fn controller(
    from: mpsc::Receiver<ObjectKey>,
) -> Controller<ConfigMap, impl Reconciler<ConfigMap>> {
    Controller::from_fn(async |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let at_work = cx.clone(); // a leader keeps its Lease while this lives
        let sum = spawn_blocking(move || {
            let sum = checksum(&map);
            drop(at_work);
            sum
        })
        .await
        .map_err(watchkeeper::Error::other)?;
        cx.event(Event::normal("Checked", format!("the checksum is {sum}")));
        Ok::<_, watchkeeper::Error>(Action::await_change())
    })
    .source(keys(from))
    .records_events()
    .deadline(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test]
    async fn a_key_from_a_channel_is_reconciled() {
        let server = ApiServer::in_memory().namespace("home").start().await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".into());
        server.create(&map).await;
        let (to, from) = mpsc::channel(16);
        let running = Manager::new(server.client()).controller(controller(from)).spawn();
        to.send(ObjectKey::new("home", "a")).await.expect("the source is polled");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let why = running.why::<ConfigMap>(&ObjectKey::new("home", "a"));
        assert_eq!(why[0].why, watchkeeper::controller::Why::AwaitsChange);
    }
}
