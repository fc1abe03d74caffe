//! Secondary indexes: a name, and what gives an object's values.

use std::{fmt, panic, sync::Arc};

/// One value of an index; cheap to clone.
///
/// Text, integers and truth values are told apart: `5` is not `"5"`. Anything with a `Display` becomes text by
/// [`IndexValue::display`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexValue(Value);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Value {
    Bool(bool),
    Integer(i64),
    Huge(u64),
    Text(Arc<str>),
}

impl IndexValue {
    /// Takes the text that a value is shown as.
    pub fn display(value: impl fmt::Display) -> Self {
        value.to_string().into()
    }
}

impl From<&str> for IndexValue {
    fn from(text: &str) -> Self {
        Self(Value::Text(text.into()))
    }
}

impl From<String> for IndexValue {
    fn from(text: String) -> Self {
        Self(Value::Text(text.into()))
    }
}

impl From<&String> for IndexValue {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<Arc<str>> for IndexValue {
    fn from(text: Arc<str>) -> Self {
        Self(Value::Text(text))
    }
}

impl From<bool> for IndexValue {
    fn from(value: bool) -> Self {
        Self(Value::Bool(value))
    }
}

impl From<u64> for IndexValue {
    fn from(value: u64) -> Self {
        Self(i64::try_from(value).map_or(Value::Huge(value), Value::Integer))
    }
}

impl From<usize> for IndexValue {
    fn from(value: usize) -> Self {
        (value as u64).into()
    }
}

impl From<isize> for IndexValue {
    fn from(value: isize) -> Self {
        (value as i64).into()
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {
        $(impl From<$integer> for IndexValue {
            fn from(value: $integer) -> Self {
                Self(Value::Integer(value.into()))
            }
        })*
    };
}

from_integers!(i8 i16 i32 i64 u8 u16 u32);

impl fmt::Display for IndexValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Bool(value) => value.fmt(f),
            Value::Integer(value) => value.fmt(f),
            Value::Huge(value) => value.fmt(f),
            Value::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for IndexValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Text(text) => fmt::Debug::fmt(text, f),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

type Extract<K> = dyn Fn(&K) -> Result<Vec<IndexValue>, String> + Send + Sync;

/// Names an index, and gives each object's values: none, one or several.
///
/// The function must be pure: the same object always gives the same values. Where it fails or panics, that object
/// is missing from this index, which is logged; nothing else suffers.
pub struct IndexDefinition<K> {
    name: Arc<str>,
    extract: Arc<Extract<K>>,
}

impl<K> IndexDefinition<K> {
    /// Defines an index by a function that always has an answer.
    ///
    /// `IndexDefinition::new("domain", |site: &Website| [IndexValue::from(&site.spec.domain)])`
    pub fn new<F, V>(name: impl Into<Arc<str>>, values: F) -> Self
    where
        F: Fn(&K) -> V + Send + Sync + 'static,
        V: IntoIterator<Item: Into<IndexValue>>,
    {
        let extract = move |object: &K| Ok(values(object).into_iter().map(Into::into).collect());
        Self { name: name.into(), extract: Arc::new(extract) }
    }

    /// Defines an index by a function that may fail for an object.
    pub fn fallible<F, E>(name: impl Into<Arc<str>>, values: F) -> Self
    where
        F: Fn(&K) -> Result<Vec<IndexValue>, E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        Self { name: name.into(), extract: Arc::new(move |object| values(object).map_err(|error| error.to_string())) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Works out an object's values; a panic becomes an error.
    pub(super) fn values(&self, object: &K) -> Result<Vec<IndexValue>, String> {
        panic::catch_unwind(panic::AssertUnwindSafe(|| (self.extract)(object)))
            .unwrap_or_else(|_| Err("the index function panicked".to_owned()))
    }
}

impl<K> Clone for IndexDefinition<K> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), extract: self.extract.clone() }
    }
}

impl<K> fmt::Debug for IndexDefinition<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexDefinition").field(&self.name).finish()
    }
}

/// Says that an index of that name is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is an index named {0:?} already: one name, one index")]
pub struct DuplicateIndex(pub(super) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_different_sorts_are_told_apart_and_equal_numbers_are_equal() {
        assert_ne!(IndexValue::from(5), IndexValue::from("5"));
        assert_ne!(IndexValue::from(true), IndexValue::from("true"));
        assert_eq!(IndexValue::from(5_u64), IndexValue::from(5_i8));
        assert_ne!(IndexValue::from(u64::MAX), IndexValue::from(-1));
        assert_eq!(IndexValue::display(5), IndexValue::from("5"));
        assert_eq!(IndexValue::from("a").to_string(), "a");
    }
}
