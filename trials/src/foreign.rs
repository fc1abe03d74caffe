//! Changes by somebody else: requests that pass by all troubles.

use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::sleep;
use watchkeeper_apiserver::inside::{self, RequestInfo, Schema, StoredObject, object};

use crate::diff::{self, changed_fields};
use crate::edits::{self, Additions, Numbers};
use crate::harness::{ForeignAddition, Harness, in_short};
use crate::timeline::Actor;
use crate::trouble::{AWAY, ForeignChange, Targets, Whose};
use crate::world::{CONDITION, MARK, everything};

/// What a request is about.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) info: RequestInfo,
    /// `None` where the server is to choose it.
    pub(crate) name: Option<String>,
    pub(crate) body: Value,
}

impl Subject {
    fn resource(&self) -> String {
        match self.info.group.as_str() {
            "" => self.info.resource.clone(),
            group => format!("{}.{group}", self.info.resource),
        }
    }

    fn find<'a>(&self, all: &'a [StoredObject]) -> Option<&'a StoredObject> {
        let (name, resource) = (self.name.as_deref()?, self.resource());
        let namespace = self.info.namespace.as_deref().unwrap_or_default();
        all.iter().find(|found| {
            found.resource == resource
                && object::name(&found.value) == name
                && object::namespace(&found.value) == namespace
        })
    }
}

/// Makes a change; false if there is no object to change.
pub(crate) async fn act(harness: &Harness, change: ForeignChange, whose: Whose, hand: &Subject) -> bool {
    let all = everything(&harness.server);
    let its = hand.find(&all);
    if change == ForeignChange::TakesTheName {
        return its.is_none() && take_the_name(harness, hand).await;
    }
    match target(&all, whose, hand) {
        Some(target) => ForeignEdits { harness, target }.act(change).await,
        None => false,
    }
}

/// Says which objects there are for somebody to touch.
pub(crate) fn targets(harness: &Harness, hand: &Subject) -> Targets {
    let all = everything(&harness.server);
    let is_there = |whose| target(&all, whose, hand).is_some();
    let is_copied = |whose| {
        target(&all, whose, hand).is_some_and(|found| harness.state().earlier.contains_key(found.uid()))
    };
    Targets {
        its: is_there(Whose::Its),
        owner: is_there(Whose::Owners),
        child: is_there(Whose::Childs),
        its_copy: is_copied(Whose::Its),
        owners_copy: is_copied(Whose::Owners),
    }
}

fn target<'a>(all: &'a [StoredObject], whose: Whose, hand: &Subject) -> Option<&'a StoredObject> {
    let its = hand.find(all);
    match whose {
        Whose::Its => its,
        Whose::Owners => {
            let of = its.map_or(&hand.body, |found| &found.value);
            let owners = object::owners(of);
            owners.first().and_then(|owner| all.iter().find(|found| found.uid() == owner.uid))
        }
        Whose::Childs => its.and_then(|its| {
            all.iter().find(|found| object::owners(&found.value).iter().any(|owner| owner.uid == its.uid()))
        }),
    }
}

struct ForeignEdits<'a> {
    harness: &'a Harness,
    target: &'a StoredObject,
}

