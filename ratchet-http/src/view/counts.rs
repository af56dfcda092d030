use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, State};

/// The number of jobs that match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Matching {
    /// The number of jobs that were counted.
    pub jobs: u64,
    /// Whether the count is complete. If false, counting stopped at its limit or timeout, and more
    /// jobs may match.
    pub exact: bool,
}

impl Matching {
    /// Creates a complete count: exactly this many jobs match.
    #[must_use]
    pub const fn exactly(jobs: usize) -> Self {
        let jobs = jobs as u64;
        Self { jobs, exact: true }
    }

    /// Creates an incomplete count: at least this many jobs match.
    #[must_use]
    pub const fn at_least(jobs: usize) -> Self {
        let jobs = jobs as u64;
        Self { jobs, exact: false }
    }
}

/// The number of jobs in each state that match a request.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MatchingByState {
    /// The counts by state. If counting reached its timeout, the remaining states are missing.
    pub counts: BTreeMap<State, Matching>,
    /// When the jobs were counted in the background; null if they were counted for this request.
    pub counts_at: Option<At>,
}

impl MatchingByState {
    /// Creates the view of a background count, which is always complete.
    #[must_use]
    pub fn counted(counts: &Counts, at: At) -> Self {
        let exact = |(state, jobs): (&State, &u64)| {
            let (jobs, exact) = (*jobs, true);
            (*state, Matching { jobs, exact })
        };
        Self {
            counts: counts.0.iter().map(exact).collect(),
            counts_at: Some(at),
        }
    }
}
