use std::fmt;

use futures_util::future::BoxFuture;

use crate::Power;

/// One test of the suite: what it proves, what it needs, and its body.
///
/// `C` is the argument of the body: [`Cx`](crate::Cx) for stores, [`Transport`](crate::Transport)
/// for coordinators.
pub struct Case<C: 'static> {
    /// The group, which is also the name of its module: `claim`.
    pub group: &'static str,
    /// The name of the case in its group: a sentence in snake case.
    pub name: &'static str,
    /// The contract clauses that the case proves.
    pub clauses: &'static [&'static str],
    /// The powers that the case needs. The case is ignored if the suite was not given one of them.
    pub needs: &'static [Power],
    pub(crate) body: for<'a> fn(&'a C) -> BoxFuture<'a, ()>,
}

impl<C> Case<C> {
    /// Returns the name for listing and filtering: `claim::an_empty_store_yields_nothing`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Returns the first power that the case needs and that is not among `powers`.
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

/// Declares the cases of one group and registers them in one place: the static `CASES` that it
/// defines consists of exactly these functions, so none can be forgotten. (rustfmt does not format
/// it.)
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
