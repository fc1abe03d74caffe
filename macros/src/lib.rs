//! The `Informer` derive: syntax, then a validated model, then tokens.
//!
//! `attr` reads attributes and keeps their spans. `model` turns a struct into what is to be generated, and
//! finds every mistake a user can make. `expand` writes the code, all of it through `::watchkeeper::__private`.
//! `fallback` does so after a mistake, so that one mistake gives one error.

mod attr;
mod model;
mod expand;
mod fallback;

use proc_macro2::TokenStream;
use syn::DeriveInput;

/// Derives an informer and a typed lister for a custom resource.
///
/// Derive it on the spec together with `CustomResource`, in either order: it reads `#[kube(...)]`. Or derive it on a
/// hand-written root type, a struct with a field `metadata` that implements `kube::Resource`.
///
/// ```rust,ignore
/// #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced)]
/// pub struct WebsiteSpec {
///     #[informer(index)]
///     pub domain: String,
///     #[informer(index = "by_tag")]
///     pub tags: Vec<String>,
/// }
/// ```
///
/// For a root type `Website` it generates, as visible as the struct:
///
/// - `impl Watched for Website`, which is what informers, listers and controllers ask for;
/// - `WebsiteInformer`, an alias of `SharedInformer<Website>`;
/// - `WebsiteLister`, a `Lister<Website>` with a method for each index: `by_domain("a.example")`, `by_tag("x")`;
/// - `WebsiteListerInNamespace`, the same within one namespace (not for cluster-scoped kinds).
///
/// # Indexes
///
/// `#[informer(index)]` on a field gives the look-up `by_<field>`; `#[informer(index = "name")]` names it. The
/// index has the look-up's name. It takes:
///
/// | Field | Look-up's argument |
/// |---|---|
/// | `String` and other owned or static text | `&str` |
/// | integers of at most 64 bits, `bool` | the value |
/// | any other type that implements `Display`, such as an enum | a reference |
/// | `Option`, `Vec`, sets, arrays and boxes of these | that of the element: each element is an index value |
///
/// If a field holds other structs, `path` indexes the text inside:
///
/// ```rust,ignore
/// #[informer(index = "by_secret", path = name)]
/// pub credentials: Vec<LocalObjectReference>,   // DatabaseLister::by_secret("password")
/// #[informer(index = "by_volume", path = claim?.volume.name)]
/// pub storage: Storage,                          // `?` looks into an `Option`, a `Vec` or a set
/// ```
///
/// Types with `Display` are looked up by the text it writes. Floats and maps are refused. Fields go by their Rust
/// names: what serde calls them does not matter.
///
/// # Compact caches
///
/// `#[informer(compact)]` on the struct has informers of the kind keep its objects as bytes, decoded when somebody
/// reads them: a fraction of the memory. Index values are then decoded on arrival, and nothing else is. The struct must
/// derive `Deserialize`, since the indexed fields are decoded by their serde attributes. Where serde decodes the
/// struct as something else (`from`, `transparent` and the like), whole objects are decoded for the indexes.
///
/// # Versions
///
/// `#[informer(versions(v1beta1::Website, v1alpha1::Website))]` on the struct lists the other versions of the kind. This
/// one is then the hub: it is the version that is stored, and conversions between two others go through it. `From`
/// converts between the hub and each other version, in both directions:
///
/// ```rust,ignore
/// impl From<v1beta1::Website> for Website { .. }
/// impl From<Website> for v1beta1::Website { .. }
/// ```
///
/// The other versions derive `CustomResource` with the same group, kind and scope.
///
/// # Other attributes
///
/// `#[informer(crate = some::path)]` on the struct sets the path of `watchkeeper`, if it is not `::watchkeeper`.
#[proc_macro_derive(Informer, attributes(informer, kube))]
pub fn derive_informer(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input.into()).into()
}

fn derive(input: TokenStream) -> TokenStream {
    let (model, mistakes) = match syn::parse2::<DeriveInput>(input) {
        Ok(input) => model::read(&input),
        Err(error) => return error.to_compile_error(),
    };
    match mistakes.into_error() {
        None => model.as_ref().map(expand::expand).unwrap_or_default(),
        Some(error) => fallback::expand(model.as_ref(), &error),
    }
}
