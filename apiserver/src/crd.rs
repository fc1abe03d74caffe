//! Custom resource definitions: checked, accepted, served, and taken away again.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::apply::{UpdateInput, track_update};
use crate::gc::release;
use crate::kinds::definition::{mark_approval, mark_deleting, set_condition};
use crate::kinds::{Conversion, Origin, Reach, Resource, ScalePaths, Served, VersionView, version_rank};
use crate::object;
use crate::schema::Schema;
use crate::state::State;
use crate::store::{ResourceId, Stored};
use crate::table::Columns;
use crate::write::{CRD_CLEANUP, DeleteOptions, remove_or_mark};

fn id() -> ResourceId {
    ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions")
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    object::at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Reads the resource a CRD defines; `None` if a schema can't be read.
fn resource(state: &mut State, crd: &Value) -> Option<Resource> {
    let (group, names) = (text(crd, "spec.group"), &crd["spec"]["names"]);
    let id = ResourceId::new(group, text(crd, "spec.names.plural"));
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut versions = Vec::new();
    for version in crd["spec"]["versions"].as_array()? {
        versions.push((version["storage"] == true, Arc::new(served(state, crd, version)?)));
    }
    versions.sort_by_key(|(_, served)| version_rank(&served.version));
    let stored_as = versions.iter().position(|(storage, _)| *storage)?;
    Some(Resource {
        storage: id.clone(),
        id,
        kind: text(crd, "spec.names.kind").to_owned(),
        list_kind: text(crd, "spec.names.listKind").to_owned(),
        singular: text(crd, "spec.names.singular").to_owned(),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        reach: if text(crd, "spec.scope") == "Cluster" { Reach::Cluster } else { Reach::Namespaced },
        versions: versions.into_iter().map(|(_, served)| served).collect(),
        stored_as,
        origin: Origin::Custom { generation: object::meta(crd, "generation").and_then(Value::as_i64) },
    })
}

fn served(state: &mut State, crd: &Value, version: &Value) -> Option<Served> {
    let (group, kind) = (text(crd, "spec.group"), text(crd, "spec.names.kind"));
    let name = version["name"].as_str()?;
    let schema = version["schema"].get("openAPIV3Schema")?;
    let undotted = |value: &Value| value.as_str().unwrap_or_default().trim_start_matches('.').to_owned();
    let subresources = version["subresources"].as_object();
    let scale = subresources.and_then(|s| s.get("scale")).map(|scale| ScalePaths {
        spec: undotted(&scale["specReplicasPath"]),
        status: undotted(&scale["statusReplicasPath"]),
        selector: undotted(&scale["labelSelectorPath"]),
    });
    let selectable = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|f| undotted(&f["jsonPath"]))
        .collect();
    let newest = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["deprecated"] != true && v["served"] == true);
    let newest = newest.filter_map(|v| v["name"].as_str()).min_by_key(|name| version_rank(name));
    let deprecation = (version["deprecated"] == true).then(|| {
        let own = version["deprecationWarning"].as_str().map(str::to_owned);
        own.unwrap_or_else(|| {
            let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
            format!("{group}/{name} {kind} is deprecated{instead}")
        })
    });
    Some(Served {
        id: state.registry.number(),
        group: group.to_owned(),
        version: name.to_owned(),
        kind: kind.to_owned(),
        served: version["served"] == true,
        schema: Schema::from_crd(schema).ok()?,
        subresources: subresources.map(|s| s.keys().cloned().collect()).unwrap_or_default(),
        scale,
        columns: Columns::custom(version.get("additionalPrinterColumns")),
        selectable,
        deprecation,
        view: VersionView::Schema,
        conversion: conversion(crd),
    })
}

fn conversion(crd: &Value) -> Option<Arc<Conversion>> {
    let webhook = object::at(crd, "spec.conversion.webhook")
        .filter(|_| text(crd, "spec.conversion.strategy") == "Webhook")?;
    let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
    let review_versions = versions.filter_map(Value::as_str).map(str::to_owned).collect();
    Some(Arc::new(Conversion { client: webhook["clientConfig"].clone(), review_versions }))
}

