//! The names that the derive's expansion uses. They may change at any time, so do not use them directly.

use std::fmt::Display;

pub use std::{
    clone::Clone,
    convert::{From, Into},
    default::Default,
    fmt::Debug,
    ops::Deref,
    sync::Arc,
    vec,
    vec::Vec,
};

pub use serde;

use crate::object::TypedScope;
pub use crate::{
    informer::{Marker, SharedInformer, Watched},
    list_watch::ItemForm,
    object::Kind,
    store::{IndexDefinition, IndexValue, Lister, NamespaceLister, Objects},
    versions::{Spoke, Versioned},
};

/// A root type of the derive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not have a kind",
    label = "implement `kube::Resource` for it, with `DynamicType = ()`, or derive on its spec next to `CustomResource`"
)]
pub trait Root {
    /// Returns the kind.
    fn kind() -> Kind;
}

#[diagnostic::do_not_recommend]
impl<K: kube::Resource<DynamicType = (), Scope: TypedScope>> Root for K {
    fn kind() -> Kind {
        Kind::of::<K>()
    }
}

/// Returns the kind of a root type.
pub fn kind<K: Root>() -> Kind {
    K::kind()
}

/// A value that the derive can index by the text that `Display` writes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be an index value: it is neither text, integer nor `bool`, and has no `Display`",
    label = "implement `Display` for it; equal values must have equal texts, and other values other texts",
    note = "the derive does not resolve type aliases: if the field's type is an alias of a list, an `Option` or a pointer, \
            write out the type, such as `Vec<String>`"
)]
pub trait ShownValue {
    /// Returns the text as an index value.
    fn index_value(&self) -> IndexValue;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ShownValue for T {
    fn index_value(&self) -> IndexValue {
        IndexValue::display(self)
    }
}

/// A value that a `path` of the derive can end at.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not text, so a path can't end at it",
    label = "let the path end at a `String`, or at an `Option`, `Vec`, `Box` or `Arc` of strings"
)]
pub trait TextValues {
    /// Adds every text as an index value.
    fn take(&self, values: &mut Vec<IndexValue>);
}

impl TextValues for str {
    fn take(&self, values: &mut Vec<IndexValue>) {
        values.push(self.into());
    }
}

impl TextValues for String {
    fn take(&self, values: &mut Vec<IndexValue>) {
        values.push(self.into());
    }
}

impl<T: TextValues> TextValues for Option<T> {
    fn take(&self, values: &mut Vec<IndexValue>) {
        self.iter().for_each(|value| value.take(values));
    }
}

impl<T: TextValues> TextValues for Vec<T> {
    fn take(&self, values: &mut Vec<IndexValue>) {
        self.iter().for_each(|value| value.take(values));
    }
}

impl<T: TextValues + ?Sized> TextValues for Box<T> {
    fn take(&self, values: &mut Vec<IndexValue>) {
        (**self).take(values);
    }
}

impl<T: TextValues + ?Sized> TextValues for Arc<T> {
    fn take(&self, values: &mut Vec<IndexValue>) {
        (**self).take(values);
    }
}

/// Adds the text at the end of a path.
pub fn text_values<T: TextValues + ?Sized>(value: &T, values: &mut Vec<IndexValue>) {
    value.take(values);
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

/// Defines an index by a function of the object.
pub fn index<K: 'static>(name: &'static str, values: fn(&K) -> Vec<IndexValue>) -> IndexDefinition<K> {
    IndexDefinition::new(name, values)
}

/// Defines an index by a function of the whole object, and the same function of a part of it.
pub fn index_of_part<K: 'static, P: serde::de::DeserializeOwned + 'static>(
    name: &'static str,
    of_object: fn(&K) -> Vec<IndexValue>,
    of_part: fn(&P) -> Vec<IndexValue>,
) -> IndexDefinition<K> {
    IndexDefinition::new(name, of_object).of_part(of_part)
}

/// Finds objects by an index.
///
/// The only bound is [`Watched`], so that a root type that is not an object causes one error, at the impl.
pub fn by_index<W: Watched>(
    lister: &Lister<W::Object>,
    index: &str,
    value: &IndexValue,
) -> Objects<W::Object> {
    lister.by_index(index, value)
}

/// Finds objects of one namespace by an index.
pub fn by_index_within<W: Watched>(
    lister: &NamespaceLister<W::Object>,
    index: &str,
    value: &IndexValue,
) -> Objects<W::Object> {
    lister.by_index(index, value)
}

/// Narrows a lister to one namespace.
pub fn within<W: Watched>(
    lister: &Lister<W::Object>,
    namespace: impl Into<Arc<str>>,
) -> NamespaceLister<W::Object> {
    lister.namespace(namespace)
}
