//! What the API server warns of: told once, with what was asked.

use std::sync::Mutex;

use http::{HeaderValue, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Looker, Website, does, hear, website};

/// Keeps what is logged of warnings: level, verb, resource, text.
#[derive(Clone, Default)]
struct Warned(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Warned {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let (mut fields, mut of_warnings) = (Vec::new(), false);
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| match field.name() {
            "message" => of_warnings = format!("{value:?}").starts_with("the API server"),
            _ => fields.push(format!("{value:?}")),
        });
        if of_warnings {
            self.0.lock().unwrap().push(format!("{} {}", event.metadata().level(), fields.join(" ")));
        }
    }
}

impl Warned {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

// W21
#[tokio::test(start_paused = true)]
async fn what_the_server_warns_of_is_told_once_with_verb_and_resource() {
    let warned = Warned::default();
    let _heard = hear(tracing_subscriber::registry().with(warned.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    for name in ["a", "b", "c"] {
        server.create(&website(name)).await;
    }
    // A field that the kind does not have: the server drops it, and says so with each patch.
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let field = if site.name_any() == "c" { "colour" } else { "color" };
        cx.patch(&site, json!({ "spec": { field: "green" } })).await?;
        Ok(Action::requeue_after(Duration::from_secs(60)))
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    record.reaches(30).await;
    let patched = server.requests().list().into_iter().filter(|one| one.verb == Some(Verb::Patch)).count();
    assert!(patched >= 30, "{patched} patches");
    let mut lines = warned.lines();
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"WARN "patch" "websites.web.example.dev" "unknown field \"spec.color\"""#,
            r#"WARN "patch" "websites.web.example.dev" "unknown field \"spec.colour\"""#,
        ]
    );
}

/// A server that adds a warning to each list and watch.
fn that_warns(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, watch) =
            (client.clone(), request.uri().query().unwrap_or_default().contains("watch=true"));
        async move {
            let mut answer: Response<Body> = client.send(request).await?;
            let text = if watch { r#"299 - "v1 is old", 299 - "watched""# } else { r#"299 - "v1 is old""# };
            answer.headers_mut().insert("warning", HeaderValue::from_static(text));
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
}

// W21
#[tokio::test(start_paused = true)]
async fn informers_tell_of_warnings_too_and_two_managers_each_for_itself() {
    let warned = Warned::default();
    let _heard = hear(tracing_subscriber::registry().with(warned.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    for _ in 0..2 {
        let manager = Manager::new(that_warns(server.client()));
        let maps = manager.informer::<ConfigMap>().build();
        let running = manager.controller(Controller::new(Looker::default())).spawn();
        maps.wait_for_sync(Duration::from_secs(5)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        running.stop().await.unwrap();
    }
    let lines = warned.lines();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("WARN \"watch\"")), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("v1 is old")).count(), 2, "{lines:#?}");
}
