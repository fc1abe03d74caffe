//! Mistakes that only the log tells of.

use std::{fmt::Debug, sync::Mutex, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::core::ObjectMeta;
use tracing::{Event, Level, Subscriber, field::Visit};
use tracing_subscriber::{Layer, layer::SubscriberExt};
use watchkeeper::{Terminal, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, faults::Garble};
use watchkeeper_tests::{Keeper, Website, hear, website};

use crate::{Mistake, paused};

/// What is said from warnings upwards: the message, and `error` if there is one; each once.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Text {
    message: String,
    error: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if field.name() == "error" {
            self.error = value.to_owned();
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::WARN || !event.metadata().target().starts_with("watchkeeper::") {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let line = match text.error.is_empty() {
            true => format!("{level} {}", text.message),
            false => format!("{level} {} error={}", text.message, text.error),
        };
        let mut lines = self.0.lock().unwrap();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
}

/// Lets an operator run for a few seconds; returns the first thing that it warns of.
pub(crate) fn said(
    prepare: impl AsyncFnOnce(&ApiServer),
    operator: impl FnOnce(Manager) -> Manager,
) -> String {
    warned(Duration::from_secs(20), prepare, operator).into_iter().next().unwrap_or_default()
}

/// Lets an operator run for some time; returns all that it warns of.
pub(crate) fn warned(
    time: Duration,
    prepare: impl AsyncFnOnce(&ApiServer),
    operator: impl FnOnce(Manager) -> Manager,
) -> Vec<String> {
    paused(async {
        let server = ApiServer::in_memory().seed(7).namespace("shop").start().await;
        prepare(&server).await;
        let lines = Lines::default();
        let _heard = hear(tracing_subscriber::registry().with(lines.clone()));
        let config = ReflectorConfig { seed: Some(7), ..ReflectorConfig::default() };
        let running = operator(Manager::with_config(server.client(), config)).spawn();
        tokio::time::sleep(time).await;
        drop(running);
        lines.0.lock().unwrap().clone()
    })
}

pub(crate) fn keeper() -> Controller<Website, Keeper> {
    Controller::new(Keeper::default()).owns::<Deployment>()
}

pub(crate) async fn with_a_site(server: &ApiServer) {
    Manager::new(server.client()).install_crd::<Website>().await.unwrap();
    server.create(&website("a")).await;
}

pub(crate) fn mistakes() -> Vec<Mistake> {
    let mut found = caches();
    found.extend(runs());
    found
}

fn caches() -> Vec<Mistake> {
    vec![
        ("The CRD is not installed", said(async |_: &ApiServer| {}, |manager| manager.controller(keeper()))),
        (
            "A kind that a controller watches is forbidden",
            said(
                async |server: &ApiServer| {
                    with_a_site(server).await;
                    let right = r#"secrets is forbidden: User "operator" cannot list resource "secrets" in API group "" at the cluster scope"#;
                    server.faults().on_reads("secrets").always().then(Fault::Status(403).message(right));
                },
                |manager| manager.controller(keeper().watches::<Secret>(|_| Vec::new())),
            ),
        ),
        (
            "The credentials end while it runs",
            said(
                async |server: &ApiServer| {
                    with_a_site(server).await;
                    server.faults().on_everything().always().then(Fault::Status(401).message("Unauthorized"));
                },
                |manager| manager.controller(keeper()),
            ),
        ),
        (
            "An object does not fit the type",
            said(
                async |server: &ApiServer| {
                    with_a_site(server).await;
                    server.faults().on_reads("websites").always().then(Fault::Garble(Garble::Object));
                },
                |manager| manager.controller(keeper()),
            ),
        ),
    ]
}

fn runs() -> Vec<Mistake> {
    let reconciling = |run: fn(Context<Website>) -> anyhow::Result<Action>| {
        said(with_a_site, move |manager| {
            manager.controller(Controller::from_fn(move |_: Arc<Website>, cx: Context<Website>| async move {
                run(cx)
            }))
        })
    };
    vec![
        (
            "A reconciler fails",
            reconciling(|_| Err(anyhow::anyhow!("no route to host").context("asking the backend"))),
        ),
        ("A reconciler fails for good", reconciling(|_| Err(Terminal::new("unknown plan \"gold\"").into()))),
        ("A reconciler panics", reconciling(|_| panic!("index out of bounds"))),
        (
            "A reconciler does not end within its deadline",
            said(with_a_site, |manager| {
                let stuck = Controller::from_fn(async |_: Arc<Website>, _: Context<Website>| {
                    std::future::pending::<anyhow::Result<Action>>().await
                });
                manager.controller(stuck.deadline(Duration::from_secs(5)))
            }),
        ),
        (
            "A child's kind is not watched",
            said(with_a_site, |manager| {
                let applies = Controller::from_fn(async |_: Arc<Website>, cx: Context<Website>| {
                    let metadata = ObjectMeta { name: Some("settings".to_owned()), ..ObjectMeta::default() };
                    cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
                    anyhow::Ok(Action::await_change())
                });
                manager.controller(applies)
            }),
        ),
        (
            "Two operators write the same fields in turn",
            said(with_a_site, |manager| {
                let one = |replicas: i32| {
                    Controller::from_fn(move |site: Arc<Website>, cx: Context<Website>| async move {
                        let mut child = watchkeeper_tests::deployment_for(&site);
                        child.spec.as_mut().expect("a spec").replicas = Some(replicas);
                        cx.apply(child).adopt().await?;
                        anyhow::Ok(Action::await_change())
                    })
                };
                let [one, other] = [("one", 1), ("other", 2)]
                    .map(|(name, count)| one(count).owns::<Deployment>().named(name));
                manager.controller(one).controller(other)
            }),
        ),
    ]
}
