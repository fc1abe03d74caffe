//! The objects of a server, made comparable: what servers choose is named alike.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, mem};

use serde_json::{Map, Value};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_apiserver::inside::{self, StoredObject, object};

use crate::times;

/// The key of the labels and annotations that somebody else adds.
pub(crate) const MARK: &str = "trials.watchkeeper.dev/stranger";
/// The type of someone else's condition.
pub(crate) const CONDITION: &str = "StrangerWasHere";

/// What is not compared: kept by the server itself, or by machinery that is not the operator's purpose.
const LEFT_OUT: [&str; 3] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];
/// The kind that defines kinds.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Kinds whose changes don't count as unrest: leaders renew their leases for ever.
pub(crate) const MACHINERY: [&str; 2] = ["leases", "events"];
/// Metadata that servers choose.
pub(crate) const CHOSEN: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "selfLink",
    "deletionGracePeriodSeconds",
];

/// Reads every object there is.
pub(crate) fn everything(server: &ApiServer) -> Vec<StoredObject> {
    inside::stored(server)
}

/// Returns the key and the version by which an object is known to have been seen.
pub(crate) fn seen_as(resource: &str, item: &Value) -> Option<(String, u64)> {
    let version = object::text(item, "resourceVersion").parse().ok()?;
    let key = object::key(object::namespace(item), object::name(item));
    Some((format!("{resource} {key}"), version))
}

/// A field that is random by nature: it is compared by whether it is there.
#[derive(Clone, Debug)]
pub(crate) struct RandomField {
    /// The plural, with the group behind a dot.
    pub(crate) resource: String,
    /// The steps to it; `*` is any key or item.
    pub(crate) path: Vec<String>,
}

impl RandomField {
    /// Reads a JSON pointer.
    pub(crate) fn of<K: watchkeeper_apiserver::kit::Kind>(pointer: &str) -> Self {
        let (plural, group) = (K::plural(&()), K::group(&()));
        let resource = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
        let step = |step: &str| step.replace("~1", "/").replace("~0", "~");
        Self { resource, path: pointer.split('/').skip(1).map(step).collect() }
    }
}

/// What is not compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden {
    /// Compared by whether it is there.
    pub(crate) random: Vec<RandomField>,
    /// Left out; where the path is empty, all objects of the kind.
    pub(crate) left_out: Vec<RandomField>,
    /// The definitions of kinds are left out: two versions of an operator have their own.
    pub(crate) definitions: bool,
    /// The namespaces that a test adds, which are left out as those of every cluster are.
    pub(crate) namespaces: BTreeSet<String>,
}

impl Hidden {
    /// Hides what a new version of an operator may leave behind when the old one comes back.
    pub(crate) fn for_a_rollback(&self, may_change: &[RandomField]) -> Self {
        let left_out = self.left_out.iter().chain(may_change).cloned().collect();
        Self { left_out, ..self.clone() }
    }

    /// Hides what a new version of an operator may change of what is there as it takes over.
    pub(crate) fn for_an_upgrade(&self, may_change: &[RandomField]) -> Self {
        let always = ["status", "metadata/finalizers", "metadata/ownerReferences/*/apiVersion", "apiVersion"];
        let path = |path: &str| path.split('/').map(str::to_owned).collect();
        let always = always.map(|field| RandomField { resource: String::new(), path: path(field) });
        let left_out = self.left_out.iter().chain(may_change).cloned().chain(always).collect();
        Self { left_out, ..self.clone() }
    }
}

impl RandomField {
    fn is_of(&self, resource: &str) -> bool {
        self.resource.is_empty() || self.resource == resource
    }
}

/// Takes out what is not compared at all.
fn leave_out(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match value {
        Value::Object(fields) if rest.is_empty() && step == "*" => fields.clear(),
        Value::Array(items) if rest.is_empty() && step == "*" => items.clear(),
        Value::Object(fields) if rest.is_empty() => drop(fields.remove(step)),
        Value::Object(fields) if step == "*" => fields.values_mut().for_each(|value| leave_out(value, rest)),
        Value::Array(items) if step == "*" => items.iter_mut().for_each(|value| leave_out(value, rest)),
        Value::Object(fields) => {
            if let Some(value) = fields.get_mut(step) {
                leave_out(value, rest);
            }
        }
        Value::Array(items) => match step.parse().ok().and_then(|at: usize| items.get_mut(at)) {
            // The others keep their positions.
            Some(item) if rest.is_empty() => *item = Value::Null,
            Some(item) => leave_out(item, rest),
            None => {}
        },
        _ => {}
    }
}

