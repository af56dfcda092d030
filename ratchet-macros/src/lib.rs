//! The attribute `#[ratchet::job]`. Its documentation is where the facade exports it.

mod job;

use proc_macro::TokenStream;

/// See `ratchet::job`.
#[proc_macro_attribute]
pub fn job(settings: TokenStream, function: TokenStream) -> TokenStream {
    job::expand(settings.into(), function.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
