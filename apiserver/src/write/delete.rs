//! Delete: mark, hold or remove, one object or a selection.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;

use super::{Author, Keep, Shown, Target, Written, admit};
use crate::conversion::carry;
use crate::kinds::prepare::{Hold, holds_itself};
use crate::kinds::{Resource, definition};
use crate::object;
use crate::read::{ListOptions, Page, Reached, list};
use crate::route::Query;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::{Scope, Stored};

/// The kinds whose last state is the answer to a deletion, as their registries in kube-apiserver say; that of others is a Status.
const RETURNED: [&str; 18] = [
    "CSIDriver",
    "CSINode",
    "CustomResourceDefinition",
    "DeviceClass",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// The kinds whose dependents stay if a user does not say what becomes of them, as kube-apiserver does for old clients.
const ORPHANED: [&str; 2] = ["Job", "ReplicationController"];

/// The finalizer that orphans dependents.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer that waits for dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that removes a CRD's objects.
pub(crate) const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What to do with dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They lose their owner and stay.
    Orphan,
    /// They follow.
    Background,
    /// They go first.
    Foreground,
}

/// The options of a deletion.
#[derive(Clone, Debug)]
pub(crate) struct DeleteOptions {
    /// The uid the object must have.
    pub(crate) uid: Option<String>,
    /// The version the object must have.
    pub(crate) version: Option<String>,
    /// What to do with dependents; unset keeps the present setting.
    pub(crate) policy: Option<Propagation>,
    /// The seconds a pod is given.
    pub(crate) grace: Option<i64>,
    /// Whether the deletion is kept.
    pub(crate) keep: Keep,
    /// The user; the server itself if absent.
    pub(crate) author: Option<Author>,
}

impl Default for DeleteOptions {
    fn default() -> Self {
        Self { uid: None, version: None, policy: None, grace: None, keep: Keep::Yes, author: None }
    }
}

impl DeleteOptions {
    /// Reads the options from the query and the body.
    ///
    /// # Errors
    /// 400 for a body that is not JSON, 422 for unknown values.
    pub(crate) fn read(query: &Query, body: &[u8]) -> Result<Self, Status> {
        let given: Value = if body.iter().all(u8::is_ascii_whitespace) {
            Value::Null
        } else {
            let parsed = serde_json::from_slice(body).or_else(|error| match crate::limits::read_yaml(body) {
                Ok(value @ Value::Object(_)) => Ok(value),
                _ => Err(error),
            });
            parsed.map_err(|e| {
                let why = crate::json_error::go_error(&e, body);
                Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
            })?
        };
        let text = |key: &str| given[key].as_str().or_else(|| query.get(key)).filter(|text| !text.is_empty());
        let mut causes = Vec::new();
        let policy = match text("propagationPolicy") {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let known = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                let message = format!("Unsupported value: {other:?}: supported values: {known}");
                causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
                None
            }
        };
        let orphans = given["orphanDependents"]
            .as_bool()
            .or_else(|| query.get("orphanDependents").map(|v| v == "true"));
        if let (Some(_), Some(policy)) = (orphans, text("propagationPolicy")) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &format!("{policy:?}"), why));
        }
        let listed = given["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry: Vec<&str> = query.all("dryRun").chain(listed).collect();
        causes.extend(dry.iter().filter_map(|value| super::dry_run_fault(value)));
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &causes));
        }
        let precondition = |key: &str| given["preconditions"][key].as_str().map(str::to_owned);
        Ok(Self {
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
            policy: policy
                .or(orphans
                    .map(|orphans| if orphans { Propagation::Orphan } else { Propagation::Background })),
            grace: given["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| query.get("gracePeriodSeconds")?.parse().ok()),
            keep: if dry.is_empty() { Keep::Yes } else { Keep::DryRun },
            author: None,
        })
    }

    /// Sets the user who deletes.
    pub(crate) fn by(self, author: Author) -> Self {
        Self { author: Some(author), ..self }
    }

    fn check(&self, resource: &Resource, name: &str, object: &Value) -> Result<(), Status> {
        let refused = |why: String| Status::conflict(resource.group(), &resource.kind, name, &why);
        if let Some(uid) = &self.uid
            && uid != object::uid(object)
        {
            let there = object::uid(object);
            return Err(refused(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({there}). The object might have \
                 been deleted and then recreated"
            )));
        }
        if let Some(version) = &self.version
            && version != object::text(object, "resourceVersion")
        {
            let there = object::text(object, "resourceVersion");
            return Err(refused(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({there}). The object might have been modified"
            )));
        }
        Ok(())
    }
}

