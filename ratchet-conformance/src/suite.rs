use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cases::{self, HISTORIES};
use crate::fixture::Factory;
use crate::runner::{self, Failure, Setup};
use crate::trials::{self, Exemption, Subject};
use crate::{Case, Cx, Power, Provision};

/// The suite for stores.
///
/// The `main` of a test without a harness calls [`run`](Self::run); see the [crate](crate).
#[derive(Clone, Debug)]
pub struct Suite {
    name: String,
    powers: Vec<Power>,
    exemptions: Vec<Exemption>,
    /// The groups to run. `None` means all of them.
    groups: Option<Vec<String>>,
    settings: Settings,
}

/// Settings of the `differential` cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How many histories the cases run together.
    pub(crate) histories: u64,
    /// Whether the store may report, for a claimed job, that other jobs wait for its end although
    /// none does.
    pub(crate) may_exaggerate: bool,
    /// Whether a failing history is shortened.
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
    /// Creates the suite for the store called `name`, whose fixtures have exactly these powers.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
            exemptions: Vec::new(),
            groups: None,
            settings: Settings::DEFAULT,
        }
    }

    /// Sets how many random histories the `differential` cases run together, unless
    /// `RATCHET_HISTORIES` is set. Use fewer for a store with slow steps. Default 100.
    #[must_use]
    pub const fn histories(mut self, histories: u64) -> Self {
        self.settings.histories = histories;
        self
    }

    /// Allows the store to report, for a claimed job, that other jobs wait for its end although
    /// none does: a store may flag a parent before it is known whether the child is stored. Without
    /// this setting the `differential` cases require exactly what the model reports. A store must
    /// never fail to report that a job waits.
    #[must_use]
    pub const fn may_say_awaited_of_others(mut self) -> Self {
        self.settings.may_exaggerate = true;
        self
    }

    /// Exempts the store, or a kind of server, from these cases, by group or by full name, because
    /// the store refuses the calls that they test, with
    /// [`Misconfigured`](ratchet_core::StoreErrorKind::Misconfigured).
    ///
    /// The cases still run, and must fail after such a refusal; the report then shows N-A with this
    /// reason. If a case passes, or fails without a refusal, the suite fails, because the exemption
    /// would hide an ability or a defect of the store. The exemption of a case takes precedence
    /// over that of its group.
    ///
    /// # Panics
    /// If there is no such group or case.
    #[must_use]
    pub fn without(self, reason: &str, cases: &[&str]) -> Self {
        self.exempt(reason, cases, true)
    }

    /// Exempts the store from these cases like [`without`](Self::without), but does not run them.
    /// Use it for cases that would hang, take long, or pass only sometimes.
    ///
    /// # Panics
    /// If there is no such group or case.
    #[must_use]
    pub fn without_running(self, reason: &str, cases: &[&str]) -> Self {
        self.exempt(reason, cases, false)
    }

    fn exempt(mut self, reason: &str, cases: &[&str], runs: bool) -> Self {
        for name in cases {
            let known = Self::cases().any(|case| case.group == *name || case.full_name() == *name);
            assert!(known, "there is no group or case {name}");
            self.exemptions.push(Exemption {
                name: (*name).to_owned(),
                reason: reason.to_owned(),
                runs,
            });
        }
        self
    }

    /// Restricts the suite to these groups. Use it for a setting of a store that cannot affect the
    /// other groups; the whole suite must have passed without that setting.
    ///
    /// # Panics
    /// [`run`](Self::run) panics if there is no such group.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.groups = Some(groups.iter().map(|&group| group.to_owned()).collect());
        self
    }

    /// Lists or runs the cases that the command line selects, each on a new fixture.
    pub fn run(self, provision: impl Future<Output = Provision>) -> ExitCode {
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => {
                Provision::Ready(setup(factory, self.powers.clone(), self.settings))
            }
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, self.exemptions);
        trials::run(subject, chosen(self.groups.as_deref()), &provision)
    }

    /// Returns every case.
    pub fn cases() -> impl Iterator<Item = &'static Case<Cx>> {
        cases::GROUPS.iter().copied().flatten()
    }

    /// Returns the case with this full name, such as `claim::an_empty_store_yields_nothing`.
    #[must_use]
    pub fn case(full_name: &str) -> Option<&'static Case<Cx>> {
        Self::cases().find(|case| case.full_name() == full_name)
    }

    /// Runs one case on a new fixture with these powers, for tests of the suite itself.
    ///
    /// # Errors
    /// The reason why the case failed.
    pub async fn check(case: &Case<Cx>, powers: &[Power], factory: Factory) -> Result<(), Failure> {
        Self::check_with(case, powers, factory, Settings::DEFAULT).await
    }

    /// Does the same as [`check`](Self::check), but does not shorten a failing random history,
    /// which takes many times longer than finding it.
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

/// Returns the cases of these groups, or of all groups if `groups` is `None`.
fn chosen(groups: Option<&[String]>) -> impl Iterator<Item = &'static Case<Cx>> {
    for group in groups.into_iter().flatten() {
        assert!(
            Suite::cases().any(|case| case.group == group),
            "the suite has no group `{group}`"
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
    #[should_panic(expected = "no group `locks`")]
    fn a_group_that_is_not_there_is_no_empty_success() {
        let wrong = Suite::new("s", &[]).groups(&["locks"]);
        assert_eq!(chosen(wrong.groups.as_deref()).count(), 0);
    }
}
