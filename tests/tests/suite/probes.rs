//! What probes are answered, without a socket; and what a manager does first and last.

use std::{net::TcpListener, sync::atomic::AtomicBool, sync::atomic::Ordering};

use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::ObjectMeta;
use tokio::time::sleep;
use tower::Service as _;
use watchkeeper::{
    Running,
    manager::{Http, HttpService},
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    ask::{Told, ask, ask_as},
    does,
};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    server
}

fn idle() -> impl Reconciler<ConfigMap> {
    does::<ConfigMap, _, _>(async |_, _| Ok(Action::await_change())).0
}

fn service(running: &Running) -> HttpService {
    running.http_service().unwrap()
}

/// The line about one check.
fn line<'a>(told: &'a Told, check: &str) -> &'a str {
    let about = |line: &&str| line.get(3..).is_some_and(|rest| rest.split(' ').next() == Some(check));
    told.body.lines().find(about).unwrap_or_else(|| panic!("no {check} in {}", told.body))
}

// P2
#[tokio::test(start_paused = true)]
async fn readiness_names_each_cache_that_has_not_synced_why_and_since_when() {
    let server = shop().await;
    let forbidden = server.faults().on_any("secrets").always().then(Fault::Status(403));
    let controller = Controller::new(idle()).owns::<Secret>();
    let running = Manager::new(server.client()).controller(controller).spawn();
    let service = service(&running);
    sleep(Duration::from_secs(90)).await;
    let told = ask(&service, "/readyz").await;
    assert_eq!((told.status.as_u16(), told.header("content-type")), (503, "text/plain; charset=utf-8"));
    assert_eq!(line(&told, "cache/configmaps"), "[+]cache/configmaps ok");
    let secrets = line(&told, "cache/secrets");
    assert!(secrets.starts_with("[-]cache/secrets failed since 20"), "{secrets}");
    for part in ["Z (1m ", "permission to list it is missing", "403", "allow `list` and `watch` of secrets"] {
        assert!(secrets.contains(part), "no {part} in {secrets}");
    }
    let controller = line(&told, "controller/configmaps");
    assert!(controller.starts_with("[-]controller/configmaps failed since 20"), "{controller}");
    assert!(controller.ends_with(": waits for the caches of secrets"), "{controller}");
    assert!(told.body.ends_with("readyz check failed\n"), "{}", told.body);
    let alive = ask(&service, "/healthz").await;
    assert_eq!((alive.status.as_u16(), &*alive.body), (200, "ok"), "a new process would not mend it");

    forbidden.disarm();
    sleep(Duration::from_secs(60)).await;
    let told = ask(&service, "/readyz").await;
    assert_eq!((told.status.as_u16(), &*told.body), (200, "ok"));
    let told = ask(&service, "/readyz?verbose").await;
    assert_eq!(line(&told, "cache/secrets"), "[+]cache/secrets ok");
    assert!(told.body.ends_with("readyz check passed\n"), "{}", told.body);
    running.stop().await.unwrap();
}

// P2
#[tokio::test(start_paused = true)]
async fn a_cache_that_lost_its_watch_is_named_although_it_is_ready() {
    let server = shop().await;
    let running = Manager::new(server.client()).controller(Controller::new(idle())).spawn();
    sleep(Duration::from_secs(1)).await;
    let _faults = server.faults().on_any("configmaps").always().then(Fault::Status(500));
    server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
    sleep(Duration::from_secs(600)).await;
    let told = ask(&service(&running), "/readyz?verbose").await;
    assert_eq!(told.status.as_u16(), 200, "{}", told.body);
    let cache = line(&told, "cache/configmaps");
    assert!(cache.starts_with("[+]cache/configmaps ok: ") && cache.contains("attempts"), "{cache}");
    running.stop().await.unwrap();
}