/// How far a deletion got.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The object is deleted; its last state.
    Gone(Arc<Stored>),
    /// The object waits for its finalizers, its controller or its grace period.
    Waits(Arc<Stored>),
}

/// Deletes one object.
///
/// # Errors
/// 404, a failed precondition, or a namespace that may not go.
pub(crate) fn delete(state: &mut State, target: &Target, options: &DeleteOptions) -> Result<Written, Status> {
    let resource = &target.resource;
    let live =
        state.store.get(&resource.storage, &target.key()).cloned().ok_or_else(|| target.not_found())?;
    let kind = resource.built_in().map_or("", |row| row.kind);
    if kind == "Namespace" && matches!(target.name.as_str(), "default" | "kube-system" | "kube-public") {
        return Err(Status::forbidden("", "namespaces", &target.name, "this namespace may not be deleted"));
    }
    options.check(resource, &target.name, &live.value())?;
    admit::check_deletion(state, target, options.author.as_ref(), options.keep, &live)?;
    let uid = object::uid(&live.value()).to_owned();
    let returns_object = RETURNED.contains(&kind);
    if options.keep == Keep::DryRun {
        let marked = plan(state, resource, &live.value(), options);
        return Ok(match marked {
            Plan::Remove(_) if !returns_object => Written::deleted(target, &uid),
            Plan::Remove(object) | Plan::Mark(object) => Written::ok(Shown::Unstored(object)),
            Plan::Nothing => Written::ok(Shown::Stored(live)),
        });
    }
    Ok(match remove_or_mark(state, resource, &live, options) {
        Progress::Gone(last) if returns_object => Written::ok(Shown::Stored(last)),
        Progress::Gone(_) => Written::deleted(target, &uid),
        Progress::Waits(stored) => {
            carry(&target.served, &live, &stored);
            Written::ok(Shown::Stored(stored))
        }
    })
}

/// The effect of a deletion on its object.
enum Plan {
    Remove(Value),
    Mark(Value),
    Nothing,
}

fn plan(state: &State, resource: &Resource, live: &Value, options: &DeleteOptions) -> Plan {
    let kind = resource.built_in().map_or("", |row| row.kind);
    let mut new = live.clone();
    let mut finalizers: Vec<String> = object::finalizers(live).into_iter().map(str::to_owned).collect();
    match options.policy {
        Some(Propagation::Orphan) => set_only(&mut finalizers, FOREGROUND, Some(ORPHAN)),
        Some(Propagation::Foreground) => set_only(&mut finalizers, ORPHAN, Some(FOREGROUND)),
        Some(Propagation::Background) => {
            set_only(&mut finalizers, FOREGROUND, None);
            set_only(&mut finalizers, ORPHAN, None);
        }
        None if options.author.is_some()
            && ORPHANED.contains(&kind)
            && !finalizers.iter().any(|finalizer| finalizer == FOREGROUND) =>
        {
            set_only(&mut finalizers, FOREGROUND, Some(ORPHAN));
        }
        None => {}
    }
    let first = !object::is_deleting(live);
    if kind == "CustomResourceDefinition" && first && !finalizers.iter().any(|f| f == CRD_CLEANUP) {
        finalizers.push(CRD_CLEANUP.to_owned());
    }
    object::set_finalizers(&mut new, &finalizers);
    let grace = if kind == "Pod" { pod_grace(live, options.grace) } else { 0 };
    let marked_grace = object::meta(live, "deletionGracePeriodSeconds").and_then(Value::as_i64);
    if first {
        let due =
            state.clock.now().checked_add(SignedDuration::from_secs(grace)).unwrap_or(state.clock.now());
        object::set(&mut new, "deletionTimestamp", crate::clock::seconds_text(due));
        if !matches!(kind, "CustomResourceDefinition" | "Namespace") {
            object::set(&mut new, "deletionGracePeriodSeconds", grace);
        }
        let generation = object::meta(live, "generation").and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|_| kind != "CustomResourceDefinition") {
            object::set(&mut new, "generation", generation + 1);
        }
        if kind == "Namespace" {
            object::child_mut(object::map_mut(&mut new), "status")
                .insert("phase".into(), "Terminating".into());
        }
        if kind == "CustomResourceDefinition" {
            definition::mark_terminating(&mut new, &state.clock.seconds());
        }
    } else if kind == "Pod" && marked_grace.is_some_and(|marked| grace < marked) {
        let due =
            state.clock.now().checked_add(SignedDuration::from_secs(grace)).unwrap_or(state.clock.now());
        object::set(&mut new, "deletionTimestamp", crate::clock::seconds_text(due));
        object::set(&mut new, "deletionGracePeriodSeconds", grace);
    }
    let grace_over = kind != "Pod" || grace == 0 || marked_grace == Some(0);
    let free = finalizers.is_empty() && holds_itself(resource, &new) != Hold::Held && grace_over;
    if free {
        Plan::Remove(new)
    } else if new == *live {
        Plan::Nothing
    } else {
        Plan::Mark(new)
    }
}

