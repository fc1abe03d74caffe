//! Installing a definition: whose conversion webhook is part of the program, and while the server is not there.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, CustomResourceExt, core::ApiResource};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use watchkeeper::{Running, manager::Http, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{Record, Website, backend::Log, does, raw::code};

/// A shop, as its second version has it.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v2", kind = "Shop", plural = "shops", namespaced)]
struct ShopSpec {
    address: String,
}

/// The definition of both versions; `v1` is the one that was stored at first.
struct Definition<const STORED: u8>;

impl<const STORED: u8> CustomResourceExt for Definition<STORED> {
    fn crd() -> CustomResourceDefinition {
        let mut crd = serde_json::to_value(Shop::crd()).unwrap();
        let mut first = crd["spec"]["versions"][0].clone();
        first["name"] = "v1".into();
        first["storage"] = (STORED == 1).into();
        first["deprecated"] = true.into();
        crd["spec"]["versions"][0]["storage"] = (STORED == 2).into();
        crd["spec"]["versions"].as_array_mut().unwrap().push(first);
        crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "https://operator/convert"}, "conversionReviewVersions": ["v1"],
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

/// The same, if nobody has to convert anything.
struct Unconverted;

impl CustomResourceExt for Unconverted {
    fn crd() -> CustomResourceDefinition {
        let mut crd = Definition::<2>::crd();
        crd.spec.conversion = None;
        crd
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

/// Answers a ConversionReview while the program's webhook is served, else with an unreadable body.
fn converts(review: &Value, serves: bool) -> Value {
    if !serves {
        return Value::Null;
    }
    let request = &review["request"];
    let converted = request["objects"].as_array().into_iter().flatten().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        object
    });
    let converted: Vec<_> = converted.collect();
    json!({
        "kind": review["kind"], "apiVersion": review["apiVersion"],
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted},
    })
}

/// Starts the program: it installs its definition, then serves its webhook for as long as it runs.
async fn start<D: CustomResourceExt>(server: &ApiServer, serves: &Arc<AtomicBool>) -> (Running, Record) {
    let (reconciler, record) = does::<Shop, _, _>(async |_, _| Ok(Action::await_change()));
    let manager = Manager::new(server.client());
    timeout(Duration::from_secs(60), manager.install_crd::<D>())
        .await
        .expect("it does not wait for itself")
        .unwrap();
    let serves = serves.clone();
    let manager = manager.task("webhook", move |stopping| {
        let serves = serves.clone();
        async move {
            serves.store(true, Ordering::SeqCst);
            stopping.wait().await;
            serves.store(false, Ordering::SeqCst);
            Ok::<_, watchkeeper::Error>(())
        }
    });
    (manager.controller(Controller::new(reconciler)).spawn(), record)
}

// P20
#[tokio::test(start_paused = true)]
async fn a_program_that_converts_its_own_objects_starts_from_nothing_and_after_all_its_replicas_were_gone() {
    let serves = Arc::new(AtomicBool::new(false));
    let asked = serves.clone();
    let server = ApiServer::in_memory()
        .namespace("shop")
        .webhook("https://operator/convert", move |review| {
            let answer = converts(&review, asked.load(Ordering::SeqCst));
            async move { answer }
        })
        .start()
        .await;
    let (running, record) = start::<Definition<1>>(&server, &serves).await;
    for name in ["a", "b"] {
        server.create(&Shop::new(name, ShopSpec { address: format!("{name}.example") })).await;
    }
    record.reaches(2).await;
    running.stop().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(!serves.load(Ordering::SeqCst));
    // What is stored is of the first version, which nobody can convert now.
    let stored = json!({
        "apiVersion": "web.example.dev/v1", "kind": "Shop",
        "metadata": {"name": "c"}, "spec": {"address": "c.example"},
    });
    let create =
        http::Request::post("/apis/web.example.dev/v1/namespaces/shop/shops").body(stored.to_string());
    server.client().request::<Value>(create.unwrap().map(String::into_bytes)).await.unwrap();
    let shops = Api::<Shop>::namespaced(server.client(), "shop");
    assert!(shops.list(&Default::default()).await.is_err());
    let (running, record) = start::<Definition<2>>(&server, &serves).await;
    record.reaches(3).await;
    running.stop().await.unwrap();
}

// P20 W21
#[tokio::test(start_paused = true)]
async fn installing_asks_for_no_version_that_the_program_does_not_use_so_that_none_is_warned_of() {
    let log = Log::default();
    let _taken = log.take();
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let manager = Manager::new(server.client());
    manager.install_crd::<Unconverted>().await.unwrap();
    let warned = || log.lines_with(&["the API server", "web.example.dev/v1 Shop is deprecated"]);
    assert_eq!(warned(), Vec::<String>::new());
    // A program that uses it is warned.
    let list = http::Request::get("/apis/web.example.dev/v1/shops").body(Vec::new()).unwrap();
    manager.client().request::<Value>(list).await.unwrap();
    assert_eq!(warned().len(), 1);
}

/// Gets a path over a real socket, on a thread of its own: meanwhile paused time stands still.
async fn get(address: SocketAddr, path: &'static str) -> String {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    asked.await.unwrap()
}

// P20
#[tokio::test(start_paused = true)]
async fn probes_are_answered_while_a_definition_can_not_be_installed() {
    let server = ApiServer::in_memory().start().await;
    let away = server.faults().on_any("customresourcedefinitions").always().then(Fault::Status(503));
    let log = Log::default();
    let _taken = log.take();
    let manager = Manager::new(server.client()).http(Http::on("127.0.0.1:0"));
    let installing = tokio::spawn(manager.install_crd::<Website>());
    log.says(&["serving /healthz"]).await;
    let said = log.lines_with(&["serving /healthz"]).remove(0);
    let (_, address) = said.split_once("address=").expect("it says where");
    let address: SocketAddr = address.trim().parse().unwrap();
    assert_eq!(code(&get(address, "/healthz").await), 200);
    let ready = get(address, "/readyz").await;
    assert!(code(&ready) == 503 && ready.contains("manager failed: it has not started"), "{ready}");
    away.disarm();
    installing.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).is_err(), "the port is free again, for the start");
}
