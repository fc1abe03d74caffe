//! The way to a server: over TCP, straight or through a proxy, and with TLS as cargo's features choose it.

use std::net::IpAddr;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
use std::sync::Arc;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::{
    legacy::connect::{
        Connected, Connection, HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    proxy::matcher::{Intercept, Matcher},
};
use kube::Config;
#[cfg(any(feature = "ring", feature = "aws-lc-rs", feature = "openssl"))]
use kube::client::ConfigExt;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
use rustls::crypto::CryptoProvider;
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

/// Finds the way to the server that a configuration names.
///
/// # Errors
/// The configuration's proxy or certificates can't be used, or TLS is wanted and no feature chooses one.
pub(super) fn connect(config: &Config, tcp: HttpConnector) -> Result<Connector, kube::Error> {
    let way = way(config, tcp)?;
    match config.cluster_url.scheme_str() {
        // Without a look at certificates: reading a system's takes a while.
        Some("http") => Ok(way),
        _ => over_tls(config, way),
    }
}

/// Finds the way to the server that a configuration names.
///
/// # Errors
/// The proxy speaks a protocol that is not known, or there is no TLS to speak with it.
fn way(config: &Config, tcp: HttpConnector) -> Result<Connector, kube::Error> {
    let Some(url) = proxy_of(config, |name| std::env::var(name).ok()) else {
        return Ok(connector(tcp));
    };
    let unsupported = || kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(url.clone()) };
    let proxy = proxy(&url, &config.cluster_url).ok_or_else(unsupported)?;
    match proxy.uri().scheme_str() {
        Some("http") => Ok(connector(tunnel(&proxy, tcp))),
        // With the cluster's own authorities, as kubectl does it.
        Some("https") => Ok(connector(tunnel(&proxy, over_tls(config, connector(tcp))?))),
        Some("socks5" | "socks5h") => Ok(connector(socks(&proxy, tcp))),
        _ => Err(unsupported()),
    }
}

/// Returns the proxy that a configuration names, unless the environment names it and exempts the server.
///
/// kube takes `HTTPS_PROXY` into the configuration without a look at `NO_PROXY`. A `proxy-url` of the kubeconfig holds
/// whatever the environment says, as with kubectl.
fn proxy_of(config: &Config, environment: impl Fn(&str) -> Option<String>) -> Option<Uri> {
    let proxy = config.proxy_url.clone()?;
    let first =
        |names: [&str; 2]| names.iter().find_map(|name| environment(name).filter(|text| !text.is_empty()));
    let named = first(["HTTPS_PROXY", "https_proxy"]).and_then(|text| text.parse::<Uri>().ok());
    let exempted = || exempts(&first(["NO_PROXY", "no_proxy"]).unwrap_or_default(), &config.cluster_url);
    (named.as_ref() != Some(&proxy) || !exempted()).then_some(proxy)
}

/// Returns whether a `NO_PROXY` exempts a server. This machine is always exempt; entries with a port exempt none.
fn exempts(list: &str, server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    // Any proxy will do to ask whether one is to be used.
    let matcher = Matcher::builder().all("http://proxy").no(list.replace("*.", ".")).build();
    list.split(',').any(|entry| entry.trim() == "*")
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        || matcher.intercept(server).is_none()
}

/// Reads a proxy's address and credentials; `None` where its protocol is not known.
fn proxy(url: &Uri, server: &Uri) -> Option<Intercept> {
    Matcher::builder().all(url.to_string()).build().intercept(server)
}

fn tunnel<C>(proxy: &Intercept, through: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.uri().clone(), through);
    match proxy.basic_auth() {
        Some(credentials) => tunnel.with_auth(credentials.clone()),
        None => tunnel,
    }
}

fn socks<C>(proxy: &Intercept, through: C) -> SocksV5<C> {
    let socks = SocksV5::new(proxy.uri().clone(), through);
    match proxy.raw_auth() {
        Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
        None => socks,
    }
}

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used, or TLS is wanted and no feature chooses one.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
fn over_tls(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    // It refuses to choose where both ways are in the build; refused where another thread was faster, which does as well.
    let _ = crypto_provider().as_ref().clone().install_default();
    Ok(connector(config.rustls_https_connector_with_connector(over)?))
}

/// Speaks TLS to `https://` servers over another connector.
///
/// # Errors
/// The configuration's certificates can't be used.
#[cfg(all(feature = "openssl", not(any(feature = "ring", feature = "aws-lc-rs"))))]
fn over_tls(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    Ok(connector(config.openssl_https_connector_with_connector(over)?))
}

