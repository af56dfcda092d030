use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cases::{self, HISTORIES};
use crate::fixture::{BoxError, Factory};
use crate::process::{self, Attach};
use crate::runner::{self, Failure, Setup};
use crate::trials::{self, Exemption, Subject};
use crate::{Case, Cx, Power, Provision};
use ratchet_core::SharedStore;

/// The conformance suite for stores.
///
/// Create the suite in the `main` function of a test with `harness = false`, and call
/// [`run`](Self::run). The [documentation of the crate](crate) contains an example.
#[derive(Clone, Debug)]
pub struct Suite {
    name: String,
    powers: Vec<Power>,
    exemptions: Vec<Exemption>,
    /// Names of the groups to run. `None` means all groups.
    groups: Option<Vec<String>>,
    settings: Settings,
    attach: Option<Attach>,
}

/// Settings of the `differential` cases, which run random histories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Number of random histories that all cases run together.
    pub(crate) histories: u64,
    /// Whether the store may report that other jobs wait for a claimed job, although none does.
    pub(crate) may_exaggerate: bool,
    /// Whether the suite shortens a failing history before reporting it.
    pub(crate) shrinks: bool,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self {
        histories: HISTORIES,
        may_exaggerate: false,
        shrinks: true,
    };
}

impl Suite {
    /// Creates the suite for the store called `name`. The store and its fixture must have exactly
    /// the powers in `powers`.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
            exemptions: Vec::new(),
            groups: None,
            settings: Settings::DEFAULT,
            attach: None,
        }
    }

    /// Sets the number of random histories that all `differential` cases run together. The default
    /// is 100. Use a smaller number for a slow store. The environment variable `RATCHET_HISTORIES`
    /// overrides this setting.
    #[must_use]
    pub const fn histories(mut self, histories: u64) -> Self {
        self.settings.histories = histories;
        self
    }

    /// Allows the store to report that other jobs wait for a claimed job, although no job waits for
    /// this job. For example, a store may mark the parent of a new job before it knows whether the
    /// new job is stored.
    ///
    /// Without this setting, the `differential` cases require the store to report exactly the same
    /// as the reference model. With this setting, the store must still report every claimed job for
    /// which another job waits.
    #[must_use]
    pub const fn may_say_awaited_of_others(mut self) -> Self {
        self.settings.may_exaggerate = true;
        self
    }

    /// Exempts the store from `cases`, which the suite then does not run. Use this method only for
    /// a behavior that the store cannot have and for which there is no [`Power`]. Each entry of
    /// `cases` is the name of a group or the full name of a case. The report shows these cases as
    /// `N-A` with `reason`.
    ///
    /// # Panics
    /// If an entry of `cases` names no group and no case.
    #[must_use]
    pub fn without(mut self, reason: &str, cases: &[&str]) -> Self {
        for name in cases {
            let known = Self::cases().any(|case| case.group == *name || case.full_name() == *name);
            assert!(known, "the suite should have the group or case {name}");
            self.exemptions.push(Exemption {
                name: (*name).to_owned(),
                reason: reason.to_owned(),
            });
        }
        self
    }

    /// Sets the function that opens a database in another process. Its argument is the
    /// [address](crate::Fixture::address) of the fixture. The suite requires this function for
    /// [`Power::Processes`].
    ///
    /// The function opens the store as an application does, with the clock that the store uses in
    /// production. So one case of the suite also tests that clock. The cases start this program
    /// again as the other process, and [`run`](Self::run) then works on the database instead of
    /// running cases.
    #[must_use]
    pub fn attach<F, Opening>(mut self, open: F) -> Self
    where
        F: Fn(String) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<SharedStore, BoxError>> + Send + 'static,
    {
        self.attach = Some(Attach::new(open));
        self
    }

    /// Restricts the suite to these groups. Use this method to test a store with a setting that
    /// cannot affect the other groups. Another suite must run all groups on the store without that
    /// setting.
    ///
    /// # Panics
    /// [`run`](Self::run) panics if a group does not exist.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.groups = Some(groups.iter().map(|&group| group.to_owned()).collect());
        self
    }

    /// Lists or runs the cases that the command-line arguments select. Each case runs on a new
    /// fixture. Returns the exit code for `main`.
    pub fn run(self, provision: impl Future<Output = Provision>) -> ExitCode {
        let working = process::work_if_asked(self.attach.as_ref());
        if let Some(code) = runner::runtime().block_on(working) {
            return code;
        }
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => {
                Provision::Ready(setup(factory, self.powers.clone(), self.settings))
            }
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, self.exemptions);
        let cases = chosen(self.groups.as_deref());
        trials::run(subject, &cases::SETUP, cases, &provision)
    }

    /// Returns all cases for stores.
    pub fn cases() -> impl Iterator<Item = &'static Case<Cx>> {
        cases::GROUPS.iter().copied().flatten()
    }

    /// Returns the case with the name `full_name`, or `None` if there is no such case. A full name
    /// consists of a group and a case, such as `claim::an_empty_store_yields_nothing`.
    #[must_use]
    pub fn case(full_name: &str) -> Option<&'static Case<Cx>> {
        Self::cases().find(|case| case.full_name() == full_name)
    }

    /// Runs one case on a new fixture that has exactly these powers. Intended for tests of the
    /// suite itself.
    ///
    /// # Errors
    /// The reason why the case failed.
    pub async fn check(case: &Case<Cx>, powers: &[Power], factory: Factory) -> Result<(), Failure> {
        Self::check_with(case, powers, factory, Settings::DEFAULT).await
    }

    /// Runs one case as [`check`](Self::check) does, but does not shorten a failing random history.
    /// Shortening a history takes many times longer than finding the failure.
    ///
    /// # Errors
    /// The reason why the case failed.
    pub async fn check_without_shrinking(
        case: &Case<Cx>,
        powers: &[Power],
        factory: Factory,
    ) -> Result<(), Failure> {
        let settings = Settings {
            shrinks: false,
            ..Settings::DEFAULT
        };
        Self::check_with(case, powers, factory, settings).await
    }

    async fn check_with(
        case: &Case<Cx>,
        powers: &[Power],
        factory: Factory,
        settings: Settings,
    ) -> Result<(), Failure> {
        let setup = setup(factory, powers.to_vec(), settings);
        runner::run_case(case, &*setup).await.outcome
    }
}