impl ForeignEdits<'_> {
    async fn act(&self, change: ForeignChange) -> bool {
        let made = self.harness.made_by_operator(self.target.uid());
        let uid = self.target.uid().to_owned();
        let done = match change {
            ForeignChange::Labels => {
                let mark = json!({ MARK: "was-here" });
                let done = self.merge(json!({ "metadata": { "labels": mark, "annotations": mark } })).await;
                if done {
                    let both = [ForeignAddition::Label, ForeignAddition::Annotation];
                    self.harness.state().additions.extend(both.map(|one| (uid.clone(), one)));
                }
                return done;
            }
            ForeignChange::AddsCondition => {
                let done = self.add_condition().await;
                if done {
                    self.harness.state().additions.push((uid, ForeignAddition::Condition));
                }
                return done;
            }
            ForeignChange::AddsFinalizer => return self.add_finalizer().await,
            ForeignChange::EditsStatus => {
                let (done, its) = self.edit_status().await;
                if done && !its {
                    self.harness.state().touched_foreign = true;
                }
                return done;
            }
            ForeignChange::EditsSpec => self.edit(made).await,
            ForeignChange::EditsMuch => self.edit_much(made).await,
            ForeignChange::Replaces => return self.replace_by_a_copy().await,
            ForeignChange::Orphans => {
                let done = !object::owners(&self.target.value).is_empty()
                    && self.merge(json!({ "metadata": { "ownerReferences": null } })).await;
                // Some operators adopt the object again, others leave it: both are right.
                self.harness.state().touched_foreign |= done;
                return done;
            }
            ForeignChange::Deletes => self.delete(json!({})).await,
            ForeignChange::DeletesForeground => {
                self.delete(json!({ "propagationPolicy": "Foreground" })).await
            }
            ForeignChange::Remakes => self.remake(made).await,
            ForeignChange::TakesTheName => false,
        };
        if done && !made {
            self.harness.state().touched_foreign = true;
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

    /// Adds a condition, where the kind has any.
    async fn add_condition(&self) -> bool {
        let status = &self.target.value["status"];
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let time = inside::seconds_text(self.harness.server.clock().now());
        conditions.push(json!({ "type": CONDITION, "status": "True", "reason": "Trial", "message": "",
            "lastTransitionTime": time }));
        let path = format!("{}/status", self.target.path);
        let patch = json!({ "status": { "conditions": conditions } });
        self.would_only_add(&path, &patch).await
            && self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await.is_some()
    }

    /// Returns whether the condition would be kept, and nothing else come with it.
    async fn would_only_add(&self, path: &str, patch: &Value) -> bool {
        let Some(answer) = self.dry_run(path, patch).await else { return false };
        let fields = |object: &Value| -> Vec<String> {
            let fields = object["status"].as_object().into_iter().flatten();
            fields.map(|(name, _)| name.clone()).filter(|name| name != "conditions").collect()
        };
        has_condition(&answer) && fields(&answer) == fields(&self.target.value)
    }

    /// Returns what a patch would make of it; the story does not show it.
    async fn dry_run(&self, path: &str, patch: &Value) -> Option<Value> {
        let request = Request::patch(format!("{path}?dryRun=All"))
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes());
        self.harness.stranger.request::<Value>(request.ok()?).await.ok()
    }

    /// Changes a field of the status; the second says whether the operator had written it.
    async fn edit_status(&self) -> (bool, bool) {
        let key = format!("{}/status", self.body_key());
        let written = self.harness.state().bodies.get(&key).cloned().unwrap_or_default();
        let mut all = self.target.value["status"].clone();
        if let Some(fields) = all.as_object_mut() {
            fields.retain(|name, _| name != "conditions" && name != "observedGeneration");
        }
        let path = format!("{}/status", self.target.path);
        for (from, its) in [(&written["status"], true), (&all, false)] {
            for number in [true, false] {
                if let Some(patch) = edits::one(from, number)
                    && let patch = json!({ "status": patch })
                    && self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await.is_some()
                {
                    return (true, its);
                }
            }
        }
        (false, false)
    }

    /// The key by which what the operator last sent of the object is kept.
    fn body_key(&self) -> String {
        let key = object::key(object::namespace(&self.target.value), object::name(&self.target.value));
        let plural = self.target.resource.split('.').next().unwrap_or_default();
        format!("{plural} {key}")
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
            let in_flight = harness.clone().fly(AWAY);
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
        let from = self.changeable(made);
        for field in ["spec", "data"] {
            for number in [true, false] {
                if let Some(patch) = edits::one(&from[field], number)
                    && self.merge(json!({ field: patch })).await
                {
                    return true;
                }
            }
        }
        false
    }

    /// Changes all fields at once: of what the operator made, those that the operator wrote.
    async fn edit_much(&self, made: bool) -> bool {
        let from = self.changeable(made);
        let additions = if made { Additions::None } else { Additions::Too };
        let Some(schema) = self.schema() else { return false };
        for numbers in [Numbers::ToTheirLimits, Numbers::ByOne, Numbers::Stay] {
            for field in ["spec", "data"] {
                let node = schema.root().field(field);
                if let Some(patch) = node.and_then(|node| edits::many(&from[field], node, numbers, additions))
                    && let patch = json!({ field: patch })
                    && self.dry_run(&self.target.path, &patch).await.is_some()
                {
                    return self.merge(patch).await;
                }
            }
        }
        false
    }

    fn schema(&self) -> Option<Schema> {
        let (plural, group) = self.target.resource.split_once('.').unwrap_or((&self.target.resource, ""));
        inside::schema(&self.harness.server, group, plural)
    }

    /// Puts an earlier copy in its place, as somebody does who read it before, and never looked at versions.
    async fn replace_by_a_copy(&self) -> bool {
        let uid = self.target.uid();
        let Some(mut copy) = self.harness.state().earlier.get(uid).cloned() else { return false };
        if object::is_deleting(&self.target.value) {
            return false;
        }
        for kept in ["resourceVersion", "managedFields"] {
            object::remove(&mut copy, kept);
        }
        if let Some(finalizers) = copy["metadata"].get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != MARK);
        }
        let put = self.send(Method::PUT, &self.target.path, "application/json", &copy).await;
        let done = put.is_some_and(|after| !changed_fields(&self.target.value, &after).is_empty());
        if done {
            // What others had added is lost by this change, not by the operator.
            let mut state = self.harness.state();
            state.touched_foreign = true;
            state.additions.retain(|(additions, _)| additions != uid);
        }
        done
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
        inside::reset(&mut like);
        object::carry(&self.target.value, &mut like, "generateName");
        if made {
            // Their finalizers are the operator's to add; its own children it may find as they were.
            object::remove(&mut like, "finalizers");
        }
        let collection = self.target.path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let other = self.another_like(made, &like, collection).await;
        let Some(again) = self.send(Method::POST, collection, "application/json", &other).await else {
            return false;
        };
        if made {
            self.harness.count_as_made(object::uid(&again));
        }
        true
    }

    /// Changes a field of what is to be made again, if there is one that the server lets be changed. An operator
    /// that acts on the old object then does something the new one does not ask for.
    async fn another_like(&self, made: bool, like: &Value, collection: &str) -> Value {
        let from = self.changeable(made);
        for field in ["spec", "data"] {
            for number in [true, false] {
                let Some(patch) = edits::one(&from[field], number) else { continue };
                let mut other = like.clone();
                json_patch::merge(&mut other, &json!({ field: patch }));
                let request = Request::post(format!("{collection}?dryRun=All"))
                    .header("content-type", "application/json")
                    .body(other.to_string().into_bytes());
                if let Ok(request) = request
                    && self.harness.stranger.request::<Value>(request).await.is_ok()
                {
                    return other;
                }
            }
        }
        like.clone()
    }

    /// Returns what somebody else changes of it: of what the operator made, what the operator wrote.
    fn changeable(&self, made: bool) -> Value {
        let written = || self.harness.state().bodies.get(&self.body_key()).cloned().unwrap_or_default();
        if made { written() } else { self.target.value.clone() }
    }
}

