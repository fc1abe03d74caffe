//! Where HTTP is served, and to whom.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use crate::error::Error;

/// Where a manager listens that runs in a pod, unless told otherwise.
pub(in crate::manager) const IN_A_POD: &str = ":8080";
/// Most connections at once, unless set.
const MOST_CONNECTIONS: usize = 100;

/// Where a manager serves HTTP, and to whom; for [`Manager::http`](crate::Manager::http).
///
/// An address alone will do: `0.0.0.0:8080`, `127.0.0.1:8080`, `[::]:8080`, or `:8080` for all interfaces, of IPv4 and
/// IPv6. With port 0 a free one is chosen: [`Running::http_address`](crate::Running::http_address) tells which.
///
/// ```
/// # use watchkeeper::{manager::Http, prelude::*};
/// # fn served(manager: Manager) -> Manager {
/// manager.http(Http::on(":8443").tls("/tls/tls.crt", "/tls/tls.key").authorize().debug_for_all())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a manager is given it"]
pub struct Http {
    /// `None`: nowhere.
    pub(super) address: Option<String>,
    pub(super) debug: DebugFor,
    pub(super) access: Access,
    pub(super) most_connections: usize,
    /// `None`: plain HTTP.
    pub(super) tls: Option<TlsFiles>,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Who may see the debug page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DebugFor {
    Loopback,
    All,
}

/// Who may see metrics and the debug page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Open,
    /// Whom the API server allows it.
    Reviewed,
}

impl Http {
    /// Serves at an address.
    pub fn on(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::off() }
    }

    /// Serves nowhere; what else is set counts for a service of the program's own.
    pub fn off() -> Self {
        let most_connections = MOST_CONNECTIONS;
        Self { address: None, debug: DebugFor::Loopback, access: Access::Open, most_connections, tls: None }
    }

    /// Speaks TLS on the port, and nothing else: HTTP/1.1 over TLS 1.2 or 1.3.
    ///
    /// Both files are PEM: the server's certificate, followed by those of its issuers, and its key (PKCS#8, PKCS#1 or
    /// SEC 1, not encrypted), as a mounted Secret of type `kubernetes.io/tls` has them in `tls.crt` and `tls.key`. They
    /// are looked at every 10 s: new connections get the new certificate once both fit together. A new pair that
    /// can't be used is logged, and the old one stays. A pair that can't be used at the start ends it with
    /// [`Error::Http`](crate::Error::Http). Clients are not asked for certificates: see [`authorize`](Self::authorize).
    ///
    /// Probes need `scheme: HTTPS`; kubelet does not verify the certificate. It takes the cargo feature `ring`
    /// (default) or `aws-lc-rs`, and does nothing for a service of the program's own, whose server does TLS.
    pub fn tls(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        Self { tls: Some(TlsFiles { certificate, key }), ..self }
    }

    /// Shows `/debug`, and why a probe fails, to anyone who can reach the port, not only to this machine.
    ///
    /// That shows names of objects, errors and the addresses of servers: think of [`authorize`](Self::authorize).
    pub fn debug_for_all(self) -> Self {
        Self { debug: DebugFor::All, ..self }
    }

    /// Asks the API server who may `get` `/metrics` and `/debug`, by the bearer token of each request.
    ///
    /// By a TokenReview and a SubjectAccessReview of that path, as controller-runtime's filter does; probes stay open. An
    /// answer is believed for a minute, a refusal for ten seconds. Tokens that were not allowed before are reviewed ten
    /// times a second at most, and senders take turns, so that made-up tokens keep no scraper out. It needs `create` of
    /// `tokenreviews` and `subjectaccessreviews`, which [`Manager::rules`](crate::Manager::rules) then has. Tokens can be
    /// read by anyone who can read the traffic, unless it is under [TLS](Self::tls). `/debug` stays on loopback besides, unless it is
    /// [for all](Self::debug_for_all).
    pub fn authorize(self) -> Self {
        Self { access: Access::Reviewed, ..self }
    }

    /// Sets how many connections there may be at once: 100 unless set, one at least.
    pub fn max_connections(self, most: usize) -> Self {
        Self { most_connections: most.max(1), ..self }
    }

    pub(in crate::manager) fn reviews(&self) -> bool {
        self.access == Access::Reviewed
    }
}

