//! The text of the expansion, without compiling it.

use super::*;

fn derive(tokens: TokenStream) -> syn::File {
    syn::parse2(crate::derive(tokens)).expect("the expansion is a file of items")
}

fn names(file: &syn::File) -> Vec<String> {
    let name = |item: &syn::Item| match item {
        syn::Item::Type(item) => Some(item.ident.to_string()),
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Macro(item) => Some(item.mac.path.segments.last()?.ident.to_string()),
        _ => None,
    };
    file.items.iter().filter_map(name).collect()
}

#[test]
fn one_set_of_items_per_root() {
    let namespaced = derive(quote! {
        #[kube(kind = "Website", namespaced)]
        pub struct WebsiteSpec { #[informer(index)] domain: String }
    });
    assert_eq!(names(&namespaced), ["WebsiteInformer", "WebsiteLister", "WebsiteListerInNamespace"]);
    let cluster = derive(quote! { #[kube(kind = "Zone")] struct ZoneSpec {} });
    assert_eq!(names(&cluster), ["ZoneInformer", "ZoneLister"]);
}

// M4
#[test]
fn nothing_outside_the_runtime_is_named() {
    let spec = quote! {
        #[informer(crate = elsewhere)]
        #[kube(kind = "Website", namespaced)]
        pub struct WebsiteSpec {
            #[informer(index)] domain: String,
            #[informer(index)] ports: Option<Vec<u16>>,
            #[informer(index)] phase: Phase,
        }
    };
    let text = crate::derive(spec).to_string();
    assert!(!text.contains("watchkeeper"), "{text}");
    // A path starts after anything but `::`; past its first name it may go on as it likes.
    let words: Vec<_> = text.split(|c: char| c.is_whitespace() || "([<{&".contains(c)).collect();
    let starts = words.windows(4).filter(|words| words[0] != "::" && words[2] == "::");
    let starts: std::collections::BTreeSet<_> = starts.map(|words| words[1]).collect();
    assert_eq!(starts.into_iter().collect::<Vec<_>>(), ["elsewhere"]);
}

// M3
#[test]
fn a_mistake_leaves_everything_else_in_place() {
    let file = derive(quote! {
        #[kube(kind = "Website", namespaced)]
        pub struct WebsiteSpec { #[informer(index)] weight: f64 }
    });
    let expected = ["compile_error", "WebsiteInformer", "WebsiteLister", "WebsiteListerInNamespace"];
    assert_eq!(names(&file), expected);
}

// M6
#[test]
fn every_public_item_is_documented() {
    let file = derive(quote! {
        /// A website.
        #[kube(kind = "Website", namespaced)]
        pub struct WebsiteSpec { #[informer(index)] domain: String, #[informer(index)] weight: f64 }
    });
    let documented = |attributes: &[syn::Attribute]| attributes.iter().any(|a| a.path().is_ident("doc"));
    for item in &file.items {
        match item {
            syn::Item::Struct(item) => assert!(documented(&item.attrs), "{}", item.ident),
            syn::Item::Type(item) => assert!(documented(&item.attrs), "{}", item.ident),
            _ => {}
        }
    }
    for method in methods(&file) {
        assert!(documented(&method.attrs), "{}", method.sig.ident);
    }
}

// M5
#[test]
fn visibility_follows_the_struct() {
    for vis in [quote! {}, quote! { pub }, quote! { pub(crate) }, quote! { pub(in crate::a) }] {
        let file = derive(quote! {
            #[kube(kind = "Website", namespaced)]
            #vis struct WebsiteSpec { #[informer(index)] domain: String }
        });
        let expected: syn::Visibility = syn::parse2(vis).unwrap();
        for item in &file.items {
            match item {
                syn::Item::Struct(item) => assert_eq!(item.vis, expected),
                syn::Item::Type(item) => assert_eq!(item.vis, expected),
                _ => {}
            }
        }
        for method in methods(&file) {
            assert_eq!(method.vis, expected, "{}", method.sig.ident);
        }
    }
}

/// The methods of inherent impls.
fn methods(file: &syn::File) -> Vec<&syn::ImplItemFn> {
    let constants = file.items.iter().filter_map(|item| match item {
        syn::Item::Const(item) => Some(&*item.expr),
        _ => None,
    });
    let blocks = constants.filter_map(|expr| match expr {
        syn::Expr::Block(block) => Some(&block.block.stmts),
        _ => None,
    });
    let impls = blocks.flatten().filter_map(|statement| match statement {
        syn::Stmt::Item(syn::Item::Impl(item)) if item.trait_.is_none() => Some(&item.items),
        _ => None,
    });
    let functions = impls.flatten().filter_map(|item| match item {
        syn::ImplItem::Fn(function) => Some(function),
        _ => None,
    });
    let found: Vec<_> = functions.collect();
    assert!(!found.is_empty());
    found
}
