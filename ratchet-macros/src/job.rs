//! Generates a job type from an asynchronous function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, ItemFn, Lit, LitStr, Meta, Pat, Result, ReturnType, Type,
};

/// Generates the code for a function with the attribute `#[ratchet::job]`: the function itself, a
/// struct with the function's arguments as fields, and an implementation of `Job` for the struct.
pub(crate) fn expand(settings: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let kind = kind(settings)?;
    let function: ItemFn = syn::parse2(function)?;
    let signature = &function.sig;
    let generics = &signature.generics;
    if !generics.params.is_empty() || generics.where_clause.is_some() {
        let text = "a job's function cannot be generic";
        return Err(Error::new(signature.span(), text));
    }
    // This excludes functions that are not `async`, and those that are `unsafe` or `extern`.
    if !quote!(#signature).to_string().starts_with("async fn") {
        let text = "a job's function must be a plain `async fn`";
        return Err(Error::new(signature.span(), text));
    }
    let ReturnType::Type(_, returned) = &signature.output else {
        let text = "a job's function must return a `JobResult`";
        return Err(Error::new(signature.span(), text));
    };
    let parameters = signature.inputs.iter().map(Parameter::read);
    let parameters = parameters.collect::<Result<Vec<_>>>()?;
    let fields = parameters.iter().filter_map(|one| match &one.role {
        Role::Argument(name, of) => {
            let attributes = &one.attributes;
            Some(quote! { #(#attributes)* pub #name: #of })
        }
        Role::State(_) | Role::Context | Role::OwnedContext => None,
    });
    let states = parameters.iter().filter_map(|one| match &one.role {
        Role::State(of) => Some(of),
        Role::Argument(..) | Role::Context | Role::OwnedContext => None,
    });
    let passed = parameters.iter().map(|one| match &one.role {
        Role::Argument(name, _) => quote! { self.#name },
        Role::State(of) => quote! { context.state::<#of>() },
        Role::Context => quote! { &context },
        Role::OwnedContext => quote! { ::std::clone::Clone::clone(&context) },
    });
    let name = &signature.ident;
    let job = format_ident!("{}", camel_case(name), span = name.span());
    let visibility = &function.vis;
    let of_names = |names: &'static [&str]| {
        let of = move |one: &&Attribute| names.iter().any(|name| one.path().is_ident(name));
        function.attrs.iter().filter(of)
    };
    let docs = of_names(&["doc"]);
    let everywhere = of_names(&["cfg", "cfg_attr", "allow", "expect"]);
    let (of_struct, of_impl) = (everywhere.clone(), everywhere);
    let attributes = function.attrs.iter();
    let (inputs, output, block) = (bare(&function), &signature.output, &function.block);
    Ok(quote! {
        #(#docs)*
        #(#of_struct)*
        #[derive(
            ::std::fmt::Debug,
            ::std::clone::Clone,
            ::ratchet::macro_support::serde::Serialize,
            ::ratchet::macro_support::serde::Deserialize,
        )]
        #[serde(crate = "::ratchet::macro_support::serde")]
        #visibility struct #job { #(#fields),* }

        #(#of_impl)*
        impl ::ratchet::Job for #job {
            const KIND: &'static str = #kind;
            type Output = <#returned as ::ratchet::macro_support::Returned>::Output;

            fn requires() -> ::ratchet::Requires {
                ::ratchet::Requires::nothing() #(.state::<#states>())*
            }

            async fn run(
                self,
                context: ::ratchet::JobContext,
            ) -> ::ratchet::JobResult<Self::Output> {
                #name(#(#passed),*).await
            }
        }

        #(#attributes)*
        #visibility async fn #name(#(#inputs),*) #output #block
    })
}

/// Returns the kind of the job from the setting `kind = "…"` of the attribute.
fn kind(settings: TokenStream) -> Result<LitStr> {
    let wanted = "expected only the kind of the job, as in `#[ratchet::job(kind = \"…\")]`";
    let wrong = |span: Span| Error::new(span, wanted);
    let span = settings.span();
    let Ok(Meta::NameValue(setting)) = syn::parse2(settings) else {
        return Err(wrong(span));
    };
    match (&setting.value, setting.path.is_ident("kind")) {
        (Expr::Lit(value), true) => match &value.lit {
            Lit::Str(kind) => Ok(kind.clone()),
            other => Err(wrong(other.span())),
        },
        _ => Err(wrong(setting.span())),
    }
}

/// A parameter of the job's function.
struct Parameter {
    role: Role,
    attributes: Vec<Attribute>,
}

/// Source from which the generated code takes the value of a parameter.
enum Role {
    /// The payload. The parameter becomes a field of the generated struct.
    Argument(Ident, Type),
    /// The shared state of the node. The parameter is a reference to the state.
    State(Type),
    /// The `JobContext`, as a reference.
    Context,
    /// The `JobContext`, as an owned clone.
    OwnedContext,
}

