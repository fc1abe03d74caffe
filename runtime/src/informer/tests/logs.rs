//! What reaches the log, at every level: never what is in an object.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::NoSubscriber,
};

use super::factory::{Answer, served};
use crate::{informer::SharedInformerFactory, reflector::ReflectorConfig, store::Lookup};

/// Writes down every event and span, with all fields, at every level.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Visit for Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0.lock().unwrap(), " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("watchkeeper")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut self.clone());
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        write!(self.0.lock().unwrap(), "\n{}", event.metadata().level()).unwrap();
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn secret(name: &str, data: &str) -> String {
    format!(
        r#"{{"kind":"Secret","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"3"}},"data":{data},"stringData":{{"password":"hunter2"}}}}"#
    )
}

// R42
#[tokio::test(start_paused = true)]
async fn no_object_reaches_the_log_however_broken_it_is() {
    let log = Everything::default();
    // While only one subscriber exists, a callsite that another test reaches first is off for all.
    let _second = Dispatch::new(NoSubscriber::default());
    let _captured = tracing::subscriber::set_default(log.clone());
    let list = format!(
        r#"{{"kind":"SecretList","metadata":{{"resourceVersion":"5"}},"items":[{},{},{}]}}"#,
        secret("good", r#"{"password":"aHVudGVyMg=="}"#),
        secret("text", r#""hunter2""#),
        secret("key", r#"{"password":{"hunter2":"hunter2"}}"#),
    );
    let body = secret("bad", "[\"hunter2\"]");
    let events = [
        format!(r#"{{"type":"MODIFIED","object":{body}}}"#),
        format!(r#"{{"type":"hunter2","object":{body}}}"#),
        format!(r#"{{"type":"ADDED","object":{}}}"#, body.replace("\"Secret\"", "\"Other\"")),
        format!(r#"{{"type":"DELETED","object":{}}}"#, secret("bad", "7")),
        r#"{"type":"ADDED","object":{"data":"hunter2"}}"#.to_owned(),
        r#"{"hunter2":"hunter2"}"#.to_owned(),
    ];
    let client = served(move |uri| match uri.contains("watch=") {
        true => Answer::whole(events.join("\n") + "\n"),
        false => Answer::whole(list.clone()),
    });
    let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
    let factory = SharedInformerFactory::with_config(client, config);
    let informer = factory.informer::<Secret>().page_size(10).build();
    let lister = informer.lister();
    let indexed = factory
        .informer::<Secret>()
        .page_size(10)
        .transform(|secret: &mut Secret| {
            assert!(secret.metadata.name.as_deref() != Some("good"), "a planted panic");
        })
        .build();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(5)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let shown = format!("{:?} {:?} {:?} {factory:?}", informer.sync_state(), informer, lister);
    assert_eq!(lister.len(), 1);
    assert!(matches!(indexed.lister().lookup(&"shop/good".parse().unwrap()), Lookup::Unreadable(_)));
    factory.shutdown().await;

    let log = log.0.lock().unwrap().clone();
    for expected in ["shop/text", "shop/key", "skipped an event", "can't be read", "DEBUG", "WARN"] {
        assert!(log.contains(expected), "{expected:?} is missing in:\n{log}");
    }
    for content in ["hunter2", "aHVudGVyMg"] {
        assert!(!log.contains(content), "{content} is in:\n{log}");
        assert!(!shown.contains(content), "{content} is in:\n{shown}");
    }
}
