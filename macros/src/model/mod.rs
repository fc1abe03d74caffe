//! The checked input of code generation: all user errors are found here or in the attributes.

mod shape;
#[cfg(test)]
mod tests;

pub(crate) use shape::{Layer, Leaf};

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::{
    Attribute, Data, DataStruct, DeriveInput, Field, Fields, FieldsNamed, LitStr, Path, Type, TypePath,
    Visibility, ext::IdentExt, parse_quote, spanned::Spanned,
};

use crate::attr::{self, Form, IndexKey, Kube, Mistakes, Of, Scope};

/// Names that a look-up can't have: it would hide a method of every lister.
const TAKEN: [&str; 29] = [
    "as_ref",
    "borrow",
    "by_index",
    "cached",
    "clone",
    "contains",
    "count_by_index",
    "deref",
    "eq",
    "fmt",
    "from",
    "get",
    "has_index",
    "into",
    "is_empty",
    "len",
    "list",
    "list_cached",
    "list_matching",
    "lookup",
    "name",
    "namespace",
    "pick",
    "resource_version",
    "to_owned",
    "type_id",
    "unreadable",
    "unreadable_or_outdated",
    "wait_for_version",
];

/// The input of code generation for one root type.
#[derive(Debug)]
pub(crate) struct Model {
    /// The root type.
    pub(crate) root: Ident,
    /// The struct, if it is not the root, and can be named.
    pub(crate) spec: Option<Ident>,
    /// The struct's visibility, and that of all that is generated.
    pub(crate) vis: Visibility,
    /// The struct's doc comments.
    pub(crate) docs: Vec<Attribute>,
    /// The path from the root to the struct's fields.
    pub(crate) place: Place,
    /// Whether objects live in namespaces.
    pub(crate) scope: Scope,
    /// Whether `#[kube(...)]` names a status.
    pub(crate) has_status: bool,
    /// The path of `watchkeeper`.
    pub(crate) runtime: Path,
    /// The indexes, in the order of the fields.
    pub(crate) indexes: Vec<Index>,
    /// How objects are cached.
    pub(crate) form: Form,
    /// The root types of the other versions.
    pub(crate) versions: Vec<TypePath>,
    /// The struct, if a compact cache can decode its indexed fields alone; `None` if it must decode all fields.
    pub(crate) part: Option<Part>,
}

/// What is needed to decode some fields of the struct.
#[derive(Debug)]
pub(crate) struct Part {
    /// The struct.
    pub(crate) of: Ident,
    /// How serde renames its fields.
    pub(crate) rename_all: Option<LitStr>,
    /// The source of missing fields.
    pub(crate) missing: Missing,
}

/// The source of missing fields of the struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Each field has its own setting.
    Fields,
    /// The default of the struct.
    Struct,
}

/// The path from the root to the struct's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Under `.spec`: the struct is the spec.
    Spec,
    /// Under `.spec` in Rust, and right there in JSON: the struct is the spec of a kind with `no_spec`.
    FlatSpec,
    /// Right there: the struct is the root.
    Root,
}

/// One index and its look-up.
#[derive(Debug)]
pub(crate) struct Index {
    /// The name of the look-up and the index.
    pub(crate) method: Ident,
    /// The field.
    pub(crate) field: Ident,
    /// The types around the values, outermost first.
    pub(crate) layers: Vec<Layer>,
    /// One value.
    pub(crate) leaf: Leaf,
    /// The field's type.
    pub(crate) ty: Type,
    /// The field's serde attributes.
    pub(crate) serde: Vec<Attribute>,
    /// The field's doc comments.
    pub(crate) docs: Vec<Attribute>,
}

/// Reads a struct; the model exists if the root type's name is known, whatever other errors there are.
pub(crate) fn read(input: &DeriveInput) -> (Option<Model>, Mistakes) {
    let mut mistakes = Mistakes::default();
    let on_struct = attr::on_struct(&input.attrs, &mut mistakes);
    let fields = named_fields(input, &mut mistakes);
    refuse_generics(input, &mut mistakes);
    let indexes = fields.map(|fields| indexes(fields, &mut mistakes)).unwrap_or_default();
    let model = root(input, fields, &mut mistakes).map(|(root, place, scope)| Model {
        root,
        spec: (place != Place::Root && input.generics.params.is_empty()).then(|| input.ident.clone()),
        vis: input.vis.clone(),
        docs: docs(&input.attrs),
        place,
        scope,
        has_status: attr::kube(&input.attrs).is_some_and(|kube| kube.has_status),
        runtime: on_struct.runtime.unwrap_or_else(|| parse_quote!(::watchkeeper)),
        indexes,
        form: on_struct.form,
        versions: on_struct.versions,
        part: part(input, on_struct.form),
    });
    (model, mistakes)
}

fn part(input: &DeriveInput, form: Form) -> Option<Part> {
    let serde = attr::serde_container(&input.attrs).filter(|_| form == Form::Compact)?;
    let missing = if serde.default { Missing::Struct } else { Missing::Fields };
    Some(Part { of: input.ident.clone(), rename_all: serde.rename_all, missing })
}

fn named_fields<'a>(input: &'a DeriveInput, mistakes: &mut Mistakes) -> Option<&'a FieldsNamed> {
    let (what, span) = match &input.data {
        Data::Struct(DataStruct { fields: Fields::Named(fields), .. }) => return Some(fields),
        Data::Struct(DataStruct { fields: Fields::Unnamed(fields), .. }) => ("a tuple struct", fields.span()),
        Data::Struct(DataStruct { fields: Fields::Unit, .. }) => ("a unit struct", input.ident.span()),
        Data::Enum(data) => ("an enum", data.enum_token.span),
        Data::Union(data) => ("a union", data.union_token.span),
    };
    mistakes.add(syn::Error::new(
        span,
        format!(
            "`Informer` needs a struct with named fields, and this is {what}: make it a field of such a struct, \
             or leave the derive out and watch `External<Root>`"
        ),
    ));
    None
}

