//! Several replicas, one Lease: who works, and when, under what goes wrong.

use std::sync::Mutex;

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{
    Running,
    clock::WallClock,
    leader_election::{LeaderElection, LeaderState, Leadership},
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    Record, assert_rate_holds,
    backend::Log,
    cable::{Cable, Passes},
    does,
};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

fn election(name: &str) -> LeaderElection {
    LeaderElection::new("maps").namespace("shop").identity(name)
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

async fn holder(server: &ApiServer) -> Option<String> {
    let lease = server.get::<Lease>("shop/maps").await?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

/// Makes the Lease one that was released, so that nobody waits for the first term.
async fn released(server: &ApiServer) {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "maps", "namespace": "shop"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0},
    }))
    .unwrap();
    server.create(&lease).await;
}

/// One replica, and what a test knows of it.
struct Replica {
    running: Running,
    leadership: Leadership,
    cable: Cable,
    record: Record,
    /// How far its wall clock is off, in seconds.
    off: Arc<Mutex<i64>>,
}

impl Replica {
    /// Writes its name into every map at each run.
    fn start(server: &ApiServer, name: &'static str) -> Self {
        Self::start_with(server, name, |controller| controller)
    }

    fn start_with(
        server: &ApiServer,
        name: &'static str,
        set: impl FnOnce(
            Controller<ConfigMap, watchkeeper_tests::Does<ConfigMap>>,
        ) -> Controller<ConfigMap, watchkeeper_tests::Does<ConfigMap>>,
    ) -> Self {
        let (cable, client) = Cable::of(server.client());
        let off = Arc::new(Mutex::new(0));
        let (read, system) = (off.clone(), WallClock::system());
        let clock = WallClock::custom(move || {
            let off: i64 = *read.lock().unwrap();
            let by = Duration::from_secs(off.unsigned_abs());
            if off < 0 { system.now() - by } else { system.now() + by }
        });
        let config = ReflectorConfig { clock, ..ReflectorConfig::default() };
        let manager = Manager::with_config(client, config).leader_election(election(name));
        let leadership = manager.leadership().unwrap();
        let client = manager.client().clone();
        let (writes, record) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, _| {
            let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), "shop");
            async move {
                let by = json!({"data": {"by": name}});
                maps.patch(&map.name_any(), &Default::default(), &kube::api::Patch::Merge(by)).await?;
                Ok(Action::requeue_after(Duration::from_secs(1)))
            }
        });
        let running = manager.controller(set(Controller::new(writes).namespace("shop"))).spawn();
        Self { running, leadership, cable, record, off }
    }

    async fn leads(&mut self) {
        self.comes_to(|state| *state == LeaderState::Leads).await;
    }

    async fn comes_to(&mut self, wanted: impl Fn(&LeaderState) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(300), async {
            let mut state = self.leadership.state();
            while !wanted(&state) {
                state = self.leadership.changed().await;
            }
        });
        waited.await.expect("it never comes to that");
    }

    fn stands_by(&self) -> bool {
        matches!(self.leadership.state(), LeaderState::StandsBy { .. })
    }
}

// C20 L1 L10
#[tokio::test(start_paused = true)]
async fn a_stand_by_keeps_its_caches_and_takes_over_from_a_leader_that_stops() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let mut one = Replica::start(&server, "one");
    one.leads().await;
    one.record.reaches(3).await;
    let mut two = Replica::start(&server, "two");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(two.leadership.state(), LeaderState::StandsBy { holder: Some("one".into()) });
    assert!(two.record.is_empty(), "a stand-by works");
    assert_eq!(holder(&server).await.as_deref(), Some("one"));
    server.requests().clear();
    let stopping = Instant::now();
    one.running.stop().await.unwrap();
    assert_eq!(holder(&server).await, None, "it gives the Lease up");
    two.leads().await;
    assert!(stopping.elapsed() < Duration::from_secs(2), "{:?}", stopping.elapsed());
    two.record.reaches(3).await;
    assert_eq!(server.requests().count(Verb::List, "secrets"), 0);
    let map = server.get::<ConfigMap>("shop/a").await.unwrap();
    assert_eq!(map.data.unwrap()["by"], "two");
    let transitions = server.get::<Lease>("shop/maps").await.unwrap().spec.unwrap().lease_transitions;
    assert_eq!(transitions, Some(2), "one, then two");
}

