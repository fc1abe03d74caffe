//! What the debug page shows: as JSON and as a page, without a socket.

use std::{convert::Infallible, sync::Mutex};

use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body, core::ObjectMeta};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::sleep};
use watchkeeper::{
    Running,
    manager::{Http, HttpService},
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{
    ask::{ask, ask_as},
    does,
};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn shop(names: &[&str]) -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for name in names {
        server.create(&config_map(name)).await;
    }
    server
}

fn service(running: &Running) -> HttpService {
    running.http_service().unwrap()
}

async fn report(running: &Running) -> Value {
    ask(&service(running), "/debug?format=json").await.json()
}

/// The keys that stand in a place.
fn keys<'a>(report: &'a Value, place: &str) -> &'a Value {
    let groups = report["controllers"][0]["keys"].as_array().unwrap();
    groups.iter().find(|group| group["place"] == place).unwrap_or_else(|| panic!("no {place} in {groups:#?}"))
}

/// A reconciler that does what the name of an object says.
fn by_name(gate: Arc<Semaphore>) -> impl Reconciler<ConfigMap> {
    let run = move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let gate = gate.clone();
        async move {
            match &*map.name_any() {
                "fails" => anyhow::bail!("the <b>backend</b> refuses & \"quotes\""),
                "fails-for-good" => Err(Terminal::new("no use").into()),
                "waits" => Ok(Action::requeue_after(Duration::from_secs(3_600))),
                "runs" => {
                    gate.acquire().await.unwrap().forget();
                    Ok(Action::await_change())
                }
                _ => {
                    let metadata = ObjectMeta { name: Some("child".into()), ..ObjectMeta::default() };
                    cx.apply(Secret { metadata, ..Secret::default() }).await?;
                    Ok(Action::await_change())
                }
            }
        }
    };
    does::<ConfigMap, _, _>(run).0
}