fn refuse_generics(input: &DeriveInput, mistakes: &mut Mistakes) {
    if input.generics.params.is_empty() {
        return;
    }
    mistakes.add(syn::Error::new_spanned(
        &input.generics,
        "`Informer` can't be derived for a generic struct, since a watch decodes one concrete type: \
         remove the parameters, or leave the derive out and watch `External<Root>`",
    ));
}

/// Finds the root type: named by `#[kube(...)]`, or the struct itself if it has metadata.
fn root(
    input: &DeriveInput,
    fields: Option<&FieldsNamed>,
    mistakes: &mut Mistakes,
) -> Option<(Ident, Place, Scope)> {
    if let Some(Kube { root, scope, is_flat, .. }) = attr::kube(&input.attrs) {
        let place = if is_flat { Place::FlatSpec } else { Place::Spec };
        return root.map(|root| (root, place, scope));
    }
    let fields = fields?;
    if !fields.named.iter().any(|field| field.ident.as_ref().is_some_and(|name| name == "metadata")) {
        mistakes.add(syn::Error::new(
            input.ident.span(),
            "`Informer` stands on the spec of a custom resource, or on a root type with a field `metadata`: \
             add `CustomResource` to the derives and `#[kube(group = .., version = .., kind = ..)]` below them",
        ));
        return None;
    }
    // A generic root can't be named without its arguments.
    input.generics.params.is_empty().then(|| (input.ident.clone(), Place::Root, Scope::Untold))
}

fn indexes(fields: &FieldsNamed, mistakes: &mut Mistakes) -> Vec<Index> {
    let mut indexes: Vec<Index> = Vec::new();
    for field in &fields.named {
        let Some(key) = attr::on_field(&field.attrs, mistakes) else { continue };
        match index(field, &key, &indexes, mistakes) {
            Ok(index) => indexes.push(index),
            Err(mistake) => mistakes.add(mistake),
        }
    }
    indexes
}

fn index(field: &Field, key: &IndexKey, earlier: &[Index], mistakes: &mut Mistakes) -> syn::Result<Index> {
    let name =
        field.ident.clone().ok_or_else(|| syn::Error::new(field.span(), "an index needs a named field"))?;
    let (method, at) = method(&name, key)?;
    if let Some(other) = earlier.iter().find(|other| other.method == method) {
        return Err(syn::Error::new(
            at,
            format!(
                "`{method}` already looks up the field `{}`: give this index another name, `index = \"...\"`",
                other.field
            ),
        ));
    }
    let shape = shape::read(&field.ty).and_then(|(layers, leaf)| Ok((layers, at_path(leaf, key)?)));
    let (layers, leaf) = shape.unwrap_or_else(|mistake| {
        mistakes.add(mistake);
        (Vec::new(), Leaf::Refused)
    });
    let (ty, serde) = (field.ty.clone(), attr::serde(&field.attrs));
    Ok(Index { method, field: name, layers, leaf, ty, serde, docs: docs(&field.attrs) })
}

/// Follows the path, if there is one: only structs have fields.
fn at_path(leaf: Leaf, key: &IndexKey) -> syn::Result<Leaf> {
    match (leaf, &key.of) {
        (leaf, Of::Themselves) => Ok(leaf),
        (_, Of::Refused) => Ok(Leaf::Refused),
        (Leaf::Shown(_), Of::Path(path)) => Ok(Leaf::Holds(path.clone())),
        (_, Of::Path(_)) => Err(syn::Error::new(
            key.span,
            "a path leads into a struct, and the values of this field are index values themselves: remove `path`",
        )),
    }
}

/// Names the look-up, and the place of a mistake in the name.
fn method(field: &Ident, key: &IndexKey) -> syn::Result<(Ident, Span)> {
    let (method, at) = match &key.name {
        None => (Ident::new(&format!("by_{}", field.unraw()), field.span()), key.span),
        Some(literal) => (named(field, literal)?, literal.span()),
    };
    let text = method.to_string();
    if TAKEN.contains(&text.as_str()) {
        let other = if text.starts_with("by_") { format!("{text}_value") } else { format!("by_{text}") };
        return Err(syn::Error::new(
            at,
            format!("a look-up `{text}` would hide what every lister has: name it, `index = \"{other}\"`"),
        ));
    }
    Ok((method, at))
}

/// Reads the name that a user gave a look-up.
fn named(field: &Ident, literal: &LitStr) -> syn::Result<Ident> {
    let (text, at) = (literal.value(), literal.span());
    if text.is_empty() {
        return Err(syn::Error::new(
            at,
            format!(
                "an index needs a name: write `index = \"by_name\"`, or `index` for `by_{}`",
                field.unraw()
            ),
        ));
    }
    literal.parse().map_err(|_| {
        syn::Error::new(
            at,
            format!(
                "`{text}` can't name a method: a look-up's name is an identifier, such as `by_{}`",
                field.unraw()
            ),
        )
    })
}

fn docs(attributes: &[Attribute]) -> Vec<Attribute> {
    // `#[doc(hidden)]` and similar attributes are not comments.
    let comment = |attribute: &&Attribute| attribute.meta.to_token_stream().to_string().starts_with("doc =");
    attributes.iter().filter(comment).cloned().collect()
}