// L1 L2
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_never_there_is_waited_for_once_and_a_dead_leader_as_long() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let began = Instant::now();
    let mut one = Replica::start(&server, "one");
    one.leads().await;
    assert_eq!(began.elapsed().as_secs(), 15);
    let mut two = Replica::start(&server, "two");
    two.comes_to(|state| *state == LeaderState::StandsBy { holder: Some("one".into()) }).await;
    one.cable.set(Passes::Nothing);
    let died = Instant::now();
    two.leads().await;
    let took = died.elapsed();
    assert!((Duration::from_secs(13)..Duration::from_secs(17)).contains(&took), "{took:?}");
}

// L5 L6
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins_and_leads_again_later() {
    for passes in [Passes::Nothing, Passes::RequestsAlone, Passes::RepliesAlone] {
        let server = shop().await;
        released(&server).await;
        server.create(&config_map("a")).await;
        let mut one = Replica::start(&server, "one");
        one.record.reaches(3).await;
        let mut two = Replica::start(&server, "two");
        sleep(Duration::from_secs(5)).await;
        one.cable.set(passes);
        two.leads().await;
        let runs = one.record.len();
        assert!(one.stands_by(), "{passes:?}");
        two.record.reaches(5).await;
        assert_eq!(one.record.len(), runs, "{passes:?}: both work");
        one.cable.set(Passes::Both);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(one.record.len(), runs, "{passes:?}: both work");
        two.running.stop().await.unwrap();
        one.leads().await;
        one.record.reaches(runs + 3).await;
    }
}

// L5
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ends_the_term_and_another_one_begins() {
    for by in [600, -600] {
        let server = shop().await;
        released(&server).await;
        server.create(&config_map("a")).await;
        let mut one = Replica::start(&server, "one");
        one.record.reaches(3).await;
        let two = Replica::start(&server, "two");
        sleep(Duration::from_secs(5)).await;
        *one.off.lock().unwrap() = by;
        sleep(Duration::from_secs(5)).await;
        one.leads().await;
        let runs = one.record.len();
        one.record.reaches(runs + 3).await;
        assert!(two.record.is_empty(), "the Lease was one's all the time");
    }
}

// L5
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ends_the_term_also_while_a_renewal_has_no_answer() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let mut one = Replica::start(&server, "one");
    one.record.reaches(3).await;
    sleep(Duration::from_secs(5)).await;
    server.faults().on(Verb::Update, "leases").always().then(Fault::Silence);
    server.requests().clear();
    // It may take 2.5 s.
    while server.requests().count(Verb::Update, "leases") == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    *one.off.lock().unwrap() = 3_600;
    sleep(Duration::from_millis(1_100)).await;
    assert_ne!(one.leadership.state(), LeaderState::Leads);
    let runs = one.record.len();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(one.record.len(), runs, "runs start without a term");
    server.faults().clear();
    one.leads().await;
}

// L11
#[tokio::test(start_paused = true)]
async fn flapping_leadership_stays_within_the_rate() {
    let server = shop().await;
    released(&server).await;
    for at in 0..40 {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let limit = RateLimit::per_second(5).burst(10);
    let mut one = Replica::start_with(&server, "one", |controller| controller.workers(4).rate_limit(limit));
    for jump in 1..12 {
        one.leads().await;
        sleep(Duration::from_secs(4)).await;
        let since = one.leadership.since();
        *one.off.lock().unwrap() = jump * 3_600;
        sleep(Duration::from_secs(4)).await;
        assert!(one.leadership.since() > since, "the same term goes on");
    }
    let starts = one.record.starts();
    assert!(starts.len() > 60, "{} runs", starts.len());
    assert_rate_holds(&starts, 5.0, 10.0);
}

// L9
#[tokio::test(start_paused = true)]
async fn a_term_starts_on_caches_that_show_what_was_there_when_it_was_won() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let one = Replica::start(&server, "one");
    one.record.reaches(1).await;
    let mut two = Replica::start(&server, "two");
    sleep(Duration::from_secs(5)).await;
    // Its watch stays open but delivers nothing more.
    server.faults().on(Verb::Watch, "configmaps").always().then(Fault::Status(500));
    let held = server.faults().watches("configmaps");
    held.hold();
    server.create(&config_map("b")).await;
    one.running.stop().await.unwrap();
    two.leads().await;
    two.record.reaches(2).await;
    let first: Vec<_> = two.record.names().into_iter().take(2).collect();
    assert_eq!(first.len(), 2);
    assert!(first.contains(&"b".to_owned()), "{first:?}");
}

