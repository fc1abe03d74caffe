//! Laws of field sets and of apply, over generated values.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::set::{FieldSet, PathElement};
use super::super::typed;
use super::super::{ApplyInput, Force, apply};
use crate::schema::Schema;

type Paths = BTreeSet<Vec<PathElement>>;

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-c]".prop_map(|name| PathElement::field(&name)),
        "[a-c]".prop_map(|text| PathElement::Value(Value::from(text).to_string())),
        "[a-c]".prop_map(|text| PathElement::Key(vec![("k".to_owned(), Value::from(text).to_string())])),
    ]
}

fn paths() -> impl Strategy<Value = Paths> {
    prop::collection::btree_set(prop::collection::vec(element(), 1..4), 0..8)
}

fn set(paths: &Paths) -> FieldSet {
    let mut set = FieldSet::default();
    paths.iter().for_each(|path| set.insert(path));
    set
}

fn listed(set: &FieldSet) -> Paths {
    set.paths().into_iter().collect()
}

/// Generates maps whose leaves are texts and in which no map is empty.
fn data() -> impl Strategy<Value = Value> {
    let leaf = "[0-9]".prop_map(Value::from);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 1..4).prop_map(|fields| json!(fields))
    })
    .prop_filter("an object", Value::is_object)
}

fn applied(live: Option<&Value>, manager: &str, spec: &Value, now: &str) -> Value {
    apply(ApplyInput {
        live,
        applied: &json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec}),
        manager,
        force: Force::Take,
        subresource: None,
        api_version: "g/v1",
        schema: &Schema::untyped(),
        ignored: &[],
        now,
    })
    .expect("a forced apply")
}

fn owned_by(object: &Value, manager: &str) -> FieldSet {
    let entries = object["metadata"]["managedFields"].as_array();
    let entry = entries.into_iter().flatten().find(|entry| entry["manager"] == manager);
    entry.and_then(|entry| FieldSet::parse(&entry["fieldsV1"])).unwrap_or_default()
}

proptest! {
    #[test]
    fn sets_behave_as_sets_of_paths(one in paths(), other in paths()) {
        let (first, second) = (set(&one), set(&other));
        prop_assert_eq!(listed(&first.union(&second)), &one | &other);
        prop_assert_eq!(listed(&first.difference(&second)), &one - &other);
        prop_assert_eq!(listed(&first.intersection(&second)), &one & &other);
        prop_assert_eq!(first.is_empty(), one.is_empty());
    }

    #[test]
    fn what_is_printed_reads_back(paths in paths()) {
        let set = set(&paths);
        prop_assert_eq!(FieldSet::parse(&set.print()).map(|set| listed(&set)), Some(paths));
    }

    #[test]
    fn applying_twice_is_applying_once(spec in data()) {
        let once = applied(None, "m", &spec, "2024-01-01T00:00:00Z");
        let twice = applied(Some(&once), "m", &spec, "2024-01-02T00:00:00Z");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_forced_apply_owns_every_leaf_of_its_intent(before in data(), spec in data()) {
        let live = applied(None, "other", &before, "2024-01-01T00:00:00Z");
        let result = applied(Some(&live), "m", &spec, "2024-01-02T00:00:00Z");
        let schema = Schema::untyped();
        let wanted = typed::fields(schema.root(), &json!({"spec": spec}));
        prop_assert!(wanted.difference(&owned_by(&result, "m")).is_empty());
    }

    #[test]
    fn the_last_apply_of_a_single_manager_decides(before in data(), spec in data()) {
        let live = applied(None, "m", &before, "2024-01-01T00:00:00Z");
        let result = applied(Some(&live), "m", &spec, "2024-01-02T00:00:00Z");
        prop_assert_eq!(&result["spec"], &spec);
    }
}
