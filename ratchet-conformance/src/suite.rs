use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cases;
use crate::fixture::Factory;
use crate::runner::{self, Failure, Setup, Subject, Without};
use crate::{Case, Cx, Power, Provision};

/// The suite for stores.
///
/// The `main` of a test without a harness calls [`run`](Self::run); see the [crate](crate).
#[derive(Clone, Debug)]
pub struct Suite {
    name: String,
    powers: Vec<Power>,
    without: Vec<Without>,
}

impl Suite {
    /// The suite for the store called `name`, whose fixtures have exactly these powers.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
            without: Vec::new(),
        }
    }

    /// Lists these cases, by group or by full name, as ignored, with this reason: for a store, or a
    /// kind of server, that refuses what they are about. The report says N/A for them.
    ///
    /// # Panics
    /// If there is no such group or case.
    #[must_use]
    pub fn without(mut self, reason: &str, cases: &[&str]) -> Self {
        for name in cases {
            let known = Self::cases().any(|case| case.group == *name || case.full_name() == *name);
            assert!(known, "there is no group or case {name}");
            self.without.push(Without {
                name: (*name).to_owned(),
                reason: reason.to_owned(),
            });
        }
        self
    }

    /// Lists or runs the cases as the command line says, each on a new fixture.
    pub fn run(self, provision: impl Future<Output = Provision>) -> ExitCode {
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => Provision::Ready(setup(factory, self.powers.clone())),
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, self.without);
        runner::run(subject, Self::cases(), &provision)
    }

    /// Every case.
    pub fn cases() -> impl Iterator<Item = &'static Case<Cx>> {
        cases::GROUPS.iter().copied().flatten()
    }

    /// The case with this full name, such as `claim::an_empty_store_yields_nothing`.
    #[must_use]
    pub fn case(full_name: &str) -> Option<&'static Case<Cx>> {
        Self::cases().find(|case| case.full_name() == full_name)
    }

    /// Runs one case on a new fixture with these powers: for tests of the suite itself.
    ///
    /// # Errors
    /// Why the case failed.
    pub async fn check(case: &Case<Cx>, powers: &[Power], factory: Factory) -> Result<(), Failure> {
        runner::check(case, &*setup(factory, powers.to_vec())).await
    }
}

fn setup(factory: Factory, powers: Vec<Power>) -> Arc<Setup<Cx>> {
    Arc::new(move || Box::pin(Cx::create(factory.clone(), powers.clone())))
}