// L10
#[tokio::test(start_paused = true)]
async fn a_replica_that_could_start_nothing_does_not_campaign() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let forbidden = server.faults().on_any("configmaps").always().then(Fault::Status(403));
    let mut one = Replica::start(&server, "one");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(one.leadership.state(), LeaderState::Idle);
    assert_eq!(holder(&server).await, None);
    forbidden.disarm();
    one.leads().await;
    one.record.reaches(1).await;
}

// L10 L4
#[tokio::test(start_paused = true)]
async fn the_lease_is_given_up_only_after_the_last_run() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let manager =
        Manager::new(server.client()).leader_election(election("one")).grace_period(Duration::from_secs(60));
    let (slow, record) = does::<ConfigMap, _, _>(|_, cx: Context<ConfigMap>| async move {
        sleep(Duration::from_secs(40)).await;
        // Still gated by a term that is renewed while the manager stops.
        cx.client().apiserver_version().await?;
        Ok(Action::await_change())
    });
    let running = manager.controller(Controller::new(slow).namespace("shop")).spawn();
    record.reaches(1).await;
    let began = Instant::now();
    let stopping = tokio::spawn(running.stop());
    sleep(Duration::from_secs(39)).await;
    assert_eq!(holder(&server).await.as_deref(), Some("one"));
    // The first release is refused: somebody has edited the Lease.
    server.faults().on(Verb::Update, "leases").once().then(Fault::Status(409));
    stopping.await.unwrap().unwrap();
    assert_eq!(holder(&server).await, None);
    assert_eq!(began.elapsed().as_secs(), 40);
}

// L7
#[tokio::test(start_paused = true)]
async fn settings_that_can_not_work_end_the_start_with_the_rule() {
    let server = shop().await;
    let refused = |manager: Manager| async move { manager.spawn().stop().await.unwrap_err().to_string() };
    let short = election("one").lease_duration(Duration::from_secs(5));
    let error = refused(Manager::new(server.client()).leader_election(short)).await;
    assert!(error.contains("must be shorter than the lease of 5s"), "{error}");
    let manager = Manager::new(server.client());
    let _taken = manager.client().clone();
    let error = refused(manager.leader_election("maps")).await;
    assert!(error.contains("call `leader_election` first"), "{error}");
}

/// Counts who works on the map next to its runs.
#[derive(Clone, Default)]
struct AtWork(Arc<Mutex<(usize, usize)>>);

impl AtWork {
    /// Works for a time, in a task that nobody can drop, for as long as it holds a clone of the context.
    fn begin(&self, cx: Context<ConfigMap>, lasts: Duration) -> tokio::task::JoinHandle<()> {
        let at_work = self.clone();
        tokio::spawn(async move {
            {
                let mut counted = at_work.0.lock().unwrap();
                counted.0 += 1;
                counted.1 = counted.1.max(counted.0);
            }
            sleep(lasts).await;
            at_work.0.lock().unwrap().0 -= 1;
            drop(cx);
        })
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

// L17
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_released_while_work_goes_on_that_a_run_began() {
    // How long the grace period and the work last, and whether the Lease is released in the end.
    for (grace, work, released_then) in [(30, 20, true), (3, 12, false)] {
        let server = shop().await;
        released(&server).await;
        server.create(&config_map("a")).await;
        let at_work = AtWork::default();
        let start = |name: &'static str| {
            let at_work = at_work.clone();
            let (works, record) = does::<ConfigMap, _, _>(move |_, cx: Context<ConfigMap>| {
                let at_work = at_work.clone();
                async move {
                    // Nobody waits for it: the run ends at once.
                    drop(at_work.begin(cx, Duration::from_secs(work)));
                    Ok(Action::await_change())
                }
            });
            let manager = Manager::new(server.client()).leader_election(election(name));
            let manager = manager.grace_period(Duration::from_secs(grace));
            (manager.controller(Controller::new(works).namespace("shop")).spawn(), record)
        };
        let (one, first) = start("one");
        first.reaches(1).await;
        let (two, second) = start("two");
        sleep(Duration::from_millis(500)).await;
        let stopping = Instant::now();
        let stopped = one.stop().await;
        assert_eq!(stopped.is_ok(), released_then, "{stopped:?}");
        if let Err(error) = stopped {
            assert!(error.to_string().contains("shop/a"), "{error}");
            assert_eq!(holder(&server).await.as_deref(), Some("one"), "the Lease is left to run out");
        }
        assert!(stopping.elapsed() <= Duration::from_secs(grace + 1));
        second.reaches(1).await;
        assert_eq!(at_work.most(), 1, "two at work on one key");
        two.stop().await.ok();
    }
}

// L17
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_released_while_work_goes_on_that_a_leaders_task_began() {
    let server = shop().await;
    released(&server).await;
    let manager = Manager::new(server.client()).leader_election(election("one"));
    let mut leadership = manager.leadership().unwrap();
    let manager = manager.grace_period(Duration::from_secs(3));
    let running = manager.leader_task("leaves-work", |stopping| async move {
        tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            drop(stopping);
        });
        Ok::<_, watchkeeper::Error>(())
    });
    let running = running.spawn();
    while leadership.changed().await != LeaderState::Leads {}
    sleep(Duration::from_secs(1)).await;
    let error = running.stop().await.unwrap_err().to_string();
    assert!(error.contains("leaves-work"), "{error}");
    assert_eq!(holder(&server).await.as_deref(), Some("one"), "the Lease is left to run out");
}

