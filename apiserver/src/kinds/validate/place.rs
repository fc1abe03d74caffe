//! Places: a value of an object with its path, and its errors in the server's words.

use std::fmt;

use serde_json::Value;

use crate::limits;
use crate::status::Cause;

/// The errors of an object, in the order of the checks.
///
/// A fault may print much of the object. So no more are added once their text has [`limits::FAULTS`] bytes.
#[derive(Debug, Default)]
pub(super) struct Findings {
    causes: Vec<Cause>,
    bytes: usize,
}

impl Findings {
    /// Adds a fault; it is not even made if there are too many.
    pub(super) fn add(&mut self, fault: impl FnOnce() -> Cause) {
        if self.is_full() {
            return;
        }
        let cause = fault();
        self.bytes += cause.field.len() + cause.message.len();
        self.causes.push(cause);
    }

    /// Returns whether no more are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= limits::FAULTS
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.causes.len()
    }

    /// Returns all of them.
    pub(super) fn into_causes(self) -> Vec<Cause> {
        self.causes
    }
}

/// A step from one place to the next.
#[derive(Clone, Copy)]
enum PlaceStep<'p> {
    Field(&'p str),
    Key(&'p str),
    Index(usize),
}

/// A value of an object and its path; absent values are null.
///
/// The path becomes text only for a fault.
#[derive(Clone, Copy)]
pub(super) struct Place<'p, 'v> {
    above: Option<&'p Place<'p, 'v>>,
    step: PlaceStep<'p>,
    value: &'v Value,
}

impl<'p, 'v> Place<'p, 'v> {
    /// Returns a top-level field of an object.
    pub(super) fn top(object: &'v Value, field: &'p str) -> Self {
        Self { above: None, step: PlaceStep::Field(field), value: &object[field] }
    }

    /// Returns a field of this value.
    pub(super) fn at<'c>(&'c self, field: &'c str) -> Place<'c, 'v> {
        Place { above: Some(self), step: PlaceStep::Field(field), value: &self.value[field] }
    }

    /// Returns another value at this place.
    pub(super) fn of(self, value: &'v Value) -> Self {
        Self { value, ..self }
    }

    /// Returns the items of a list.
    pub(super) fn items<'c>(&'c self) -> impl Iterator<Item = Place<'c, 'v>> {
        let list = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        let item = |(index, value)| Place { above: Some(self), step: PlaceStep::Index(index), value };
        list.iter().enumerate().map(item)
    }

    /// Returns the values of a map.
    pub(super) fn entries<'c>(&'c self) -> impl Iterator<Item = (&'v str, Place<'c, 'v>)>
    where
        'v: 'c,
    {
        let map = self.value.as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), Place { above: Some(self), step: PlaceStep::Key(key), value }))
    }

    /// Returns the value; null if it is absent.
    pub(super) fn value(&self) -> &'v Value {
        self.value
    }

    /// Returns whether there is a value.
    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns a text; empty if it is absent.
    pub(super) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns a number.
    pub(super) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Returns whether it is the boolean `true`.
    pub(super) fn is_true(&self) -> bool {
        *self.value == Value::Bool(true)
    }

    /// Returns the length of a list or a map.
    pub(super) fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// Reports an invalid value.
    pub(super) fn invalid(&self, faults: &mut Findings, why: &str) {
        self.invalid_as(faults, &self.value.to_string(), why);
    }

    /// Reports an invalid value that the server prints in its own way.
    pub(super) fn invalid_as(&self, faults: &mut Findings, shown: &str, why: &str) {
        let detail = if why.is_empty() { String::new() } else { format!(": {why}") };
        faults.add(|| {
            Cause::new("FieldValueInvalid", self.to_string(), format!("Invalid value: {shown}{detail}"))
        });
    }

    /// Reports each error of a text.
    pub(super) fn each(&self, faults: &mut Findings, wrong: Vec<String>) {
        for why in wrong {
            self.invalid_as(faults, &format!("{:?}", self.text()), &why);
        }
    }

    /// Reports a missing value.
    pub(super) fn required(&self, faults: &mut Findings, why: &str) {
        faults.add(|| Cause::required(self.to_string(), why));
    }

    /// Reports a forbidden value.
    pub(super) fn forbidden(&self, faults: &mut Findings, why: &str) {
        faults.add(|| Cause::forbidden(self.to_string(), why));
    }

    /// Reports a duplicate value.
    pub(super) fn duplicate(&self, faults: &mut Findings, shown: &Value) {
        faults
            .add(|| Cause::new("FieldValueDuplicate", self.to_string(), format!("Duplicate value: {shown}")));
    }

    /// Reports a reference to an object that does not exist.
    pub(super) fn not_found(&self, faults: &mut Findings) {
        faults.add(|| {
            Cause::new("FieldValueNotFound", self.to_string(), format!("Not found: {:?}", self.text()))
        });
    }

    /// Reports a text that is too long.
    pub(super) fn too_long(&self, faults: &mut Findings, most: usize) {
        let message = format!("Too long: may not be more than {most} bytes");
        faults.add(|| Cause::new("FieldValueTooLong", self.to_string(), message));
    }

    /// Reports a list that is too long.
    pub(super) fn too_many(&self, faults: &mut Findings, most: usize) {
        let message = format!("Too many: {}: must have at most {most} items", self.len());
        faults.add(|| Cause::new("FieldValueTooMany", self.to_string(), message));
    }

    /// Refuses a text that is not one of these.
    pub(super) fn one_of(&self, faults: &mut Findings, supported: &[&str]) {
        if !supported.contains(&self.text()) {
            let shown = if self.is_set() { self.value.to_string() } else { "\"\"".to_owned() };
            self.unsupported(faults, &shown, supported);
        }
    }

    /// Refuses a text that is set and not one of these.
    pub(super) fn one_of_if_set(&self, faults: &mut Findings, supported: &[&str]) {
        if self.is_set() {
            self.one_of(faults, supported);
        }
    }

    /// Reports a value that is not one of these.
    pub(super) fn unsupported(&self, faults: &mut Findings, shown: &str, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", quoted.join(", "));
        faults.add(|| Cause::new("FieldValueNotSupported", self.to_string(), message));
    }

    /// Refuses numbers below a least one.
    pub(super) fn at_least(&self, faults: &mut Findings, least: i64) {
        if self.number().is_some_and(|number| number < least) {
            self.invalid(faults, &format!("must be greater than or equal to {least}"));
        }
    }

    /// Refuses numbers outside a range.
    pub(super) fn within(&self, faults: &mut Findings, least: i64, most: i64) {
        if self.number().is_some_and(|number| !(least..=most).contains(&number)) {
            self.invalid(faults, &format!("must be between {least} and {most}, inclusive"));
        }
    }
}

impl fmt::Display for Place<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            PlaceStep::Field(name) if self.above.is_none() => f.write_str(name),
            PlaceStep::Field(name) => write!(f, ".{name}"),
            PlaceStep::Key(key) => write!(f, "[{key}]"),
            PlaceStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_names_the_whole_path() {
        let object = json!({"spec": {"list": [{"map": {"a.b/c": "x"}}]}});
        let spec = Place::top(&object, "spec");
        let list = spec.at("list");
        let item = list.items().next().unwrap();
        let map = item.at("map");
        let (key, value) = map.entries().next().unwrap();
        assert_eq!((key, value.to_string().as_str()), ("a.b/c", "spec.list[0].map[a.b/c]"));
        let mut faults = Findings::default();
        value.one_of(&mut faults, &["y", "z"]);
        assert_eq!(faults.causes[0].message, "Unsupported value: \"x\": supported values: \"y\", \"z\"");
    }
}
