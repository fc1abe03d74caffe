//! Calls: a review sent to a webhook, in this process or over TLS.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::limits;
use crate::session::{Answer, Call};

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 8 << 20;

/// The most requests of one call: clients in Go stop there.
const REDIRECTS: usize = 10;

/// How much of a body the real server reads before anything else.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A webhook in this process: reviews in, reviews out.
pub(crate) type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// The address of a webhook, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// By its URL.
    Url(String),
    /// By its service and path.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service's name.
        name: String,
        /// The path, with its slash.
        path: String,
    },
}

impl Place {
    fn of(client: &Value) -> Result<Self, String> {
        let service = &client["service"];
        if let Some(url) = client["url"].as_str() {
            return Ok(Self::Url(url.to_owned()));
        }
        let text = |key: &str| service[key].as_str().unwrap_or_default().to_owned();
        if !service.is_object() {
            return Err(
                "could not get REST client: webhook configuration must have either service or URL".to_owned()
            );
        }
        let path = format!("/{}", text("path").trim_start_matches('/'));
        Ok(Self::Service { namespace: text("namespace"), name: text("name"), path })
    }
}

/// Makes calls.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    handlers: BTreeMap<Place, Handler>,
    services: BTreeMap<(String, String), SocketAddr>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("Caller").field("handlers", &places).field("services", &self.services).finish()
    }
}

impl Caller {
    /// Adds a webhook of this process.
    pub(crate) fn handle(&mut self, place: Place, handler: Handler) {
        self.handlers.insert(place, handler);
    }

    /// Sets the address of a service.
    pub(crate) fn resolve(&mut self, namespace: &str, name: &str, address: SocketAddr) {
        self.services.insert((namespace.to_owned(), name.to_owned()), address);
    }

    /// Makes a call; a late answer counts as missing.
    pub(crate) async fn call(&self, call: &Call) -> Answer {
        let place = Place::of(&call.client)?;
        let url = url_of(&place, &call.client, call.timeout.as_secs());
        let made = async {
            match self.handlers.get(&place) {
                Some(handler) => inside(handler, call.review.clone()).await,
                None => self.outside(&place, &url, call).await,
            }
        };
        let late = |_| Err(format!("Post {url:?}: context deadline exceeded"));
        tokio::time::timeout(call.timeout, made).await.unwrap_or_else(late)
    }

    async fn outside(&self, place: &Place, url: &str, call: &Call) -> Answer {
        let failed = |why: &dyn fmt::Display| format!("Post {url:?}: {why}");
        let address = match place {
            Place::Url(_) => None,
            Place::Service { namespace, name, .. } => {
                let address = self.services.get(&(namespace.clone(), name.clone()));
                Some(*address.ok_or_else(|| failed(&format!("service {name:?} not found")))?)
            }
        };
        let mut uri: Uri = url.parse().map_err(|error| failed(&error))?;
        let (first, tls) = (uri.clone(), tls(&call.client).map_err(|why| failed(&why))?);
        let (mut method, mut body) = (Method::POST, Bytes::from(call.review.to_string()));
        for _ in 0..REDIRECTS {
            let address = address.filter(|_| uri.authority() == first.authority());
            let sent = send(&uri, address, &tls, method.clone(), body.clone()).await;
            let response = sent.map_err(|why| failed(&why))?;
            match redirect(&response, &uri) {
                None => return read(&response),
                Some(next) => uri = next.map_err(|why| failed(&why))?,
            }
            if !matches!(response.status().as_u16(), 307 | 308) {
                // Clients in Go, as others, ask without a body then.
                (method, body) = (Method::GET, Bytes::new());
            }
        }
        Err(failed(&format!("stopped after {REDIRECTS} redirects")))
    }
}

