//! A request to a webhook that listens on a port, over TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, Uri, header};
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

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 8 << 20;

/// Whose certificates a request trusts.
pub(super) struct Trust(Arc<ClientConfig>);

/// Sends one request on a connection of its own; `address` is where a service listens.
pub(super) async fn send(
    uri: &Uri,
    address: Option<SocketAddr>,
    Trust(tls): &Trust,
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

/// Says whom a configuration trusts: its bundle, or whom the system trusts.
pub(super) fn trust(client: &Value) -> Result<Trust, String> {
    let Some(trusted) = bundle(client)? else {
        let config = kube::Config::new(Uri::from_static("https://localhost"));
        let config = config.rustls_client_config().map_err(|error| error.to_string())?;
        return Ok(Trust(Arc::new(config)));
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
    Ok(Trust(Arc::new(config.with_no_client_auth())))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A39
    #[test]
    fn a_bundle_is_used_without_the_certificates_that_cannot_be_read() {
        let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let good = certificate.expect("a certificate").cert.pem();
        let block = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let bad = block(&STANDARD.encode("no certificate"));
        let client = |bundle: &str| json!({"caBundle": STANDARD.encode(bundle)});
        assert!(trust(&client(&format!("{bad}{good}"))).is_ok());
        assert!(trust(&client(&bad)).is_err());
    }
}