fn established(crd: &Value) -> bool {
    condition(crd, "Established") == Some("True")
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a str> {
    let list = object::at(crd, "status.conditions")?.as_array()?;
    list.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

/// Registers again what a changed CRD defines, and schedules a new one.
pub(crate) fn changed(state: &mut State, name: &str) {
    let Some(stored) = state.store.get(&id(), name).cloned() else { return };
    if established(stored.pinned()) {
        if let Some(resource) = resource(state, stored.pinned()) {
            // A watch reads by the definition that it began with.
            let before = state.registry.find(resource.group(), resource.plural());
            if before.is_some_and(|before| before.generation() != resource.generation()) {
                state.store.end_followers(&resource.id);
            }
            state.registry.insert(resource);
        }
        accept_versions(state, &stored);
    } else if !state.establishing.iter().any(|(_, n)| n == name) && is_waiting(stored.pinned()) {
        if condition(stored.pinned(), "NamesAccepted").is_none() {
            accept_names(state, &stored);
        }
        let due = Instant::now() + state.establish_delay;
        state.establishing.push((due, name.to_owned()));
    }
    state.unsettled = true;
}

/// Replaces all custom resources by those that the stored CRDs define.
pub(crate) fn register_all(state: &mut State) {
    state.registry.remove_custom();
    state.establishing.clear();
    let names: Vec<Arc<str>> = state.store.scan(&id(), "").map(|stored| stored.key.clone()).collect();
    for name in names {
        changed(state, &name);
    }
    state.unsettled = true;
}

/// Adds a new storage version to those that objects may be stored in.
fn accept_versions(state: &mut State, stored: &Stored) {
    let versions = stored.pinned()["spec"]["versions"].as_array().into_iter().flatten();
    let Some(storage) = versions.clone().find(|v| v["storage"] == true).map(|v| v["name"].clone()) else {
        return;
    };
    let known = stored.pinned()["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    if known.contains(&storage) {
        return;
    }
    let mut value = stored.pinned().clone();
    let list = object::child_mut(object::map_mut(&mut value), "status")
        .entry("storedVersions")
        .or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(storage);
    }
    state.store.put(&id(), &stored.key, value);
}

/// The waiting CRDs that are established now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Those whose time has come.
    Now,
    /// All.
    All,
}

/// Establishes the CRDs that are due, and takes away those that are deleted.
///
/// Returns the number of objects touched.
pub(crate) fn step(state: &mut State, which: Due) -> usize {
    let now = Instant::now();
    let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut state.establishing)
        .into_iter()
        .partition(|(at, _)| which == Due::All || *at <= now);
    state.establishing = later;
    let mut touched = 0;
    for (_, name) in due {
        touched += establish(state, &name);
    }
    let deleted: Vec<Arc<Stored>> =
        state.store.scan(&id(), "").filter(|stored| object::is_deleting(stored.pinned())).cloned().collect();
    for stored in deleted {
        touched += clean_up(state, &stored);
    }
    forget_undefined(state);
    touched
}

/// Returns whether a CRD is still to be established: its names are new, or were accepted a moment ago.
fn is_waiting(crd: &Value) -> bool {
    condition(crd, "NamesAccepted").is_none_or(|status| status == "True")
}