// P2
#[tokio::test(start_paused = true)]
async fn checks_are_asked_for_by_name_and_left_out_by_name() {
    let server = shop().await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let (full, empty) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let disk = full.clone();
    let running = Manager::new(server.client())
        .controller(Controller::new(idle()).owns::<Secret>())
        .health_check("disk", move || if disk.load(Ordering::SeqCst) { Err("it is\nfull") } else { Ok(()) })
        .readiness_check("users", move || -> Result<(), String> {
            assert!(empty.load(Ordering::SeqCst), "a check may panic");
            empty.store(false, Ordering::SeqCst);
            Ok(())
        })
        .spawn();
    let service = service(&running);
    sleep(Duration::from_secs(1)).await;
    for (path, status) in [
        ("/healthz", 200),
        ("/healthz/ping", 200),
        ("/healthz/disk", 200),
        ("/readyz", 503),
        ("/readyz/cache/secrets", 503),
        ("/readyz/cache/configmaps", 200),
        ("/readyz/users", 503),
        ("/readyz?exclude=cache/secrets&exclude=controller/configmaps&exclude=users", 200),
        ("/readyz?exclude=cache/secrets", 503),
        ("/readyz/nonsense", 404),
        ("/", 404),
        ("/healthz/", 404),
    ] {
        let told = ask(&service, path).await;
        assert_eq!(told.status.as_u16(), status, "{path}: {}", told.body);
    }
    assert_eq!(line(&ask(&service, "/readyz").await, "users"), "[-]users failed: the check panicked");
    full.store(true, Ordering::SeqCst);
    let told = ask(&service, "/healthz").await;
    assert_eq!((told.status.as_u16(), line(&told, "disk")), (503, "[-]disk failed: it is full"));
    running.stop().await.unwrap();
}

// P2
#[tokio::test(start_paused = true)]
async fn head_is_answered_by_the_length_alone_and_other_methods_are_refused() {
    let server = shop().await;
    let running = Manager::new(server.client())
        .controller(Controller::new(idle()))
        .health_check("a disk", || Err("it is full"))
        .spawn();
    let mut service = service(&running);
    sleep(Duration::from_secs(1)).await;
    let mut send = async |method: &str, path: &str| {
        let asked = http::Request::builder().method(method).uri(path).body(()).unwrap();
        let (head, body) = service.call(asked).await.unwrap().into_parts();
        let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let length = body.collect().await.unwrap().to_bytes().len();
        (head.status.as_u16(), header("content-length"), header("allow"), length)
    };
    assert_eq!(send("HEAD", "/healthz?exclude=a+disk").await, (200, Some("2".to_owned()), None, 0));
    for path in ["/healthz", "/healthz/ping", "/readyz", "/metrics", "/debug"] {
        let (status, _, allow, _) = send("POST", path).await;
        assert_eq!((status, allow.as_deref()), (405, Some("GET,HEAD")), "{path}");
    }
    assert_eq!(send("POST", "/elsewhere").await.0, 404);
    assert_eq!(send("GET", "/healthz/a%20disk").await.0, 503, "it is found, and it fails");
    assert_eq!(send("GET", "/healthz/%FF").await.0, 404);
    running.stop().await.unwrap();
}

// P2 P6
#[tokio::test(start_paused = true)]
async fn before_its_start_and_from_its_stop_on_a_manager_is_not_ready() {
    let server = shop().await;
    let manager = Manager::new(server.client()).controller(Controller::new(idle()));
    let service = manager.http_service();
    let told = ask(&service, "/readyz").await;
    assert_eq!(
        (told.status.as_u16(), line(&told, "manager")),
        (503, "[-]manager failed: it has not started")
    );
    let running = manager.spawn();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&service, "/readyz").await.status.as_u16(), 200);
    running.stop().await.unwrap();
    let told = ask(&service, "/readyz").await;
    let stopped = "[-]manager failed: it stops, or has stopped";
    assert_eq!((told.status.as_u16(), line(&told, "manager")), (503, stopped));
    assert_eq!(ask(&service, "/healthz").await.status.as_u16(), 200);
}

