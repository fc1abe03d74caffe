//! The client of a process: found by environment, without hidden retries, with TCP keep-alive.

mod direct;
mod driven;

use std::time::Duration;

use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::ServiceBuilder;

use self::direct::DirectWatches;
use crate::error::Error;

/// How long a connection may be silent before the kernel asks whether its peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the kernel asks before it gives a peer up.
const PROBES: u32 = 3;

/// Builds a client for the cluster that the environment names.
pub(super) async fn infer() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|error| Error::Configuration(error.into()))?;
    Ok(client(config)?)
}

/// Builds the client that watchkeeper works with best, as [`Manager::infer`](super::Manager::infer) does.
///
/// Every failure is seen as it happens: kube's own retry of 429, 503 and 504, which would hide them from the
/// back-off of each informer, is left out. Dead peers are found by TCP keep-alive (15 s, 3 probes). A watch has a
/// connection of its own, which is read in the task that reads the watch: no event crosses tasks. Behind a proxy,
/// kube's own connector is used, which has neither.
///
/// # Errors
/// The configuration names certificates or credentials that can't be used.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(KEEP_ALIVE));
    connector.set_keepalive_retries(Some(PROBES));
    let https = config.rustls_https_connector_with_connector(connector)?;
    let pool = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(https.clone());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(DirectWatches::new(pool, https));
    Ok(Client::new(service, config.default_namespace))
}