/// Speaks to `http://` servers alone.
///
/// # Errors
/// TLS is wanted, and no feature chooses one.
#[cfg(not(any(feature = "ring", feature = "aws-lc-rs", feature = "openssl")))]
fn over_tls(config: &Config, over: Connector) -> Result<Connector, kube::Error> {
    match config.cluster_url.scheme_str() {
        Some("https") => Err(kube::Error::TlsRequired),
        _ => Ok(over),
    }
}

/// Returns how rustls computes: as the program chose for its process, else as cargo's features say.
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
pub(in crate::manager) fn crypto_provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    let built_in = rustls::crypto::aws_lc_rs::default_provider;
    #[cfg(not(feature = "aws-lc-rs"))]
    let built_in = rustls::crypto::ring::default_provider;
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(built_in()))
}

/// Connects to the server that a URL names.
pub(super) type Connector = BoxCloneSyncService<Uri, Io, BoxError>;

/// Forgets what a connector goes through.
fn connector<C>(connects: C) -> Connector
where
    C: Service<Uri, Response: Stream, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(connects.map_response(|stream| Box::new(stream) as Io).map_err(Into::into))
}

/// Bounds what connections are made of.
pub(super) trait Stream: Read + Write + Connection + Send + Unpin + 'static {}

impl<S: Read + Write + Connection + Send + Unpin + 'static> Stream for S {}

/// A connection over TCP, TLS, a proxy, or several of these.
pub(super) type Io = Box<dyn Stream>;

impl Connection for Io {
    fn connected(&self) -> Connected {
        (**self).connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(server: &'static str, proxy: Option<&'static str>) -> Config {
        let mut config = Config::new(Uri::from_static(server));
        config.proxy_url = proxy.map(Uri::from_static);
        config
    }

    fn proxied(server: &'static str, variables: &[(&str, &str)]) -> bool {
        let set =
            |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        proxy_of(&config(server, Some("http://proxy.example:3128")), set).is_some()
    }

    // HTTPS_PROXY is for the servers that NO_PROXY leaves.
    #[test]
    fn no_proxy_exempts_servers_from_the_environments_proxy() {
        let set = |no: &'static str| [("HTTPS_PROXY", "http://proxy.example:3128"), ("NO_PROXY", no)];
        let server = "https://10.1.2.3:6443";
        for exempts in ["10.1.2.3", "10.0.0.0/8", "*", "localhost, 10.1.2.3,"] {
            assert!(!proxied(server, &set(exempts)), "{exempts}");
        }
        for leaves in ["", "10.1.2.4", "192.168.0.0/16", "example.dev", "proxy.example"] {
            assert!(proxied(server, &set(leaves)), "{leaves}");
        }
        for exempts in ["example.dev", ".example.dev", "*.example.dev"] {
            assert!(!proxied("https://api.example.dev", &set(exempts)), "{exempts}");
        }
        for here in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert!(!proxied(here, &set("")), "{here}");
        }
        assert!(!proxied("https://[fd00::7]:6443", &set("fd00::/8")));
        let lower = [("https_proxy", "http://proxy.example:3128"), ("no_proxy", "10.0.0.0/8")];
        assert!(!proxied(server, &lower));
    }

    #[test]
    fn a_kubeconfigs_proxy_holds_whatever_the_environment_says() {
        assert!(proxied("https://10.1.2.3:6443", &[("NO_PROXY", "*")]));
        assert!(proxied(
            "https://10.1.2.3:6443",
            &[("HTTPS_PROXY", "http://other.example"), ("NO_PROXY", "*")]
        ));
        assert!(proxy_of(&config("https://10.1.2.3:6443", None), |_| None).is_none());
    }

    #[test]
    fn proxies_of_unknown_protocols_are_refused_by_name() {
        let refused = way(&config("http://api.example", Some("gopher://proxy")), HttpConnector::new());
        let Err(error) = refused else { panic!("gopher was taken") };
        assert!(error.to_string().contains("gopher://proxy"), "{error}");
        for known in ["http://u:p@proxy:1", "socks5://u:p@proxy:1", "socks5h://proxy"] {
            assert!(way(&config("http://api.example", Some(known)), HttpConnector::new()).is_ok(), "{known}");
        }
    }
}
