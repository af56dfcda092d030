//! The attribute `#[ratchet::job]`. Its documentation is at its re-export in the facade.

mod job;

use proc_macro::TokenStream;

/// Implements `ratchet::job`; see the documentation there.
#[proc_macro_attribute]
pub fn job(settings: TokenStream, function: TokenStream) -> TokenStream {
    job::expand(settings.into(), function.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