/// Reads the review in an answer.
fn read(response: &Response<Bytes>) -> Answer {
    let (status, body) = (response.status(), response.body());
    if !status.is_success() {
        return Err(refused(status, body));
    }
    if body.is_empty() {
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        // Go's client takes that for granted.
        let media = media.unwrap_or("application/json");
        let code = status.as_u16();
        return Err(format!("0-length response with status code: {code} and content type: {media}"));
    }
    // The longest answer may hold more values than fit into memory.
    if !limits::has_few_values(body) {
        return Err("the answer has too many values".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| {
        let why = match limits::read_yaml(body) {
            // The real server reads it as YAML then.
            Ok(Value::String(_)) => {
                format!("json: cannot unmarshal string into Go value of type {TYPE_META}")
            }
            _ => error.to_string(),
        };
        format!("couldn't get version/kind; json parse error: {why}")
    })
}

/// Returns where an answer sends its client instead.
fn redirect(response: &Response<Bytes>, from: &Uri) -> Option<Result<Uri, String>> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .filter(|_| matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308))?;
    let location = String::from_utf8_lossy(location.as_bytes());
    let host = from.authority().map_or("", |authority| authority.as_str());
    let text = match &*location {
        other_host if other_host.starts_with("//") => format!("https:{other_host}"),
        path if path.starts_with('/') => format!("https://{host}{path}"),
        absolute if has_scheme(absolute) => absolute.to_owned(),
        name => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("https://{host}{folder}/{name}")
        }
    };
    Some(text.parse().map_err(|error| format!("failed to parse Location header {location:?}: {error}")))
}

/// Returns whether a location begins with a scheme: an address after it may be part of a query.
fn has_scheme(location: &str) -> bool {
    let scheme = location.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
}

/// Calls a webhook of this process; a panic counts as a failure.
async fn inside(handler: &Handler, review: Value) -> Answer {
    let answer = AssertUnwindSafe(async { handler(review).await }).catch_unwind().await;
    answer.map_err(|_| "the webhook has panicked".to_owned())
}

fn url_of(place: &Place, client: &Value, seconds: u64) -> String {
    match place {
        Place::Url(url) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            format!("{url}{separator}timeout={seconds}s")
        }
        Place::Service { namespace, name, path } => {
            let port = client["service"]["port"].as_u64().unwrap_or(443);
            format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s")
        }
    }
}

/// Sends one request on its own connection; `address` is that of a service.
async fn send(
    uri: &Uri,
    address: Option<SocketAddr>,
    tls: &Arc<ClientConfig>,
    method: Method,
    body: Bytes,
) -> Result<Response<Bytes>, String> {
    let authority = uri.authority().ok_or("the URL has no host")?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        return Err(format!("the URL must begin with https, not {scheme:?}"));
    }
    let words = |error: &(dyn std::error::Error + 'static)| told(error, uri);
    let host = authority.host().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| words(&error))?;
    let stream = match address {
        Some(address) => TcpStream::connect(address).await,
        None => TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await,
    };
    let stream = stream.map_err(|error| words(&error))?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
    let stream = TokioIo::new(stream.map_err(|error| words(&error))?);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| words(&error))?;
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .body(Full::new(body))
        .map_err(|error| words(&error))?;
    let (parts, body) = sender.send_request(request).await.map_err(|error| words(&error))?.into_parts();
    let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

