//! Text from a server and from objects, in every line of the log.

use std::{convert::Infallible, fmt::Write, sync::Mutex};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer, layer::Context as LayerContext, layer::SubscriberExt as _, registry::LookupSpan,
};
use watchkeeper::{manager::Http, prelude::*};
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Keeper, Website, ask::ask, hear, website};

/// Ends a line, begins another, and colours it: `\n`, `\r`, ESC and a change of direction.
const FORGED: &str = "x\nERROR forged\r\u{1b}[31m\u{202e}";

/// All that watchkeeper logs, at every level, each field as a plain formatter writes it.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        if event.metadata().target().starts_with("watchkeeper") {
            let mut text = Text::default();
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: LayerContext<'_, S>) {
        if attributes.metadata().target().starts_with("watchkeeper") {
            let mut text = Text::default();
            attributes.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

/// Puts forged text into whatever a server says: each message, reason, name and warning of some answers.
fn forging(server: Client, turns: Arc<Mutex<usize>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, turns) = (server.clone(), turns.clone());
        async move {
            let turn = {
                let mut turns = turns.lock().unwrap();
                *turns += 1;
                *turns
            };
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let reads = request.method() == http::Method::GET;
            let mut answer = match turn % 3 {
                0 if turn > 60 => refusal([400, 403, 404, 409, 410, 422, 429, 500, 504][turn / 3 % 9]),
                _ => server.send(request).await.unwrap(),
            };
            let warning = format!("299 - \"{}\"", "x\u{9b}31m\u{202e}").into_bytes();
            answer.headers_mut().insert("warning", http::HeaderValue::from_bytes(&warning).unwrap());
            if watches || !reads || !answer.status().is_success() {
                return Ok::<_, Infallible>(answer);
            }
            let (head, body) = answer.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let Ok(mut list) = serde_json::from_slice::<Value>(&bytes) else {
                return Ok(Response::from_parts(head, Body::from(bytes.to_vec())));
            };
            // One object more, of a name that forges a line; one that can't be read, and one without a name.
            if let Some(items) = list["items"].as_array_mut().filter(|items| !items.is_empty()) {
                let mut other = items[0].clone();
                other["metadata"]["name"] = FORGED.into();
                other["metadata"]["uid"] = FORGED.into();
                other["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": FORGED, "name": FORGED, "uid": FORGED, "controller": true}]);
                items.push(other.clone());
                other["metadata"]["name"] = format!("unreadable {FORGED}").into();
                other["spec"] = FORGED.into();
                other["data"] = FORGED.into();
                items.push(other);
            }
            Ok(Response::from_parts(head, Body::from(list.to_string().into_bytes())))
        }
    });
    Client::new(service, "shop")
}

fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": FORGED,
        "message": format!("{FORGED}: {}", "long ".repeat(2_000)),
        "details": {"name": FORGED, "kind": FORGED, "causes": [{"reason": FORGED, "message": FORGED, "field": FORGED}]},
    });
    Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap()
}

// P16
#[tokio::test(start_paused = true)]
async fn no_text_of_a_server_or_an_object_leaves_its_line_at_any_level() {
    let lines = Lines::default();
    let _heard = hear(tracing_subscriber::registry().with(lines.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let turns = Arc::new(Mutex::new(0));
    let manager = Manager::new(forging(server.client(), turns))
        .leader_election("websites")
        .http(Http::off().debug_for_all())
        .controller(
            Controller::new(Keeper::default()).owns::<Deployment>().watches::<ConfigMap>(|_| Vec::new()),
        );
    manager.install_crd::<Website>().await.ok();
    let running = manager.spawn();
    let service = running.http_service().unwrap();
    for round in 0..40 {
        tokio::time::sleep(Duration::from_secs(15)).await;
        server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": round } })).await;
        if round % 10 == 9 {
            server.faults().on(Verb::Watch, "websites").once().then(watchkeeper_apiserver::Fault::Cut);
        }
        for path in ["/readyz?verbose", "/healthz?verbose"] {
            let told = ask(&service, path).await.body;
            assert!(told.chars().all(|c| c == '\n' || !is_odd(c)) && !told.contains("\nERROR"), "{told:?}");
        }
    }
    let _ = running.stop().await;
    let lines = lines.0.lock().unwrap();
    let forged: Vec<_> = lines.iter().filter(|line| line.chars().any(is_odd)).collect();
    assert!(forged.is_empty(), "{} of {}: {:#?}", forged.len(), lines.len(), &forged[..forged.len().min(5)]);
    let shown = lines.iter().filter(|line| line.contains("ERROR forged")).count();
    assert!(lines.len() > 200 && shown > 20, "{shown} of {} lines show what was forged", lines.len());
    let longest = lines.iter().map(String::len).max().unwrap();
    assert!(longest < 4_000, "a line of {longest} bytes");
}

fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