/// Puts one word in the place of what is random.
fn hide(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else {
        *value = "<random>".into();
        return;
    };
    match value {
        Value::Object(fields) if step == "*" => fields.values_mut().for_each(|value| hide(value, rest)),
        Value::Array(items) if step == "*" => items.iter_mut().for_each(|value| hide(value, rest)),
        Value::Object(fields) => {
            if let Some(value) = fields.get_mut(step) {
                hide(value, rest);
            }
        }
        Value::Array(items) => {
            let item = step.parse().ok().and_then(|at: usize| items.get_mut(at));
            if let Some(value) = item {
                hide(value, rest);
            }
        }
        _ => {}
    }
}

/// Everything that is compared, by name; generated names are one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    objects: BTreeMap<String, Vec<Value>>,
    /// The UIDs of the objects of each name.
    uids: Uids,
}

/// UIDs by name. What servers choose makes no two worlds differ.
#[derive(Clone, Debug, Default)]
struct Uids(BTreeMap<String, BTreeSet<String>>);

impl PartialEq for Uids {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl World {
    pub(crate) fn hiding(all: &[StoredObject], hidden: &Hidden) -> Self {
        let is_compared = |found: &&StoredObject| {
            let resource = found.resource.as_str();
            let whole = |field: &RandomField| field.path.is_empty() && field.is_of(resource);
            let name = object::name(&found.value);
            let is_preloaded = || inside::PRELOADED.contains(&name) || hidden.namespaces.contains(name);
            !(LEFT_OUT.contains(&resource)
                || resource == "namespaces" && is_preloaded()
                || hidden.definitions && resource == DEFINITIONS
                || hidden.left_out.iter().any(whole))
        };
        let compared: Vec<&StoredObject> = all.iter().filter(is_compared).collect();
        let names = Names::of(&compared);
        let mut world = Self::default();
        for found in compared {
            let name = names.settle(&found.name());
            let mut value = found.value.clone();
            let random = hidden.random.iter().filter(|field| field.is_of(&found.resource));
            random.for_each(|field| hide(&mut value, &field.path));
            let left_out = hidden.left_out.iter().filter(|field| field.is_of(&found.resource));
            left_out.for_each(|field| leave_out(&mut value, &field.path));
            world.uids.0.entry(name.clone()).or_default().insert(found.uid().to_owned());
            world.objects.entry(name).or_default().push(settle(&value, &names));
        }
        for alike in world.objects.values_mut() {
            alike.sort_by_key(ToString::to_string);
        }
        world
    }

    /// Lists what has been deleted and made again since an earlier view of the same server.
    pub(crate) fn made_again(&self, before: &Self) -> Vec<Difference> {
        let again = |(name, uids): (&String, &BTreeSet<String>)| {
            let before = before.uids.0.get(name)?;
            let made_again = before.len() == uids.len() && before != uids;
            made_again.then(|| Difference::MadeAgain { name: name.clone() })
        };
        self.uids.0.iter().filter_map(again).collect()
    }

    /// Lists how this differs from what was expected.
    pub(crate) fn differences(&self, expected: &Self) -> Vec<Difference> {
        let mut all = Vec::new();
        let names: BTreeSet<&String> = expected.objects.keys().chain(self.objects.keys()).collect();
        for name in names {
            let none = Vec::new();
            let wanted = expected.objects.get(name).unwrap_or(&none);
            let found = self.objects.get(name).unwrap_or(&none);
            if wanted.len() != found.len() {
                all.push(Difference::Count {
                    name: name.clone(),
                    expected: wanted.len(),
                    found: found.len(),
                });
                continue;
            }
            for (wanted, found) in wanted.iter().zip(found) {
                compare(name, "", Some(wanted), Some(found), &mut all);
            }
        }
        all
    }

