//! Sets of fields, and how `managedFields` writes them down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use crate::schema::{JsonType, ListKind, MapKind, NodeRef};

/// One step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    /// Names a field of a map.
    Field(String),
    /// Identifies an item of a map list by its keys, whose values are JSON texts.
    Key(Vec<(String, String)>),
    /// Identifies an item of a set by its JSON text.
    Value(String),
    /// Counts the items of an atomic list; never written by this server.
    Index(usize),
}

impl PathElement {
    /// Names a field.
    pub(super) fn field(name: &str) -> PathElement {
        PathElement::Field(name.to_owned())
    }

    /// Identifies an item of a list.
    pub(super) fn item(list: NodeRef<'_>, item: &Value) -> PathElement {
        match list.list() {
            ListKind::Map(keys) => {
                let value = |key: &String| {
                    let value = item.get(key).or_else(|| list.key_default(key));
                    (key.clone(), value.map_or_else(|| "null".to_owned(), Value::to_string))
                };
                let mut keys: Vec<_> = keys.iter().map(value).collect();
                keys.sort();
                PathElement::Key(keys)
            }
            ListKind::Set | ListKind::Atomic => PathElement::Value(item.to_string()),
        }
    }

    /// Reads the name of a field as `fieldsV1` has it.
    fn parse(text: &str) -> Option<PathElement> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(PathElement::field(rest)),
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                Some(PathElement::Value(value.to_string()))
            }
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                let keys = keys.into_iter().map(|(key, value)| (key, value.to_string()));
                Some(PathElement::Key(keys.collect()))
            }
            "i" => rest.parse().ok().map(PathElement::Index),
            _ => None,
        }
    }

    /// Writes the name of a field as `fieldsV1` has it.
    fn name(&self) -> String {
        match self {
            PathElement::Field(name) => format!("f:{name}"),
            PathElement::Value(value) => format!("v:{value}"),
            PathElement::Index(index) => format!("i:{index}"),
            PathElement::Key(keys) => {
                let keys = keys.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())));
                format!("k:{{{}}}", keys.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Value(value) => write!(f, "[={value}]"),
            PathElement::Index(index) => write!(f, "[{index}]"),
            PathElement::Key(keys) => {
                let keys = keys.iter().map(|(key, value)| format!("{key}={value}"));
                write!(f, "[{}]", keys.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Shows a path as conflicts do, such as `.spec.containers[name="a"].image`.
pub(super) fn show(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}

/// A set of paths into an object.
///
/// A path and one below it may both be in the set, or only one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// Adds a path; the empty path is the whole object, which cannot be owned.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Returns whether the path of one step is in the set.
    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// Returns what the set holds below a step.
    pub(super) fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.children.get(element)
    }

    /// Returns whether the set holds no path.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(FieldSet::is_empty)
    }

    /// Collects the paths of both sets.
    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let merged = match result.children.get(element) {
                Some(own) => own.union(child),
                None => child.clone(),
            };
            result.children.insert(element.clone(), merged);
        }
        result
    }

    /// Collects the paths that are only in this set; what is below a path is another path.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self.children.iter().map(|(element, child)| {
            let rest = match other.children.get(element) {
                Some(others) => child.difference(others),
                None => child.clone(),
            };
            (element.clone(), rest)
        });
        FieldSet { members, children: children.filter(|(_, child)| !child.is_empty()).collect() }
    }

    /// Collects the paths that are in both sets.
    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let shared = child.intersection(other.children.get(element)?);
            (!shared.is_empty()).then(|| (element.clone(), shared))
        });
        FieldSet { members, children: children.collect() }
    }

    /// Drops top-level fields with all that is below them.
    pub(super) fn without_fields(mut self, names: &[&str]) -> FieldSet {
        for name in names {
            let element = PathElement::field(name);
            self.members.remove(&element);
            self.children.remove(&element);
        }
        self
    }

    /// Drops the fields that every object has and no manager owns.
    pub(super) fn without_identity(mut self) -> FieldSet {
        const OF_METADATA: [&str; 8] = [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
            "selfLink",
        ];
        let metadata = PathElement::field("metadata");
        for name in ["apiVersion", "kind", "metadata"] {
            self.members.remove(&PathElement::field(name));
        }
        if let Some(child) = self.children.remove(&metadata) {
            let rest = child.without_fields(&OF_METADATA);
            if !rest.is_empty() {
                self.children.insert(metadata, rest);
            }
        }
        self
    }

    /// Adds every declared field that leads to a path of the set.
    pub(super) fn with_named(&self, node: NodeRef<'_>) -> FieldSet {
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, child) in &self.children {
            let below = match element {
                PathElement::Field(name) => {
                    if node.property(name).is_some() {
                        members.insert(element.clone());
                    }
                    node.field(name)
                }
                _ => Some(node.item()),
            };
            let child = below.map_or_else(|| child.clone(), |below| child.with_named(below));
            children.insert(element.clone(), child);
        }
        FieldSet { members, children }
    }

    /// Lists the paths: those of one step first, then those below each step.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, at: &mut Vec<PathElement>, found: &mut Vec<Vec<PathElement>>) {
        for element in &self.members {
            at.push(element.clone());
            found.push(at.clone());
            at.pop();
        }
        for (element, child) in &self.children {
            at.push(element.clone());
            child.collect(at, found);
            at.pop();
        }
    }

    /// Reads a `fieldsV1`; `None` if it is malformed.
    pub(super) fn parse(fields: &Value) -> Option<FieldSet> {
        let mut set = FieldSet::default();
        for (name, below) in fields.as_object()? {
            if name == "." {
                continue;
            }
            let element = PathElement::parse(name)?;
            let child = FieldSet::parse(below)?;
            let is_leaf = child.members.is_empty() && child.children.is_empty();
            if is_leaf || below.get(".").is_some() {
                set.members.insert(element.clone());
            }
            if !is_leaf {
                set.children.insert(element, child);
            }
        }
        Some(set)
    }

    /// Writes a `fieldsV1`.
    pub(super) fn print(&self) -> Value {
        let mut fields = Map::new();
        for element in &self.members {
            fields.insert(element.name(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut below = match child.print() {
                Value::Object(below) => below,
                _ => Map::new(),
            };
            if below.is_empty() {
                continue;
            }
            if self.members.contains(element) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.name(), Value::Object(below));
        }
        Value::Object(fields)
    }
}

/// The form in which a value is owned: as a whole, by its fields, or by its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetShape {
    /// One value.
    Leaf,
    /// A map whose fields have owners.
    Map,
    /// A list whose items have owners.
    List,
}

impl SetShape {
    /// Returns the form of one or two values of the same node.
    pub(super) fn of(node: NodeRef<'_>, one: Option<&Value>, other: Option<&Value>) -> SetShape {
        let fits = |test: fn(&Value) -> bool| {
            let good = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || test(value));
            good(one) && good(other)
        };
        let some = |test: fn(&Value) -> bool| one.is_some_and(test) || other.is_some_and(test);
        match node.kind() {
            JsonType::Object if node.map() == MapKind::Granular && fits(Value::is_object) => SetShape::Map,
            JsonType::Any if some(Value::is_object) && fits(Value::is_object) => SetShape::Map,
            JsonType::Array if *node.list() != ListKind::Atomic && fits(Value::is_array) => SetShape::List,
            _ => SetShape::Leaf,
        }
    }
}
