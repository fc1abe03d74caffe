//! What someone else does to an object: requests of somebody else, past all troubles.

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Harness, Owed};
use super::timeline::Who;
use super::trouble::{AWAY, Deed, Whose};
use super::world::{CONDITION, Found, MARK, everything};
use crate::object;
use crate::route::RequestInfo;

/// What a request is about.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) info: RequestInfo,
    /// `None` where the server is to choose it.
    pub(super) name: Option<String>,
    pub(super) body: Value,
}

impl Hand {
    fn resource(&self) -> String {
        match self.info.group.as_str() {
            "" => self.info.resource.clone(),
            group => format!("{}.{group}", self.info.resource),
        }
    }

    fn find<'a>(&self, all: &'a [Found]) -> Option<&'a Found> {
        let (name, resource) = (self.name.as_deref()?, self.resource());
        let namespace = self.info.namespace.as_deref().unwrap_or_default();
        all.iter().find(|found| {
            found.resource == resource
                && object::name(&found.value) == name
                && object::namespace(&found.value) == namespace
        })
    }
}

/// Does a deed; false where there is no object to do it to.
pub(super) async fn act(harness: &Harness, deed: Deed, whose: Whose, hand: &Hand) -> bool {
    let all = everything(harness.server.core());
    let its = hand.find(&all);
    if deed == Deed::TakesTheName {
        return its.is_none() && take_the_name(harness, hand).await;
    }
    let target = match whose {
        Whose::Its => its,
        Whose::Owners => {
            let of = its.map_or(&hand.body, |found| &found.value);
            let owners = object::owners(of);
            owners.first().and_then(|owner| all.iter().find(|found| found.uid() == owner.uid))
        }
        Whose::Childs => its.and_then(|its| {
            all.iter().find(|found| object::owners(&found.value).iter().any(|owner| owner.uid == its.uid()))
        }),
    };
    match target {
        Some(target) => ForeignEdits { harness, target }.act(deed).await,
        None => false,
    }
}

struct ForeignEdits<'a> {
    harness: &'a Harness,
    target: &'a Found,
}

impl ForeignEdits<'_> {
    async fn act(&self, deed: Deed) -> bool {
        let made = self.harness.made_by_operator(self.target.uid());
        let uid = self.target.uid().to_owned();
        let done = match deed {
            Deed::Labels => {
                let mark = json!({ MARK: "was-here" });
                let done = self.merge(json!({ "metadata": { "labels": mark, "annotations": mark } })).await;
                if done {
                    self.harness.book().owed.push((uid, Owed::Labels));
                }
                return done;
            }
            Deed::AddsCondition => {
                let done = self.add_condition().await;
                if done {
                    self.harness.book().owed.push((uid, Owed::Condition));
                }
                return done;
            }
            Deed::AddsFinalizer => return self.add_finalizer().await,
            Deed::EditsSpec => self.edit(made).await,
            Deed::Orphans => {
                !object::owners(&self.target.value).is_empty()
                    && self.merge(json!({ "metadata": { "ownerReferences": null } })).await
            }
            Deed::Deletes => self.delete(json!({})).await,
            Deed::DeletesForeground => self.delete(json!({ "propagationPolicy": "Foreground" })).await,
            Deed::Remakes => self.remake(made).await,
            Deed::TakesTheName => false,
        };
        if done && !made {
            self.harness.book().touched_foreign = true;
        }
        done
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Option<Value> {
        send(self.harness, method, path, kind, body).await
    }

    async fn merge(&self, patch: Value) -> bool {
        self.send(Method::PATCH, &self.target.path, "application/merge-patch+json", &patch).await.is_some()
    }

    async fn delete(&self, options: Value) -> bool {
        self.send(Method::DELETE, &self.target.path, "application/json", &options).await.is_some()
    }

    async fn add_condition(&self) -> bool {
        let Some(conditions) = self.target.value["status"]["conditions"].as_array() else { return false };
        let time = crate::clock::seconds_text(self.harness.server.clock().now());
        let mut conditions = conditions.clone();
        conditions.push(json!({ "type": CONDITION, "status": "True", "reason": "Trial", "message": "",
            "lastTransitionTime": time }));
        let path = format!("{}/status", self.target.path);
        let patch = json!({ "status": { "conditions": conditions } });
        self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await.is_some()
    }

    async fn add_finalizer(&self) -> bool {
        if object::is_deleting(&self.target.value) {
            return false;
        }
        let mut finalizers: Vec<String> =
            object::finalizers(&self.target.value).into_iter().map(str::to_owned).collect();
        finalizers.push(MARK.to_owned());
        let done = self.merge(json!({ "metadata": { "finalizers": finalizers } })).await;
        if done {
            let (harness, path) = (self.harness.clone(), self.target.path.clone());
            let in_flight = harness.clone().fly();
            tokio::spawn(async move {
                sleep(AWAY).await;
                take_off(&harness, &path).await;
                drop(in_flight);
            });
        }
        done
    }

    /// Changes a field: of what the operator made, one that the operator wrote.
    async fn edit(&self, made: bool) -> bool {
        let key = object::key(object::namespace(&self.target.value), object::name(&self.target.value));
        let plural = self.target.resource.split('.').next().unwrap_or_default();
        let written = self.harness.book().bodies.get(&format!("{plural} {key}")).cloned();
        let from = if made { written.unwrap_or_default() } else { self.target.value.clone() };
        for field in ["spec", "data"] {
            for number in [true, false] {
                if let Some(patch) = edited(&from[field], number)
                    && self.merge(json!({ field: patch })).await
                {
                    return true;
                }
            }
        }
        false
    }

    async fn remake(&self, made: bool) -> bool {
        if object::is_deleting(&self.target.value) {
            return false;
        }
        if !object::finalizers(&self.target.value).is_empty() {
            self.merge(json!({ "metadata": { "finalizers": null } })).await;
        }
        if !self.delete(json!({ "gracePeriodSeconds": 0 })).await {
            return false;
        }
        let mut like = self.target.value.clone();
        crate::kit::reset(&mut like);
        if made {
            // Their finalizers are the operator's to add; its own children it may find as they were.
            object::remove(&mut like, "finalizers");
        }
        let collection = self.target.path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let Some(again) = self.send(Method::POST, collection, "application/json", &like).await else {
            return false;
        };
        if made {
            self.harness.count_as_made(object::uid(&again));
        }
        true
    }
}

