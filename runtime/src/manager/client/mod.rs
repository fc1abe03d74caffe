//! The client of a process: found by environment, without hidden retries, with TCP keep-alive.

mod connect;
mod driven;
mod direct;
mod warnings;
mod observed;
mod unusable;
#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

#[cfg(all(feature = "http", any(feature = "ring", feature = "aws-lc-rs")))]
pub(super) use self::connect::crypto_provider;
pub(super) use self::observed::observed;
pub(super) use self::unusable::why_no_client;
use self::{connect::Connector, direct::DirectWatches, unusable::KubeconfigPlace};
use super::process::ClientOrigin;
use crate::error::Error;

/// How long a connection may be silent before the kernel asks whether its peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the kernel asks before it gives a peer up.
const PROBES: u32 = 3;

/// Builds a client for the cluster that the environment names, and says which that is.
///
/// Boxed: so it is compiled here, once, and not in each program that awaits it.
pub(super) fn infer() -> BoxFuture<'static, Result<(Client, ClientOrigin), Error>> {
    Box::pin(async move {
        let place = KubeconfigPlace::find(|name| std::env::var(name).ok(), Path::exists);
        let mut in_a_pod = false;
        let mut config = match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
            Ok(config) => {
                let kubeconfig = Kubeconfig::read().unwrap_or_default();
                place.check_user(&kubeconfig)?;
                let context = kubeconfig.current_context.unwrap_or_default();
                tracing::info!(server = %config.cluster_url, context, "using a kubeconfig");
                config
            }
            // A kubeconfig that is there, or named, and can't be used must not become the pod's own cluster.
            Err(cause) if place.is_there() => return Err(place.refuse(cause)),
            Err(cause) => {
                let config = Config::incluster().map_err(|_| place.refuse(cause))?;
                tracing::info!(server = %config.cluster_url, "using the pod's service account");
                in_a_pod = true;
                config
            }
        };
        config.apply_debug_overrides();
        let cluster = ClientOrigin { url: Some(config.cluster_url.to_string()), in_a_pod };
        let client = client(config.clone()).map_err(|error| place.refuse_client(&config, &error))?;
        Ok((client, cluster))
    })
}

/// Builds the client that watchkeeper works with best, as [`Manager::infer`](super::Manager::infer) does.
///
/// It does what kube's own client does: proxies (HTTP, HTTPS and SOCKS5, with credentials), time-outs, gzip
/// unless `disable_compression`, its `HTTP` spans, and `valid_until`. It differs in that
///
/// - every failure is seen as it happens: kube's retry of 429, 503 and 504, which would hide them from the back-off of
///   each informer, is left out, and so are its error lines, since the sender of a request reports its failure;
/// - dead peers are found by TCP keep-alive (15 s, 3 probes);
/// - a watch has a connection of its own, read in the task that reads the watch: no event crosses tasks. Watches are
///   never compressed;
/// - `NO_PROXY` exempts servers from the proxy that `HTTPS_PROXY` names, by host, domain, address or network.
///
/// Which TLS is spoken is chosen by cargo's features: `ring` (default), `aws-lc-rs` or `openssl`.
///
/// # Errors
/// The configuration names certificates, credentials or a proxy that can't be used, or it wants TLS and there is none. For an
/// `http://` server certificates are not looked at.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let connector = connect::connect(&config, tcp(&config))?;
    let connector = with_timeouts(&config, connector);
    let pool = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector.clone());
    let unzip = DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(!config.disable_compression);
    let pool = ServiceBuilder::new().layer(unzip).service(pool);
    let authorization = config.auth_layer()?;
    let ends = authorization.is_none() && config.auth_info.exec.is_some();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(authorization)
        .layer(config.extra_headers_layer()?)
        .service(DirectWatches { pool, connector });
    let client = Client::new(service, config.default_namespace.clone());
    if ends { until_the_certificate_ends(client, config) } else { Ok(client) }
}

/// Makes a client without a server, which refuses each request.
pub(super) fn offline(namespace: String) -> Client {
    let refuse = async |_: Request<Body>| {
        let why =
            "this manager has no server: it was made by `Manager::offline`, which is for what only prints";
        Err::<Response<Body>, BoxError>(why.into())
    };
    Client::new(tower::service_fn(refuse), namespace)
}

/// Opens connections that find out when their peers are gone.
fn tcp(config: &Config) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(KEEP_ALIVE));
    connector.set_keepalive_retries(Some(PROBES));
    connector
}

fn with_timeouts(config: &Config, connector: Connector) -> TimeoutConnector<Connector> {
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    connector
}

/// Says how long the certificate of a credentials plugin holds, as kube's own client does: nobody renews it.
fn until_the_certificate_ends(client: Client, mut config: Config) -> Result<Client, kube::Error> {
    // It may be one that kube has no features for.
    config.proxy_url = None;
    let valid_until = *ClientBuilder::try_from(config)?.build().valid_until();
    if let Some(valid_until) = valid_until {
        tracing::warn!(%valid_until, "a plugin gave a client certificate that ends, and is not asked again: restart by then");
    }
    Ok(client.with_valid_until(valid_until))
}
