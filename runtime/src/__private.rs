//! What the derive's expansion names, and nothing else should: no promise is made for it.

use std::fmt::Display;

pub use std::{clone::Clone, convert::From, fmt::Debug, ops::Deref, sync::Arc, vec, vec::Vec};

pub use crate::{
    informer::{SharedInformer, Watched, typed_kind},
    object::Kind,
    store::{IndexDefinition, IndexValue, Lister, NamespaceLister},
};

/// Bounds what the derive can index by the text that `Display` writes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be an index value: it is neither text, integer nor `bool`, and has no `Display`",
    label = "implement `Display` for it; equal values must read equal, and others must not"
)]
pub trait ShownValue {
    /// Takes the text as an index value.
    fn index_value(&self) -> IndexValue;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ShownValue for T {
    fn index_value(&self) -> IndexValue {
        IndexValue::display(self)
    }
}

/// Makes an index value of text.
pub fn text_value(text: &str) -> IndexValue {
    text.into()
}

/// Makes an index value of an integer or `bool`.
pub fn scalar_value(scalar: impl Into<IndexValue>) -> IndexValue {
    scalar.into()
}

/// Makes an index value of anything with `Display`.
pub fn shown_value<T: ShownValue + ?Sized>(value: &T) -> IndexValue {
    value.index_value()
}

/// Defines an index by a function that always has an answer.
pub fn index<K: 'static>(name: &'static str, values: fn(&K) -> Vec<IndexValue>) -> IndexDefinition<K> {
    IndexDefinition::new(name, values)
}
