//! What is generated after a mistake: the error, and all that can still be generated.
//!
//! Code that names the lister or calls a look-up then has no errors of its own: a refused index keeps its look-up,
//! which takes anything.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{expand, model::Model};

/// Reports mistakes at their tokens, together with a stub for the code that they prevent.
pub(crate) fn expand(model: Option<&Model>, error: &syn::Error) -> TokenStream {
    let error = error.to_compile_error();
    let stand_in = model.map(expand::expand);
    quote! { #error #stand_in }
}