/// Deletes an object as far as its finalizers let it go.
pub(crate) fn remove_or_mark(
    state: &mut State,
    resource: &Resource,
    live: &Arc<Stored>,
    options: &DeleteOptions,
) -> Progress {
    let key = live.key.clone();
    match plan(state, resource, &live.value(), options) {
        Plan::Nothing => Progress::Waits(live.clone()),
        Plan::Mark(new) => {
            state.unsettled = true;
            Progress::Waits(state.store.put(&resource.storage, &key, new))
        }
        Plan::Remove(new) => {
            state.unsettled = true;
            let is_pod = resource.built_in().is_some_and(|row| row.kind == "Pod");
            let last = state.store.delete(&resource.storage, &key);
            let last = last.unwrap_or_else(|| live.clone());
            if !is_pod {
                return Progress::Gone(last);
            }
            let value = crate::encode::at_version(&new, last.version);
            Progress::Gone(state.store.unlisted(&resource.storage, key, last.version, value))
        }
    }
}

fn set_only(finalizers: &mut Vec<String>, without: &str, with: Option<&str>) {
    finalizers.retain(|f| f != without);
    if let Some(with) = with
        && !finalizers.iter().any(|f| f == with)
    {
        finalizers.push(with.to_owned());
    }
}

fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let scheduled = !object::at(pod, "spec.nodeName").and_then(Value::as_str).unwrap_or_default().is_empty();
    let over =
        matches!(object::at(pod, "status.phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if !scheduled || over {
        return 0;
    }
    let own = object::at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    asked.or(own).unwrap_or(30).max(0)
}

/// Deletes every object a selection holds; gives the list as it was before.
///
/// # Errors
/// The errors of the selection's options, or the first failed precondition.
pub(crate) fn delete_collection(
    state: &mut State,
    target: &Target,
    selection: &ListOptions,
    options: &DeleteOptions,
) -> Result<Page, Status> {
    let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
    let scope = Scope { namespace, name: None };
    let page = match list(state, &target.resource, &target.served, scope, selection, None)? {
        Reached::Now(page) => page,
        Reached::At(version) => return Err(Status::version_too_large(version, state.store.version())),
    };
    // All webhooks are called first, because a deletion that waits for an answer starts over.
    for stored in &page.items {
        let value = stored.value();
        let (namespace, name) = (object::namespace(&value), object::name(&value));
        let one = Target { namespace: namespace.to_owned(), name: name.to_owned(), ..target.clone() };
        admit::check_deletion(state, &one, options.author.as_ref(), options.keep, stored)?;
    }
    for stored in &page.items {
        let value = stored.value();
        options.check(&target.resource, object::name(&value), &value)?;
        if options.keep == Keep::Yes {
            remove_or_mark(state, &target.resource, stored, options);
        }
    }
    Ok(page)
}
