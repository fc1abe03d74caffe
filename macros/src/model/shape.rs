//! How index values lie in a field's type.

use proc_macro2::Ident;
use syn::{GenericArgument, PathArguments, PathSegment, Type};

use crate::attr::Step;

/// One layer around the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// None or several: `Option`, `Vec`, sets, arrays.
    Each,
    /// Exactly one behind a pointer: `Box`, `Arc`, a reference.
    Inside,
}

/// The kind of one value.
#[derive(Clone, Debug)]
pub(crate) enum Leaf {
    /// Derefs to `str`.
    Text,
    /// Is passed by value: an integer of at most 64 bits, or `bool`.
    Scalar(Type),
    /// Passed by reference, and indexed by its `Display` text.
    Shown(Type),
    /// Indexed by text inside it, at the end of a path.
    Holds(Vec<Step>),
    /// Can't be an index value, which has been reported.
    Refused,
}

const EACH: [&str; 9] =
    ["Option", "Vec", "VecDeque", "BTreeSet", "HashSet", "IndexSet", "LinkedList", "BinaryHeap", "SmallVec"];
const INSIDE: [&str; 3] = ["Box", "Arc", "Rc"];
const SCALARS: [&str; 11] = ["i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize", "bool"];
const MAPS: [&str; 4] = ["HashMap", "BTreeMap", "IndexMap", "Map"];

/// Peels the layers off a field's type.
///
/// # Errors
///
/// At the innermost type that can't be an index value.
pub(crate) fn read(ty: &Type) -> syn::Result<(Vec<Layer>, Leaf)> {
    let mut layers = Vec::new();
    let mut ty = ty;
    loop {
        let (layer, inner) = match ty {
            // Types that pass through `macro_rules!` come grouped.
            Type::Group(group) => (None, &*group.elem),
            Type::Paren(paren) => (None, &*paren.elem),
            Type::Array(array) => (Some(Layer::Each), &*array.elem),
            Type::Slice(slice) => (Some(Layer::Each), &*slice.elem),
            Type::Reference(reference) if !is_str(&reference.elem) => (Some(Layer::Inside), &*reference.elem),
            Type::Reference(_) => return Ok((layers, Leaf::Text)),
            Type::Path(path) => match path.path.segments.last().map(wrapper) {
                Some(Some((layer, inner))) => (Some(layer), inner),
                _ => return Ok((layers, leaf(ty)?)),
            },
            other => return Err(refused(other, "this type can't be an index value")),
        };
        layers.extend(layer);
        ty = inner;
    }
}

/// Takes a wrapper apart, such as `Vec<T>`; text behind a pointer is not a wrapper.
fn wrapper(segment: &PathSegment) -> Option<(Layer, &Type)> {
    let inner = only_argument(segment)?;
    if is_one_of(&segment.ident, &EACH) {
        // The argument of a `SmallVec` is an array of its values.
        let inner = match inner {
            Type::Array(array) if segment.ident == "SmallVec" => &*array.elem,
            _ => inner,
        };
        return Some((Layer::Each, inner));
    }
    (is_one_of(&segment.ident, &INSIDE) && !is_str(inner)).then_some((Layer::Inside, inner))
}

fn leaf(ty: &Type) -> syn::Result<Leaf> {
    let Type::Path(path) = ty else { return Err(refused(ty, "this type can't be an index value")) };
    let Some(segment) = path.path.segments.last() else {
        return Err(refused(ty, "this type can't be an index value"));
    };
    let name = &segment.ident;
    if name == "String" || only_argument(segment).is_some_and(is_str) {
        return Ok(Leaf::Text);
    }
    if is_one_of(name, &SCALARS) {
        return Ok(Leaf::Scalar(ty.clone()));
    }
    if name == "f32" || name == "f64" {
        return Err(refused(ty, "floats that look equal need not be, so a float can't be an index value"));
    }
    if is_one_of(name, &MAPS) {
        return Err(refused(ty, "a map can't be an index value"));
    }
    Ok(Leaf::Shown(ty.clone()))
}

fn refused(ty: &Type, rule: &str) -> syn::Error {
    syn::Error::new_spanned(
        ty,
        format!(
            "{rule}: index text, an integer, `bool`, a type with `Display`, or an `Option`, `Vec` or set of these; \
             of a struct index a field, by `path = field`; anything else takes a hand-written `IndexDefinition`"
        ),
    )
}

/// Returns the single type argument, as of `Vec<T>` or `Cow<'static, T>`.
fn only_argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    let first = types.next()?;
    // A set may also have a hasher; other indexed types have one argument.
    (types.next().is_none() || segment.ident == "HashSet").then_some(first)
}

fn is_str(ty: &Type) -> bool {
    match ty {
        Type::Group(group) => is_str(&group.elem),
        Type::Path(path) => path.path.is_ident("str"),
        _ => false,
    }
}

fn is_one_of(name: &Ident, names: &[&str]) -> bool {
    names.iter().any(|other| name == other)
}