    /// Names the objects that are being deleted.
    pub(crate) fn terminating(&self) -> Vec<String> {
        let terminating = |objects: &&Vec<Value>| objects.iter().any(object::is_deleting);
        self.objects
            .iter()
            .filter(|(_, objects)| terminating(objects))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// One way in which the end is not as expected.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// The end has more or fewer objects of a name; a generated name counts as one.
    Count {
        /// The resource and the name.
        name: String,
        /// How many the baseline run ends with.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Objects were deleted and made again.
    MadeAgain {
        /// The resource and the name.
        name: String,
    },
    /// A field is not as expected.
    Field {
        /// The resource and the name.
        name: String,
        /// The dotted path.
        path: String,
        /// What the baseline run ends with, as JSON; `None`: no such field.
        expected: Option<Value>,
        /// What is there.
        found: Option<Value>,
    },
}

impl Difference {
    /// The resource and the name of the object.
    #[must_use]
    pub fn object(&self) -> &str {
        match self {
            Self::Count { name, .. } | Self::MadeAgain { name } | Self::Field { name, .. } => name,
        }
    }
}

impl Difference {
    /// Returns whether the status has a field that is not expected, or a condition.
    pub(crate) fn is_more_in_status(&self) -> bool {
        let Self::Field { path, expected, found, .. } = self else { return false };
        match (expected, found) {
            (None, _) => path == "status" || path.starts_with("status."),
            (Some(Value::Array(expected)), Some(Value::Array(found))) if path == "status.conditions" => {
                let is_known = |one: &&Value| expected.iter().any(|known| known["type"] == one["type"]);
                found.iter().filter(is_known).eq(expected)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { name, expected: 0, found } => write!(f, "+ {name} ({found} too many)"),
            Self::Count { name, expected: 1, found: 0 } => write!(f, "- {name} (missing)"),
            Self::Count { name, expected, found } => write!(f, "! {name}: {found}, not {expected}"),
            Self::MadeAgain { name } => write!(f, "± {name} (deleted and made again)"),
            Self::Field { name, path, expected, found } => {
                writeln!(f, "  {name}")?;
                if let Some(expected) = expected {
                    write!(f, "    - {path}: {expected}")?;
                }
                if let Some(found) = found {
                    if expected.is_some() {
                        writeln!(f)?;
                    }
                    write!(f, "    + {path}: {found}")?;
                }
                Ok(())
            }
        }
    }
}

fn compare(
    name: &str,
    path: &str,
    expected: Option<&Value>,
    found: Option<&Value>,
    all: &mut Vec<Difference>,
) {
    if expected == found {
        return;
    }
    if let (Some(Value::Object(before)), Some(Value::Object(after))) = (expected, found) {
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            compare(name, &inner, before.get(key), after.get(key), all);
        }
        return;
    }
    let (expected, found) = (expected.cloned(), found.cloned());
    all.push(Difference::Field { name: name.to_owned(), path: path.to_owned(), expected, found });
}

/// What servers chose, and what stands for it.
#[derive(Debug, Default)]
struct Names {
    /// From longer to shorter, so that no name is replaced within another.
    replaced: Vec<(String, String)>,
}

impl Names {
    fn of(all: &[&StoredObject]) -> Self {
        let mut replaced = Vec::new();
        for found in all {
            let (name, prefix) = (object::name(&found.value), object::text(&found.value, "generateName"));
            if !prefix.is_empty() && name.starts_with(prefix) && name != prefix {
                replaced.push((name.to_owned(), format!("{prefix}*")));
                // What another system chose is kept in a status by itself.
                replaced.extend(name.rsplit_once('/').map(|(_, id)| (id.to_owned(), "*".to_owned())));
            }
        }
        for found in all {
            let name = found.name();
            let settled = replaced.iter().fold(name, |name, (from, to)| name.replace(from.as_str(), to));
            replaced.push((found.uid().to_owned(), format!("<uid of {settled}>")));
        }
        replaced.retain(|(from, _)| !from.is_empty());
        replaced.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        Self { replaced }
    }

    fn settle(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| match text.contains(from.as_str()) {
            true => text.replace(from.as_str(), to),
            false => text,
        })
    }
}

/// Makes an object comparable with its like of another run.
fn settle(value: &Value, names: &Names) -> Value {
    let generation = object::meta(value, "generation").cloned();
    let mut value = value.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !CHOSEN.contains(&field.as_str()));
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != MARK);
        }
    }
    take_mark(&mut value);
    object::tidy(&mut value);
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut)
        && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
    {
        let all = conditions.len();
        conditions.retain(|condition| condition["type"] != CONDITION);
        if conditions.is_empty() && all > 0 {
            status.remove("conditions");
        }
    }
    if value["status"].as_object().is_some_and(Map::is_empty) {
        object::map_mut(&mut value).remove("status");
    }
    walk(&mut value, names, generation.as_ref());
    // These have no order.
    for list in ["/metadata/finalizers", "/metadata/ownerReferences", "/status/conditions"] {
        if let Some(items) = value.pointer_mut(list).and_then(Value::as_array_mut) {
            items.sort_by_cached_key(|item| (item["type"].to_string(), item.to_string()));
        }
    }
    value
}

