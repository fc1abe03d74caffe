//! Webhooks over TLS: found by URL or service, their certificates checked.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod admission;
mod both;
mod trust;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use watchkeeper_apiserver::ApiServer;

/// Makes an authority, and a certificate of it for a service and for this machine.
fn certificates() -> (String, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(["web.shop.svc", "localhost"].map(str::to_owned)).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &authority).unwrap();
    (STANDARD.encode(authority.pem()), acceptor(leaf.der().clone(), &key))
}

fn acceptor(certificate: CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers by the path.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let reply = |code: u16, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = code.try_into().unwrap();
        Ok(response)
    };
    match path.as_str() {
        "/validate" => {
            let good = review["request"]["object"]["data"]["k"] != "bad";
            let status = json!({"message": format!("asked with {query}")});
            let response = json!({"uid": review["request"]["uid"], "allowed": good, "status": status});
            reply(
                200,
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
                    .to_string(),
            )
        }
        path if path.starts_with("/convert") => {
            let (request, how) = (&review["request"], path.trim_start_matches("/convert"));
            let objects = request["objects"].as_array().into_iter().flatten();
            let mut converted: Vec<Value> =
                objects.map(|object| converted(object, &request["desiredAPIVersion"])).collect();
            for object in &mut converted {
                match how {
                    "-renames" => object["metadata"]["name"] = "other".into(),
                    "-relabels" => object["metadata"]["labels"] = "many".into(),
                    _ => {}
                }
            }
            if how == "-none" {
                converted.clear();
            }
            let result = match how {
                "-fails" => json!({"status": "Failure", "message": "no idea"}),
                _ => json!({"status": "Success"}),
            };
            let response = json!({"uid": request["uid"], "result": result, "convertedObjects": converted});
            let kind =
                json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response});
            reply(200, kind.to_string())
        }
        path if path.starts_with("/admit/") => {
            reply(200, admission::review(path.trim_start_matches("/admit/"), &review))
        }
        "/broken" => reply(500, "out of order".to_owned()),
        "/forbidden" => reply(403, "not you".to_owned()),
        "/elsewhere" => reply(302, "over there".to_owned()),
        path if path.starts_with("//") => {
            let mut response = reply(307, String::new())?;
            let cleaned = format!("/{}?{query}", path.trim_start_matches('/'));
            response.headers_mut().insert("location", cleaned.parse().unwrap());
            Ok(response)
        }
        path if path.starts_with("/around/") => {
            let round: u32 = path.trim_start_matches("/around/").parse().unwrap();
            if round == 10 {
                return reply(500, "asked an eleventh time".to_owned());
            }
            let mut response = reply(307, String::new())?;
            response.headers_mut().insert("location", format!("/around/{}", round + 1).parse().unwrap());
            Ok(response)
        }
        "/junk" => reply(200, "<html>".to_owned()),
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            reply(200, String::new())
        }
        _ => reply(404, "no such page".to_owned()),
    }
}

/// Turns a site of one version into one of another: `host` and `port` into an `address`, and back.
fn converted(object: &Value, into: &Value) -> Value {
    let mut object = object.clone();
    let text = |object: &Value, field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    if object["apiVersion"] != *into {
        object["spec"] = if *into == "example.com/v2" {
            json!({"address": format!("{}:{}", text(&object, "host"), text(&object, "port"))})
        } else {
            let address = text(&object, "address");
            let (host, port) = address.split_once(':').unwrap_or((&address, ""));
            json!({"host": host, "port": port})
        };
    }
    object["apiVersion"] = into.clone();
    object["metadata"]["annotations"]["example.com/turned-into"] = into.clone();
    object["metadata"]["generation"] = 99.into();
    object
}

async fn serve(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that doesn't trust it goes away.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let _ended =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    address
}

async fn send(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, kube::core::Status> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    match client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{error}"),
    }
}

// A10 A11
#[tokio::test]
async fn a_webhook_over_tls_is_asked_and_its_certificate_checked() {
    let (authority, acceptor) = certificates();
    let (other, _) = certificates();
    let address = serve(acceptor).await;
    let server = ApiServer::in_memory().webhook_service("shop", "web", address).start().await;
    let client = server.client();
    let url = |path: &str| json!({"url": format!("https://localhost:{}{path}", address.port()), "caBundle": authority});
    let service = |path: &str, authority: &str| json!({"service": {"namespace": "shop", "name": "web", "path": path}, "caBundle": authority});
    let by_service = "Post \"https://web.shop.svc:443/";
    for (what, config, says) in [
        (
            "by its service",
            service("/validate", &authority),
            "denied the request: asked with timeout=1s".to_owned(),
        ),
        ("by its URL", url("/validate"), "denied the request: asked with timeout=1s".to_owned()),
        (
            "of another authority",
            service("/validate", &other),
            format!("failed to call webhook: {by_service}validate?timeout=1s\": "),
        ),
        (
            "that is broken",
            service("/broken", &authority),
            "an error on the server (\"out of order\") has prevented the request from succeeding".to_owned(),
        ),
        (
            "that is not there",
            url("/nothing"),
            "failed to call webhook: the server could not find the requested resource".to_owned(),
        ),
        ("that leads on and on", url("/around/0"), "stopped after 10 redirects".to_owned()),
        ("that talks nonsense", url("/junk"), "json parse error".to_owned()),
        (
            "that is slow",
            service("/slow", &authority),
            format!("{by_service}slow?timeout=1s\": context deadline exceeded"),
        ),
    ] {
        let hook = json!({
            "name": "h.example.com", "clientConfig": config, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 1,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        send(&client, "POST", path, &json!({"metadata": {"name": "h"}, "webhooks": [hook]})).await.unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        let bad = json!({"metadata": {"name": "b"}, "data": {"k": "bad"}});
        let refused = send(&client, "POST", maps, &bad).await.expect_err(what);
        assert!(refused.message.contains(says.as_str()), "a webhook {what}: {}", refused.message);
        if says.starts_with("denied") {
            let good = json!({"metadata": {"generateName": "good-"}, "data": {"k": "v"}});
            send(&client, "POST", maps, &good).await.unwrap();
        } else {
            assert!(
                refused
                    .message
                    .starts_with("Internal error occurred: failed calling webhook \"h.example.com\": "),
                "{}",
                refused.message
            );
        }
        send(&client, "DELETE", &format!("{path}/h"), &Value::Null).await.unwrap();
    }
}
