//! A program that converts its own objects: it starts from nothing, and again after all its replicas were gone.

use std::{
    cell::RefCell,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    ByteString, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, core::ApiResource};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};
use watchkeeper::{Running, manager::Http, prelude::*};
use watchkeeper_tests::{
    Record,
    backend::Stage,
    does,
    raw::{code, get},
};

use crate::harness::tests;

tests! {
    Own: a_program_that_converts_its_own_objects_starts_from_nothing_and_after_all_its_replicas_were_gone;
}

/// A shop, as the program reads it; what is stored has `host` and `port`.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "converted.example.dev", version = "v2", kind = "Shop", plural = "shops", namespaced)]
struct ShopSpec {
    address: String,
}

thread_local! {
    /// How the server finds the webhook of the test on this thread: a definition is made without arguments.
    static WEBHOOK: RefCell<Value> = const { RefCell::new(Value::Null) };
}

/// The definition of both versions; `v1` is stored.
struct Definition;

impl CustomResourceExt for Definition {
    fn crd() -> CustomResourceDefinition {
        let mut crd = serde_json::to_value(Shop::crd()).unwrap();
        let text = json!({"type": "string"});
        let first = json!({
            "name": "v1", "served": true, "storage": true, "deprecated": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"host": text, "port": text}},
            }}},
        });
        crd["spec"]["versions"][0]["storage"] = false.into();
        crd["spec"]["versions"].as_array_mut().unwrap().push(first);
        crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": WEBHOOK.with_borrow(Value::clone), "conversionReviewVersions": ["v1"],
        }});
        serde_json::from_value(crd).unwrap()
    }

    fn crd_name() -> &'static str {
        Shop::crd_name()
    }

    fn api_resource() -> ApiResource {
        Shop::api_resource()
    }

    fn shortnames() -> &'static [&'static str] {
        &[]
    }
}

/// Turns an object of one version into the other's.
fn converted(object: &Value, into: &Value) -> Value {
    let mut object = object.clone();
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    let spec = match into.as_str() {
        _ if object["apiVersion"] == *into => object["spec"].clone(),
        Some("converted.example.dev/v2") => json!({"address": format!("{}:{}", text("host"), text("port"))}),
        _ => {
            let address = text("address");
            let (host, port) = address.split_once(':').unwrap_or((&address, ""));
            json!({"host": host, "port": port})
        }
    };
    object["spec"] = spec;
    object["apiVersion"] = into.clone();
    object
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = &review["request"];
    let objects = asked["objects"].as_array().into_iter().flatten();
    let objects: Vec<_> = objects.map(|object| converted(object, &asked["desiredAPIVersion"])).collect();
    let response = json!({"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": objects});
    let review = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
    Ok(Response::new(Full::new(review.to_string().into())))
}

/// The program's address, as a Service has one: without a replica that serves, connections end at once.
struct Webhook {
    is_served: Arc<AtomicBool>,
}

impl Webhook {
    /// Listens, and says to definitions of this thread where.
    async fn listen() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            );
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/convert", listener.local_addr().unwrap());
        WEBHOOK.set(json!({"url": url, "caBundle": ByteString(authority.pem().into_bytes())}));
        let is_served = Arc::new(AtomicBool::new(false));
        let serves = is_served.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !serves.load(Ordering::SeqCst) {
                    continue;
                }
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let mut http = http1::Builder::new();
                        // An idle connection would outlive the replica.
                        http.keep_alive(false);
                        let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                    }
                });
            }
        });
        Self { is_served }
    }

    fn is_served(&self) -> bool {
        self.is_served.load(Ordering::SeqCst)
    }
}

/// Starts the program: it installs its definition, answers probes, and only then serves its webhook.
async fn start(stage: &Stage, webhook: &Webhook) -> (Running, Record) {
    let (reconciler, record) = does::<Shop, _, _>(async |shop, _| {
        // What was converted is whole.
        assert!(shop.spec.address.ends_with(":80"), "{}", shop.spec.address);
        Ok(Action::await_change())
    });
    let manager = stage.manager().http(Http::on("127.0.0.1:0"));
    timeout(Duration::from_secs(40), manager.install_crd::<Definition>())
        .await
        .expect("it does not wait for itself")
        .unwrap();
    let (serves, probed) = (webhook.is_served.clone(), Arc::new(tokio::sync::Notify::new()));
    let may_serve = probed.clone();
    let manager = manager.task("webhook", move |stopping| {
        let (serves, may_serve) = (serves.clone(), may_serve.clone());
        async move {
            may_serve.notified().await;
            serves.store(true, Ordering::SeqCst);
            stopping.wait().await;
            serves.store(false, Ordering::SeqCst);
            Ok::<_, watchkeeper::Error>(())
        }
    });
    let controller = Controller::new(reconciler).namespace(&*stage.namespace);
    let running = manager.controller(controller).spawn();
    let address = running.http_address().unwrap();
    let health = get(address, "localhost", "/healthz", "").await.unwrap();
    assert_eq!(code(&health), 200, "probes wait for nothing: {health}");
    probed.notify_one();
    (running, record)
}

/// Creates an object in the version that is stored.
async fn create_in_v1(stage: &Stage, name: &str) {
    let shop = json!({
        "apiVersion": "converted.example.dev/v1", "kind": "Shop",
        "metadata": {"name": name}, "spec": {"host": name, "port": "80"},
    });
    let path = format!("/apis/converted.example.dev/v1/namespaces/{}/shops", stage.namespace);
    // A real server says that it serves a version a moment before it does.
    for _ in 0..100 {
        let create = Request::post(&path).body(shop.to_string().into_bytes()).unwrap();
        match stage.client.request::<Value>(create).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429) => {
                sleep(Duration::from_millis(100)).await;
            }
            answer => return drop(answer.unwrap()),
        }
    }
    panic!("{path} is not served");
}

// P20
async fn a_program_that_converts_its_own_objects_starts_from_nothing_and_after_all_its_replicas_were_gone(
    stage: Stage,
) {
    let webhook = Webhook::listen().await;
    let shop = |name: &str| Shop::new(name, ShopSpec { address: format!("{name}:80") });
    let (running, record) = start(&stage, &webhook).await;
    create_in_v1(&stage, "a").await;
    stage.kit().create(&shop("b")).await;
    record.reaches(2).await;
    running.stop().await.unwrap();
    assert!(!webhook.is_served());

    // A server that restarts has converted nothing, and can't while the program is away.
    stage.server.restart().await;
    create_in_v1(&stage, "c").await;
    let shops = Api::<Shop>::namespaced(stage.client.clone(), &stage.namespace);
    let refused = shops.get("c").await.expect_err("somebody converts it").to_string();
    assert!(refused.contains("conversion webhook"), "{refused}");

    let (running, record) = start(&stage, &webhook).await;
    record.reaches(3).await;
    let mut names = record.names();
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
    stage.kit().create(&shop("d")).await;
    record.reaches(4).await;
    running.stop().await.unwrap();
}
