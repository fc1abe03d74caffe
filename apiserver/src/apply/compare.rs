//! The difference between two states of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::schema::NodeRef;

use super::set::{FieldSet, PathElement, SetShape};

/// The fields in which two states differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    /// Only the new state has these.
    pub(super) added: FieldSet,
    /// Both states have these, with other values.
    pub(super) modified: FieldSet,
    /// Only the old state has these.
    pub(super) removed: FieldSet,
}

impl Difference {
    /// Compares two states.
    pub(super) fn between(node: NodeRef<'_>, old: &Value, new: &Value) -> Difference {
        let mut found = Difference::default();
        found.walk(node, Some(old), Some(new), &mut Vec::new());
        found
    }

    /// Leaves top-level fields out.
    pub(super) fn without_fields(self, names: &[&str]) -> Difference {
        Difference {
            added: self.added.without_fields(names),
            modified: self.modified.without_fields(names),
            removed: self.removed.without_fields(names),
        }
    }

    /// Collects the fields that the new state set.
    pub(super) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    /// Returns whether the states are the same.
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn walk(
        &mut self,
        node: NodeRef<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) {
        let shape = SetShape::of(node, old, new);
        if shape == SetShape::Leaf || (is_bare(old) && is_bare(new)) {
            self.leaf(old, new, path);
            return;
        }
        if shape == SetShape::Map {
            self.map(node, old, new, path);
        } else {
            self.list(node, old, new, path);
        }
        match (old, new) {
            (None, Some(_)) => self.added.insert(path),
            (Some(_), None) => self.removed.insert(path),
            _ => {}
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[PathElement]) {
        match (old, new) {
            (None, Some(_)) => self.added.insert(path),
            (Some(_), None) => self.removed.insert(path),
            (Some(old), Some(new)) if !same(old, new) => self.modified.insert(path),
            _ => {}
        }
    }

    fn map(
        &mut self,
        node: NodeRef<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) {
        let names: BTreeSet<&String> = [old, new]
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flat_map(|fields| fields.keys())
            .collect();
        for name in names {
            let Some(below) = node.field(name) else { continue };
            path.push(PathElement::field(name));
            let old = old.and_then(|old| old.get(name));
            let new = new.and_then(|new| new.get(name));
            self.walk(below, old, new, path);
            path.pop();
        }
    }

    fn list(
        &mut self,
        node: NodeRef<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) {
        let (old, new) = (Items::of(node, old), Items::of(node, new));
        let only_new = new.list.iter().filter(|(element, _)| old.find(element).is_none());
        for (element, item) in &old.list {
            path.push(element.clone());
            self.walk(node.item(), Some(*item), new.find(element), path);
            path.pop();
        }
        for (element, item) in only_new {
            path.push(element.clone());
            self.walk(node.item(), None, Some(*item), path);
            path.pop();
        }
    }
}

/// The items of a list with their identities, in order; of duplicates, the first counts.
pub(super) struct Items<'a> {
    pub(super) list: Vec<(PathElement, &'a Value)>,
    places: BTreeMap<PathElement, usize>,
}

impl<'a> Items<'a> {
    pub(super) fn of(node: NodeRef<'_>, list: Option<&'a Value>) -> Self {
        let (mut found, mut places) = (Vec::new(), BTreeMap::new());
        for item in list.and_then(Value::as_array).into_iter().flatten() {
            let element = PathElement::item(node, item);
            if !places.contains_key(&element) {
                places.insert(element.clone(), found.len());
                found.push((element, item));
            }
        }
        Self { list: found, places }
    }

    pub(super) fn find(&self, element: &PathElement) -> Option<&'a Value> {
        self.places.get(element).map(|at| self.list[*at].1)
    }
}

/// Returns whether a map or list is empty.
pub(super) fn is_bare(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Compares values; numbers by value, so that `1` is `1.0`.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}
