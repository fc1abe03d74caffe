//! The way to a server: straight, or through a proxy.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::{
    legacy::connect::{
        HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    proxy::matcher::{Intercept, Matcher},
};
use kube::Config;

use super::{
    io::{Connector, connector},
    tls,
};

/// Finds the way to the server that a configuration names.
///
/// # Errors
/// The proxy speaks a protocol that is not known, or there is no TLS to speak with it.
pub(super) fn way(config: &Config, tcp: HttpConnector) -> Result<Connector, kube::Error> {
    let Some(url) = proxy_of(config, |name| std::env::var(name).ok()) else {
        return Ok(connector(tcp));
    };
    let unsupported = || kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(url.clone()) };
    let proxy = proxy(&url, &config.cluster_url).ok_or_else(unsupported)?;
    match proxy.uri().scheme_str() {
        Some("http") => Ok(connector(tunnel(&proxy, tcp))),
        // With the cluster's own authorities, as kubectl does it.
        Some("https") => Ok(connector(tunnel(&proxy, tls::connector(config, connector(tcp))?))),
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

/// Returns whether a `NO_PROXY` exempts a server, as kubectl reads it: this machine is always exempt.
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
