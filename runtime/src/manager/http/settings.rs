//! The settings of the HTTP server.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use crate::error::Error;

/// Where a manager listens in a pod, unless set.
pub(in crate::manager) const IN_A_POD: &str = ":8080";
/// Most connections at once, unless set.
const MOST_CONNECTIONS: usize = 100;

/// Where a manager serves HTTP, and to whom; for [`Manager::http`](crate::Manager::http).
///
/// An address is enough: `0.0.0.0:8080`, `127.0.0.1:8080`, `[::]:8080`, or `:8080` for all interfaces, of IPv4 and
/// IPv6. Port 0 chooses a free port: [`Running::http_address`](crate::Running::http_address) returns it.
///
/// ```
/// # use watchkeeper::{manager::Http, prelude::*};
/// # fn served(manager: Manager) -> Manager {
/// manager.http(Http::on(":8443").tls("/tls/tls.crt", "/tls/tls.key").authorize().debug_for_all())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until a manager has them"]
pub struct Http {
    /// `None`: nowhere.
    pub(super) address: Option<String>,
    pub(super) debug_for_all: bool,
    /// The API server decides who may see metrics and the debug page.
    pub(super) reviewed: bool,
    pub(super) most_connections: usize,
    /// `None`: plain HTTP.
    pub(super) tls: Option<TlsFiles>,
}

/// Why a certificate can't be used and what to do, and the error of the system if there was one.
pub(super) type Unusable = (String, Option<io::Error>);

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Http {
    /// Serves at an address.
    pub fn on(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::off() }
    }

    /// Serves at another address.
    #[cfg(feature = "cli")]
    pub(crate) fn at(self, address: String) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Does not serve HTTP; the other settings still apply to [`Manager::http_service`](crate::Manager::http_service).
    pub fn off() -> Self {
        let most_connections = MOST_CONNECTIONS;
        Self { address: None, debug_for_all: false, reviewed: false, most_connections, tls: None }
    }

    /// Speaks TLS on the port, and nothing else: HTTP/1.1 over TLS 1.2 or 1.3.
    ///
    /// Both files are PEM: the server's certificate, followed by those of its issuers, and its key (PKCS#8, PKCS#1 or
    /// SEC 1, not encrypted). A mounted Secret of type `kubernetes.io/tls` has them in `tls.crt` and `tls.key`. The files
    /// are read again every 10 s: new connections get a new certificate once certificate and key match. A new pair that
    /// can't be used is logged, and the old one stays. If the pair can't be used at the start, the manager ends with
    /// [`Error::Http`](crate::Error::Http). Clients are not asked for certificates: see [`authorize`](Self::authorize).
    ///
    /// Probes need `scheme: HTTPS`; the kubelet does not verify the certificate. TLS needs the cargo feature `ring`
    /// (default) or `aws-lc-rs`. It does nothing for a service of your own, whose server does TLS.
    pub fn tls(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        Self { tls: Some(TlsFiles { certificate, key }), ..self }
    }

    /// Shows `/debug`, and why a probe fails, to anyone who can reach the port, not only to this machine.
    ///
    /// Both show names of objects, errors and addresses of servers: consider [`authorize`](Self::authorize).
    pub fn debug_for_all(self) -> Self {
        Self { debug_for_all: true, ..self }
    }

    /// Asks the API server who may `get` `/metrics` and `/debug`, by the bearer token of each request.
    ///
    /// It sends a TokenReview and a SubjectAccessReview of that path, like controller-runtime's filter; probes stay
    /// open. A permission is believed for a minute, a refusal for ten seconds. Tokens that were not allowed before are
    /// reviewed at most ten times a second, in order, and each address can have at most 20 of them waiting, so that
    /// made-up tokens do not keep a scraper out. It needs `create` of `tokenreviews` and `subjectaccessreviews`, which
    /// [`Manager::rules`](crate::Manager::rules) then includes. Anyone who can read the traffic can read tokens, unless it
    /// is under [TLS](Self::tls). `/debug` still needs [`debug_for_all`](Self::debug_for_all) for other machines.
    pub fn authorize(self) -> Self {
        Self { reviewed: true, ..self }
    }

    /// Sets how many connections can be open at once: 100 unless set, at least one.
    pub fn max_connections(self, most: usize) -> Self {
        Self { most_connections: most.max(1), ..self }
    }

    #[cfg(feature = "webhooks")]
    pub(in crate::manager) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Returns the file of the certificate, under TLS.
    #[cfg(feature = "webhooks")]
    pub(in crate::manager) fn certificate(&self) -> Option<&std::path::Path> {
        self.tls.as_ref().map(|files| &*files.certificate)
    }

    pub(in crate::manager) fn reviews(&self) -> bool {
        self.reviewed
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

/// Reads an address; the results are tried in order.
pub(super) fn read(address: &str) -> Result<Vec<SocketAddr>, Error> {
    let text = address.trim();
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let refused = |problem, source| Error::Http { address: address.to_owned(), problem, source };
    let unreadable = |what| Err(refused(format!("{what}: {REMEDY}"), None));
    let Some((host, port)) = text.rsplit_once(':') else { return unreadable("it has no port") };
    let Ok(port) = port.parse::<u16>() else { return unreadable("its port is not a number up to 65535") };
    if host.is_empty() {
        return Ok(everywhere(port));
    }
    if host.contains(['/', ':', '@', ' ']) {
        return unreadable("it is not a host and port");
    }
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(source) => Err(refused(format!("{host:?} is not a known host: {REMEDY}"), Some(source))),
    }
}

/// Returns the address of all interfaces: IPv6 that includes IPv4, if the system has that.
fn everywhere(port: u16) -> Vec<SocketAddr> {
    let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    match cfg!(windows) {
        true => vec![four],
        false => vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), four],
    }
}

const REMEDY: &str = "write it as 0.0.0.0:8080, 127.0.0.1:8080, [::]:8080 or :8080";

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
    fn what_is_not_an_address_is_refused_with_the_remedy() {
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