async fn take_off(harness: &Harness, path: &str) {
    loop {
        let Some(found) = send(harness, Method::GET, path, "application/json", &Value::Null).await else {
            return;
        };
        let left: Vec<&str> = object::finalizers(&found).into_iter().filter(|one| *one != MARK).collect();
        let version = object::text(&found, "resourceVersion");
        let patch = json!({ "metadata": { "finalizers": left, "resourceVersion": version } });
        if send(harness, Method::PATCH, path, "application/merge-patch+json", &patch).await.is_some() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

async fn take_the_name(harness: &Harness, hand: &Subject) -> bool {
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
    let in_flight = harness.clone().fly(AWAY);
    tokio::spawn(async move {
        sleep(AWAY).await;
        let options = json!({ "preconditions": { "uid": uid } });
        send(&harness, Method::DELETE, &path, "application/json", &options).await;
        drop(in_flight);
    });
    true
}

fn has_condition(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == CONDITION)
}

/// Sends somebody else's request.
pub(crate) async fn send(
    harness: &Harness,
    method: Method,
    path: &str,
    kind: &str,
    body: &Value,
) -> Option<Value> {
    let reads = method == Method::GET;
    let bytes = if reads { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method.clone()).uri(path).header("content-type", kind);
    let request = request.body(bytes).ok()?;
    let info = RequestInfo::of(request.method(), request.uri());
    let server = &harness.server;
    let before = if reads { None } else { inside::peek(server, &info) };
    let version = server.resource_version();
    let answer = harness.stranger.request::<Value>(request).await;
    if !reads {
        harness.tell(Actor::Stranger, || told(&method, &info, before.as_ref(), answer.as_ref()));
    }
    if let (Ok(after), false) = (&answer, reads) {
        harness.written(&info.resource, before.as_ref(), after, version);
        harness.disturb(|| format!("somebody else's {} of {path}", method.as_str().to_lowercase()));
    }
    answer.ok()
}

/// Tells what somebody else did.
fn told(
    method: &Method,
    info: &RequestInfo,
    before: Option<&Value>,
    answer: Result<&Value, &kube::Error>,
) -> String {
    let verb = match *method {
        Method::POST => "creates",
        Method::DELETE => "deletes",
        _ => "edits",
    };
    let named = |value: &Value| object::key(object::namespace(value), object::name(value));
    let part = if info.subresource.is_empty() { String::new() } else { format!("/{}", info.subresource) };
    let what = format!("{}{part}", info.resource);
    let after = match answer {
        Ok(after) => after,
        Err(error) => {
            let name = before.map(named).or_else(|| info.name.clone()).unwrap_or_default();
            return format!("{verb} {what} {name}, and is refused: {}", in_short(error));
        }
    };
    let mut text = format!("{verb} {what} {}", named(before.unwrap_or(after)));
    if *method == Method::DELETE {
        return text;
    }
    text += &format!(", version {}", object::text(after, "resourceVersion"));
    for line in diff::lines(before, Some(after)) {
        text += &format!("\n{line}");
    }
    text
}