impl From<&str> for Http {
    fn from(address: &str) -> Self {
        Self::on(address)
    }
}

impl From<String> for Http {
    fn from(address: String) -> Self {
        Self::on(address)
    }
}

impl From<SocketAddr> for Http {
    fn from(address: SocketAddr) -> Self {
        Self::on(address.to_string())
    }
}

/// Reads an address; what it means is tried in order.
pub(super) fn read(address: &str) -> Result<Vec<SocketAddr>, Error> {
    let text = address.trim();
    if let Some(port) = text.strip_prefix(':').filter(|port| !port.contains(':')) {
        let port = port.parse().map_err(|_| unreadable(address, "its port is not a number up to 65535"))?;
        return Ok(everywhere(port));
    }
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let Some((host, port)) = text.rsplit_once(':') else { return Err(unreadable(address, "it has no port")) };
    let port: u16 = port.parse().map_err(|_| unreadable(address, "its port is not a number up to 65535"))?;
    if host.contains(['/', ':', '@', ' ']) {
        return Err(unreadable(address, "it is not a host and port"));
    }
    let found = (host, port).to_socket_addrs().map_err(|source| Error::Http {
        address: address.to_owned(),
        problem: format!("{host:?} is not a known host: {REMEDY}"),
        source: Some(source),
    })?;
    Ok(found.collect())
}

/// All interfaces: IPv6 with IPv4 in it, where there is such a thing.
fn everywhere(port: u16) -> Vec<SocketAddr> {
    let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    match cfg!(windows) {
        true => vec![four],
        false => vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), four],
    }
}

const REMEDY: &str = "write it as 0.0.0.0:8080, 127.0.0.1:8080, [::]:8080 or :8080";

fn unreadable(address: &str, what: &str) -> Error {
    Error::Http { address: address.to_owned(), problem: format!("{what}: {REMEDY}"), source: None }
}

/// Says why an address can't be listened at, and what to do.
pub(super) fn refused(address: &str, source: io::Error) -> Error {
    let problem = match source.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is in use: end what listens there, choose another by `.http(\":8081\")`, or none by \
             `.http(Http::off())`"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not listen there (ports below 1024 are for root): choose another by `.http(\":8080\")`"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has that address: try `.http(\":8080\")`"
        }
        _ => "the system refuses it",
    };
    Error::Http { address: address.to_owned(), problem: problem.to_owned(), source: Some(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P2
    #[test]
    fn an_address_is_read_as_people_write_it() {
        for (text, wanted) in [
            ("0.0.0.0:8080", "0.0.0.0:8080"),
            (" 127.0.0.1:0 ", "127.0.0.1:0"),
            ("[::1]:8080", "[::1]:8080"),
            #[cfg(unix)]
            (":8080", "[::]:8080"),
        ] {
            assert_eq!(read(text).unwrap()[0], wanted.parse().unwrap(), "{text}");
        }
        assert!(read("localhost:80").unwrap().iter().all(|address| address.ip().is_loopback()));
        assert_eq!(read(":8080").unwrap().last().unwrap().to_string(), "0.0.0.0:8080");
    }

    // P6
    #[test]
    fn an_address_that_is_none_is_refused_with_the_remedy() {
        for (text, why) in [
            ("rubbish", "it has no port"),
            ("", "it has no port"),
            ("8080", "it has no port"),
            (":", "its port is not a number"),
            (":70000", "its port is not a number"),
            ("localhost:http", "its port is not a number"),
            ("http://0.0.0.0:8080", "it is not a host and port"),
            ("::1:8080", "it is not a host and port"),
            ("fe80::1:8080", "it is not a host and port"),
            ("a b:8080", "it is not a host and port"),
        ] {
            let Err(error) = read(text) else { panic!("{text} is an address") };
            let error = format!("{error:?}");
            assert!(error.contains(why) && error.contains("write it as 0.0.0.0:8080"), "{text}: {error}");
            assert!(error.starts_with(&format!("HTTP can't be served at {text:?}: ")), "{error}");
        }
    }
}