/// Takes off the stranger's mark: an operator may copy the labels of an object to what it makes of it.
fn take_mark(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(take_mark),
        Value::Object(fields) => {
            let is_only_mark = |value: &Value| {
                value.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key(MARK))
            };
            fields.retain(|name, value| name != MARK && !is_only_mark(value));
            fields.values_mut().for_each(take_mark);
        }
        _ => {}
    }
}

fn walk(value: &mut Value, names: &Names, generation: Option<&Value>) {
    match value {
        Value::String(text) if text.len() >= 3 => {
            *text = times::map(text, |_| "<a time>".to_owned());
            *text = names.settle(text);
            if is_uid(text) {
                *text = "<uid of what is gone>".to_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, names, generation)),
        Value::Object(fields) => walk_fields(fields, names, generation),
        _ => {}
    }
}

fn walk_fields(fields: &mut Map<String, Value>, names: &Names, generation: Option<&Value>) {
    for (name, value) in fields.iter_mut() {
        // Generations count writes; what matters is whether the latest was seen.
        if name == "observedGeneration" && value.is_number() {
            let current = Some(&*value) == generation;
            *value = if current { "<the latest>".into() } else { "<an earlier one>".into() };
        } else {
            walk(value, names, generation);
        }
    }
    if fields.keys().any(|name| names.settle(name) != *name) {
        let mut all: Vec<(String, Value)> =
            mem::take(fields).into_iter().map(|(name, value)| (names.settle(&name), value)).collect();
        all.sort_by_cached_key(|(name, value)| (name.clone(), value.to_string()));
        for (name, value) in all {
            // Several may be alike by now.
            let others = (2..).map(|number| format!("{name} {number}"));
            let free = std::iter::once(name.clone()).chain(others).find(|name| !fields.contains_key(name));
            fields.insert(free.unwrap_or_default(), value);
        }
    }
}

