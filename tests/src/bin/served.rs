//! An operator that serves HTTP and whose runs last as long as its argument says: for tests that send it signals.
//!
//! ```text
//! served NAMESPACE ADDRESS SECONDS      with KUBECONFIG in the environment
//! ```
//!
//! Where the seconds are `for-ever`, a run blocks a thread that nothing ends, and the grace period is a second. Where they
//! are `gives-up`, a run takes ten minutes, and another controller gives up after three seconds.
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
    let gives_up = seconds == "gives-up";
    let takes = match &*seconds {
        "for-ever" => None,
        "gives-up" => Some(Duration::from_secs(600)),
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
    let grace = match takes {
        Some(takes) if gives_up => takes.as_secs(),
        Some(_) => 30,
        None => 1,
    };
    let manager = Manager::new(client(config)?).grace_period(Duration::from_secs(grace));
    let manager = manager.http(address).controller(slow);
    match gives_up {
        true => manager.controller(never_synced()).run().await,
        false => manager.run().await,
    }
}

/// A kind that no server has.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "nobody.example.dev", version = "v1", kind = "Nothing", namespaced)]
struct NothingSpec {}

/// A controller that gives up.
fn never_synced() -> Controller<Nothing, impl Reconciler<Nothing>> {
    let idle = Controller::from_fn(async |_: Arc<Nothing>, _: Context<Nothing>| {
        Ok::<_, watchkeeper::Error>(Action::await_change())
    });
    idle.sync_timeout(Duration::from_secs(3))
}
