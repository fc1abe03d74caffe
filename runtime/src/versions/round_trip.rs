//! Tests that conversions lose nothing: generated objects go there and back.

use std::{any::type_name, env, marker::PhantomData};

use kube::core::CustomResourceExt;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use super::{
    convert::{Conversions, ServedVersion},
    generate,
    lost::{LOST_ANNOTATION, LostValue, losses},
    schema::{member, own_members},
    spoke::{Versioned, WrongField},
};
use crate::object::Object;

/// How many objects of each version are converted, unless set.
const OBJECTS: usize = 1_000;
/// How many generated objects in a row may be ones that the type can't read.
const MOST_UNREADABLE: usize = 1_000;

/// Checks that conversions between all versions of a kind lose nothing; a test calls it.
///
/// It is [`RoundTrip`] with its defaults.
///
/// # Panics
/// Something is lost: the message names versions, field, and both values.
#[track_caller]
pub fn conversions_round_trip<H: Versioned + Object + CustomResourceExt>() {
    RoundTrip::<H>::new().check();
}

/// Checks that conversions between all versions of a kind lose nothing.
///
/// Objects are generated from each version's schema (types, formats, enums, bounds, required and optional fields, lists
/// and maps; patterns and rules are not followed). Three claims are checked:
///
/// 1. The hub can express all that a spoke says: a spoke's object is the same after the way to the hub and back. Fields
///    that only a spoke has are named by [`only_in`](Self::only_in).
/// 2. The hub's object is the same after the way to a spoke and back, by the annotation that keeps what the spoke does not
///    know. A field that both versions have, under the same name, must not need the annotation.
/// 3. What a user changes in one version is read back as it was written, whatever the annotation keeps.
#[derive(Debug)]
#[must_use = "call `check`"]
pub struct RoundTrip<H> {
    objects: usize,
    seed: u64,
    /// Versions, and pointers to fields that only they have.
    only_in: Vec<(String, String)>,
    hub: PhantomData<fn() -> H>,
}

impl<H: Versioned + Object + CustomResourceExt> RoundTrip<H> {
    /// Checks 1,000 objects of each version, always the same ones; `WATCHKEEPER_OBJECTS` sets another number.
    #[expect(clippy::new_without_default, reason = "a check without settings is the function")]
    pub fn new() -> Self {
        let given = env::var("WATCHKEEPER_OBJECTS").ok().and_then(|number| number.parse().ok());
        Self { objects: given.unwrap_or(OBJECTS), seed: 0, only_in: Vec::new(), hub: PhantomData }
    }

    /// Sets how many objects of each version are converted.
    pub fn objects(self, objects: usize) -> Self {
        Self { objects, ..self }
    }

    /// Generates other objects.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Allows that the hub does not have a field of a version, such as `.only_in("v1alpha1", "spec.legacy")`.
    ///
    /// `*` stands for the elements of a list: `spec.ports.*.app`. The field is kept in an annotation of the hub's objects.
    pub fn only_in(mut self, version: impl Into<String>, field: &str) -> Self {
        self.only_in.push((version.into(), pointer(field)));
        self
    }

    /// Checks, and returns how many objects were converted there and back.
    ///
    /// # Panics
    /// Something is lost, or no objects can be generated.
    #[track_caller]
    pub fn check(self) -> usize {
        match self.run() {
            Ok(trips) => trips,
            Err(loss) => panic!("{loss}"),
        }
    }

    /// Checks; the error describes the first loss.
    pub(crate) fn run(&self) -> Result<usize, String> {
        let conversions = Conversions::<H>::new();
        let kind = &conversions.all()[0].definition.spec.names.kind;
        let mut trips = 0;
        for (at, from) in conversions.all().iter().enumerate() {
            let mut rng = SmallRng::seed_from_u64(self.seed ^ (at as u64) << 32);
            for _ in 0..self.objects {
                let before = readable(&mut rng, from, kind)?;
                for to in conversions.all().iter().filter(|to| to.name != from.name) {
                    let trip = Trip { conversions: &conversions, from, to, only_in: &self.only_in };
                    trip.check(&mut rng, kind, &before)?;
                    trips += 1;
                }
            }
        }
        if trips == 0 {
            return Err(format!("{} has one version only: nothing is converted", type_name::<H>()));
        }
        Ok(trips)
    }
}