// P4
#[tokio::test(start_paused = true)]
async fn the_debug_page_shows_each_keys_state_reason_due_time_attempts_and_last_error() {
    let server = shop(&["fails", "fails-for-good", "waits", "writes"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let controller = Controller::new(by_name(gate.clone())).owns::<Secret>().workers(1);
    let running = Manager::new(server.client()).controller(controller).spawn();
    sleep(Duration::from_secs(31)).await;
    server.create(&config_map("runs")).await;
    sleep(Duration::from_secs(1)).await;
    server.create(&config_map("queued")).await;
    sleep(Duration::from_secs(2)).await;
    let report = report(&running).await;

    let failed = keys(&report, "failedForGood");
    assert_eq!((&failed["total"], &failed["keys"][0]["key"]), (&json!(1), &json!("shop/fails-for-good")));
    assert_eq!(failed["keys"][0]["lastError"]["error"], "no use");
    let running_key = &keys(&report, "inFlight")["keys"][0];
    assert_eq!((running_key["key"].as_str(), running_key["attempt"].as_u64()), (Some("shop/runs"), Some(1)));
    assert!(running_key["why"].as_str().unwrap().starts_with("running for "), "{running_key}");
    let queued = &keys(&report, "queued")["keys"];
    let queued = queued.as_array().unwrap().iter().find(|line| line["key"] == "shop/queued").unwrap();
    assert_eq!(queued["reason"], "changed");
    let waits = &keys(&report, "waiting")["keys"][0];
    assert_eq!(waits["key"], "shop/waits");
    let due: jiff::Timestamp = waits["due"].as_str().unwrap().parse().unwrap();
    let at: jiff::Timestamp = report["at"].as_str().unwrap().parse().unwrap();
    assert!((3_500..3_600).contains(&due.duration_since(at).as_secs()), "{due} {at}");

    let controller = &report["controllers"][0];
    assert_eq!((&controller["phase"], &controller["kind"]), (&json!("works"), &json!("configmaps")));
    assert_eq!(controller["workers"], json!({"busy": 1, "total": 1}));
    let oldest = controller["queue"]["oldestSeconds"].as_f64().unwrap();
    assert!((2.0..34.0).contains(&oldest), "{oldest}");
    let runs = controller["recentRuns"].as_array().unwrap();
    let wrote = runs.iter().find(|run| run["key"] == "shop/writes").unwrap();
    assert_eq!(
        (&wrote["writes"], &wrote["result"], &wrote["reason"]),
        (&json!(1), &json!("success"), &json!("initial_list"))
    );
    let failed: Vec<_> = runs.iter().filter(|run| run["key"] == "shop/fails").collect();
    assert!(
        failed.len() > 3 && failed[0]["attempt"].as_u64().unwrap() as usize == failed.len(),
        "{failed:#?}"
    );
    assert!(failed.iter().all(|run| run["result"] == "error" && run["writes"] == 0));

    gate.add_permits(9);
    sleep(Duration::from_millis(10)).await;
    let answer = ask(&service(&running), "/debug?format=json&key=shop/fails").await.json();
    let failing = keys(&answer, "backingOff")["keys"].as_array().unwrap();
    let fails = failing.iter().find(|line| line["key"] == "shop/fails").unwrap();
    assert!(fails["attempt"].as_u64().unwrap() > 3 && fails["due"].is_string(), "{fails}");
    assert_eq!(fails["lastError"]["error"], "the <b>backend</b> refuses & \"quotes\"");
    let sentence = answer["search"]["answers"][0].as_str().unwrap();
    assert!(sentence.starts_with("configmaps is not reconciling shop/fails: backs off for "), "{sentence}");
    assert!(
        sentence.contains("failures in a row") && sentence.contains("the <b>backend</b> refuses"),
        "{sentence}"
    );
    running.stop().await.unwrap();
}

// P4
#[tokio::test(start_paused = true)]
async fn the_debug_page_tells_of_informers_and_what_they_fail_with() {
    let server = shop(&["a", "b"]).await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let gate = Arc::new(Semaphore::new(0));
    let controller = Controller::new(by_name(gate)).owns::<Secret>().namespace("shop");
    let manager = Manager::new(server.client()).controller(controller);
    let compact = manager.informer::<watchkeeper::informer::Compact<ConfigMap>>();
    let _compact = compact.label_selector("!hidden").unwrap().build();
    let running = manager.spawn();
    sleep(Duration::from_secs(60)).await;
    let report = report(&running).await;
    let informers = report["informers"].as_array().unwrap();
    let of = |kind: &str, selector: &str| {
        let same = |one: &&Value| one["kind"] == kind && one["selector"] == selector;
        informers.iter().find(same).unwrap_or_else(|| panic!("{informers:#?}"))
    };
    let maps = of("configmaps", "");
    assert_eq!(
        (&maps["phase"], &maps["objects"], &maps["bytes"]),
        (&json!("synced"), &json!(2), &Value::Null)
    );
    assert_eq!(maps["namespaces"], json!(["shop"]));
    assert!(maps["resourceVersion"].as_u64().unwrap() > 0 && maps["lastEvent"].is_string(), "{maps}");
    let secrets = of("secrets", "");
    assert_eq!(secrets["phase"], "syncing");
    let failure = &secrets["failure"];
    assert!(failure["attempts"].as_u64().unwrap() > 3 && failure["retryAt"].is_string(), "{failure}");
    assert!(failure["message"].as_str().unwrap().contains("permission to list it is missing"), "{failure}");
    let compact = of("configmaps", "labels !hidden");
    assert!(compact["objects"] == 2 && compact["bytes"].as_u64().unwrap() > 100, "{compact}");
    let page = ask(&service(&running), "/debug").await;
    assert!(page.body.contains("waits for caches") && page.body.contains("checks fail"), "{}", page.body);
    running.stop().await.unwrap();
}

// P4
#[tokio::test(start_paused = true)]
async fn names_and_errors_stay_text_and_no_content_is_shown() {
    let server = shop(&["fails"]).await;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "hidden", "namespace": "shop", "annotations": {"note": "hunter2-in-a-note"}},
        "stringData": {"password": "hunter2"},
    }))
    .unwrap();
    server.create(&secret).await;
    let markup = "x\"><img src=x onerror=alert(1)>";
    let controller = Controller::new(by_name(Arc::new(Semaphore::new(0))))
        .watches::<Secret>(move |_| vec![ObjectKey::new("shop", markup)]);
    let running = Manager::new(server.client()).controller(controller).spawn();
    sleep(Duration::from_secs(30)).await;
    let service = service(&running);
    for path in
        ["/debug", "/debug?key=%3Cscript%3Ealert(1)%3C/script%3E", "/debug?key=shop/%22%3E%3Cscript%3E"]
    {
        let page = ask(&service, path).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
        for tag in ["<img", "<script", "<b>backend"] {
            assert!(!page.body.contains(tag), "{tag} on {path}");
        }
    }
    let page = ask(&service, "/debug").await.body;
    assert!(page.contains("the &lt;b&gt;backend&lt;/b&gt; refuses &amp;"), "{page}");
    assert!(page.contains("onerror=alert(1)&gt;"), "the key is named: {page}");
    let json = ask(&service, "/debug?format=json").await.body;
    assert!(!page.contains("hunter2") && !json.contains("hunter2"));
    running.stop().await.unwrap();
}