// P2
#[tokio::test(start_paused = true)]
async fn a_replica_that_stands_by_is_ready_and_says_who_leads() {
    let server = shop().await;
    let replica = |name: &str| {
        let election = watchkeeper::LeaderElection::new("maps").namespace("shop").identity(name);
        Manager::new(server.client()).leader_election(election).controller(Controller::new(idle())).spawn()
    };
    let first = replica("first");
    sleep(Duration::from_secs(60)).await;
    let second = replica("second");
    sleep(Duration::from_secs(60)).await;
    let told = ask(&service(&second), "/readyz?verbose").await;
    let leads = "[+]leader-election ok: stands by: first leads";
    assert_eq!((told.status.as_u16(), line(&told, "leader-election")), (200, leads));
    let told = ask(&service(&first), "/readyz?verbose").await;
    assert!(
        line(&told, "leader-election").starts_with("[+]leader-election ok: leads since 20"),
        "{}",
        told.body
    );
    let page = ask(&service(&second), "/debug?format=json").await.json();
    let leadership = &page["leadership"];
    assert_eq!(
        (leadership["identity"].as_str(), leadership["leader"].as_str()),
        (Some("second"), Some("first"))
    );
    assert_eq!(page["controllers"][0]["phase"], "standsBy");
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}

// P2
#[tokio::test(start_paused = true)]
async fn metrics_are_served_in_the_format_that_they_are_written_in() {
    let server = shop().await;
    let running = Manager::new(server.client()).controller(Controller::new(idle())).spawn();
    sleep(Duration::from_secs(1)).await;
    let told = ask(&service(&running), "/metrics").await;
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((told.status.as_u16(), told.header("content-type")), (200, format));
    let line = "controller_runtime_reconcile_total{controller=\"configmaps\",result=\"success\"} 1";
    assert!(told.body.lines().any(|one| one == line), "{}", told.body);
    assert!(told.body.ends_with("# EOF\n"), "a scrape that was cut can be told");
    running.stop().await.unwrap();
}

// P6
#[tokio::test(start_paused = true)]
async fn a_port_in_use_ends_the_start_before_anything_is_asked_of_the_server() {
    let server = shop().await;
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let manager = Manager::new(server.client()).controller(Controller::new(idle())).http(address);
    // Held, it would go on listing, had it begun.
    let _lister = manager.lister::<ConfigMap>();
    let before = server.requests().total();
    let mut running = manager.spawn();
    let error = running.ended().await.unwrap_err();
    let text = format!("{error:?}");
    assert!(matches!(error, watchkeeper::Error::Http { .. }), "{text}");
    for part in [address.to_string().as_str(), "the port is in use", ".http(\":8081\")", "Http::off()"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.requests().total(), before, "caches come after the port");
    assert_eq!(running.http_address(), None);
}

