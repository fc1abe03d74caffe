//! What tells the elements of a list apart, without a schema: which element of one list is which of another.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Fields that tell elements apart by themselves, as Kubernetes' own types use them; the first that does so counts.
const NAMES: [&str; 14] = [
    "type",
    "name",
    "uid",
    "ip",
    "key",
    "id",
    "port",
    "containerPort",
    "hostPort",
    "nodePort",
    "index",
    "ordinal",
    "number",
    "hostname",
];
/// Fields that do so together with another one.
const QUALIFIERS: [&str; 9] =
    ["namespace", "protocol", "address", "kind", "group", "version", "resource", "path", "status"];
/// Most fields of other names that are looked at.
const MOST_OTHERS: usize = 8;

/// The values of the fields that tell an element from the others.
type ElementIdentity<'a> = Vec<&'a Value>;

/// Finds the elements of a list that those of another one are, or were.
///
/// What tells them apart is one field or two whose values no two elements of either list share. Fields of well-known
/// names come first. Those of other names count if there are several elements, and all of the shorter list are found in
/// the other: a value that two unlike elements have by chance must not give one what the other had.
pub(super) struct Elements<'a> {
    /// Fields that tell elements apart, and the places of the elements that have them. The first that an element has count.
    by_fields: Vec<(Vec<&'a str>, HashMap<ElementIdentity<'a>, usize>)>,
}

impl<'a> Elements<'a> {
    /// Prepares to find elements of a list that those of another one are.
    pub(super) fn of(list: &'a [Value], others: &'a [Value]) -> Self {
        let by_fields = telling_fields(list, others).into_iter().map(|fields| {
            let places = places(list, &fields);
            (fields, places)
        });
        Self { by_fields: by_fields.collect() }
    }

    /// Finds the place of the element that one of the other list is.
    pub(super) fn find(&self, other: &'a Value) -> Option<usize> {
        let place = |(fields, places): &(Vec<&str>, HashMap<ElementIdentity<'a>, usize>)| {
            Some(places.get(&identity(other, fields)?).copied())
        };
        self.by_fields.iter().find_map(place)?
    }
}

/// Chooses the fields that tell the elements of two lists apart; none, if nothing does.
fn telling_fields<'a>(list: &'a [Value], others: &'a [Value]) -> Vec<Vec<&'a str>> {
    let names = |list: &'a [Value]| -> HashSet<&'a str> { list.iter().flat_map(scalars).collect() };
    let (here, there) = (names(list), names(others));
    let in_both = |name: &&'static str| here.contains(name) && there.contains(name);
    let tells = |fields: &Vec<&str>| is_unique(list, fields) && is_unique(others, fields);
    let singles = NAMES.into_iter().filter(in_both).map(|name| vec![name]);
    let singles: Vec<_> = singles.filter(tells).collect();
    if !singles.is_empty() {
        return singles;
    }
    let known: Vec<&str> = NAMES.into_iter().chain(QUALIFIERS).filter(in_both).collect();
    if let Some(pair) = pairs(&known).find(tells) {
        return vec![pair];
    }
    if list.len() < 2 || others.len() < 2 {
        return Vec::new();
    }
    let in_all = |name: &&str| list.iter().chain(others).all(|element| scalar(element, name).is_some());
    let others_names: Vec<&str> = scalars(&list[0]).filter(in_all).take(MOST_OTHERS).collect();
    let by_place = |candidates: Vec<Vec<&'a str>>| {
        let matches = candidates.into_iter().filter(|fields| tells(fields)).filter_map(|fields| {
            let in_place = matches_in_place(list, others, &fields)?;
            Some((in_place, fields))
        });
        // The one under which most elements keep their place; among equals, the first.
        matches.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, fields)| fields)
    };
    let singles = by_place(others_names.iter().map(|name| vec![*name]).collect());
    singles.or_else(|| by_place(pairs(&others_names).collect())).into_iter().collect()
}

fn pairs<'n, 'a>(names: &'n [&'a str]) -> impl Iterator<Item = Vec<&'a str>> + use<'n, 'a> {
    let after = move |at: usize| names[at + 1..].iter().map(move |second| vec![names[at], *second]);
    (0..names.len()).flat_map(after)
}

/// Returns whether some elements have these fields, and no two of them the same values.
fn is_unique(list: &[Value], fields: &[&str]) -> bool {
    let mut seen = HashSet::new();
    list.iter().filter_map(|element| identity(element, fields)).all(|identity| seen.insert(identity))
        && !seen.is_empty()
}

/// Counts the elements that keep their place, if all of the shorter list are found in the other.
fn matches_in_place(list: &[Value], others: &[Value], fields: &[&str]) -> Option<usize> {
    let places = places(list, fields);
    let found: Vec<(usize, usize)> = others
        .iter()
        .enumerate()
        .filter_map(|(at, other)| Some((at, *places.get(&identity(other, fields)?)?)))
        .collect();
    let all = found.len() == list.len().min(others.len());
    all.then(|| found.iter().filter(|(at, place)| at == place).count())
}

/// Returns what tells an element from others; `None` if it lacks the first of the fields.
fn identity<'a>(element: &'a Value, fields: &[&str]) -> Option<ElementIdentity<'a>> {
    scalar(element, fields.first()?)?;
    Some(fields.iter().map(|name| scalar(element, name).unwrap_or(&Value::Null)).collect())
}

/// Indexes the elements of a list by some fields.
fn places<'a>(list: &'a [Value], fields: &[&str]) -> HashMap<ElementIdentity<'a>, usize> {
    list.iter().enumerate().filter_map(|(at, element)| Some((identity(element, fields)?, at))).collect()
}

/// Returns a field that can tell an element from others: a text or a whole number.
fn scalar<'a>(element: &'a Value, name: &str) -> Option<&'a Value> {
    element.as_object()?.get(name).filter(|value| is_scalar(value))
}

fn scalars(element: &Value) -> impl Iterator<Item = &str> {
    let fields = element.as_object().into_iter().flatten();
    fields.filter(|(_, value)| is_scalar(value)).map(|(name, _)| name.as_str())
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}