// P4
#[tokio::test(start_paused = true)]
async fn of_many_keys_a_hundred_are_listed_and_the_rest_counted() {
    const MANY: usize = 250;
    let server = shop(&[]).await;
    for at in 0..MANY {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let (fails, _) = does::<ConfigMap, _, _>(async |_, _| anyhow::bail!("no"));
    let controller = Controller::new(fails)
        .workers(8)
        .backoff(ItemExponentialFailure::new(Duration::from_secs(600), Duration::from_secs(600)));
    let running = Manager::new(server.client()).controller(controller).spawn();
    sleep(Duration::from_secs(60)).await;
    let json = report(&running).await;
    let group = keys(&json, "backingOff");
    assert_eq!((group["total"].as_u64(), group["keys"].as_array().unwrap().len()), (Some(MANY as u64), 100));
    assert_eq!(json["controllers"][0]["recentRuns"].as_array().unwrap().len(), 20);
    let page = ask(&service(&running), "/debug").await.body;
    assert!(page.contains("and 150 more"), "{page}");
    running.stop().await.unwrap();
}

// P4
#[tokio::test(start_paused = true)]
async fn a_name_alone_is_found_in_whatever_namespace() {
    let server = shop(&["fails"]).await;
    let running = Manager::new(server.client())
        .controller(Controller::new(by_name(Arc::new(Semaphore::new(0)))))
        .spawn();
    sleep(Duration::from_secs(30)).await;
    let answers = async |path: &str| {
        let answer = ask(&service(&running), path).await.json();
        answer["search"]["answers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let found = answers("/debug?format=json&key=fails").await;
    assert!(
        found.len() == 1 && found[0].starts_with("configmaps is not reconciling shop/fails: backs off"),
        "{found:?}"
    );
    let absent = answers("/debug?format=json&key=%20nobody%20").await;
    assert_eq!(absent, ["configmaps is not reconciling nobody: no object of that name is in its cache"]);
    let page = ask(&service(&running), "/debug?key=fails").await.body;
    assert!(page.contains("configmaps is not reconciling shop/fails: backs off"), "{page}");
    running.stop().await.unwrap();
}

// P4
#[tokio::test(start_paused = true)]
async fn the_debug_page_is_shown_to_this_machine_alone_unless_asked() {
    let server = shop(&[]).await;
    let closed = Manager::new(server.client()).spawn();
    let open = Manager::new(server.client()).http(Http::off().debug_for_all()).spawn();
    let (here, far) = ("127.0.0.1:4000".parse().ok(), "10.0.0.7:4000".parse().ok());
    for (peer, host, status) in [
        (here, "localhost:8080", 200),
        (here, "evil.example", 403),
        (far, "localhost:8080", 403),
        (None, "localhost", 403),
    ] {
        let told = ask_as(&service(&closed), "/debug", peer, &[("host", host)]).await;
        assert_eq!(told.status.as_u16(), status, "{peer:?} {host}");
        if status == 403 {
            assert!(
                told.body.contains("kubectl port-forward") && told.body.contains("debug_for_all"),
                "{}",
                told.body
            );
        }
        assert_eq!(ask_as(&service(&closed), "/healthz", peer, &[("host", host)]).await.status.as_u16(), 200);
        assert_eq!(ask_as(&service(&closed), "/metrics", peer, &[("host", host)]).await.status.as_u16(), 200);
        assert_eq!(ask_as(&service(&open), "/debug", peer, &[("host", host)]).await.status.as_u16(), 200);
    }
    let accepts = ask_as(&service(&open), "/debug", None, &[("accept", "application/json")]).await;
    assert_eq!(accepts.header("content-type"), "application/json");
    closed.stop().await.unwrap();
    open.stop().await.unwrap();
}

/// A server that reviews tokens, and counts how often.
fn reviewing(server: Client, asked: Arc<Mutex<Vec<Value>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, asked) = (server.clone(), asked.clone());
        async move {
            let path = request.uri().path().to_owned();
            if !path.ends_with("reviews") {
                return Ok::<_, Infallible>(server.send(request).await.unwrap());
            }
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            asked.lock().unwrap().push(review.clone());
            review["status"] = match review["spec"]["token"].as_str() {
                Some("") | None => json!({"allowed": review["spec"]["user"] == "ada"}),
                Some("broken") => return Ok(Response::builder().status(500).body(Body::empty()).unwrap()),
                Some("silent") => std::future::pending().await,
                Some("nobody") => json!({"authenticated": false}),
                Some(user) => json!({"authenticated": true, "user": {"username": user, "groups": ["all"]}}),
            };
            Ok(Response::new(Body::from(review.to_string().into_bytes())))
        }
    });
    Client::new(service, "shop")
}