async fn take_off(harness: &Harness, path: &str) {
    for _ in 0..5 {
        let Some(found) = send(harness, Method::GET, path, "application/json", &Value::Null).await else {
            return;
        };
        let left: Vec<&str> = object::finalizers(&found).into_iter().filter(|one| *one != MARK).collect();
        let version = object::text(&found, "resourceVersion");
        let patch = json!({ "metadata": { "finalizers": left, "resourceVersion": version } });
        if send(harness, Method::PATCH, path, "application/merge-patch+json", &patch).await.is_some() {
            return;
        }
    }
}

async fn take_the_name(harness: &Harness, hand: &Hand) -> bool {
    let Some(name) = &hand.name else { return false };
    let mut other = hand.body.clone();
    let metadata = json!({ "name": name, "namespace": hand.info.namespace, "labels": { MARK: "was-here" } });
    object::map_mut(&mut other).insert("metadata".into(), metadata);
    if let Some(data) = other.get_mut("data").and_then(Value::as_object_mut) {
        data.clear();
        data.insert("stranger".into(), "was-here".into());
    }
    let collection = match hand.info.name {
        Some(_) => hand.info.path.rsplit_once('/').map_or("", |(collection, _)| collection),
        None => hand.info.path.as_str(),
    };
    let Some(made) = send(harness, Method::POST, collection, "application/json", &other).await else {
        return false;
    };
    let (harness, path, uid) =
        (harness.clone(), format!("{collection}/{name}"), object::uid(&made).to_owned());
    let in_flight = harness.clone().fly();
    tokio::spawn(async move {
        sleep(AWAY).await;
        let options = json!({ "preconditions": { "uid": uid } });
        send(&harness, Method::DELETE, &path, "application/json", &options).await;
        drop(in_flight);
    });
    true
}

async fn send(harness: &Harness, method: Method, path: &str, kind: &str, body: &Value) -> Option<Value> {
    let reads = method == Method::GET;
    let verb = method.as_str().to_lowercase();
    let bytes = if reads { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        Request::builder().method(method).uri(path).header("content-type", kind).body(bytes).ok()?;
    let answer = harness.stranger.request::<Value>(request).await;
    if !reads {
        harness.tell(Who::Stranger, || match &answer {
            Ok(_) => {
                format!("{verb} {path} {}", if body.is_null() { String::new() } else { body.to_string() })
            }
            Err(error) => format!("{verb} {path} is refused: {error}"),
        });
    }
    if answer.is_ok() && !reads {
        harness.disturb(|| format!("a stranger's {verb} of {path}"));
    }
    answer.ok()
}

/// Finds a leaf to change, and writes the merge patch that changes it.
fn edited(value: &Value, number: bool) -> Option<Value> {
    match value {
        Value::Number(it) if number => it.as_i64().map(|it| json!(it + 1)),
        Value::String(it) if !number => Some(json!(format!("{it}x"))),
        Value::Object(fields) => {
            fields.iter().find_map(|(name, inner)| edited(inner, number).map(|inner| json!({ name: inner })))
        }
        _ => None,
    }
}
