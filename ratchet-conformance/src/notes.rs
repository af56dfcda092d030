//! The notes of a running case: the clauses that its assertions check, and the store calls that
//! were repeated.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ratchet_core::{StoreError, time};
use tokio::time::Instant;

use crate::runner::time_limit;

/// Information that is recorded while a case runs. All handles and tasks of the case share it.
#[derive(Debug)]
pub(crate) struct Notes {
    started: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Clauses that the next assertions check. An empty list means all clauses that the case
    /// proves.
    proving: Vec<&'static str>,
    /// All clauses that the case has passed to [`Notes::proving`] so far.
    named: Vec<&'static str>,
    repeated: u64,
    last_repeated: Option<String>,
    /// Maximum duration of the case. `None` means the default time limit.
    time_limit: Option<Duration>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            started: time::monotonic(),
            inner: Mutex::default(),
        }
    }
}

impl Notes {
    /// Sets the clauses that the next assertions check.
    pub(crate) fn proving(&self, clauses: &[&'static str]) {
        let mut inner = self.lock();
        inner.proving = clauses.to_vec();
        inner.named.extend(clauses);
    }

    /// Returns the clauses that the report lists as broken if the case fails now. `all` contains
    /// every clause that the case proves.
    pub(crate) fn blamed(&self, all: &[&'static str]) -> Vec<&'static str> {
        let inner = self.lock();
        if inner.proving.is_empty() {
            all.to_vec()
        } else {
            inner.proving.clone()
        }
    }

    /// Returns a clause that the case passed to [`proving`](Self::proving) and that `all` does not
    /// contain. `all` contains the clauses that the case declares. Returns `None` if there is no
    /// such clause.
    pub(crate) fn unproved(&self, all: &[&'static str]) -> Option<&'static str> {
        let inner = self.lock();
        inner.named.iter().copied().find(|one| !all.contains(one))
    }

    /// Counts a repeated call and records the error that caused the repetition.
    pub(crate) fn repeated(&self, error: &StoreError) {
        let mut inner = self.lock();
        inner.repeated += 1;
        inner.last_repeated = Some(error.to_string());
    }

    /// Returns the number of repeated calls and the last error that caused a repetition.
    pub(crate) fn repeats(&self) -> (u64, Option<String>) {
        let inner = self.lock();
        (inner.repeated, inner.last_repeated.clone())
    }

    /// Returns whether three quarters of the case's time limit have passed. The case should then
    /// finish and report its result.
    pub(crate) fn is_late(&self) -> bool {
        let limit = self.lock().time_limit.unwrap_or_else(|| time_limit(""));
        self.started.elapsed() > limit * 3 / 4
    }

    /// Sets the maximum duration of the case.
    pub(crate) fn set_time_limit(&self, limit: Duration) {
        self.lock().time_limit = Some(limit);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["claim.due", "claim.order"];

    #[test]
    fn a_case_that_names_no_clause_breaks_all_that_it_proves() {
        let notes = Notes::default();
        assert_eq!(notes.blamed(ALL), ALL);
        notes.proving(&["claim.due"]);
        assert_eq!(notes.blamed(ALL), ["claim.due"]);
        notes.proving(&[]);
        assert_eq!(notes.blamed(ALL), ALL);
    }

    #[test]
    fn a_clause_that_the_case_does_not_prove_is_found() {
        let notes = Notes::default();
        notes.proving(&["claim.due"]);
        assert_eq!(notes.unproved(ALL), None);
        notes.proving(&["claim.dew"]);
        notes.proving(&["claim.order"]);
        assert_eq!(notes.unproved(ALL), Some("claim.dew"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_case_is_late_when_three_quarters_of_its_time_are_over() {
        let notes = Notes::default();
        assert!(!notes.is_late());
        tokio::time::advance(time_limit("")).await;
        assert!(notes.is_late());
    }
}
