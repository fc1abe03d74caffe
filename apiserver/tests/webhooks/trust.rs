//! Webhooks as test environments set them up: certificates that stand for themselves, and paths that lead elsewhere.

use super::*;

/// Makes a certificate that an authority has signed, one that has signed itself, and one of each for another name.
fn certificate(name: &str, is_ca: IsCa) -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    let signs_itself = is_ca != IsCa::NoCa;
    params.is_ca = is_ca;
    let made =
        if signs_itself { params.self_signed(&key) } else { params.signed_by(&key, &authority) }.unwrap();
    (STANDARD.encode(made.pem()), acceptor(made.der().clone(), &key))
}

/// Registers a webhook and gives what is said of an object that it refuses.
async fn said(client: &kube::Client, config: Value) -> String {
    let hook = json!({
        "name": "h.example.com", "clientConfig": config, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "timeoutSeconds": 5,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    send(client, "POST", path, &json!({"metadata": {"name": "h"}, "webhooks": [hook]})).await.unwrap();
    let bad = json!({"metadata": {"name": "b"}, "data": {"k": "bad"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = send(client, "POST", maps, &bad).await.expect_err("it is refused");
    send(client, "DELETE", &format!("{path}/h"), &Value::Null).await.unwrap();
    refused.message
}

// A39
#[tokio::test]
async fn a_certificate_in_the_bundle_is_trusted_for_its_own_names() {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    let of = |address: SocketAddr, bundle: &str| json!({"url": format!("https://localhost:{}/validate", address.port()), "caBundle": bundle});
    for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        let (own, acceptor) = certificate("localhost", is_ca);
        let address = serve(acceptor).await;
        let text = said(&client, of(address, &own)).await;
        assert!(text.contains("denied the request: asked with timeout=5s"), "{is_ca:?}: {text}");
        let (other, acceptor) = certificate("elsewhere.example.com", is_ca);
        let text = said(&client, of(address, &other)).await;
        assert!(text.contains("x509: certificate signed by unknown authority"), "{is_ca:?}: {text}");
        let address = serve(acceptor).await;
        let text = said(&client, of(address, &other)).await;
        let names = "x509: certificate is valid for elsewhere.example.com, not localhost";
        assert!(text.contains(names), "{is_ca:?}: {text}");
    }
}

// A39
#[tokio::test]
async fn a_webhook_that_leads_elsewhere_is_followed() {
    let (authority, acceptor) = certificates();
    let address = serve(acceptor).await;
    let server = ApiServer::in_memory().webhook_service("shop", "web", address).start().await;
    let client = server.client();
    let url = format!("https://localhost:{}//validate", address.port());
    let text = said(&client, json!({"url": url, "caBundle": authority})).await;
    assert!(text.contains("denied the request: asked with timeout=5s"), "{text}");
}
