use std::fmt;

use futures_util::future::BoxFuture;

use crate::Power;

/// A test case of the suite, with the contract clauses that it proves and the powers that it needs.
///
/// `C` is the type of the argument of the test's body: [`Cx`](crate::Cx) for stores,
/// [`Transport`](crate::Transport) for coordinators.
pub struct Case<C: 'static> {
    /// Group of the case, such as `claim`. This is also the name of the module that contains the
    /// case.
    pub group: &'static str,
    /// Name of the case within its group. The name is a sentence in snake case.
    pub name: &'static str,
    /// Ids of the contract clauses that the case proves.
    pub clauses: &'static [&'static str],
    /// Powers that the case needs: abilities that a fixture or its store may lack. The suite
    /// ignores the case if it was given fewer powers.
    pub needs: &'static [Power],
    pub(crate) body: for<'a> fn(&'a C) -> BoxFuture<'a, ()>,
}

impl<C> Case<C> {
    /// Returns the full name of the case, for lists and filters, such as
    /// `claim::an_empty_store_yields_nothing`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Returns the first power that the case needs and that `powers` does not contain, or `None` if
    /// `powers` contains them all.
    pub(crate) fn lacks(&self, powers: &[Power]) -> Option<Power> {
        self.needs
            .iter()
            .copied()
            .find(|power| !powers.contains(power))
    }
}

impl<C> fmt::Debug for Case<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.full_name())
            .field("clauses", &self.clauses)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// Declares the test cases of one group as functions, and the static `CASES` that lists them. So
/// every declared case is in the list. `rustfmt` does not format the code inside this macro.
macro_rules! cases {
    (
        $group:literal on $context:ty;
        $(
            $(#[doc = $doc:literal])*
            #[proves($($clause:literal),+ $(,)?)]
            $(#[needs($($power:ident),+ $(,)?)])?
            async fn $name:ident($cx:ident: &$param:ty) $body:block
        )+
    ) => {
        pub(crate) static CASES: &[$crate::Case<$context>] = &[$(
            $crate::Case {
                group: $group,
                name: stringify!($name),
                clauses: &[$($clause),+],
                needs: &[$($($crate::Power::$power),+)?],
                body: |cx| Box::pin($name(cx)),
            },
        )+];
        $(
            $(#[doc = $doc])*
            async fn $name($cx: &$param) $body
        )+
    };
}

pub(crate) use cases;
