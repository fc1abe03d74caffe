//! An operator that serves HTTP and whose runs last as long as its argument says: for tests that send it signals.
//!
//! ```text
//! served NAMESPACE ADDRESS SECONDS      with KUBECONFIG in the environment
//! ```
//!
//! Where the seconds are `for-ever`, a run blocks a thread that nothing ends, and the grace period is a second.
//!
//! Each begin and end of a run is a line on its standard output.

#![expect(clippy::print_stdout, reason = "the test reads it")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use watchkeeper::{manager::client, prelude::*};

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let [_, namespace, address, seconds] =
        std::env::args().collect::<Vec<_>>().try_into().map_err(|_| "three words")?;
    let takes = match &*seconds {
        "for-ever" => None,
        seconds => Some(Duration::from_secs(seconds.parse().map_err(watchkeeper::Error::other)?)),
    };
    let config = Config::infer().await.map_err(watchkeeper::Error::other)?;
    let slow = Controller::from_fn(async move |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
        println!("begins");
        match takes {
            Some(takes) => tokio::time::sleep(takes).await,
            None => {
                let blocked = tokio::task::spawn_blocking(|| {
                    loop {
                        std::thread::park();
                    }
                });
                blocked.await.map_err(watchkeeper::Error::other)?;
            }
        }
        println!("ends");
        Ok::<_, watchkeeper::Error>(Action::await_change())
    });
    let slow =
        slow.namespace(namespace).field_selector("metadata.name=busy").map_err(watchkeeper::Error::other)?;
    let grace = if takes.is_some() { 30 } else { 1 };
    let manager = Manager::new(client(config)?).grace_period(Duration::from_secs(grace));
    manager.http(address).controller(slow).run().await
}
