//! Secondary indexes: a name, and what gives an object's values.

use std::{fmt, marker::PhantomData, sync::Arc};

use serde::de::DeserializeOwned;

use super::cached_object::CachedObject;
use crate::{
    list_watch::ObjectText,
    object::{AnyObject, downcast_ref},
    users_code::contained,
};

/// One value of an index; cheap to clone.
///
/// Text, integers and truth values differ: `5` is not `"5"`. Anything with a `Display` becomes text by
/// [`IndexValue::display`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexValue(PlainValue);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum PlainValue {
    Bool(bool),
    Integer(i64),
    /// An integer that is too large for the others.
    Huge(u64),
    Text(Arc<str>),
}

impl IndexValue {
    /// Takes the text that a value is shown as.
    pub fn display(value: impl fmt::Display) -> Self {
        value.to_string().into()
    }
}

impl From<&String> for IndexValue {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<u64> for IndexValue {
    fn from(value: u64) -> Self {
        Self(i64::try_from(value).map_or(PlainValue::Huge(value), PlainValue::Integer))
    }
}

impl From<usize> for IndexValue {
    fn from(value: usize) -> Self {
        (value as u64).into()
    }
}

impl From<isize> for IndexValue {
    fn from(value: isize) -> Self {
        Self(PlainValue::Integer(value as i64))
    }
}

macro_rules! from_values {
    ($plain:ident: $($value:ty)*) => {
        $(impl From<$value> for IndexValue {
            fn from(value: $value) -> Self {
                Self(PlainValue::$plain(value.into()))
            }
        })*
    };
}

from_values!(Bool: bool);
from_values!(Integer: i8 i16 i32 i64 u8 u16 u32);
from_values!(Text: &str String Arc<str>);

impl fmt::Display for IndexValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PlainValue::Bool(value) => value.fmt(f),
            PlainValue::Integer(value) => value.fmt(f),
            PlainValue::Huge(value) => value.fmt(f),
            PlainValue::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for IndexValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PlainValue::Text(text) => fmt::Debug::fmt(text, f),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

type Values = Result<Vec<IndexValue>, String>;
type OfObject = dyn Fn(&dyn AnyObject) -> Values + Send + Sync;
type OfText = dyn Fn(&ObjectText) -> Values + Send + Sync;

/// Names an index, and gives each object's values: none, one or several.
///
/// The function must be pure: the same object always gives the same values. Where it fails or panics, that object
/// is missing from this index, which is logged; nothing else suffers.
///
/// In a compact cache a function of the whole object costs decoding it on arrival, and again when it changes or
/// goes. [`label`](Self::label) does not, nor does [`of_part`](Self::of_part), which decodes a few fields.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::store::{IndexDefinition, IndexValue, Indexer};
///
/// let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(IndexValue::from);
/// let pods = Indexer::with_indexes([IndexDefinition::new("node", node), IndexDefinition::label("app")])?;
/// assert_eq!(pods.lister().by_index("node", &IndexValue::from("node-1")).len(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The book has more: [the derive](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/derive.md).
pub struct IndexDefinition<K: ?Sized> {
    name: Arc<str>,
    source: ValueSource,
    object: PhantomData<fn(&K)>,
}

/// An index whose type of object is forgotten.
pub(crate) type ObjectIndex = IndexDefinition<dyn AnyObject>;

/// Where values come from.
#[derive(Clone)]
enum ValueSource {
    Object(Arc<OfObject>),
    /// The object where it is decoded anyway, else a part of it.
    Part(Arc<OfObject>, Arc<OfText>),
    Label(Arc<str>),
    /// The UIDs of the owners that control it.
    Owner,
}

impl ObjectIndex {
    /// The name of the index of owners, which no user's index has.
    pub(crate) const OWNER: &'static str = "the owner's UID";