impl Parameter {
    fn read(input: &FnArg) -> Result<Self> {
        let FnArg::Typed(typed) = input else {
            let text = "a job's function cannot take `self`, because its arguments are the payload";
            return Err(Error::new(input.span(), text));
        };
        let role = match &*typed.ty {
            Type::Reference(reference) if reference.mutability.is_some() => {
                let text = "a job's function cannot take `&mut`, because all jobs of a node share \
                    its state";
                return Err(Error::new(typed.span(), text));
            }
            Type::Reference(reference) if is_unsized(&reference.elem) => {
                let text = "an argument must be owned, such as a `String` or a `Vec`, because it \
                    is stored as part of the payload; a reference stands for state of the node";
                return Err(Error::new(typed.span(), text));
            }
            Type::Reference(reference) if is_context(&reference.elem) => Role::Context,
            Type::Reference(reference) => Role::State((*reference.elem).clone()),
            of if is_context(of) => Role::OwnedContext,
            of => match &*typed.pat {
                Pat::Ident(name) => Role::Argument(name.ident.clone(), of.clone()),
                other => {
                    let text =
                        "a job's argument needs a name, because it is a field of the payload";
                    return Err(Error::new(other.span(), text));
                }
            },
        };
        let attributes = typed.attrs.clone();
        Ok(Self { role, attributes })
    }
}

/// Returns the function's parameters without attributes. The attributes move to the fields of the
/// generated struct.
fn bare(function: &ItemFn) -> Vec<FnArg> {
    let mut inputs: Vec<FnArg> = function.sig.inputs.iter().cloned().collect();
    for input in &mut inputs {
        if let FnArg::Typed(typed) = input {
            typed.attrs.clear();
        }
    }
    inputs
}

fn is_context(of: &Type) -> bool {
    is_named(of, "JobContext")
}

/// Returns whether a type is certainly unsized. The shared state of a node cannot have such a type.
fn is_unsized(of: &Type) -> bool {
    matches!(of, Type::Slice(_) | Type::TraitObject(_)) || is_named(of, "str")
}

fn is_named(of: &Type, name: &str) -> bool {
    let Type::Path(path) = of else { return false };
    let last = path.path.segments.last();
    last.is_some_and(|segment| segment.ident == name)
}

/// Converts a name to camel case. For example, `send_mail` becomes `SendMail`.
fn camel_case(name: &Ident) -> String {
    let name = name.to_string();
    let words = name.trim_start_matches("r#").split('_');
    let capitalized = words.map(|word| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    });
    capitalized.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: TokenStream, function: TokenStream) -> String {
        expand(settings, function).unwrap_err().to_string()
    }

    fn kind_a() -> TokenStream {
        quote! { kind = "a" }
    }

    #[test]
    fn what_cannot_be_a_job_is_refused_with_the_remedy() {
        let good = quote! { async fn f(a: u32) -> JobResult { Ok(()) } };
        assert!(expand(kind_a(), good.clone()).is_ok());
        for settings in [
            quote! {},
            quote! { "a" },
            quote! { kind = 1 },
            quote! { name = "a" },
        ] {
            assert!(refusal(settings, good.clone()).contains("kind = \"…\""));
        }
        for (function, text) in [
            (quote! { fn f() -> JobResult { Ok(()) } }, "`async fn`"),
            (
                quote! { async fn f<T>(a: T) -> JobResult { Ok(()) } },
                "cannot be generic",
            ),
            (quote! { async fn f() {} }, "return a `JobResult`"),
            (
                quote! { async fn f(&self) -> JobResult { Ok(()) } },
                "cannot take `self`",
            ),
            (
                quote! { async fn f(a: &str) -> JobResult { Ok(()) } },
                "`String`",
            ),
            (
                quote! { async fn f(a: &[u8]) -> JobResult { Ok(()) } },
                "`Vec`",
            ),
            (
                quote! { async unsafe fn f() -> JobResult { Ok(()) } },
                "plain",
            ),
            (
                quote! { async fn f(a: &mut Pool) -> JobResult { Ok(()) } },
                "`&mut`",
            ),
            (
                quote! { async fn f((a, b): (u8, u8)) -> JobResult { Ok(()) } },
                "needs a name",
            ),
        ] {
            let told = refusal(kind_a(), function);
            assert!(told.contains(text), "{told}");
        }
    }

    #[test]
    fn the_struct_has_the_name_of_the_function() {
        for (function, name) in [("send_mail", "SendMail"), ("a", "A"), ("_b_2c", "B2c")] {
            assert_eq!(camel_case(&Ident::new(function, Span::call_site())), name);
        }
    }
}
