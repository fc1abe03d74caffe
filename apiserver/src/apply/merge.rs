//! Merges the applied fields into the live object.

use serde_json::{Map, Value};

use crate::schema::NodeRef;

use super::compare::{Items, is_bare};
use super::set::SetShape;

/// Merges two values of a node; the applied one wins wherever it is set.
pub(super) fn merge(node: NodeRef<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let shape = SetShape::of(node, live, applied);
    if shape == SetShape::Leaf || (is_bare(live) && is_bare(applied)) {
        return applied.or(live).cloned();
    }
    let merged = match shape {
        SetShape::Map => Value::Object(merge_maps(node, fields(live), fields(applied))),
        _ => Value::Array(merge_lists(node, &Items::of(node, live), &Items::of(node, applied))),
    };
    Some(merged)
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn merge_maps(
    node: NodeRef<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let mut merged = live.cloned().unwrap_or_default();
    for (name, value) in applied.into_iter().flatten() {
        let live = live.and_then(|live| live.get(name));
        let value = match node.field(name) {
            Some(below) => merge(below, live, Some(value)),
            None => Some(value.clone()),
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    merged
}

/// Merges two lists item by item.
///
/// Applied items come in their own order. Items that only the live list has stay in front of the shared item that they
/// were in front of; where both could come next, the live one does.
fn merge_lists(node: NodeRef<'_>, live: &Items<'_>, applied: &Items<'_>) -> Vec<Value> {
    let (mut merged, mut live_left) = (Vec::new(), live.list.iter().peekable());
    let mut shared = applied.list.iter().filter(|(element, _)| live.find(element).is_some()).peekable();
    for (element, item) in &applied.list {
        let next_shared = shared.peek().map(|(shared, _)| shared);
        while let Some((before, value)) =
            live_left.next_if(|(before, _)| next_shared.is_none_or(|shared| shared != before))
        {
            if applied.find(before).is_none() {
                merged.push((*value).clone());
            }
        }
        live_left.next_if(|(reached, _)| reached == element);
        shared.next_if(|(reached, _)| reached == element);
        merged.extend(merge(node.item(), live.find(element), Some(*item)));
    }
    for (element, value) in live_left {
        if applied.find(element).is_none() {
            merged.push((*value).clone());
        }
    }
    merged
}