    /// Defines the index by the UID of the controlling owner.
    pub(crate) fn owner() -> Self {
        Self::by(Self::OWNER.into(), ValueSource::Owner)
    }
}

impl<K: 'static> IndexDefinition<K> {
    /// Defines an index by a function that always has an answer.
    ///
    /// `IndexDefinition::new("domain", |site: &Website| [IndexValue::from(&site.spec.domain)])`
    pub fn new<F, V>(name: impl Into<Arc<str>>, values: F) -> Self
    where
        F: Fn(&K) -> V + Send + Sync + 'static,
        V: IntoIterator<Item: Into<IndexValue>>,
    {
        let values = move |object: &dyn AnyObject| {
            Ok(values(downcast_ref(object)).into_iter().map(Into::into).collect())
        };
        Self::by(name.into(), ValueSource::Object(Arc::new(values)))
    }

    /// Defines an index by a function that may fail for an object.
    pub fn fallible<F, E>(name: impl Into<Arc<str>>, values: F) -> Self
    where
        F: Fn(&K) -> Result<Vec<IndexValue>, E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        let values =
            move |object: &dyn AnyObject| values(downcast_ref(object)).map_err(|error| error.to_string());
        Self::by(name.into(), ValueSource::Object(Arc::new(values)))
    }

    /// Gives the same values by a part of the object, which a compact cache decodes in its place.
    ///
    /// `P` has the fields that are needed, at their places from the root: `struct Part { spec: PartOfSpec }`.
    #[must_use]
    pub fn of_part<P, V>(self, values: impl Fn(&P) -> V + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned,
        V: IntoIterator<Item: Into<IndexValue>>,
    {
        let of_text = move |text: &ObjectText| {
            let part = text.part::<P>()?;
            Ok(values(&part).into_iter().map(Into::into).collect())
        };
        let source = match self.source {
            ValueSource::Object(of_object) | ValueSource::Part(of_object, _) => {
                ValueSource::Part(of_object, Arc::new(of_text))
            }
            other @ (ValueSource::Label(_) | ValueSource::Owner) => other,
        };
        Self::by(self.name, source)
    }
}

impl<K: ?Sized> IndexDefinition<K> {
    /// Defines an index by a label; its name is `label:` and the label's key.
    ///
    /// [`Lister::list_matching`](super::Lister::list_matching) finds by it what selectors ask of that label.
    pub fn label(key: impl Into<Arc<str>>) -> Self {
        let key = key.into();
        Self::by(format!("label:{key}").into(), ValueSource::Label(key))
    }

    fn by(name: Arc<str>, source: ValueSource) -> Self {
        Self { name, source, object: PhantomData }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Forgets the type of the objects.
    pub(crate) fn erased(self) -> ObjectIndex {
        ObjectIndex::by(self.name, self.source)
    }

    /// Returns the key of the label that is indexed, if it is one.
    pub(super) fn label_key(&self) -> Option<&str> {
        match &self.source {
            ValueSource::Label(key) => Some(key),
            ValueSource::Object(_) | ValueSource::Part(..) | ValueSource::Owner => None,
        }
    }

    /// Works out an object's values; a panic becomes an error.
    pub(super) fn values(&self, held: &CachedObject) -> Values {
        let of_whole =
            |values: &OfObject| held.with_object(values).map_err(|unreadable| unreadable.error.clone())?;
        let values = || match &self.source {
            ValueSource::Object(values) => of_whole(&**values),
            ValueSource::Part(of_object, of_text) => {
                held.text().map_or_else(|| of_whole(&**of_object), |text| of_text(text))
            }
            ValueSource::Owner => {
                let owners = held.owners();
                let controls = owners.iter().filter(|owner| owner.controller == Some(true));
                Ok(controls.map(|owner| IndexValue::from(&owner.uid)).collect())
            }
            ValueSource::Label(key) => {
                Ok(held.label(key).map(|value| (&*value).into()).into_iter().collect())
            }
        };
        contained(values).unwrap_or_else(|| Err("the index function panicked".to_owned()))
    }
}

impl_clone!([K: ?Sized] IndexDefinition<K>, name, source, object);

impl_debug!([K: ?Sized] IndexDefinition<K>, this => name: this.name);

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
