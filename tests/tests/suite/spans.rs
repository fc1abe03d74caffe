//! Spans: a run, and under it the requests that it sends; and the trace that they belong to.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret, events::v1};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    layer::{Context as LayerContext, SubscriberExt as _},
    registry::LookupSpan,
};
use watchkeeper::{prelude::*, writes::TRACE_ID_ANNOTATION};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Website, deployment_for, does, hear, website};

/// A span, as a tracer gets it.
#[derive(Clone, Debug, Default)]
struct Kept {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Kept {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The text of a line, and its span.
type Line = (String, Option<u64>);

/// Keeps every span, and the spans of each line of the log.
#[derive(Clone, Default)]
struct Spans {
    spans: Arc<Mutex<BTreeMap<u64, Kept>>>,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Spans {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, cx: LayerContext<'_, S>) {
        let parent = cx.span(id).and_then(|span| Some(number(&span.parent()?.id())));
        let mut kept = Kept { name: attributes.metadata().name(), parent, ..Kept::default() };
        attributes.record(&mut kept);
        self.spans.lock().unwrap().insert(number(id), kept);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, _: LayerContext<'_, S>) {
        if let Some(kept) = self.spans.lock().unwrap().get_mut(&number(id)) {
            values.record(kept);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, cx: LayerContext<'_, S>) {
        let mut kept = Kept::default();
        event.record(&mut kept);
        let within = cx.event_span(event).map(|span| number(&span.id()));
        self.lines.lock().unwrap().push((kept.fields.remove("message").unwrap_or_default(), within));
    }
}

/// Numbers hold a generation, so that none comes twice.
fn number(id: &span::Id) -> u64 {
    id.into_u64()
}

impl Spans {
    fn named(&self, name: &str) -> Vec<Kept> {
        self.spans.lock().unwrap().values().filter(|span| span.name == name).cloned().collect()
    }

    fn parent_of(&self, span: &Kept) -> Option<Kept> {
        self.spans.lock().unwrap().get(&span.parent?).cloned()
    }
}

fn field<'a>(span: &'a Kept, name: &str) -> &'a str {
    span.fields.get(name).map(String::as_str).unwrap_or_default()
}

/// Applies a child, reads what is not there, and fails at first.
async fn run_twice(spans: &Spans) {
    let _heard = hear(tracing_subscriber::registry().with(spans.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.faults().on(Verb::Patch, "deployments").once().then(Fault::Status(500));
    server.create(&website("a")).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(deployment_for(&site)).await?;
        cx.get_opt::<Secret>(&ObjectKey::new("shop", "password")).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).owns::<Deployment>().named("sites");
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    running.stop().await.unwrap();
}

// C14 C39
#[tokio::test(start_paused = true)]
async fn the_requests_of_a_run_are_spans_within_its_own() {
    let spans = Spans::default();
    run_twice(&spans).await;
    let (runs, requests) = (spans.named("reconcile"), spans.named("request"));
    let shown = |run: &Kept| {
        let names = ["controller", "kind", "key", "attempt", "reason", "id", "otel.status_code"];
        names.map(|name| field(run, name).to_owned()).join(" ")
    };
    let mut told: Vec<_> = runs.iter().map(shown).collect();
    told.sort();
    assert_eq!(
        told[..2],
        [
            "sites websites.web.example.dev shop/a 1 initial_list 1 ERROR",
            "sites websites.web.example.dev shop/a 2 retry 2 ",
        ],
        "{told:#?}"
    );
    let mut sent: Vec<_> = requests
        .iter()
        .filter_map(|request| {
            let run = spans.parent_of(request).unwrap_or_else(|| panic!("{request:?} stands alone"));
            // A write whose result is unknown is looked up outside the runs.
            if run.name == "follow_up" {
                return None;
            }
            assert_eq!(run.name, "reconcile", "{request:?}");
            let names = ["operation", "object", "status", "otel.status_code"];
            Some(format!("{}: {}", field(&run, "id"), names.map(|name| field(request, name)).join(" ")))
        })
        .collect();
    sent.sort();
    assert_eq!(
        sent[..3],
        [
            "1: apply Deployment shop/a 500 ERROR",
            "2: apply Deployment shop/a 201 ",
            "2: get Secret shop/password 404 ERROR",
        ],
        "{sent:#?}"
    );
}

/// Runs a keeper that tells the same event twice, a minute apart; each run is a trace of its own.
async fn traced(
    spans: &Spans,
    ids: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> (ApiServer, Vec<String>) {
    let _heard = hear(tracing_subscriber::registry().with(spans.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let (reconciler, record) = does(move |_: Arc<Website>, cx: Context<Website>| {
        sees.lock().unwrap().push(cx.trace_id().unwrap_or("none").to_owned());
        async move {
            cx.event(Event::warning("Refused", "the backend refused: quota"));
            match cx.id() {
                1 => anyhow::bail!("quota"),
                _ => Ok(Action::requeue_after(Duration::from_secs(60))),
            }
        }
    });
    let running = Manager::new(server.client()).trace_id(ids).controller(Controller::new(reconciler)).spawn();
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    running.stop().await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (server, seen)
}

// C39
#[tokio::test(start_paused = true)]
async fn the_trace_of_a_run_stands_in_its_lines_and_in_its_events() {
    let (spans, count) = (Spans::default(), AtomicU64::new(0));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let (server, seen) = traced(&spans, move || {
        asks.lock().unwrap().push(tracing::Span::current().metadata().map(|span| span.name()));
        Some(format!("{:032x}", count.fetch_add(1, Ordering::Relaxed)))
    })
    .await;
    let ids = [0, 1].map(|id| format!("{id:032x}"));
    assert_eq!(seen, ids, "the context knows it");
    assert_eq!(*asked.lock().unwrap(), [Some("reconcile"); 2], "asked within the run's span");
    let runs = spans.named("reconcile");
    assert_eq!(runs.iter().map(|run| field(run, "trace_id")).collect::<Vec<_>>(), ids);
    let lines = spans.lines.lock().unwrap().clone();
    let (_, within) = lines.iter().find(|(line, _)| line.contains("reconcile failed")).unwrap();
    let within = spans.spans.lock().unwrap()[&within.unwrap()].clone();
    assert_eq!(field(&within, "trace_id"), ids[0], "a line is in the span that names its trace");
    let told = server.list::<v1::Event>("shop").await;
    let [event] = &told[..] else { panic!("{told:#?}") };
    assert_eq!(event.series.as_ref().unwrap().count, 2);
    let annotations = event.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(
        annotations.get(TRACE_ID_ANNOTATION),
        Some(&ids[1]),
        "a series has the trace of its latest event"
    );
}

// C39
#[tokio::test(start_paused = true)]
async fn without_a_trace_nothing_is_said_of_one_whatever_the_function_does() {
    let nothing: [fn() -> Option<String>; 3] = [|| None, || Some(String::new()), || panic!("no tracer")];
    for ids in nothing {
        let spans = Spans::default();
        let (server, seen) = traced(&spans, ids).await;
        assert_eq!(seen, ["none", "none"], "the runs go on");
        assert!(spans.named("reconcile").iter().all(|run| !run.fields.contains_key("trace_id")));
        let [event] = &server.list::<v1::Event>("shop").await[..] else { panic!("one event") };
        assert_eq!(event.metadata.annotations, None);
    }
    let spans = Spans::default();
    let (_, seen) = traced(&spans, || Some("é".repeat(100_000))).await;
    assert!(seen.iter().all(|id| id.len() <= 128), "an id is bounded");
}