// P6
#[tokio::test(start_paused = true)]
async fn a_start_that_fails_half_way_gives_the_port_back_and_begins_nothing() {
    let server = shop().await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let manager = Manager::new(server.client())
        .http(free)
        .controller(Controller::new(idle()))
        .controller(Controller::new(idle()));
    let before = server.requests().total();
    let mut running = manager.spawn();
    let error = running.ended().await.unwrap_err();
    assert!(matches!(error, watchkeeper::Error::DuplicateController(_)), "{error:?}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.requests().total(), before);
    TcpListener::bind(free).expect("nobody holds the port");
}

// P6
#[tokio::test(start_paused = true)]
async fn rubbish_for_an_address_is_refused_at_the_start() {
    let server = shop().await;
    let mut running = Manager::new(server.client()).http("port 8080").spawn();
    let error = format!("{:?}", running.ended().await.unwrap_err());
    assert!(error.contains("HTTP can't be served at \"port 8080\": it has no port: write it as"), "{error}");
    let mut nowhere = Manager::new(server.client()).http(Http::off()).spawn();
    nowhere.ended().await.unwrap();
    assert_eq!(nowhere.http_address(), None);
}

// P6
#[tokio::test(start_paused = true)]
async fn the_port_is_given_up_after_the_last_run() {
    let takes_five_seconds = || {
        does::<ConfigMap, _, _>(async |_, _| {
            sleep(Duration::from_secs(5)).await;
            Ok(Action::await_change())
        })
    };
    let server = shop().await;
    for dropped in [false, true] {
        let (slow, record) = takes_five_seconds();
        let manager = Manager::new(server.client()).http("127.0.0.1:0").controller(Controller::new(slow));
        let running = manager.spawn();
        let address = running.http_address().unwrap();
        record.reaches(1).await;
        let stopping = tokio::spawn(async move {
            match dropped {
                true => {
                    drop(running);
                    Ok(())
                }
                false => running.stop().await,
            }
        });
        sleep(Duration::from_secs(2)).await;
        assert!(TcpListener::bind(address).is_err(), "a run goes on");
        stopping.await.unwrap().unwrap();
        sleep(Duration::from_secs(5)).await;
        TcpListener::bind(address).expect("nobody holds the port");
    }
}

// P18
#[tokio::test(start_paused = true)]
async fn why_a_probe_fails_is_for_those_who_may_see_the_debug_page() {
    let server = shop().await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let start = |http: Http| {
        Manager::new(server.client())
            .http(http)
            .controller(Controller::new(idle()).owns::<Secret>())
            .health_check("store", || Err("postgres://op:hunter2@db"))
            .spawn()
    };
    let (closed, open) = (start(Http::off()), start(Http::off().debug_for_all()));
    let reviewed = start(Http::off().authorize().debug_for_all());
    sleep(Duration::from_secs(90)).await;
    let (here, far) = ("127.0.0.1:4000".parse().ok(), "10.0.0.7:4000".parse().ok());
    for (running, peer, shown) in [
        (&closed, here, true),
        (&closed, far, false),
        (&closed, None, false),
        (&open, far, true),
        // It has no token.
        (&reviewed, here, false),
    ] {
        let told = async |path: &str| ask_as(&service(running), path, peer, &[("host", "localhost")]).await;
        let (ready, alive, one) =
            (told("/readyz").await, told("/healthz").await, told("/readyz/cache/secrets").await);
        assert_eq!([ready.status, alive.status, one.status].map(|status| status.as_u16()), [503; 3]);
        assert!(line(&ready, "cache/secrets").starts_with("[-]cache/secrets failed"), "{}", ready.body);
        assert!(line(&alive, "store").starts_with("[-]store failed"), "{}", alive.body);
        let says = ready.body.contains("403") && alive.body.contains("hunter2") && one.body.contains("403");
        let hides = [&ready, &alive, &one].iter().all(|told| {
            !["403", "hunter2", " since ", "allow `list`"].iter().any(|part| told.body.contains(part))
        });
        assert!(if shown { says } else { hides }, "{peer:?}: {}{}{}", ready.body, alive.body, one.body);
    }
    for running in [closed, open, reviewed] {
        running.stop().await.unwrap();
    }
}

// P19
#[tokio::test(start_paused = true)]
async fn a_controller_is_not_ready_since_the_first_of_its_caches_failed() {
    let server = shop().await;
    server.faults().on_any("pods").always().then(Fault::Status(403));
    // It takes its time to be known as a failure.
    server.faults().on_any("secrets").always().then(Fault::Silence);
    let running = Manager::new(server.client())
        .controller(Controller::new(idle()).owns::<Secret>().owns::<Pod>())
        .spawn();
    let service = service(&running);
    sleep(Duration::from_secs(300)).await;
    let since = |told: &Told, check: &str| {
        let (_, rest) =
            line(told, check).split_once(" failed since ").expect("it failed, and says since when");
        rest.split_once(' ').expect("a reason follows").0.to_owned()
    };
    let told = ask(&service, "/readyz").await;
    assert!(since(&told, "cache/pods") < since(&told, "cache/secrets"), "{}", told.body);
    assert_eq!(since(&told, "controller/configmaps"), since(&told, "cache/pods"), "{}", told.body);
    running.stop().await.unwrap();
}
