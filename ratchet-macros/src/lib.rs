//! The attribute `#[ratchet::job]`. Its documentation is at the re-export in the crate `ratchet`.

mod job;

use proc_macro::TokenStream;

/// Implements the attribute `#[ratchet::job]`, which is documented in the crate `ratchet`.
#[proc_macro_attribute]
pub fn job(settings: TokenStream, function: TokenStream) -> TokenStream {
    job::expand(settings.into(), function.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
