//! The tokens: all names go through the runtime's `__private`, so that users need no imports.

#[cfg(test)]
mod tests;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Attribute, ext::IdentExt, spanned::Spanned};

use crate::{
    attr::{Form, Scope, Step},
    model::{Index, Layer, Leaf, Missing, Model, Part, Place},
};

/// The names and paths that all parts of one expansion share.
struct Names<'a> {
    model: &'a Model,
    private: TokenStream,
    informer: Ident,
    lister: Ident,
    namespace_lister: Ident,
}

/// The index of a look-up.
#[derive(Clone, Copy)]
enum Find {
    Everywhere,
    WithinNamespace,
}

/// Generates everything for one root type.
pub(crate) fn expand(model: &Model) -> TokenStream {
    let runtime = &model.runtime;
    let base = model.root.unraw();
    let names = Names {
        model,
        private: quote! { #runtime::__private },
        informer: format_ident!("{base}Informer"),
        lister: format_ident!("{base}Lister"),
        namespace_lister: format_ident!("{base}ListerInNamespace"),
    };
    let types = [informer(&names), lister_type(&names), namespace_lister_type(&names)];
    let keys = model.indexes.iter().filter_map(|index| key_function(&names, index));
    let part = part_type(&names);
    let impls = [watched(&names), versioned(&names), lister_impls(&names), namespace_lister_impls(&names)];
    let quiet = quiet();
    quote! {
        #(#types)*
        #quiet
        const _: () = {
            #(#keys)*
            #part
            #(#impls)*
        };
    }
}

/// Silences what a user could do nothing about: few use all that is generated, and some keep a field's type
/// more private than the struct.
fn quiet() -> TokenStream {
    quote! {
        #[allow(
            dead_code, deprecated, non_snake_case, private_interfaces, unreachable_pub,
            reason = "generated: what of it a program uses, and what its author named, is the author's affair"
        )]
    }
}

fn informer(Names { model, private, informer, .. }: &Names<'_>) -> TokenStream {
    let Model { vis, root, .. } = model;
    let doc = format!("Watches and caches [`{root}`] objects, for any number of handlers and listers.");
    let (doc, quiet) = (docs(&doc, &[]), quiet());
    quote! {
        #doc
        #quiet
        #vis type #informer = #private::SharedInformer<#root>;
    }
}

fn watched(names: &Names<'_>) -> TokenStream {
    let Names { model, private, lister, .. } = names;
    let root = &model.root;
    let indexes = model.indexes.iter().filter_map(|index| index_definition(names, index));
    // If a user names the spec instead of the kind, the only error is where it is watched.
    let spec = model.spec.as_ref().map(|spec| {
        quote! {
            #[automatically_derived]
            impl #private::Marker for #spec {
                type Seen = Self;
            }
        }
    });
    let form = (model.form == Form::Compact).then(|| {
        quote! {
            fn item_form() -> #private::ItemForm {
                #private::ItemForm::Bytes
            }
        }
    });
    let status = model.has_status.then(|| {
        quote! {
            fn has_status() -> bool {
                true
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #private::Watched for #root {
            type Object = Self;
            type Lister = #lister;
            type DynamicType = ();

            fn dynamic_type(&self) {}

            fn kind_of(_: &()) -> #private::Kind {
                #private::kind::<Self>()
            }

            fn indexes() -> #private::Vec<#private::IndexDefinition<Self>> {
                #private::vec![#(#indexes),*]
            }

            #form

            #status
        }

        #spec
    }
}

/// Lists the other versions. Spanned so that a conversion that is missing is an error at its version.
fn versioned(Names { model, private, .. }: &Names<'_>) -> TokenStream {
    let root = &model.root;
    let spokes = model.versions.iter().map(|version| {
        let at = Span::call_site().located_at(version.span());
        quote_spanned! { at=> #private::Spoke::of::<#version>() }
    });
    quote! {
        #[automatically_derived]
        impl #private::Versioned for #root {
            fn spokes() -> #private::Vec<#private::Spoke<Self>> {
                #private::vec![#(#spokes),*]
            }
        }
    }
}

