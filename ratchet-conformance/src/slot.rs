use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The environment variable in which cargo-nextest passes a number to each test. Tests that run at
/// the same time have different numbers.
const VARIABLE: &str = "NEXTEST_TEST_GLOBAL_SLOT";

/// Numbers of the slots that this process currently uses.
static IN_USE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// An identifier that no other fixture uses at the same time, in any test of one cargo-nextest run.
///
/// Use a slot to reuse a database, because creating tables and indexes can take longer than a case.
/// A fixture can name its database after a slot, keep the database, and empty it for the next case.
/// Such a fixture implements [`Fixture::renew`](crate::Fixture::renew).
///
/// When a slot is dropped, another fixture can take it. Separate runs of cargo-nextest use the same
/// slots. They must not run at the same time on the same server.
///
/// # Examples
/// ```
/// use ratchet_conformance::Slot;
///
/// let name = match Slot::take() {
///     Some(slot) => format!("test_{slot}"), // exists already, from an earlier case
///     None => "test_new".to_owned(),        // another test runner: make a new one
/// };
/// # assert!(name.starts_with("test_"));
/// ```
#[derive(Debug)]
pub struct Slot {
    test: usize,
    number: usize,
}

impl Slot {
    /// Takes the first free slot of the current test. Returns `None` if the test was not started by
    /// cargo-nextest.
    #[must_use]
    pub fn take() -> Option<Self> {
        let test = std::env::var(VARIABLE).ok()?.parse().ok()?;
        Some(Self::of_test(test))
    }

    fn of_test(test: usize) -> Self {
        let mut used = in_use();
        let free = (0..).find(|number| !used.contains(number));
        let number = free.unwrap_or(usize::MAX);
        used.insert(number);
        Self { test, number }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.test, self.number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        in_use().remove(&self.number);
    }
}

fn in_use() -> MutexGuard<'static, BTreeSet<usize>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_differ_until_they_are_dropped() {
        let first = Slot::of_test(7);
        let second = Slot::of_test(7);
        assert_eq!(
            (first.to_string(), second.to_string()),
            ("7_0".into(), "7_1".into())
        );
        drop(first);
        assert_eq!(Slot::of_test(7).to_string(), "7_0");
    }
}