/// Accepts a new CRD's names at once, so that clients that wait for it find conditions.
fn accept_names(state: &mut State, stored: &Arc<Stored>) {
    let mut value = stored.pinned().clone();
    let now = state.clock.seconds();
    let (accepted, clash) = clash(state, &value);
    if clash.is_some() {
        return;
    }
    object::child_mut(object::map_mut(&mut value), "status").insert("acceptedNames".into(), accepted);
    set_condition(&mut value, &now, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let why = "the initial names have been accepted";
    set_condition(&mut value, &now, "Established", "False", "Installing", why);
    put_status(state, stored, value);
}

fn establish(state: &mut State, name: &str) -> usize {
    let Some(stored) = state.store.get(&id(), name).cloned() else { return 0 };
    let mut value = stored.pinned().clone();
    let now = state.clock.seconds();
    let (accepted, clash) = clash(state, &value);
    object::child_mut(object::map_mut(&mut value), "status").insert("acceptedNames".into(), accepted);
    if let Some((reason, word)) = clash {
        let message = format!("{word:?} is already in use");
        set_condition(&mut value, &now, "NamesAccepted", "False", reason, &message);
        let why = "not all names are accepted";
        set_condition(&mut value, &now, "Established", "False", "NotAccepted", why);
        put_status(state, &stored, value);
        return 1;
    }
    set_condition(&mut value, &now, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let why = "the initial names have been accepted";
    set_condition(&mut value, &now, "Established", "True", "InitialNamesAccepted", why);
    mark_approval(&mut value, &now);
    if let Some(resource) = resource(state, &value) {
        state.registry.insert(resource);
    }
    put_status(state, &stored, value);
    1
}

/// Writes a CRD's status, as the server's own.
fn put_status(state: &mut State, stored: &Stored, mut value: Value) {
    let now = state.clock.seconds();
    let served = state.registry.find(&id().group, &id().plural).map(|crds| crds.storage_version().clone());
    if let Some(served) = served {
        track_update(UpdateInput {
            live: Some(stored.pinned()),
            new: &mut value,
            manager: "kube-apiserver",
            subresource: Some("status"),
            api_version: &served.api_version(),
            schema: &served.schema,
            ignored: &[],
            now: &now,
        });
    }
    state.store.put(&id(), &stored.key, value);
}

/// Sorts a CRD's names into those accepted and the last that another resource of its group has.
fn clash(state: &State, crd: &Value) -> (Value, Option<(&'static str, String)>) {
    const WORDS: [(&str, &str); 4] = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ];
    let names = &crd["spec"]["names"];
    let group = text(crd, "spec.group");
    let own = names["plural"].as_str().unwrap_or_default();
    let (mut words, mut kinds) = (Vec::new(), Vec::new());
    for other in state.registry.all().filter(|other| other.group() == group && other.plural() != own) {
        words.extend([other.plural().to_owned(), other.singular.clone()]);
        words.extend(other.short_names.iter().cloned());
        kinds.extend([other.kind.clone(), other.list_kind.clone()]);
    }
    let mut accepted = names.clone();
    let mut clash = None;
    for (field, reason) in WORDS {
        let word = names[field].as_str().unwrap_or_default();
        let taken = if field.ends_with("ind") { &kinds } else { &words };
        if !word.is_empty() && taken.iter().any(|t| t == word) {
            clash = Some((reason, word.to_owned()));
            object::map_mut(&mut accepted).remove(field);
        }
    }
    let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(short) = short.into_iter().find(|short| words.iter().any(|t| t == short)) {
        clash = clash.or_else(|| Some(("ShortNamesConflict", short.to_owned())));
        object::map_mut(&mut accepted).remove("shortNames");
    }
    for field in ["plural", "kind"] {
        object::map_mut(&mut accepted).entry(field).or_insert_with(|| "".into());
    }
    (accepted, clash)
}

fn clean_up(state: &mut State, stored: &Arc<Stored>) -> usize {
    let crd =
        ResourceId::new(text(stored.pinned(), "spec.group"), text(stored.pinned(), "spec.names.plural"));
    let mut touched = 0;
    let list = object::at(stored.pinned(), "status.conditions").and_then(Value::as_array);
    if !list.is_some_and(|list| list.iter().any(|c| c["reason"] == "InstanceDeletionInProgress")) {
        let mut value = stored.pinned().clone();
        mark_deleting(&mut value, &state.clock.seconds());
        put_status(state, stored, value);
        touched += 1;
    }
    if let Some(resource) = state.registry.find(&crd.group, &crd.plural).cloned() {
        let objects: Vec<Arc<Stored>> = state.store.scan(&crd, "").cloned().collect();
        for object in objects.iter().filter(|object| !object::is_deleting(&object.value())) {
            remove_or_mark(state, &resource, object, &DeleteOptions::default());
            touched += 1;
        }
    }
    if state.store.count(&crd) > 0 {
        return touched;
    }
    touched + release(state, &(id(), stored.key.clone()), CRD_CLEANUP)
}

/// Removes every kind whose CRD no longer exists.
fn forget_undefined(state: &mut State) {
    let is_gone = |resource: &&Arc<Resource>| {
        let name = format!("{}.{}", resource.plural(), resource.group());
        resource.is_custom() && state.store.get(&id(), &name).is_none()
    };
    let gone: Vec<ResourceId> =
        state.registry.all().filter(is_gone).map(|resource| resource.id.clone()).collect();
    for crd in gone {
        state.registry.remove(&crd);
        state.store.end_followers(&crd);
    }
}

/// Returns whether a custom resource's definition is going away.
pub(crate) fn is_terminating(state: &State, resource: &Resource) -> bool {
    let name = format!("{}.{}", resource.plural(), resource.group());
    state.store.get(&id(), &name).is_some_and(|crd| object::is_deleting(crd.pinned()))
}

/// Returns the time of the next CRD.
pub(crate) fn next_due(state: &State) -> Option<Instant> {
    state.establishing.iter().map(|(due, _)| *due).min()
}
