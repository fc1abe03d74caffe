//! The attributes' syntax: `#[informer(...)]` strictly, `#[kube(...)]` leniently.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Attribute, Expr, ExprLit, Lit, LitBool, LitStr, Member, Meta, Path, Token, TypePath,
    ext::IdentExt,
    meta::ParseNestedMeta,
    parenthesized,
    punctuated::Punctuated,
    spanned::Spanned,
    token::{Bracket, Paren},
};

/// Collects mistakes, each with its own span.
#[derive(Default)]
pub(crate) struct Mistakes(Option<syn::Error>);

impl Mistakes {
    /// Adds a mistake.
    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.0 {
            Some(error) => error.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    /// Returns all mistakes as one error, if there are any.
    pub(crate) fn into_error(self) -> Option<syn::Error> {
        self.0
    }

    fn check(&mut self, result: syn::Result<()>) {
        if let Err(mistake) = result {
            self.add(mistake);
        }
    }
}

/// The relevant parts of `#[kube(...)]`.
pub(crate) struct Kube {
    /// The root type's name: `root`, otherwise `kind`; absent if `CustomResource` reports that it is missing.
    pub(crate) root: Option<Ident>,
    /// Whether `namespaced` is set.
    pub(crate) scope: Scope,
    /// Whether it names a status.
    pub(crate) has_status: bool,
    /// Whether the fields of the spec are those of the object, by `no_spec`.
    pub(crate) is_flat: bool,
}

/// Whether objects are namespaced, if the attributes say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// `#[kube(namespaced)]`.
    Namespaced,
    /// `#[kube(...)]` without it.
    Cluster,
    /// A hand-written root: only its `kube::Resource` implementation knows.
    Untold,
}

/// Reads all `#[kube(...)]` of a struct; `None` without any.
///
/// Other keys are skipped, and so is what can't be read: `CustomResource` reports it at the same token.
pub(crate) fn kube(attributes: &[Attribute]) -> Option<Kube> {
    let (mut root, mut kind, mut scope) = (None, None, Scope::Cluster);
    let (mut found, mut has_status, mut is_flat) = (false, false, false);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("kube")) {
        found = true;
        let outcome = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("root") {
                root = type_name(&meta)?;
            } else if meta.path.is_ident("kind") {
                kind = type_name(&meta)?;
            } else if meta.path.is_ident("namespaced") {
                scope = if flag(&meta)? { Scope::Namespaced } else { Scope::Cluster };
            } else if meta.path.is_ident("no_spec") {
                is_flat = flag(&meta)?;
            } else {
                has_status |= meta.path.is_ident("status");
                skip(&meta)?;
            }
            Ok(())
        });
        if outcome.is_err() {
            return Some(Kube { root: None, scope, has_status, is_flat });
        }
    }
    found.then(|| Kube { root: root.or(kind), scope, has_status, is_flat })
}

/// Takes the name of a type from `key = "Name"`, with the literal's span; `None` if it is not an identifier.
fn type_name(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<Ident>> {
    let literal: LitStr = meta.value()?.parse()?;
    Ok(literal.parse().ok())
}

/// Reads `key`, `key = true` or `key = "true"`, as kube does.
fn flag(meta: &ParseNestedMeta<'_>) -> syn::Result<bool> {
    if !meta.input.peek(Token![=]) {
        return Ok(true);
    }
    match meta.value()?.parse::<Lit>()? {
        Lit::Bool(set) => Ok(set.value),
        Lit::Str(text) => Ok(text.parse::<LitBool>()?.value),
        other => Err(syn::Error::new_spanned(other, "this is true or false")),
    }
}

fn skip(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<Expr>()?;
    } else if meta.input.peek(Paren) {
        let content;
        parenthesized!(content in meta.input);
        content.parse::<TokenStream>()?;
    }
    Ok(())
}

/// How objects are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Decoded.
    #[default]
    Typed,
    /// As bytes.
    Compact,
}

/// The settings of `#[informer(...)]` on the struct.
#[derive(Default)]
pub(crate) struct OnStruct {
    /// The path of `watchkeeper`.
    pub(crate) runtime: Option<Path>,
    /// How objects are cached.
    pub(crate) form: Form,
    /// The root types of the other versions.
    pub(crate) versions: Vec<TypePath>,
}