/// Turns `spec.a` into a pointer.
fn pointer(field: &str) -> String {
    format!("/{}", field.trim_start_matches('.').replace('.', "/"))
}

/// Generates an object that the version's type can read, written as the type writes it.
fn readable<H>(rng: &mut SmallRng, of: &ServedVersion<H>, kind: &str) -> Result<Value, String> {
    let mut last = WrongField { field: String::new(), why: String::new() };
    for _ in 0..MOST_UNREADABLE {
        let made = generate::object(rng, &of.schema, &of.api_version, kind);
        match of.normal(&made) {
            Ok(object) => return Ok(object),
            Err(wrong) => last = wrong,
        }
    }
    let (version, WrongField { field, why }) = (&of.api_version, last);
    Err(format!(
        "objects that fit the schema of {version} can't be read by its type: {field}: {why}; make the schema as strict \
         as the type"
    ))
}

/// The way from one version to another one and back.
struct Trip<'a, H> {
    conversions: &'a Conversions<H>,
    from: &'a ServedVersion<H>,
    to: &'a ServedVersion<H>,
    only_in: &'a [(String, String)],
}

impl<H> Trip<'_, H> {
    fn check(&self, rng: &mut SmallRng, kind: &str, before: &Value) -> Result<(), String> {
        let (from, to) = (self.from, self.to);
        let there = self.convert(from, to, before)?;
        self.compare_plain(before)?;
        let again = self.convert(to, from, &there)?;
        let after = from.normal(&again).map_err(|wrong| failed(from, to, before, &wrong))?;
        if let Some(loss) = losses(&comparable(before), &comparable(&after)).first() {
            return Err(self.describe(before, loss, "even though an annotation keeps what is unknown"));
        }
        self.check_edit(rng, kind, &there)
    }

    /// Checks what the types themselves lose, without the annotation.
    fn compare_plain(&self, before: &Value) -> Result<(), String> {
        let (from, to) = (self.from, self.to);
        let wrong = |wrong| failed(from, to, before, &wrong);
        let there = to.write(from.read(before).map_err(wrong)?.hub).map_err(wrong)?;
        let back = from.write(to.read(&there).map_err(wrong)?.hub).map_err(wrong)?;
        let to_hub = to.name == self.conversions.all()[0].name;
        let mut found = Vec::new();
        for loss in losses(&own_members(before), &own_members(&back)) {
            note_leaves(loss, &mut found);
        }
        for loss in found {
            let is_allowed = |(version, field): &(String, String)| {
                *version == from.name && (loss.path == *field || loss.path.starts_with(&format!("{field}/")))
            };
            if self.only_in.iter().any(is_allowed) {
                continue;
            }
            if to_hub {
                let why = format!(
                    "let the hub express it, or allow it by `.only_in({:?}, {:?})`",
                    from.name,
                    loss.path.trim_start_matches('/').replace('/', ".")
                );
                return Err(self.describe(before, &loss, &why));
            }
            if loss.lost.is_some() && knows(&to.schema, &loss.path) && knows(&from.schema, &loss.path) {
                return Err(self.describe(before, &loss, "although both versions have the field"));
            }
        }
        Ok(())
    }

    /// Writes another object in place of the converted one, as a user would, and reads it back.
    fn check_edit(&self, rng: &mut SmallRng, kind: &str, there: &Value) -> Result<(), String> {
        let (from, to) = (self.from, self.to);
        let mut edited = readable(rng, to, kind)?;
        // Half of the members stay as they were.
        for member in own_members(there).as_object().into_iter().flatten() {
            mix(rng, edited.get_mut(member.0), member.1);
        }
        edited["metadata"] = there["metadata"].clone();
        let Ok(edited) = to.normal(&edited) else { return Ok(()) };
        let stored = self.convert(to, from, &edited)?;
        let read = self.convert(from, to, &stored)?;
        let read = to.normal(&read).map_err(|wrong| failed(from, to, &edited, &wrong))?;
        match losses(&own_members(&edited), &own_members(&read)).first() {
            Some(loss) => Err(self.describe(&edited, loss, "and a user has just written it")),
            None => Ok(()),
        }
    }

    fn convert(
        &self,
        from: &ServedVersion<H>,
        to: &ServedVersion<H>,
        object: &Value,
    ) -> Result<Value, String> {
        self.conversions.between(from, to, object).map_err(|wrong| failed(from, to, object, &wrong))
    }

    fn describe(&self, object: &Value, loss: &LostValue, why: &str) -> String {
        let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        let field = loss.path.trim_start_matches('/').replace('/', ".");
        let (from, to) = (&self.from.name, &self.to.name);
        format!(
            "{from} to {to} and back loses {field}: it was {}, and is {}: {why}\nthe object: {}",
            shown(&loss.lost),
            shown(&loss.back),
            own_members(object)
        )
    }
}