// L4 P1
#[tokio::test(start_paused = true)]
async fn a_stop_takes_no_longer_than_promised_where_the_server_is_away() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let (cable, client) = Cable::of(server.client());
    let manager = Manager::new(client).leader_election(election("one")).grace_period(Duration::from_secs(3));
    let (endless, record) = does::<ConfigMap, _, _>(|_, _| std::future::pending());
    let running = manager.controller(Controller::new(endless).namespace("shop")).spawn();
    record.reaches(1).await;
    cable.set(Passes::Nothing);
    let began = Instant::now();
    running.stop().await.unwrap_err();
    assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
}

// L9
#[tokio::test(start_paused = true)]
async fn a_take_over_fetches_a_quiet_cache_once_whichever_controllers_read_it() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let start = |name: &'static str| {
        let manager = Manager::new(server.client()).leader_election(election(name));
        let leadership = manager.leadership().unwrap();
        let idle = || does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
        let ((first, record), (second, _), (third, _)) = (idle(), idle(), idle());
        let manager = manager.controller(Controller::new(first).namespace("shop").named("first"));
        let manager =
            manager.controller(Controller::new(second).namespace("shop").named("second").owns::<Service>());
        // Another cache of the same kind.
        let manager = manager.controller(Controller::new(third).namespace("other").named("third"));
        (manager.spawn(), leadership, record)
    };
    let (one, _, first) = start("one");
    first.reaches(1).await;
    let (two, mut leadership, second) = start("two");
    sleep(Duration::from_secs(5)).await;
    // The version moves on, and the watches of these kinds have nothing to tell.
    server
        .create(&k8s_openapi::api::core::v1::Secret {
            metadata: ObjectMeta {
                name: Some("a".into()),
                namespace: Some("shop".into()),
                ..Default::default()
            },
            ..Default::default()
        })
        .await;
    server.requests().clear();
    let log = Log::default();
    let _taken = log.take();
    one.stop().await.unwrap();
    while leadership.state() != LeaderState::Leads {
        leadership.changed().await;
    }
    second.reaches(1).await;
    let listings = log.lines_with(&["INFO", "listing"]);
    assert_eq!(listings.len(), 1, "one line for both kinds: {listings:?}");
    let asked = server.requests().of(Verb::List, "configmaps");
    let probes = asked.iter().filter(|request| request.parameter("limit") == Some("1")).count();
    assert_eq!(probes, 1, "{asked:?}");
    assert!(asked.len() - probes <= 2, "{asked:?}");
    two.stop().await.unwrap();
}