/// Reads all `#[informer(...)]` of a struct.
pub(crate) fn on_struct(attributes: &[Attribute], mistakes: &mut Mistakes) -> OnStruct {
    let mut read = OnStruct::default();
    for_each_key(attributes, mistakes, |meta| {
        if meta.path.is_ident("crate") {
            if read.runtime.is_some() {
                return Err(meta.error("`crate` is given twice: keep one"));
            }
            read.runtime = Some(path(&meta)?);
            return Ok(());
        }
        if meta.path.is_ident("compact") {
            if !meta.input.is_empty() && !meta.input.peek(Token![,]) {
                return Err(meta.error("`compact` takes no value: write `#[informer(compact)]`"));
            }
            read.form = Form::Compact;
            return Ok(());
        }
        if meta.path.is_ident("versions") {
            read.versions.extend(versions(&meta)?);
            return Ok(());
        }
        if meta.path.is_ident("index") {
            return Err(meta.error(
                "an index belongs to a field: write `#[informer(index)]` above the field whose value is looked up",
            ));
        }
        Err(meta.error(unknown(
            &meta,
            "on a struct it takes `compact`, `versions(..)` or `crate = path`, on a field `index`, `index = \"name\"` or `path = field`",
        )))
    });
    read
}

/// Takes the types from `versions(v1beta1::Website, v1alpha1::Website)`.
fn versions(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<TypePath>> {
    const REMEDY: &str =
        "`versions` takes the other versions' types: write `versions(v1beta1::Website, v1alpha1::Website)`";
    if !meta.input.peek(Paren) {
        return Err(meta.error(REMEDY));
    }
    let content;
    parenthesized!(content in meta.input);
    let at = content.span();
    let types = Punctuated::<TypePath, Token![,]>::parse_terminated(&content);
    match types {
        Ok(types) if !types.is_empty() => Ok(types.into_iter().collect()),
        _ => Err(syn::Error::new(at, REMEDY)),
    }
}

/// `index`, or `index = "name"`, on a field, and an optional `path = field`.
pub(crate) struct IndexKey {
    /// The span of `index`.
    pub(crate) span: Span,
    /// The look-up's name, if one was given.
    pub(crate) name: Option<LitStr>,
    /// The indexed part of the field's values.
    pub(crate) of: Of,
}

/// The indexed part of a field's values.
pub(crate) enum Of {
    /// They themselves.
    Themselves,
    /// The type at the end of a path.
    Path(Vec<Step>),
    /// Nothing: the path can't be read, which has been reported.
    Refused,
}

/// One step of a `path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a field.
    Field(Ident),
    /// To each element: of an `Option`, a `Vec`, a set.
    Each,
}

/// Reads all `#[informer(...)]` of a field.
pub(crate) fn on_field(attributes: &[Attribute], mistakes: &mut Mistakes) -> Option<IndexKey> {
    let (mut index, mut way) = (None::<IndexKey>, None);
    for_each_key(attributes, mistakes, |meta| {
        if meta.path.is_ident("path") {
            if way.is_some() {
                return Err(meta.error("an index has one path: keep one `path`"));
            }
            let path = field_path(&meta);
            way = Some((meta.path.span(), path.as_ref().map_or(Of::Refused, |path| Of::Path(path.clone()))));
            return path.map(drop);
        }
        if meta.path.is_ident("index") {
            if index.is_some() {
                return Err(meta.error("a field has one index: keep one `index`"));
            }
            index = Some(index_key(&meta)?);
            return Ok(());
        }
        if meta.path.is_ident("crate") {
            return Err(
                meta.error("`crate` belongs to the struct: write `#[informer(crate = path)]` above it")
            );
        }
        Err(meta.error(unknown(
            &meta,
            "a field takes `index`, `index = \"name\"` or `path = field`, a struct `compact`, `versions(..)` or `crate = path`",
        )))
    });
    match (&mut index, way) {
        (Some(index), Some((_, of))) => index.of = of,
        (None, Some((span, _))) => mistakes.add(syn::Error::new(
            span,
            "a path says what an index is of: write `index = \"by_name\", path = name`",
        )),
        (_, None) => {}
    }
    index
}

