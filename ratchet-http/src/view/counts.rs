use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{At, Counts, State};

/// How many jobs match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Matching {
    /// The number of jobs that were counted.
    pub jobs: u64,
    /// Whether the count is complete. If false, counting stopped at its limit, and more jobs may
    /// match.
    pub exact: bool,
}

impl Matching {
    /// Returns a complete count.
    #[must_use]
    pub const fn exactly(jobs: usize) -> Self {
        let jobs = jobs as u64;
        Self { jobs, exact: true }
    }

    /// Returns a count that stopped at its limit: at least this many jobs match.
    #[must_use]
    pub const fn at_least(jobs: usize) -> Self {
        let jobs = jobs as u64;
        Self { jobs, exact: false }
    }
}

/// How many jobs match in each state.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MatchingByState {
    /// The counts by state. States are missing if counting ran out of time.
    pub counts: BTreeMap<State, Matching>,
    /// The time of the background count that the numbers are from; null if they were counted for
    /// this request.
    pub counts_at: Option<At>,
}

impl MatchingByState {
    /// Returns the numbers of a background count, which are complete.
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