/// Returns the authorities that a configuration trusts: its bundle, or those of the system.
fn tls(client: &Value) -> Result<Arc<ClientConfig>, String> {
    let Some(trusted) = bundle(client)? else {
        let config = kube::Config::new(Uri::from_static("https://localhost"));
        return config.rustls_client_config().map(Arc::new).map_err(|error| error.to_string());
    };
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    // Clients in Go pass over what they can't read, too.
    let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if added == 0 {
        return Err("unable to load root certificates: no certificate in the bundle can be read".to_owned());
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let authorities = authorities.build().map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(Bundle { trusted, authorities }));
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Trusts what Go trusts of a bundle: what an authority in it has signed, and each certificate that is in it.
///
/// Tests set up webhooks in the second way: with a self-signed certificate, which may be an authority's.
#[derive(Debug)]
struct Bundle {
    trusted: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // Its dates are checked before its issuer.
        let is_unsigned = matches!(
            verified,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_)
            ))
        );
        if !is_unsigned || !self.trusted.contains(end_entity) {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Reads the certificates that a configuration trusts; without any the system decides.
fn bundle(client: &Value) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
    let Some(bundle) = client["caBundle"].as_str().filter(|bundle| !bundle.is_empty()) else {
        return Ok(None);
    };
    let invalid = |why: String| format!("unable to load root certificates: {why}");
    let pem = STANDARD.decode(bundle).map_err(|error| invalid(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| invalid(error.to_string()))?;
    if certificates.is_empty() {
        return Err(invalid("unable to parse bytes as PEM block".to_owned()));
    }
    Ok(Some(certificates))
}

/// Describes why a call failed: in the real server's words if it has some, otherwise as the error with its causes.
fn told(error: &(dyn std::error::Error + 'static), uri: &Uri) -> String {
    let mut text = error.to_string();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(known) = in_own_words(error, uri) {
            return known;
        }
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Words the commonest failures of a connection as kube-apiserver does.
fn in_own_words(error: &(dyn std::error::Error + 'static), uri: &Uri) -> Option<String> {
    let io = error.downcast_ref::<io::Error>();
    let inner = io.and_then(held).and_then(|held| held.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(invalid)) = inner.or(error.downcast_ref()) {
        return Some(format!("tls: failed to verify certificate: x509: {}", certificate(invalid, uri)?));
    }
    if io?.kind() != io::ErrorKind::ConnectionRefused {
        return None;
    }
    let host = uri.host().unwrap_or_default();
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let port = uri.port_u16().unwrap_or(443);
    Some(format!("dial tcp {host}:{port}: connect: connection refused"))
}

/// Returns the error inside an I/O error, however often it was wrapped.
fn held(error: &io::Error) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<io::Error>().map_or(Some(inner), held)
}

fn certificate(invalid: &CertificateError, uri: &Uri) -> Option<String> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    Some(match invalid {
        CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            if host.parse::<IpAddr>().is_ok() =>
        {
            format!("cannot validate certificate for {host} because it doesn't contain any IP SANs")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = presented.iter().map(|name| {
                let name = name.strip_prefix("DnsName(").and_then(|name| name.strip_suffix(')'));
                name.unwrap_or_default().trim_matches('"').to_owned()
            });
            let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        _ => return None,
    })
}

/// Describes an unsuccessful answer as a Go client does.
fn refused(status: StatusCode, body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body);
    let known = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => said.trim(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                said.trim()
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A39
    #[test]
    fn a_location_is_absolute_only_if_it_begins_so() {
        let from: Uri = "https://hook.example.com:1/a/b".parse().expect("a URI");
        for (location, wanted) in [
            ("https://other.example.com/c", "https://other.example.com/c"),
            ("http://other.example.com/c", "http://other.example.com/c"),
            ("//other.example.com/c", "https://other.example.com/c"),
            ("//other.example.com/c?next=https://x", "https://other.example.com/c?next=https://x"),
            ("/login?next=https://x", "https://hook.example.com:1/login?next=https://x"),
            ("c?next=https://x", "https://hook.example.com:1/a/c?next=https://x"),
        ] {
            let response = Response::builder().status(302).header(header::LOCATION, location);
            let response = response.body(Bytes::new()).expect("a response");
            let next = redirect(&response, &from).expect("a redirect").map(|uri| uri.to_string());
            assert_eq!(next, Ok(wanted.to_owned()), "{location}");
        }
    }

    // A31
    #[test]
    fn an_answer_of_many_values_is_not_read() {
        let answer = |values: usize| Response::new(Bytes::from(format!("[{}1]", "1,".repeat(values))));
        assert_eq!(read(&answer(100_001)), Err("the answer has too many values".to_owned()));
        assert!(read(&answer(10)).is_ok());
    }

    // A39
    #[test]
    fn a_bundle_is_used_without_the_certificates_that_cannot_be_read() {
        let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let good = certificate.expect("a certificate").cert.pem();
        let block = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let bad = block(&STANDARD.encode("no certificate"));
        let client = |bundle: &str| json!({"caBundle": STANDARD.encode(bundle)});
        assert!(tls(&client(&format!("{bad}{good}"))).is_ok());
        assert!(tls(&client(&bad)).is_err());
    }
}
