//! Why a server did not start.

use std::io;
use std::net::SocketAddr;

use crate::data::DataError;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address could not be listened on.
    #[error("cannot listen on {address}: {source}; {}", remedy(source))]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The address is not of this machine alone.
    #[error(
        "will not listen on {address}: the server's tokens are public; choose a loopback address such as 127.0.0.1"
    )]
    NotLoopback {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The certificates could not be made.
    #[cfg(feature = "tls")]
    #[error("cannot make the server's certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// TLS refused the certificates.
    #[cfg(feature = "tls")]
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
    /// No client could be built for the server.
    #[error("cannot build a client for the server: {0}")]
    Client(Box<kube::Error>),
    /// The data file can't be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A namespace was refused.
    #[error("cannot create the namespace {name}: {message}")]
    Namespace {
        /// The namespace's name.
        name: String,
        /// What the server said of it.
        message: String,
    },
    /// A custom resource definition was refused, or did not become established.
    #[error("cannot install the custom resource definition {name}: {message}")]
    Crd {
        /// The definition's name.
        name: String,
        /// What the server said of it.
        message: String,
    },
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another port (0 takes a free one)",
        io::ErrorKind::PermissionDenied => "choose a port above 1023 (0 takes a free one)",
        _ => "choose a loopback address of this machine",
    }
}