fn setup(factory: Factory, powers: Vec<Power>, settings: Settings) -> Arc<Setup<Cx>> {
    Arc::new(move || Box::pin(Cx::create(factory.clone(), powers.clone(), settings)))
}

/// Returns the cases of `groups`, or all cases if `groups` is `None`. Panics if a group does not
/// exist.
fn chosen(groups: Option<&[String]>) -> impl Iterator<Item = &'static Case<Cx>> {
    for group in groups.into_iter().flatten() {
        assert!(
            Suite::cases().any(|case| case.group == group),
            "the suite should have the group `{group}`"
        );
    }
    Suite::cases()
        .filter(move |case| groups.is_none_or(|groups| groups.iter().any(|one| one == case.group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_choose_their_cases_and_no_others() {
        let all = chosen(None).count();
        assert_eq!(all, Suite::cases().count());
        let locks = Suite::new("s", &[]).groups(&["lock", "guard"]);
        let some: Vec<_> = chosen(locks.groups.as_deref()).collect();
        assert!(
            some.iter()
                .all(|case| ["lock", "guard"].contains(&case.group))
        );
        for group in ["lock", "guard"] {
            let of_group = Suite::cases().filter(|case| case.group == group);
            assert_eq!(
                some.iter().filter(|case| case.group == group).count(),
                of_group.count()
            );
        }
        assert!(!some.is_empty() && some.len() < all);
    }

    #[test]
    #[should_panic(expected = "the group `locks`")]
    fn a_group_that_is_not_there_is_no_empty_success() {
        let wrong = Suite::new("s", &[]).groups(&["locks"]);
        assert_eq!(chosen(wrong.groups.as_deref()).count(), 0);
    }
}