pub(crate) fn is_uid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match dashes.contains(&at) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(resource: &str, value: Value) -> StoredObject {
        StoredObject { resource: resource.into(), path: String::new(), value }
    }

    fn world(objects: &[(&str, Value)]) -> World {
        let all: Vec<StoredObject> =
            objects.iter().map(|(resource, value)| found(resource, value.clone())).collect();
        World::hiding(&all, &Hidden::default())
    }

    const ONE: &str = "11111111-1111-4111-8111-111111111111";
    const TWO: &str = "22222222-2222-4222-8222-222222222222";

    // T3
    #[test]
    fn what_servers_choose_makes_no_difference() {
        let run = |uid: &str, suffix: &str, version: &str, time: &str| {
            world(&[
                (
                    "sites",
                    json!({ "metadata": { "name": "a", "uid": uid, "resourceVersion": version },
                    "status": { "child": format!("a-{suffix}"), "at": time } }),
                ),
                (
                    "maps",
                    json!({ "metadata": { "generateName": "a-", "name": format!("a-{suffix}"),
                    "ownerReferences": [{ "name": "a", "uid": uid }] } }),
                ),
            ])
        };
        let one = run(ONE, "x7f2k", "12", "2026-01-01T00:00:00Z");
        let two = run(TWO, "bbbbb", "99", "2026-03-01T00:00:07Z");
        assert_eq!(two.differences(&one), []);
    }

    // T3
    #[test]
    fn what_somebody_else_added_makes_no_difference() {
        let plain = world(&[("sites", json!({ "metadata": { "name": "a" } }))]);
        let touched = world(&[(
            "sites",
            json!({ "metadata": { "name": "a", "labels": { MARK: "was-here" }, "finalizers": [MARK] },
                "status": { "conditions": [{ "type": CONDITION }] } }),
        )]);
        assert_eq!(touched.differences(&plain), []);
    }

    // T3
    #[test]
    fn names_that_servers_choose_make_no_difference_as_keys() {
        let run = |one: &str, two: &str| {
            let child = |suffix: &str| {
                let name = format!("a-{suffix}");
                ("maps", json!({ "metadata": { "generateName": "a-", "name": name } }))
            };
            let pods = json!({ format!("a-{one}"): "ready", format!("a-{two}"): "lost" });
            let site = json!({ "metadata": { "name": "a" }, "status": { "pods": pods } });
            world(&[("sites", site), child(one), child(two)])
        };
        assert_eq!(run("x7f2k", "bbbbb").differences(&run("ccccc", "ddddd")), []);
    }

    // T3
    #[test]
    fn the_order_of_a_list_that_has_none_makes_no_difference() {
        let run = |turned: bool| {
            let list = |mut items: Vec<Value>| {
                if turned {
                    items.reverse();
                }
                items
            };
            let owner = |uid: &str| json!({ "name": "o", "uid": uid });
            let ready = |of: &str| json!({ "type": of, "status": "True" });
            let metadata = json!({ "name": "a", "finalizers": list(vec!["x/y".into(), "v/w".into()]),
                "ownerReferences": list(vec![owner(ONE), owner(TWO)]) });
            let status = json!({ "conditions": list(vec![ready("Ready"), ready("Synced")]) });
            let owners = [("one", ONE), ("two", TWO)];
            let owners =
                owners.map(|(name, uid)| ("owners", json!({ "metadata": { "name": name, "uid": uid } })));
            let site = ("sites", json!({ "metadata": metadata, "status": status, "spec": ["b", "a"] }));
            world(&[&owners[..], &[site]].concat())
        };
        assert_eq!(run(true).differences(&run(false)), []);
    }

    // T3
    #[test]
    fn what_somebody_else_added_may_be_copied_to_a_child() {
        let child = |labels: Value| {
            let template = json!({ "metadata": { "labels": labels, "name": "pod" } });
            world(&[("jobs", json!({ "metadata": { "name": "a" }, "spec": { "template": template } }))])
        };
        let plain = json!({ "app": "a" });
        assert_eq!(child(json!({ "app": "a", MARK: "was-here" })).differences(&child(plain)), []);
        let without =
            json!({ "metadata": { "name": "a" }, "spec": { "template": { "metadata": { "name": "pod" } } } });
        assert_eq!(child(json!({ MARK: "was-here" })).differences(&world(&[("jobs", without)])), []);
    }

    // T12
    #[test]
    fn a_time_within_a_text_makes_no_difference() {
        let run = |time: &str| {
            let note = format!("seen at {time}, and well");
            world(&[("sites", json!({ "metadata": { "name": "a" }, "data": { "note": note } }))])
        };
        let one = run("2026-01-01T00:00:00Z");
        assert_eq!(run("2026-03-01T00:00:07.25+02:00").differences(&one), []);
        assert_eq!(run("noon").differences(&one).len(), 1);
    }

    // T11
    #[test]
    fn what_is_random_is_compared_by_whether_it_is_there() {
        let secret = |data: Value| [found("secrets", json!({ "metadata": { "name": "a" }, "data": data }))];
        let random = ["/data/password", "/data/keys/*/a~1b"]
            .map(RandomField::of::<k8s_openapi::api::core::v1::Secret>);
        let hidden = Hidden { random: random.to_vec(), ..Hidden::default() };
        let end = |data: Value| World::hiding(&secret(data), &hidden);
        let one = end(json!({ "password": "x1", "user": "a", "keys": [{ "a/b": 1 }, { "a/b": 2 }] }));
        assert_eq!(
            end(json!({ "password": "y2", "user": "a", "keys": [{ "a/b": 3 }, { "a/b": 4 }] }))
                .differences(&one),
            []
        );
        assert_eq!(
            end(json!({ "password": "y2", "user": "b", "keys": [{ "a/b": 1 }, { "a/b": 2 }] }))
                .differences(&one)
                .len(),
            1
        );
        assert_eq!(
            end(json!({ "user": "a", "keys": [{ "a/b": 1 }, { "a/b": 2 }] })).differences(&one).len(),
            1
        );
    }

    // T30
    #[test]
    fn what_is_left_out_is_named_as_what_is_random() {
        let left_out = ["/data/*", "/spec/list/1/image", "/spec/items/0", "/spec/all/*"];
        let left_out = left_out.map(RandomField::of::<k8s_openapi::api::core::v1::ConfigMap>).to_vec();
        let hidden = Hidden { left_out, ..Hidden::default() };
        let end = |value: &str, first: &str| {
            let list = json!([{ "image": first }, { "image": value }]);
            let map = json!({ "metadata": { "name": "a" }, "data": { "x": value },
                "spec": { "list": list, "items": [value, "same"], "all": [value] } });
            World::hiding(&[found("configmaps", map)], &hidden)
        };
        assert_eq!(end("new", "one").differences(&end("old", "one")), []);
        assert_eq!(end("old", "two").differences(&end("old", "one")).len(), 1);
    }

    // T30
    #[test]
    fn more_in_a_status_is_told_from_a_change() {
        let status = |conditions: Value| {
            let value = json!({ "metadata": { "name": "a" }, "status": { "conditions": conditions } });
            world(&[("sites", value)])
        };
        let ready = |says: &str| json!({ "type": "Ready", "status": says });
        let before = status(json!([ready("True")]));
        let is_more = |conditions: Value| {
            let differences = status(conditions).differences(&before);
            assert_eq!(differences.len(), 1);
            differences[0].is_more_in_status()
        };
        assert!(is_more(json!([ready("True"), { "type": "Synced", "status": "True" }])));
        assert!(!is_more(json!([ready("False"), { "type": "Synced", "status": "True" }])));
        assert!(!is_more(json!([{ "type": "Synced", "status": "True" }])));
        let other = world(&[("sites", json!({ "metadata": { "name": "a" }, "statusOf": 1 }))]);
        let plain = world(&[("sites", json!({ "metadata": { "name": "a" } }))]);
        assert!(!other.differences(&plain)[0].is_more_in_status());
    }

    #[test]
    fn an_owner_that_is_gone_and_a_second_child_do() {
        let child = |suffix: &str, owner: &str| {
            (
                "maps",
                json!({ "metadata": { "generateName": "a-", "name": format!("a-{suffix}"), "uid": TWO,
                "ownerReferences": [{ "name": "a", "uid": owner }] } }),
            )
        };
        let owner = ("sites", json!({ "metadata": { "name": "a", "uid": ONE } }));
        let right = world(&[owner.clone(), child("x", ONE)]);
        let orphan = world(&[owner.clone(), child("x", "33333333-3333-4333-8333-333333333333")]);
        assert_eq!(orphan.differences(&right).len(), 1);
        let twice = world(&[owner, child("x", ONE), child("y", ONE)]);
        let differences = twice.differences(&right);
        assert_eq!(differences, [Difference::Count { name: "maps a-*".into(), expected: 1, found: 2 }]);
        assert_eq!(differences[0].to_string(), "! maps a-*: 2, not 1");
    }

    #[test]
    fn an_observed_generation_counts_as_latest_or_not() {
        let run = |generation: u32, observed: u32| {
            world(&[(
                "sites",
                json!({ "metadata": { "name": "a", "generation": generation },
                "status": { "observedGeneration": observed } }),
            )])
        };
        assert_eq!(run(3, 3).differences(&run(1, 1)), []);
        assert_eq!(run(3, 2).differences(&run(1, 1)).len(), 1);
    }
}