// A rollback must take away what the later release has applied.
#[tokio::test(start_paused = true)]
async fn a_leader_that_comes_back_applies_again_what_another_one_has_applied_meanwhile() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let start = |client, name: &'static str, more: bool| {
        let (applies, _) =
            does::<ConfigMap, _, _>(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
                let mut labels = std::collections::BTreeMap::from([("of".to_owned(), "all".to_owned())]);
                labels.extend(more.then(|| ("more".to_owned(), "true".to_owned())));
                let metadata =
                    ObjectMeta { name: Some("child".into()), labels: Some(labels), ..Default::default() };
                cx.apply(Secret { metadata, ..Default::default() }).await?;
                Ok(Action::await_change())
            });
        let controller = Controller::new(applies).named("maps").owns::<Secret>();
        Manager::new(client).leader_election(election(name)).controller(controller).spawn()
    };
    let has_more = async || {
        let secret = server.get::<Secret>("shop/child").await.unwrap();
        secret.metadata.labels.unwrap().contains_key("more")
    };
    let (cable, client) = Cable::of(server.client());
    let _first = start(client, "first", false);
    sleep(Duration::from_secs(60)).await;
    assert!(!has_more().await);
    cable.set(Passes::Nothing);
    let second = start(server.client(), "second", true);
    sleep(Duration::from_secs(60)).await;
    assert!(has_more().await);
    cable.set(Passes::Both);
    second.stop().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(holder(&server).await.as_deref(), Some("first"));
    assert!(!has_more().await);
}

// L9 C38
#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_no_namespace_whose_server_does_not_answer() {
    let server = ApiServer::in_memory().namespace("open").namespace("shop").start().await;
    server.kit().in_namespace("open").create(&config_map("a")).await;
    let set =
        |controller: Controller<ConfigMap, watchkeeper_tests::Does<ConfigMap>>| controller.namespace("open");
    let mut first = Replica::start_with(&server, "first", set);
    first.leads().await;
    let mut second = Replica::start_with(&server, "second", set);
    sleep(Duration::from_secs(30)).await;
    server.faults().on(Verb::List, "configmaps").namespace("shop").always().then(Fault::Silence);
    first.running.stop().await.unwrap();
    second.leads().await;
    let before = second.record.starts().len();
    sleep(Duration::from_secs(60)).await;
    assert!(second.record.starts().len() > before, "it works in the other namespace");
}

// L9 C38
#[tokio::test(start_paused = true)]
async fn a_new_leader_takes_a_part_of_a_cache_as_it_is_that_can_t_be_read_any_more() {
    let server = ApiServer::in_memory().namespace("shop").namespace("open").start().await;
    released(&server).await;
    server.kit().in_namespace("shop").create(&config_map("a")).await;
    let client = server.client();
    let start = |name: &'static str| {
        let manager = Manager::new(client.clone()).leader_election(election(name));
        // One cache of two parts, for which the controller waits.
        let secrets = manager.informer::<Secret>().namespace("open").namespace("shop").lister();
        let (notes, record) = does::<ConfigMap, _, _>(move |_, _| {
            let count = secrets.len();
            async move { Ok(Action::requeue_after(Duration::from_secs(1 + count as u64))) }
        });
        (manager.controller(Controller::new(notes).namespace("shop")).spawn(), record)
    };
    let (first, record) = start("first");
    record.reaches(1).await;
    let (_second, record) = start("second");
    sleep(Duration::from_secs(30)).await;
    for verb in [Verb::List, Verb::Watch] {
        server.faults().on(verb, "secrets").namespace("shop").always().then(Fault::Status(403));
    }
    server.watches("secrets").hold();
    sleep(Duration::from_secs(5)).await;
    let secret = Secret { metadata: config_map("later").metadata, ..Secret::default() };
    server.kit().in_namespace("open").create(&secret).await;
    first.stop().await.unwrap();
    sleep(Duration::from_secs(90)).await;
    assert!(!record.is_empty(), "it waits for what it may not read");
}

// L5
#[tokio::test(start_paused = true)]
async fn a_replica_whose_last_runs_end_after_its_term_is_ready() {
    let server = shop().await;
    released(&server).await;
    server.create(&config_map("a")).await;
    let manager = Manager::new(server.client()).leader_election(election("one"));
    let mut leadership = manager.leadership().unwrap();
    let (sleeps, record) = does::<ConfigMap, _, _>(|_, _| async {
        sleep(Duration::from_secs(60)).await;
        Ok(Action::await_change())
    });
    let running = manager.controller(Controller::new(sleeps).namespace("shop")).spawn();
    record.reaches(1).await;
    server.faults().on(Verb::Update, "leases").always().then(Fault::Status(500));
    while leadership.state() != LeaderState::Ends {
        leadership.changed().await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(leadership.state(), LeaderState::Ends);
    let readiness = running.inspector().readiness();
    assert!(readiness.is_ok(), "{readiness}");
    running.stop().await.unwrap();
}
