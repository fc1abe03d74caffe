//! The client of a process: found by environment, without hidden retries, with TCP keep-alive.

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

use crate::error::Error;

/// How long a connection may be silent before the kernel asks whether its peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the kernel asks before it gives a peer up.
const PROBES: u32 = 3;

/// Builds a client for the cluster that the environment names.
pub(super) async fn infer() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|error| Error::Configuration(error.into()))?;
    Ok(build(config)?)
}

/// Builds a client whose failures are seen as they happen.
///
/// kube's own retry of 429, 503 and 504 is left out: it would hide them from the back-off of each informer. Dead
/// peers are found by keep-alive. Behind a proxy, kube's own connector is used, which has no keep-alive.
fn build(mut config: Config) -> Result<Client, kube::Error> {
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
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