/// Takes the steps of `path = field`, `path = field.of_that` or `path = optional?.field`.
fn field_path(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<Step>> {
    let Ok(value) = meta.value() else { return Err(meta.error(NO_PATH)) };
    let way: Expr = value.parse()?;
    let mut path = Vec::new();
    steps(&way, &mut path)?;
    Ok(path)
}

const NO_PATH: &str = "a path names fields: write `path = name`, `path = secret.name`, or `path = secret?.name` \
                       to look into an `Option` or a `Vec`";

fn steps(way: &Expr, path: &mut Vec<Step>) -> syn::Result<()> {
    match way {
        Expr::Path(first) => match first.path.get_ident() {
            Some(field) => path.push(Step::Field(field.clone())),
            None => return Err(syn::Error::new_spanned(first, NO_PATH)),
        },
        Expr::Field(field) => {
            steps(&field.base, path)?;
            match &field.member {
                Member::Named(name) => path.push(Step::Field(name.clone())),
                Member::Unnamed(_) => return Err(syn::Error::new_spanned(&field.member, NO_PATH)),
            }
        }
        Expr::Try(each) => {
            steps(&each.expr, path)?;
            path.push(Step::Each);
        }
        other => return Err(syn::Error::new_spanned(other, NO_PATH)),
    }
    Ok(())
}

/// Keeps the serde attributes of a field or a struct.
pub(crate) fn serde(attributes: &[Attribute]) -> Vec<Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("serde")).cloned().collect()
}

/// The serde attributes of a struct that concern single fields.
pub(crate) struct SerdeContainer {
    /// How fields are renamed, as it was written.
    pub(crate) rename_all: Option<LitStr>,
    /// Whether missing fields come from the struct's default.
    pub(crate) default: bool,
}

/// Reads the serde attributes of a struct; `None` if its fields are not decoded one by one.
pub(crate) fn serde_container(attributes: &[Attribute]) -> Option<SerdeContainer> {
    let mut read = SerdeContainer { rename_all: None, default: false };
    for attribute in serde(attributes) {
        let outcome = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename_all") && meta.input.peek(Token![=]) {
                read.rename_all = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("default") && !meta.input.peek(Token![=]) {
                read.default = true;
            } else if meta.path.is_ident("deny_unknown_fields") {
                // The rest of the object is unknown to a part of it.
            } else {
                return Err(meta.error("it may change how the struct is decoded"));
            }
            Ok(())
        });
        outcome.ok()?;
    }
    Some(read)
}

fn index_key(meta: &ParseNestedMeta<'_>) -> syn::Result<IndexKey> {
    const REMEDY: &str =
        "an index is named by a string: write `index = \"by_name\"`, or `index` for `by_<field>`";
    let span = meta.path.get_ident().map_or_else(Span::call_site, Ident::span);
    if meta.input.peek(Paren) || meta.input.peek(Bracket) {
        return Err(meta.input.error(REMEDY));
    }
    if !meta.input.peek(Token![=]) {
        return Ok(IndexKey { span, name: None, of: Of::Themselves });
    }
    match meta.value()?.parse()? {
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => {
            Ok(IndexKey { span, name: Some(name), of: Of::Themselves })
        }
        other => Err(syn::Error::new_spanned(other, REMEDY)),
    }
}

/// Takes a path from `key = path`, or from `key = "path"`.
fn path(meta: &ParseNestedMeta<'_>) -> syn::Result<Path> {
    const REMEDY: &str = "`crate` takes a path: write `crate = some::path`";
    let value = match meta.input.peek(Token![=]) {
        true => meta.value()?,
        false => return Err(meta.error(REMEDY)),
    };
    if value.peek(LitStr) {
        let literal: LitStr = value.parse()?;
        return literal
            .parse_with(Path::parse_mod_style)
            .map_err(|_| syn::Error::new(literal.span(), REMEDY));
    }
    let at = value.span();
    Path::parse_mod_style(value).map_err(|_| syn::Error::new(at, REMEDY))
}

fn unknown(meta: &ParseNestedMeta<'_>, known: &str) -> String {
    let key = meta.path.segments.last().map(|segment| segment.ident.unraw().to_string()).unwrap_or_default();
    format!("`informer` knows no `{key}`: {known}")
}

fn for_each_key(
    attributes: &[Attribute],
    mistakes: &mut Mistakes,
    mut read: impl FnMut(ParseNestedMeta<'_>) -> syn::Result<()>,
) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("informer")) {
        let outcome = match &attribute.meta {
            Meta::List(_) => attribute.parse_nested_meta(&mut read),
            other => Err(syn::Error::new_spanned(
                other,
                "`informer` takes its keys in parentheses: write `#[informer(index)]` above a field",
            )),
        };
        mistakes.check(outcome);
    }
}
