//! Traces: each run of a reconciler is a trace with its requests; the log and the event carry its id.
//!
//! ```text
//! cargo run --example otel
//! ```
//!
//! Spans go to the standard output. Another exporter, such as `opentelemetry-otlp`, takes the place of the one here.

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    events::v1,
};
use kube::core::ObjectMeta;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};
use watchkeeper::{prelude::*, writes::TRACE_ID_ANNOTATION};
use watchkeeper_apiserver::ApiServer;

/// Keeps a Secret a map, and tells people of it.
async fn keep(map: Arc<ConfigMap>, cx: Context<ConfigMap>) -> anyhow::Result<Action> {
    let metadata = ObjectMeta { name: map.metadata.name.clone(), ..ObjectMeta::default() };
    cx.apply(Secret { metadata, ..Secret::default() }).await?;
    tracing::info!("a secret is kept"); // within the run's span, so that the line bears its trace
    cx.event(Event::normal("Kept", "a secret is kept"));
    Ok(Action::await_change())
}

/// Names the trace of the span at hand.
fn trace_id() -> Option<String> {
    let context = tracing::Span::current().context();
    let trace = context.span().span_context().clone();
    trace.is_valid().then(|| trace.trace_id().to_string())
}

/// Writes spans and the log to standard output. `HTTP` spans are for debugging.
fn trace() -> SdkTracerProvider {
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .with_resource(Resource::builder().with_service_name("keeper").build())
        .build();
    let traced = tracing_opentelemetry::layer().with_tracer(provider.tracer("keeper"));
    let filter = EnvFilter::new("warn,watchkeeper=info,watchkeeper::manager::client=debug,otel=info");
    let log = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false);
    tracing_subscriber::registry().with(filter).with(log).with(traced).init();
    provider
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let provider = trace();
    let server = ApiServer::http().start().await?;
    let config = kube::Config::from_custom_kubeconfig(server.kubeconfig(), &Default::default()).await?;
    let metadata =
        ObjectMeta { name: Some("ada".into()), namespace: Some("default".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;

    let controller = Controller::from_fn(keep).owns::<Secret>();
    let running =
        Manager::new(watchkeeper::manager::client(config)?).trace_id(trace_id).controller(controller).spawn();
    server.eventually_list::<v1::Event>("default", |events| !events.is_empty()).await;
    running.stop().await?;
    provider.shutdown()?;

    for event in server.list::<v1::Event>("default").await {
        let trace = event.metadata.annotations.unwrap_or_default().remove(TRACE_ID_ANNOTATION);
        println!("event {}: trace {}", event.reason.unwrap_or_default(), trace.unwrap_or_default());
    }
    Ok(())
}
