//! What users do while a trial goes on.

use std::time::Duration;

use kube::core::Request;
use kube::core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use watchkeeper_apiserver::inside::{self, RequestInfo};
use watchkeeper_apiserver::kit::Kind;
use watchkeeper_apiserver::{Kit, Verb};

use crate::diff;
use crate::foreign_additions;
use crate::harness::{Harness, Rest, in_short};
use crate::replace;
use crate::timeline::Actor;
use crate::world::Hidden;

/// How long after a step nothing must happen before the next.
const QUIET: Duration = Duration::from_secs(1);
/// How long a user looks at something before he looks again.
const LOOK: Duration = Duration::from_secs(1);
/// How long a step waits for that at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The user of a trial: each verb is a step of the script.
///
/// After a step the operator gets time to come to rest: until nothing happens for a second, and 30 s at most. A step
/// that needs more than that waits for it by [`eventually`](Self::eventually). A step that is refused, because a trouble
/// left nothing to act on, is shown in the story and skipped; the end is not compared with that of a run in which it was
/// not refused. Keys are `"namespace/name"`, or `"name"`.
#[derive(Clone, Debug)]
pub struct Visit {
    pub(crate) harness: Harness,
    pub(crate) without: std::sync::Arc<Vec<usize>>,
    pub(crate) done: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    /// What an upgrade may change.
    pub(crate) hidden: std::sync::Arc<Hidden>,
}

impl Visit {
    /// Creates an object.
    pub async fn create<K: Kind>(&self, object: &K) {
        let name = object.meta().name.clone().unwrap_or_default();
        let request = self.api::<K>(object.meta().namespace.as_deref());
        let request = request.create(&PostParams::default(), inside::body(object));
        self.step(format!("creates {} {name}", K::kind(&())), async |visit| visit.send(request).await).await;
    }

    /// Reads an object, changes it, and writes it back.
    pub async fn edit<K: Kind>(&self, key: &str, change: impl FnOnce(&mut K)) {
        let (api, name) = self.at::<K>(key);
        self.step(format!("edits {} {key}", K::kind(&())), async |visit| {
            let found = visit.send(api.get(&name, &GetParams::default())).await?;
            let mut object: K = serde_json::from_value(found).map_err(|error| error.to_string())?;
            change(&mut object);
            visit.send(api.replace(&name, &PostParams::default(), inside::body(&object))).await
        })
        .await;
    }

    /// Patches an object by a JSON merge patch.
    pub async fn patch<K: Kind>(&self, key: &str, patch: Value) {
        let (api, name) = self.at::<K>(key);
        let request = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch));
        self.step(format!("patches {} {key}", K::kind(&())), async |visit| visit.send(request).await).await;
    }

    /// Patches an object's status, as its controller would, by the content of `status`.
    pub async fn patch_status<K: Kind>(&self, key: &str, status: Value) {
        let (api, name) = self.at::<K>(key);
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let request = api.patch_subresource("status", &name, &PatchParams::default(), &patch);
        let what = format!("patches the status of {} {key}", K::kind(&()));
        self.step(what, async |visit| visit.send(request).await).await;
    }

    /// Deletes an object.
    pub async fn delete<K: Kind>(&self, key: &str) {
        let (api, name) = self.at::<K>(key);
        let request = api.delete(&name, &DeleteParams::default());
        self.step(format!("deletes {} {key}", K::kind(&())), async |visit| visit.send(request).await).await;
    }

    /// Waits until an object is as wanted, or gone where that is wanted, for as long as the
    /// [patience](crate::Trials::patience) of the trials lasts.
    ///
    /// It is a fault of the operator's if that never comes, unless somebody else changed something, or an earlier step
    /// was refused: then the script goes on.
    pub async fn eventually<K: Kind>(&self, key: &str, wanted: impl Fn(Option<&K>) -> bool) {
        let what = format!("waits for a state of {} {key}", K::kind(&()));
        let (api, name) = self.at::<K>(key);
        self.step(what.clone(), async |visit| {
            let began = Instant::now();
            loop {
                let found = visit.send(api.get(&name, &GetParams::default())).await.ok();
                let object = found.clone().and_then(|found| serde_json::from_value::<K>(found).ok());
                if wanted(object.as_ref()) {
                    return Ok(found.unwrap_or_default());
                }
                let deadline = visit.harness.deadline(began);
                if Instant::now() >= deadline || visit.harness.is_flooded() {
                    visit.harness.tell(Actor::User, || "waits in vain".to_owned());
                    visit.harness.state().in_vain.push(what);
                    return Ok(Value::Null);
                }
                // A change to the awaited object ends the wait at once; any other change is checked a little later.
                let moved = visit.harness.moved.notified();
                let _either = timeout_at(deadline.min(Instant::now() + LOOK), moved).await;
            }
        })
        .await;
    }

    /// Lets some time pass.
    pub async fn wait(&self, time: Duration) {
        self.step(format!("waits {time:?}"), async |_| {
            sleep(time).await;
            Ok(Value::Null)
        })
        .await;
    }

    /// Returns the test kit of the server, which panics where something is refused.
    #[must_use]
    pub fn kit(&self) -> &Kit {
        self.harness.server.kit()
    }

    async fn step(&self, what: String, act: impl AsyncFnOnce(&Self) -> Result<Value, String>) {
        let number = self.done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if !self.without.contains(&number) {
            self.take(number, what, act).await;
        }
        replace::after_step(&self.harness, number, &self.hidden).await;
    }

    async fn take(&self, number: usize, what: String, act: impl AsyncFnOnce(&Self) -> Result<Value, String>) {
        self.harness.tell(Actor::User, || what.clone());
        self.harness.disturb(|| format!("the user {what}"));
        if let Err(refused) = act(self).await {
            self.harness.tell(Actor::User, || format!("is refused: {refused}"));
            self.harness.state().refused.insert(number);
        }
        self.harness.up();
        self.harness.state().steps += 1;
        self.harness.rest(Rest::OfWhatIsUp, QUIET, Instant::now() + PATIENCE).await;
        foreign_additions::check(&self.harness);
    }

    async fn send<E: std::fmt::Display>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
    ) -> Result<Value, String> {
        let request = request.map_err(|error| error.to_string())?;
        let info = RequestInfo::of(request.method(), request.uri());
        let writes = info.verb.is_some_and(Verb::writes);
        let server = &self.harness.server;
        let before = if writes { inside::peek(server, &info) } else { None };
        let version = server.resource_version();
        let answer: Value = self.harness.stranger.request(request).await.map_err(|error| in_short(&error))?;
        if writes {
            self.harness.written(&info.resource, before.as_ref(), &answer, version);
        }
        if let Some(before) = before.as_ref().filter(|_| writes) {
            foreign_additions::let_go(&self.harness, before, &answer);
        }
        if writes && info.verb != Some(Verb::Delete) {
            let differences = diff::lines(before.as_ref(), Some(&answer));
            let text: String = differences.iter().map(|line| format!("\n{line}")).collect();
            self.harness.tell_more(Actor::User, &text);
        }
        Ok(answer)
    }

    fn api<K: Kind>(&self, namespace: Option<&str>) -> Request {
        Request::new(inside::path::<K>(self.kit(), namespace))
    }

    fn at<K: Kind>(&self, key: &str) -> (Request, String) {
        let (namespace, name) = inside::split(key);
        (self.api::<K>(namespace), name.to_owned())
    }
}
