//! Calls: a review sent to a webhook, in this process or over TLS.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{self, CertificateError};

use crate::session::{Answer, Call};

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 8 << 20;

/// What the real server reads of any body first.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A webhook in this process: reviews in, reviews out.
pub(crate) type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// Where a webhook is, as its configuration says.
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

    /// Says where a service listens.
    pub(crate) fn resolve(&mut self, namespace: &str, name: &str, address: SocketAddr) {
        self.services.insert((namespace.to_owned(), name.to_owned()), address);
    }

    /// Makes a call; an answer that is late is none.
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
        let (uri, server_name) = match place {
            Place::Url(_) => (url.to_owned(), None),
            Place::Service { namespace, name, path } => {
                let address = self.services.get(&(namespace.clone(), name.clone()));
                let address = address.ok_or_else(|| failed(&format!("service {name:?} not found")))?;
                let seconds = call.timeout.as_secs();
                (
                    format!("https://{address}{path}?timeout={seconds}s"),
                    Some(format!("{name}.{namespace}.svc")),
                )
            }
        };
        let uri: Uri = uri.parse().map_err(|error| failed(&error))?;
        let client = client(&uri, &call.client, server_name).map_err(|why| failed(&why))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Body::from(call.review.to_string().into_bytes()))
            .map_err(|error| failed(&error))?;
        let response = client.send(request).await.map_err(|error| failed(&told(&error, &uri)))?;
        let status = response.status();
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        // Go's client takes that for granted.
        let media = media.unwrap_or("application/json").to_owned();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        if body.is_empty() {
            let code = status.as_u16();
            return Err(format!("0-length response with status code: {code} and content type: {media}"));
        }
        serde_json::from_slice(&body).map_err(|error| {
            let why = match serde_yaml_ng::from_slice(&body) {
                // The real server reads it as YAML then.
                Ok(Value::String(_)) => {
                    format!("json: cannot unmarshal string into Go value of type {TYPE_META}")
                }
                _ => error.to_string(),
            };
            format!("couldn't get version/kind; json parse error: {why}")
        })
    }
}

/// Asks a webhook of this process; one that panics has failed.
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

fn client(uri: &Uri, client: &Value, server_name: Option<String>) -> Result<kube::Client, String> {
    let authority = uri.authority().ok_or("the URL has no host")?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        return Err(format!("the URL must begin with https, not {scheme:?}"));
    }
    let base = format!("https://{authority}").parse().map_err(|error| format!("{error}"))?;
    let mut config = kube::Config::new(base);
    config.default_retry = false;
    config.tls_server_name = server_name;
    config.root_cert = authorities(client)?;
    kube::Client::try_from(config).map_err(|error| told(&error, uri))
}

/// Reads the authorities that a configuration trusts; none are those of the system.
fn authorities(client: &Value) -> Result<Option<Vec<Vec<u8>>>, String> {
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
    Ok(Some(certificates.into_iter().map(|certificate| certificate.to_vec()).collect()))
}

/// Tells why there was no answer: what has words of the server's own in those, else an error with its causes.
fn told(error: &(dyn std::error::Error + 'static), uri: &Uri) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
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

/// Gives the error that stands in one of the system's, however often it was wrapped.
fn held(error: &io::Error) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<io::Error>().map_or(Some(inner), held)
}

fn certificate(invalid: &CertificateError, uri: &Uri) -> Option<String> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    Some(match invalid {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
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

/// Says what a client in Go makes of an answer that is none of success.
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
