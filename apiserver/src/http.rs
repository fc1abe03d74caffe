//! The listener: TLS on loopback, HTTP/2 and HTTP/1.1 over the same front.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::config::Kubeconfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;

use crate::compression::{compress, takes_gzip};
use crate::faults::{FaultyBody, Interrupted};
use crate::service::{Front, Passage, auth_info};
use crate::start_error::StartError;

/// The name of HTTP/2 in the handshake of TLS.
const HTTP_2: &[u8] = b"h2";

/// The most streams of one connection at a time, as kube-apiserver has it: a client waits, or opens another one.
const STREAMS: u32 = 100;

/// The most bytes of the headers of one request.
const HEADERS: u32 = 1 << 20;

/// How long the handshake of TLS may take, as kube-apiserver has it.
const HANDSHAKE: Duration = Duration::from_secs(32);

/// The certificates of one server, made when it starts.
struct Certificates {
    authority_pem: String,
    authority_der: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Certificates {
    fn make() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "watchkeeper-apiserver authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        params.distinguished_name.push(DnType::CommonName, "watchkeeper-apiserver");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &authority)?;
        Ok(Self {
            authority_pem: authority.pem(),
            authority_der: authority.der().clone(),
            leaf: leaf.der().clone(),
            key: key.serialize_der().into(),
        })
    }

    fn acceptor(self) -> Result<TlsAcceptor, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.leaf, self.authority_der], self.key.into())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.alpn_protocols.insert(0, HTTP_2.to_vec());
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A listener under way; dropping it closes the port and every connection.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    authority_pem: String,
    authority_der: Vec<u8>,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Opens the port and serves; port 0 takes a free one.
    pub(crate) async fn start(front: Arc<Front>, address: SocketAddr) -> Result<Self, StartError> {
        let socket = bind(address).await?;
        let address = socket.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let certificates = Certificates::make()?;
        let authority_pem = certificates.authority_pem.clone();
        let authority_der = certificates.authority_der.to_vec();
        let acceptor = certificates.acceptor()?;
        let accepting = tokio::spawn(accept(socket, acceptor, front));
        Ok(Self { address, authority_pem, authority_der, accepting })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Closes the port, and returns when it is closed.
    pub(crate) async fn stop(mut self) {
        self.accepting.abort();
        // The task was cancelled: its result does not matter.
        let _ended = (&mut self.accepting).await;
    }

    /// Builds a client with kube's own stack, its retries off.
    pub(crate) fn client(&self, token: Option<&str>, namespace: &str) -> Result<kube::Client, kube::Error> {
        let url = self.url().parse().expect("a socket address makes a URL");
        let mut config = kube::Config::new(url);
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info = token.map(auth_info).unwrap_or_default();
        config.default_namespace = namespace.to_owned();
        config.default_retry = false;
        kube::Client::try_from(config)
    }

    /// Writes a kubeconfig for a token.
    pub(crate) fn kubeconfig_yaml(&self, token: &str, namespace: &str) -> String {
        let (url, authority) = (self.url(), STANDARD.encode(&self.authority_pem));
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: watchkeeper\n\
             clusters:\n\
             - name: watchkeeper\n\
             \x20 cluster:\n\
             \x20   server: {url}\n\
             \x20   certificate-authority-data: {authority}\n\
             contexts:\n\
             - name: watchkeeper\n\
             \x20 context:\n\
             \x20   cluster: watchkeeper\n\
             \x20   user: admin\n\
             \x20   namespace: {namespace}\n\
             users:\n\
             - name: admin\n\
             \x20 user:\n\
             \x20   token: {token}\n"
        )
    }

    pub(crate) fn kubeconfig(&self, token: &str, namespace: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(&self.kubeconfig_yaml(token, namespace)).expect("the YAML is written above")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Binds a loopback address.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::NotLoopback { address });
    }
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Returns the usual address with a port.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Takes connections until it is dropped, and they with it.
async fn accept(socket: TcpListener, acceptor: TlsAcceptor, front: Arc<Front>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&front)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Returns whether a rule requests a reset.
fn is_reset(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Interrupted>());
    cause == Some(&Interrupted::Reset)
}

async fn serve(front: &Front, request: Request<Incoming>) -> Result<Response<FaultyBody>, Interrupted> {
    let zipped = takes_gzip(request.headers());
    let response = front.handle(request, Passage::Ruled).await?;
    Ok(if zipped { compress(response).await } else { response })
}

/// Serves one connection until either side ends it, or all are cut.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, front: Arc<Front>) {
    let Ok(epoch) = front.epoch() else { return };
    let serving = async {
        stream.set_nodelay(true)?;
        let stream = shake_hands(&acceptor, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) {
            return serve_streams(stream, &front).await;
        }
        serve_in_turn(stream, &front).await
    };
    tokio::select! {
        () = epoch.cancelled() => {}
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a connection ended");
        },
    }
}

/// Begins TLS; a client that does not go on with it is given up.
async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &TlsAcceptor,
    stream: S,
) -> io::Result<TlsStream<S>> {
    tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await?
}

/// Speaks HTTP/1.1: one request after another.
async fn serve_in_turn(stream: TlsStream<TcpStream>, front: &Front) -> io::Result<()> {
    let service = service_fn(|request| serve(front, request));
    let mut builder = http1::Builder::new();
    let mut serving = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let served = (&mut serving).await;
    if served.as_ref().is_err_and(is_reset) {
        // Closing it now sends a reset instead of an end.
        serving.into_parts().io.into_inner().get_ref().0.set_zero_linger()?;
    }
    served.map_err(io::Error::other)
}

/// Speaks HTTP/2: each request is a task of its own, and what a rule breaks is its stream alone.
async fn serve_streams(stream: TlsStream<TcpStream>, front: &Arc<Front>) -> io::Result<()> {
    let service = service_fn(|request| {
        let front = Arc::clone(front);
        async move { serve(&front, request).await }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS).max_header_list_size(HEADERS);
    builder.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A38
    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_given_up() {
        let acceptor = Certificates::make().expect("certificates").acceptor().expect("an acceptor");
        let (_silent, stream) = tokio::io::duplex(1024);
        let given_up = tokio::time::timeout(Duration::from_secs(60), shake_hands(&acceptor, stream)).await;
        let error = given_up.expect("it is given up in time").map(drop).expect_err("it takes too long");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
