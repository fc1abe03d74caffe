//! What an operator says in its first minutes and over an outage: for people in `logs.txt`, and for machines.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::core::ObjectMeta;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing_subscriber::{
    filter::{LevelFilter, filter_fn},
    fmt::{format, time::FormatTime},
    layer::SubscriberExt,
};
use watchkeeper::{prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{Hearing, Keeper, Website, assert_snapshot, does, hear, website};

/// Where a layer writes.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Minutes and seconds of the story, in place of the time of day.
struct StoryTime(Instant);

impl FormatTime for StoryTime {
    fn format_time(&self, w: &mut format::Writer<'_>) -> fmt::Result {
        let seconds = self.0.elapsed().as_secs();
        write!(w, "{:02}:{:02}", seconds / 60, seconds % 60)
    }
}

/// What one operator says, as three layers write it.
struct Said {
    text: Paper,
    json: Paper,
    logfmt: Paper,
    _hears: Hearing,
}

impl Said {
    fn from_now_on() -> Self {
        use tracing_subscriber::fmt::layer;
        let [text, json, logfmt] = [(); 3].map(|()| Paper::default());
        let (to_text, to_json, to_logfmt) = (text.clone(), json.clone(), logfmt.clone());
        let people = layer().with_ansi(false).with_timer(StoryTime(Instant::now()));
        let people = people.with_writer(move || to_text.clone());
        let machines = layer().json().flatten_event(true).with_current_span(false);
        let machines = machines.with_writer(move || to_json.clone());
        // Not what the server in the same process says.
        let of_the_runtime = filter_fn(|event| event.target().starts_with("watchkeeper::"));
        let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(of_the_runtime);
        let subscriber = subscriber.with(people).with(machines);
        let subscriber =
            subscriber.with(tracing_logfmt::builder().layer().with_writer(move || to_logfmt.clone()));
        Self { text, json, logfmt, _hears: hear(subscriber) }
    }

    /// Returns the lines for people, after a look at those for machines.
    fn lines(self) -> String {
        let (text, json, logfmt) = (self.text.text(), self.json.text(), self.logfmt.text());
        let count = text.lines().count();
        assert!(count > 0 && json.lines().count() == count && logfmt.lines().count() == count, "{text}");
        for line in json.lines() {
            let keys = keys_of_json(line);
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key twice: {line}");
        }
        for line in logfmt.lines() {
            let keys = keys_of_logfmt(line).unwrap_or_else(|| panic!("no logfmt: {line}"));
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key twice: {line}");
        }
        text
    }
}

/// The keys of an event, those of its spans included, as often as they are written.
fn keys_of_json(line: &str) -> Vec<String> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, Value)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    let pairs = serde_json::Deserializer::from_str(line).deserialize_map(Pairs);
    let mut keys = Vec::new();
    for (key, value) in pairs.unwrap_or_else(|error| panic!("no JSON, {error}: {line}")) {
        let spans = value.as_array().filter(|_| key == "spans");
        for span in spans.into_iter().flatten().filter_map(Value::as_object) {
            keys.extend(span.keys().filter(|key| *key != "name").cloned());
        }
        keys.push(key);
    }
    keys
}

/// The keys of a line of `key=value` and `key="quoted value"`; `None` if it is none.
fn keys_of_logfmt(mut line: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    while !line.is_empty() {
        let (key, rest) = line.split_once('=')?;
        if key.is_empty() || key.contains([' ', '"']) {
            return None;
        }
        keys.push(key.to_owned());
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut escaped = false;
                let end = quoted.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                })?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => rest.split_at(rest.find(' ').unwrap_or(rest.len())),
        };
        if !rest.is_empty() && !rest.starts_with(' ') || value.contains('\n') {
            return None;
        }
        line = rest.trim_start_matches(' ');
    }
    Some(keys)
}

fn manager(server: &ApiServer) -> Manager {
    let config = ReflectorConfig { seed: Some(7), ..ReflectorConfig::default() };
    Manager::with_config(server.client(), config)
}

fn controller() -> Controller<Website, Keeper> {
    Controller::new(Keeper::default()).owns::<Deployment>()
}

async fn minutes(count: u64) {
    sleep(Duration::from_secs(60 * count)).await;
}