// P4
#[tokio::test(start_paused = true)]
async fn metrics_and_the_page_are_for_those_whom_the_server_allows() {
    let server = shop(&[]).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let client = reviewing(server.client(), asked.clone());
    let manager = Manager::new(client).dry_run().http(Http::off().authorize().debug_for_all());
    assert!(manager.rules().to_string().contains("tokenreviews"), "{}", manager.rules());
    let running = manager.spawn();
    let get = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("host", "localhost")];
        let headers = if token.is_empty() { &headers[1..] } else { &headers };
        ask_as(&service(&running), path, "127.0.0.1:4000".parse().ok(), headers).await
    };
    for (token, status, says) in [
        ("", 401, "a token is needed"),
        ("nobody", 401, "does not know the token"),
        ("bob", 403, "bob may not get /metrics: allow it by `nonResourceURLs: [/metrics]`"),
        ("broken", 503, "see the log"),
        ("silent", 503, "in time"),
        ("ada", 200, "# EOF"),
    ] {
        let told = get("/metrics", token).await;
        assert!(told.status.as_u16() == status && told.body.contains(says), "{token}: {told:?}");
        assert_eq!(told.header("www-authenticate"), if status == 401 { "Bearer" } else { "" });
    }
    assert_eq!(get("/healthz", "").await.status.as_u16(), 200);
    assert_eq!(get("/debug", "ada").await.status.as_u16(), 200);
    assert_eq!(get("/debug", "bob").await.status.as_u16(), 403);
    let last = asked.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last["spec"]["nonResourceAttributes"], json!({"path": "/debug", "verb": "get"}));
    assert_eq!((&last["spec"]["user"], &last["spec"]["groups"]), (&json!("bob"), &json!(["all"])));

    let questions = || asked.lock().unwrap().len();
    let before = questions();
    for _ in 0..50 {
        assert_eq!(get("/metrics", "ada").await.status.as_u16(), 200);
    }
    assert_eq!(questions(), before, "an answer is remembered");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(get("/metrics", "ada").await.status.as_u16(), 200);
    assert_eq!(questions(), before + 2, "for a minute");
    running.stop().await.unwrap();
}