/// Puts parts of one value into another one.
fn mix(rng: &mut SmallRng, into: Option<&mut Value>, from: &Value) {
    match (into, from) {
        (Some(Value::Object(into)), Value::Object(from)) => {
            for (name, value) in from {
                if rng.random() {
                    into.insert(name.clone(), value.clone());
                } else {
                    mix(rng, into.get_mut(name), value);
                }
            }
        }
        (Some(Value::Array(into)), Value::Array(from)) => {
            into.extend(from.iter().take(rng.random_range(0..=from.len())).cloned());
        }
        _ => {}
    }
}

fn failed<H>(from: &ServedVersion<H>, to: &ServedVersion<H>, object: &Value, wrong: &WrongField) -> String {
    let WrongField { field, why } = wrong;
    format!("{} to {} fails: {field}: {why}\nthe object: {}", from.name, to.name, own_members(object))
}

/// Returns what must be the same after the way there and back.
fn comparable(object: &Value) -> Value {
    let mut own = own_members(object);
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(LOST_ANNOTATION);
    }
    own["metadata"] = json!({"labels": metadata["labels"], "annotations": annotations, "uid": metadata["uid"],
        "name": metadata["name"]});
    own
}

/// Follows a loss into the elements of lists, which `*` stands for.
fn note_leaves(LostValue { path, lost, back }: LostValue, found: &mut Vec<LostValue>) {
    match (&lost, &back) {
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (before, after) in before.iter().zip(after).filter(|(before, after)| before != after) {
                let (path, lost, back) = (format!("{path}/*"), Some(before.clone()), Some(after.clone()));
                note_leaves(LostValue { path, lost, back }, found);
            }
        }
        (Some(before @ Value::Object(_)), Some(after @ Value::Object(_))) => {
            for LostValue { path: inner, lost, back } in losses(before, after) {
                note_leaves(LostValue { path: format!("{path}{inner}"), lost, back }, found);
            }
        }
        _ => found.push(LostValue { path, lost, back }),
    }
}

/// Returns whether a schema declares the field of a pointer.
fn knows(schema: &Value, path: &str) -> bool {
    let names = path.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~"));
    let mut at = Some(schema);
    for name in names {
        at = at.and_then(|schema| match schema["items"].is_object() {
            true => Some(&schema["items"]),
            false => member(schema, &name),
        });
    }
    at.is_some()
}

#[cfg(test)]
#[path = "round_trip_tests.rs"]
mod tests;