async fn a_healthy_start_and_five_minutes_without_a_server() -> String {
    let server = ApiServer::in_memory().seed(7).crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let said = Said::from_now_on();
    let running = manager(&server).controller(controller()).spawn();
    minutes(1).await;
    let outage = server.faults().on_everything().always().then(Fault::Reset);
    minutes(5).await;
    outage.disarm();
    minutes(1).await;
    running.stop().await.unwrap();
    said.lines()
}

async fn a_server_that_is_not_there_at_the_start() -> String {
    let server = ApiServer::in_memory().seed(7).namespace("shop").start().await;
    let outage = server.faults().on_everything().always().then(Fault::Reset);
    let said = Said::from_now_on();
    let manager = manager(&server).controller(controller());
    let starts = async {
        manager.install_crd::<Website>().await.unwrap();
        manager.spawn()
    };
    let comes = async {
        minutes(5).await;
        outage.disarm();
    };
    let (running, ()) = tokio::join!(starts, comes);
    minutes(1).await;
    running.stop().await.unwrap();
    said.lines()
}

async fn a_definition_that_is_missing() -> String {
    let server = ApiServer::in_memory().seed(7).namespace("shop").start().await;
    let said = Said::from_now_on();
    let running = manager(&server).controller(controller()).spawn();
    minutes(5).await;
    Manager::new(server.client()).install_crd::<Website>().await.unwrap();
    minutes(1).await;
    running.stop().await.unwrap();
    said.lines()
}

async fn a_kind_that_is_forbidden() -> String {
    let server = ApiServer::in_memory().seed(7).crd::<Website>().namespace("shop").start().await;
    let right = r#"secrets is forbidden: User "operator" cannot list resource "secrets" in API group "" at the cluster scope"#;
    let forbidden = server.faults().on_reads("secrets").always().then(Fault::Status(403).message(right));
    let said = Said::from_now_on();
    let controllers = controller().watches::<Secret>(|_| Vec::new());
    let running = manager(&server).controller(controllers).spawn();
    minutes(5).await;
    forbidden.disarm();
    minutes(1).await;
    running.stop().await.unwrap();
    said.lines()
}

/// Everything that a run, or what follows it, says of itself.
async fn runs_that_go_wrong() -> String {
    let server = ApiServer::in_memory().seed(7).crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let said = Said::from_now_on();
    let runs = AtomicU32::new(0);
    let (reconciler, _) = does(move |_: Arc<Website>, cx: Context<Website>| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        async move {
            let metadata = ObjectMeta { name: Some("settings".to_owned()), ..ObjectMeta::default() };
            cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
            match run {
                0 => anyhow::bail!("the backend refused: quota \"gold\" is used up"),
                1 => panic!("index out of bounds"),
                2 => Ok(Action::requeue_after(Duration::from_secs(10))),
                _ => Err(Terminal::new("there is no such plan").into()),
            }
        }
    });
    let running = manager(&server).controller(Controller::new(reconciler)).spawn();
    minutes(1).await;
    running.stop().await.unwrap();
    said.lines()
}

// R63
#[tokio::test(start_paused = true)]
async fn an_operator_says_what_it_waits_for_what_is_wrong_and_what_to_do() {
    let mut text =
        "What an operator says at info, by minute and second; kept by tests/tests/suite/logs.rs.\n"
            .to_owned();
    for (title, lines) in [
        (
            "A healthy start, then five minutes without a server",
            a_healthy_start_and_five_minutes_without_a_server().await,
        ),
        (
            "A server that is not there for the first five minutes",
            a_server_that_is_not_there_at_the_start().await,
        ),
        ("A CRD that is missing for five minutes", a_definition_that_is_missing().await),
        ("A kind that is forbidden for five minutes", a_kind_that_is_forbidden().await),
        ("Runs that go wrong", runs_that_go_wrong().await),
    ] {
        text.push_str(&format!("\n# {title}\n\n{lines}"));
    }
    assert_snapshot("tests/suite/logs.txt", &text);
}

// The check of logfmt would take anything for logfmt, or nothing.
#[test]
fn what_is_no_logfmt_is_told_from_what_is() {
    assert_eq!(keys_of_logfmt("a=1 b=\"x \\\"y\\\" z\" c="), Some(vec!["a".into(), "b".into(), "c".into()]));
    for broken in ["reason=initial list", "a=\"open", "word", "a=1 b c=2"] {
        assert_eq!(keys_of_logfmt(broken), None, "{broken}");
    }
}
