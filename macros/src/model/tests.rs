//! Models of valid and invalid structs.

use proc_macro2::TokenStream;
use quote::quote;

use syn::Type;

use super::*;

fn read_tokens(tokens: TokenStream) -> (Option<Model>, Vec<String>) {
    let (model, mistakes) = read(&syn::parse2(tokens).unwrap());
    let messages = mistakes.into_error().into_iter().flatten().map(|error| error.to_string());
    (model, messages.collect())
}

fn valid(tokens: TokenStream) -> Model {
    let (model, mistakes) = read_tokens(tokens);
    assert_eq!(mistakes, Vec::<String>::new());
    model.unwrap()
}

fn spec_with(fields: TokenStream) -> TokenStream {
    quote! {
        #[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
        pub struct WebsiteSpec { #fields }
    }
}

fn shape_of(ty: TokenStream) -> (Vec<Layer>, String) {
    let mut model = valid(spec_with(quote! { #[informer(index)] field: #ty }));
    let index = model.indexes.remove(0);
    let leaf = match index.leaf {
        Leaf::Text => "text".to_owned(),
        Leaf::Scalar(ty) => format!("scalar {}", ty.to_token_stream()),
        Leaf::Shown(ty) => format!("shown {}", ty.to_token_stream()),
        Leaf::Holds(path) => format!("holds {path:?}"),
        Leaf::Refused => "refused".to_owned(),
    };
    (index.layers, leaf)
}

/// Checks that there is one error, and returns it; the model exists all the same.
fn mistake(tokens: TokenStream) -> String {
    let (_, mut mistakes) = read_tokens(tokens);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    mistakes.remove(0)
}

// M1
#[test]
fn the_root_and_its_scope_come_from_kube() {
    let model = valid(quote! {
        #[kube(group = "g", version = "v1", kind = "Website", namespaced)]
        pub struct WebsiteSpec {}
    });
    assert_eq!(
        (model.root.to_string(), model.scope, model.place),
        ("Website".into(), Scope::Namespaced, Place::Spec)
    );

    for cluster in [quote! {}, quote! { namespaced = false, }] {
        let model = valid(quote! { #[kube(#cluster kind = "Zone")] struct ZoneSpec {} });
        assert_eq!((model.root.to_string(), model.scope), ("Zone".into(), Scope::Cluster));
    }

    let model = valid(quote! {
        #[kube(kind = "Website", root = "Site", namespaced = "true", no_spec)]
        struct WebsiteSpec {}
    });
    assert_eq!(
        (model.root.to_string(), model.scope, model.place),
        ("Site".into(), Scope::Namespaced, Place::FlatSpec)
    );
}

// M1
#[test]
fn every_other_kube_key_is_skipped() {
    let model = valid(quote! {
        #[kube(group = "g", version = "v1", plural = "sites", singular = "site", shortname = "s", category = "all")]
        #[kube(status = "crate::Status", schema = "disabled", derive = "Default", attr = "non_exhaustive")]
        #[kube(scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"))]
        #[kube(printcolumn = r#"{"name":"x","type":"string","jsonPath":".x"}"#, printcolumn(name = "x"), cel)]
        #[kube(annotation("a", "b"), label("c", "d"), validation = Rule::new("self.a == 1").message("no"))]
        #[kube(crates(kube_core = "::kube::core", std = "::core"), storage = false, served, deprecated = "old")]
        #[kube(selectable = ".spec.a", doc = "A site", something_new(of = [1, 2]), kind = "Website", cel = true)]
        struct WebsiteSpec {}
    });
    assert_eq!(model.root, "Website");
}

#[test]
fn a_struct_with_metadata_and_no_kube_is_its_own_root() {
    let model = valid(quote! {
        struct Settings { metadata: ObjectMeta, #[informer(index)] owner: String }
    });
    assert_eq!(
        (model.root.to_string(), model.scope, model.place),
        ("Settings".into(), Scope::Untold, Place::Root)
    );
    assert_eq!(model.indexes[0].method, "by_owner");
}

// Errors that `CustomResource` reports need not be reported twice.
#[test]
fn what_kube_reports_itself_is_left_to_it() {
    for broken in [quote! { group = "g" }, quote! { kind = 5 }, quote! { kind }, quote! { kind = "no type" }]
    {
        let (model, mistakes) = read_tokens(quote! { #[kube(#broken)] struct WebsiteSpec {} });
        assert!(model.is_none() && mistakes.is_empty(), "{broken}");
    }
}

// M2
#[test]
fn index_values_are_found_inside_the_type() {
    let (each, inside) = (Layer::Each, Layer::Inside);
    let table: [(TokenStream, &[Layer], &str); 20] = [
        (quote! { SmallVec<[String; 2]> }, &[each], "text"),
        (quote! { String }, &[], "text"),
        (quote! { std::string::String }, &[], "text"),
        (quote! { &'static str }, &[], "text"),
        (quote! { Box<str> }, &[], "text"),
        (quote! { Arc<str> }, &[], "text"),
        (quote! { Cow<'static, str> }, &[], "text"),
        (quote! { Option<String> }, &[each], "text"),
        (quote! { Vec<String> }, &[each], "text"),
        (quote! { Option<Vec<Box<str>>> }, &[each, each], "text"),
        (quote! { HashSet<String, Fold> }, &[each], "text"),
        (quote! { [String; 2] }, &[each], "text"),
        (quote! { Box<Option<Arc<String>>> }, &[inside, each, inside], "text"),
        (quote! { i32 }, &[], "scalar i32"),
        (quote! { u64 }, &[], "scalar u64"),
        (quote! { bool }, &[], "scalar bool"),
        (quote! { Option<i64> }, &[each], "scalar i64"),
        (quote! { Phase }, &[], "shown Phase"),
        (quote! { Vec<super::Phase> }, &[each], "shown super :: Phase"),
        (quote! { IntOrString }, &[], "shown IntOrString"),
    ];
    for (ty, layers, leaf) in table {
        assert_eq!(shape_of(ty.clone()), (layers.to_vec(), leaf.to_owned()), "{ty}");
    }
}

// M1
#[test]
fn look_ups_are_named_by_the_field_or_by_the_user() {
    let model = valid(spec_with(quote! {
        #[informer(index)]
        #[serde(rename = "hostName")]
        domain: String,
        #[informer(index = "by_tag")]
        tags: Vec<String>,
        #[informer(index)]
        r#type: String,
        replicas: i32,
    }));
    let names: Vec<_> = model.indexes.iter().map(|index| index.method.to_string()).collect();
    assert_eq!(names, ["by_domain", "by_tag", "by_type"]);
}

#[test]
fn the_runtime_may_be_elsewhere() {
    for path in [quote! { wk::inner }, quote! { "wk::inner" }, quote! { crate::wk }, quote! { ::wk }] {
        let spec = spec_with(quote! {});
        let model = valid(quote! { #[informer(crate = #path)] #spec });
        assert!(model.runtime.to_token_stream().to_string().contains("wk"));
    }
    assert_eq!(valid(spec_with(quote! {})).runtime.to_token_stream().to_string(), ":: watchkeeper");
}

#[test]
fn a_compact_struct_is_decoded_in_part_unless_serde_is_told_otherwise() {
    let compact = |serde: TokenStream| {
        valid(quote! {
            #[informer(compact)] #serde #[kube(kind = "Website")] struct WebsiteSpec {
                #[informer(index)] #[serde(rename = "hostName")] domain: String
            }
        })
    };
    let model = compact(quote! { #[serde(rename_all = "camelCase", default, deny_unknown_fields)] });
    let part = model.part.unwrap();
    assert_eq!(
        (model.form, part.of.to_string(), part.missing),
        (Form::Compact, "WebsiteSpec".into(), Missing::Struct)
    );
    assert_eq!(part.rename_all.unwrap().value(), "camelCase");
    assert_eq!(model.indexes[0].serde.len(), 1);
    assert_eq!(compact(quote! {}).part.unwrap().missing, Missing::Fields);
    for other in [quote! { try_from = "Raw" }, quote! { default = "path" }, quote! { transparent }] {
        assert!(compact(quote! { #[serde(#other)] }).part.is_none(), "{other}");
    }
    assert!(valid(spec_with(quote! { #[informer(index)] a: String })).part.is_none());
}

// M3
#[test]
fn every_mistake_is_one_error_with_rule_and_remedy() {
    let kube = quote! { #[kube(group = "g", version = "v1", kind = "Website")] };
    let table: [(TokenStream, &str); 29] = [
        (quote! { #kube struct S<T> { t: T } }, "generic struct"),
        (quote! { #kube struct S<'a> { t: &'a str } }, "generic struct"),
        (quote! { #kube enum S { A } }, "this is an enum"),
        (quote! { #kube union S { a: u8 } }, "this is a union"),
        (quote! { #kube struct S(String); }, "this is a tuple struct"),
        (quote! { #kube struct S; }, "this is a unit struct"),
        (quote! { struct S { a: u8 } }, "add `CustomResource`"),
        (quote! { enum S { A } }, "this is an enum"),
        (quote! { struct S<T> { metadata: ObjectMeta, spec: T } }, "generic struct"),
        (quote! { #[informer(index)] #kube struct S {} }, "an index belongs to a field"),
        (quote! { #[informer(dense)] #kube struct S {} }, "`informer` knows no `dense`"),
        (quote! { #[informer(compact = true)] #kube struct S {} }, "`compact` takes no value"),
        (quote! { #[informer] #kube struct S {} }, "in parentheses"),
        (quote! { #[informer(crate = 5)] #kube struct S {} }, "`crate` takes a path"),
        (spec_with(quote! { #[informer(crate = x)] a: u8 }), "`crate` belongs to the struct"),
        (spec_with(quote! { #[informer(indx)] a: u8 }), "`informer` knows no `indx`"),
        (spec_with(quote! { #[informer(index, index = "b")] a: u8 }), "keep one `index`"),
        (spec_with(quote! { #[informer(index = by_a)] a: u8 }), "named by a string"),
        (spec_with(quote! { #[informer(index = "")] a: u8 }), "or `index` for `by_a`"),
        (spec_with(quote! { #[informer(index = "by-a")] a: u8 }), "can't name a method"),
        (spec_with(quote! { #[informer(index = "get")] a: u8 }), "would hide"),
        (spec_with(quote! { #[informer(index)] index: u8 }), "`index = \"by_index_value\"`"),
        (spec_with(quote! { #[informer(path = name)] a: A }), "a path says what an index is of"),
        (spec_with(quote! { #[informer(index = "b", path)] a: A }), "a path names fields"),
        (spec_with(quote! { #[informer(index = "b", path = a.0)] a: A }), "a path names fields"),
        (spec_with(quote! { #[informer(index = "b", path = name)] a: Vec<String> }), "leads into a struct"),
        (
            spec_with(quote! { #[informer(index = "by_a")] b: u8, #[informer(index)] a: u8 }),
            "already looks up",
        ),
        (spec_with(quote! { #[informer(index)] a: Vec<f64> }), "float can't be an index value"),
        (
            spec_with(quote! { #[informer(index)] a: BTreeMap<String, String> }),
            "a map can't be an index value",
        ),
    ];
    for (tokens, expected) in table {
        let message = mistake(tokens.clone());
        assert!(message.contains(expected), "{tokens}\n  says: {message}");
        assert!(message.contains(':') || message.contains("in parentheses"), "no remedy in: {message}");
    }
}

// M3
#[test]
fn what_is_right_is_still_generated_beside_a_mistake() {
    let (model, _) = read_tokens(spec_with(quote! {
        #[informer(index)] domain: String,
        #[informer(index)] weight: f64,
        #[informer(indx)] other: String,
    }));
    let names: Vec<_> = model.unwrap().indexes.iter().map(|index| index.method.to_string()).collect();
    assert_eq!(names, ["by_domain", "by_weight"]);
}

#[test]
fn types_that_pass_through_macros_are_read() {
    macro_rules! through {
        ($ty:ty) => {
            shape::read(&syn::parse_quote!($ty)).unwrap().0
        };
    }
    assert_eq!(through!(Option<String>), [Layer::Each]);
    let grouped = Type::Group(syn::TypeGroup {
        attrs: Vec::new(),
        group_token: Default::default(),
        elem: Box::new(syn::parse_quote!(Vec<String>)),
    });
    assert!(matches!(shape::read(&grouped), Ok((layers, Leaf::Text)) if layers == [Layer::Each]));
}