/// Writes a type that has the indexed fields alone, decoded as serde decodes them in the whole.
fn part_type(Names { model, private, .. }: &Names<'_>) -> TokenStream {
    let Some(Part { of, rename_all, missing }) = model.part.as_ref().filter(|_| !model.indexes.is_empty())
    else {
        return TokenStream::new();
    };
    let serde = quote! { #private::serde }.to_string();
    let rename_all = rename_all.iter();
    let (mut names, mut fields) = (Vec::new(), Vec::new());
    for Index { field, ty, serde, .. } in &model.indexes {
        names.push(field);
        fields.push(quote! { #(#serde)* #field: #ty });
    }
    let (default, default_impl) = match missing {
        Missing::Fields => (None, None),
        Missing::Struct => {
            let default = quote! { #private::Default };
            let from_whole = quote! {
                impl #default for __Fields {
                    fn default() -> Self {
                        let whole = <#of as #default>::default();
                        Self { #(#names: whole.#names),* }
                    }
                }
            };
            (Some(quote! { #[serde(default)] }), Some(from_whole))
        }
    };
    let part = match model.place {
        Place::Root => quote! { type __Part = __Fields; },
        Place::Spec | Place::FlatSpec => {
            let flatten = (model.place == Place::FlatSpec).then(|| quote! { #[serde(flatten)] });
            quote! {
                #[derive(#private::serde::Deserialize)]
                #[serde(crate = #serde)]
                struct __Part {
                    #flatten
                    spec: __Fields,
                }
            }
        }
    };
    quote! {
        #[derive(#private::serde::Deserialize)]
        #[serde(crate = #serde)]
        #(#[serde(rename_all = #rename_all)])*
        #default
        struct __Fields {
            #(#fields),*
        }
        #default_impl
        #part
    }
}

fn lister_type(Names { model, private, lister, .. }: &Names<'_>) -> TokenStream {
    let Model { vis, root, .. } = model;
    let doc = docs(
        &format!("Reads cached [`{root}`] objects: a `Lister` with a look-up for each index."),
        &model.docs,
    );
    let quiet = quiet();
    quote! {
        #doc
        #quiet
        #[derive(#private::Clone, #private::Debug)]
        #vis struct #lister(#private::Lister<#root>);
    }
}

fn namespace_lister_type(names: &Names<'_>) -> TokenStream {
    let Names { model: Model { vis, root, docs: docs_below, .. }, private, namespace_lister, .. } = names;
    if !names.has_namespaces() {
        return TokenStream::new();
    }
    let doc = docs(&format!("Reads cached [`{root}`] objects of one namespace."), docs_below);
    let quiet = quiet();
    quote! {
        #doc
        #quiet
        #[derive(#private::Clone, #private::Debug)]
        #vis struct #namespace_lister(#private::NamespaceLister<#root>);
    }
}

fn lister_impls(names: &Names<'_>) -> TokenStream {
    let Names { model: Model { vis, root, indexes, .. }, private, lister, namespace_lister, .. } = names;
    let newtype = newtype_impls(names, lister, &quote! { #private::Lister<#root> });
    let narrow = names.has_namespaces().then(|| {
        quote! {
            /// Reads one namespace only.
            #vis fn namespace(&self, namespace: impl #private::Into<#private::Arc<str>>) -> #namespace_lister {
                #namespace_lister(#private::within::<#root>(&self.0, namespace))
            }
        }
    });
    let look_ups = indexes.iter().map(|index| look_up(names, Find::Everywhere, index));
    quote! {
        #newtype
        impl #lister {
            #narrow
            #(#look_ups)*
        }
    }
}

fn namespace_lister_impls(names: &Names<'_>) -> TokenStream {
    let Names { model: Model { root, indexes, .. }, private, namespace_lister, .. } = names;
    if !names.has_namespaces() {
        return TokenStream::new();
    }
    let newtype = newtype_impls(names, namespace_lister, &quote! { #private::NamespaceLister<#root> });
    let look_ups = indexes.iter().map(|index| look_up(names, Find::WithinNamespace, index));
    quote! {
        #newtype
        impl #namespace_lister {
            #(#look_ups)*
        }
    }
}

fn newtype_impls(Names { private, .. }: &Names<'_>, outer: &Ident, inner: &TokenStream) -> TokenStream {
    quote! {
        #[automatically_derived]
        impl #private::From<#inner> for #outer {
            fn from(lister: #inner) -> Self {
                Self(lister)
            }
        }

        #[automatically_derived]
        impl #private::Deref for #outer {
            type Target = #inner;

            fn deref(&self) -> &#inner {
                &self.0
            }
        }
    }
}

impl Names<'_> {
    fn has_namespaces(&self) -> bool {
        self.model.scope != Scope::Cluster
    }
}

/// Writes the function that turns a value into an index value, for the index and for its look-up alike.
fn key_function(Names { private, .. }: &Names<'_>, index: &Index) -> Option<TokenStream> {
    let name = key_name(index);
    let argument = argument_type(&index.leaf)?;
    let body = match &index.leaf {
        Leaf::Text | Leaf::Holds(_) => quote! { #private::text_value(value) },
        Leaf::Scalar(_) => quote! { #private::scalar_value(value) },
        // Spanned so that a type without `Display` is what the error points at.
        Leaf::Shown(ty) => {
            let at = Span::call_site().located_at(ty.span());
            quote_spanned! { at=> #private::shown_value(value) }
        }
        Leaf::Refused => return None,
    };
    Some(quote! {
        fn #name(value: #argument) -> #private::IndexValue {
            #body
        }
    })
}

fn index_definition(Names { model, private, .. }: &Names<'_>, index: &Index) -> Option<TokenStream> {
    let Index { method, field, layers, leaf, .. } = index;
    let key = key_name(index);
    let take = match leaf {
        Leaf::Text | Leaf::Shown(_) => quote! { values.push(#key(value)); },
        Leaf::Scalar(_) => quote! { values.push(#key(*value)); },
        Leaf::Holds(path) => along(private, path),
        Leaf::Refused => return None,
    };
    let walk = layers.iter().rev().fold(take, |inner, layer| match layer {
        Layer::Each => quote! { for value in value.iter() { #inner } },
        Layer::Inside => quote! { let value = &**value; #inner },
    });
    let value = match model.place {
        Place::Spec | Place::FlatSpec => quote! { &object.spec.#field },
        Place::Root => quote! { &object.#field },
    };
    let name = method.unraw().to_string();
    let values = |of: TokenStream| {
        quote! {
            |object: &#of| {
                let mut values = #private::Vec::new();
                let value = #value;
                #walk
                values
            }
        }
    };
    let of_object = values(quote! { Self });
    Some(match &model.part {
        None => quote! { #private::index(#name, #of_object) },
        Some(_) => {
            let of_part = values(quote! { __Part });
            quote! { #private::index_of_part::<Self, __Part>(#name, #of_object, #of_part) }
        }
    })
}

/// Writes the way along a path, and what takes the text at its end.
fn along(private: &TokenStream, path: &[Step]) -> TokenStream {
    let last = path.iter().rev().find_map(|step| match step {
        Step::Field(field) => Some(field.span()),
        Step::Each => None,
    });
    // Spanned so that the error points at the part of the path that is not text.
    let at = Span::call_site().located_at(last.unwrap_or_else(Span::call_site));
    let take = quote_spanned! { at=> #private::text_values(value, &mut values); };
    path.iter().rev().fold(take, |inner, step| match step {
        Step::Field(field) => quote! { let value = &value.#field; #inner },
        Step::Each => quote! { for value in value.iter() { #inner } },
    })
}

/// Writes one look-up, which goes through one of the runtime's two functions.
fn look_up(Names { model, private, .. }: &Names<'_>, find: Find, index: &Index) -> TokenStream {
    let Index { method, field, leaf, layers, .. } = index;
    let Model { vis, root, .. } = model;
    let path = match model.place {
        Place::Spec => format!("spec.{}", field.unraw()),
        Place::Root | Place::FlatSpec => field.unraw().to_string(),
    };
    let path = match leaf {
        Leaf::Holds(steps) => format!("{path}{}", shown(steps)),
        _ => path,
    };
    let relation = if layers.contains(&Layer::Each) { "holds" } else { "is" };
    let doc = docs(&format!("Looks up the objects whose `{path}` {relation} this."), &index.docs);
    let objects = quote! { #private::Objects<#root> };
    let Some(argument) = argument_type(leaf) else {
        return quote! {
            #doc
            #vis fn #method<Q>(&self, _: Q) -> #objects {
                #private::Objects::default()
            }
        };
    };
    let (name, key) = (method.unraw().to_string(), key_name(index));
    let find = match find {
        Find::Everywhere => quote! { by_index },
        Find::WithinNamespace => quote! { by_index_within },
    };
    quote! {
        #doc
        #vis fn #method(&self, #field: #argument) -> #objects {
            #private::#find::<#root>(&self.0, #name, &#key(#field))
        }
    }
}

/// Writes a first line of documentation, and below it what the user wrote.
fn docs(first: &str, below: &[Attribute]) -> TokenStream {
    let first = format!(" {first}");
    let gap = (!below.is_empty()).then(|| quote! { #[doc = ""] });
    quote! {
        #[doc = #first]
        #gap
        #(#below)*
    }
}

/// Shows a path as it was written, for documentation.
fn shown(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(field) => format!(".{}", field.unraw()),
            Step::Each => "[]".to_owned(),
        })
        .collect()
}

fn key_name(index: &Index) -> Ident {
    format_ident!("__value_{}", index.method.unraw())
}

fn argument_type(leaf: &Leaf) -> Option<TokenStream> {
    match leaf {
        Leaf::Text | Leaf::Holds(_) => Some(quote! { &str }),
        Leaf::Scalar(ty) => Some(quote! { #ty }),
        Leaf::Shown(ty) => Some(quote! { &#ty }),
        Leaf::Refused => None,
    }
}
