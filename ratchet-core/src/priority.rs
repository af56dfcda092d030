//! Priority, aging, and the claim order.
//!
//! `effective = priority + floor(max(0, now − run_at) / aging interval)`, and a batch is claimed
//! and returned in the order (effective descending, `run_at` ascending, id ascending).
//!
//! A store does not need to sort by this expression. Within one stored level, a job that became due
//! earlier has the same or a higher effective priority. So the order within a level is `run_at,
//! id`, which an index provides. [`merge`] combines such ordered streams into the exact claim
//! order. It reads at most one item per stream beyond the items that it returns.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::JobId;
use crate::time::duration_millis;

/// The stored priority of a job. Aging raises the effective priority of a job, but never the stored
/// one.
///
/// ```
/// use ratchet::{NewJob, Priority};
///
/// let job = NewJob::new("reset-password", &42).priority(Priority::Critical);
/// assert!(Priority::Critical > Priority::Normal);
/// # let _ = job;
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Level 0.
    Lowest = 0,
    /// Level 1.
    Low = 1,
    /// Level 2, the default.
    #[default]
    Normal = 2,
    /// Level 3.
    High = 3,
    /// Level 4.
    Critical = 4,
}

impl Priority {
    /// All levels, lowest first.
    pub const ALL: [Self; 5] = [
        Self::Lowest,
        Self::Low,
        Self::Normal,
        Self::High,
        Self::Critical,
    ];

    /// Returns the number with which stores save the priority, 0 to 4.
    #[must_use]
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// Returns the priority with this stored number.
    ///
    /// # Errors
    /// [`InvalidInput`] if the number is not 0 to 4.
    pub fn from_level(level: i64) -> Result<Self, InvalidInput> {
        usize::try_from(level)
            .ok()
            .and_then(|level| Self::ALL.get(level).copied())
            .ok_or_else(|| InvalidInput::new("priority", format!("is {level}; expected 0 to 4")))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lowest => "lowest",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// The rule that raises the effective priority of a waiting job by one level per interval.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Aging, Priority};
///
/// // A job rises by one level for each minute that it has waited.
/// let aging = Aging::every(Duration::from_secs(60));
/// let low = aging.effective(Priority::Low, 120_000);
/// assert_eq!(low, aging.effective(Priority::High, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aging {
    interval: Duration,
}

impl Aging {
    /// No aging: the effective priority of a job is always its stored priority.
    pub const OFF: Self = Self {
        interval: Duration::ZERO,
    };

    /// Creates a rule that raises the effective priority by one level for each `interval` that a
    /// job waits. An interval of zero means [`Aging::OFF`].
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval }
    }

    /// Returns the interval in milliseconds; 0 means that aging is off.
    #[must_use]
    pub fn interval_millis(self) -> i64 {
        duration_millis(self.interval)
    }

    /// Returns the effective priority of a job with this stored priority that became due
    /// `waited_millis` milliseconds ago.
    #[must_use]
    pub fn effective(self, priority: Priority, waited_millis: i64) -> i64 {
        let base = i64::from(priority.level());
        match self.interval_millis() {
            0 => base,
            interval => base + waited_millis.max(0) / interval,
        }
    }
}

impl Default for Aging {
    /// Returns a rule that raises the effective priority by one level per 15 minutes.
    fn default() -> Self {
        Self::every(Duration::from_secs(15 * 60))
    }
}

/// The position of a job in the claim order. The job with the smallest rank is claimed first.
///
/// ```
/// # use std::time::Duration;
/// use ratchet::{Aging, JobId, Priority};
/// use ratchet_core::priority::ClaimRank;
///
/// let (aging, now) = (Aging::every(Duration::from_secs(15)), 60_000);
/// let waited = ClaimRank::new(Priority::Low, 0, JobId::new(), aging, now);
/// let urgent = ClaimRank::new(Priority::High, now, JobId::new(), aging, now);
/// assert!(waited < urgent, "four levels by waiting for 60 s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRank {
    effective: Reverse<i64>,
    run_at: i64,
    id: JobId,
}

impl ClaimRank {
    /// Creates the rank of a job with this priority, due time and id, at the time `now`. Times are
    /// in milliseconds since 1970.
    #[must_use]
    pub fn new(priority: Priority, run_at: i64, id: JobId, aging: Aging, now: i64) -> Self {
        Self {
            effective: Reverse(aging.effective(priority, now.saturating_sub(run_at))),
            run_at,
            id,
        }
    }

    /// Returns the id of the job.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }
}

/// Merges streams of jobs and returns the first `limit` jobs in claim order. All jobs of a stream
/// have the same stored priority, and must be ordered by (`run_at`, id).
///
/// Reads at most one item per stream beyond the items that are returned. Times are in milliseconds
/// since 1970.
///
/// # Errors
/// The first error that a stream returns.
pub fn merge<S, E>(
    streams: impl IntoIterator<Item = (Priority, S)>,
    aging: Aging,
    now: i64,
    limit: usize,
) -> Result<Vec<JobId>, E>
where
    S: Iterator<Item = Result<(i64, JobId), E>>,
{
    merge_admitted(streams, aging, now, limit, |_| true)
}

/// What a claim does with the next job of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Takes the job.
    Take,
    /// Leaves out this job.
    Skip,
    /// Leaves out this job and the rest of its stream.
    End,
}

/// Does the same as [`merge`], but leaves out the jobs that `admit` refuses.
///
/// For each job, in claim order, this function calls `admit` with the index of the job's stream.
/// After a refusal, the rest of that stream is left out too.
///
/// # Errors
/// The first error that a stream returns.
pub fn merge_admitted<S, E>(
    streams: impl IntoIterator<Item = (Priority, S)>,
    aging: Aging,
    now: i64,
    limit: usize,
    mut admit: impl FnMut(usize) -> bool,
) -> Result<Vec<JobId>, E>
where
    S: Iterator<Item = Result<(i64, JobId), E>>,
{
    merge_decided(streams, aging, now, limit, |stream, _| {
        Ok(match admit(stream) {
            true => Choice::Take,
            false => Choice::End,
        })
    })
}

/// Does the same as [`merge`], but calls `decide` for each job, in claim order, with the index of
/// the job's stream and the id of the job. Calls it for no job after the last one that is taken.
///
/// # Errors
/// The first error that a stream or `decide` returns.
pub fn merge_decided<S, E>(
    streams: impl IntoIterator<Item = (Priority, S)>,
    aging: Aging,
    now: i64,
    limit: usize,
    mut decide: impl FnMut(usize, JobId) -> Result<Choice, E>,
) -> Result<Vec<JobId>, E>
where
    S: Iterator<Item = Result<(i64, JobId), E>>,
{
    let mut streams: Vec<(Priority, S)> = streams.into_iter().collect();
    let mut heads = BinaryHeap::with_capacity(streams.len());
    for (index, (priority, stream)) in streams.iter_mut().enumerate() {
        if let Some(head) = stream.next() {
            let (run_at, id) = head?;
            heads.push(Reverse((
                ClaimRank::new(*priority, run_at, id, aging, now),
                index,
            )));
        }
    }
    let mut chosen = Vec::with_capacity(limit.min(1_024));
    while chosen.len() < limit {
        let Some(mut head) = heads.peek_mut() else {
            break;
        };
        let Reverse((rank, index)) = *head;
        match decide(index, rank.id())? {
            Choice::Take => chosen.push(rank.id()),
            Choice::Skip => {}
            Choice::End => {
                PeekMut::pop(head);
                continue;
            }
        }
        let (priority, stream) = &mut streams[index];
        match stream.next() {
            Some(next) => {
                let (run_at, id) = next?;
                *head = Reverse((ClaimRank::new(*priority, run_at, id, aging, now), index));
            }
            None => {
                PeekMut::pop(head);
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn aging_raises_one_level_per_whole_interval() {
        let aging = Aging::every(Duration::from_millis(1_000));
        let table = [
            (-5, 0),
            (0, 0),
            (999, 0),
            (1_000, 1),
            (4_999, 4),
            (5_000, 5),
        ];
        for (waited, raised) in table {
            assert_eq!(aging.effective(Priority::Lowest, waited), raised);
            assert_eq!(aging.effective(Priority::Critical, waited), 4 + raised);
        }
        assert_eq!(Aging::OFF.effective(Priority::Low, 1_000_000), 1);
    }

    #[test]
    fn levels_round_trip_and_others_are_refused() {
        for priority in Priority::ALL {
            assert_eq!(Priority::from_level(priority.level().into()), Ok(priority));
        }
        assert!(Priority::from_level(5).is_err());
        assert!(Priority::from_level(-1).is_err());
    }

    #[test]
    fn a_refusal_ends_its_stream_and_no_other() {
        let job = |run_at: i64| (run_at, JobId::new());
        let limited = [job(1), job(2), job(5)];
        let free = [job(3), job(4), job(6)];
        let high = [job(9)];
        fn stream(jobs: &[(i64, JobId)]) -> impl Iterator<Item = Result<(i64, JobId), Infallible>> {
            jobs.iter().copied().map(Ok)
        }
        let streams = || {
            [
                (Priority::Normal, stream(&limited)),
                (Priority::Normal, stream(&free)),
                (Priority::High, stream(&high)),
            ]
        };
        // `admit` accepts the first job of stream 0 and refuses the second.
        let mut asked = Vec::new();
        let admit = |stream| {
            asked.push(stream);
            stream != 0 || asked.iter().filter(|other| **other == 0).count() == 1
        };
        let Ok(merged) = merge_admitted(streams(), Aging::OFF, 10, 10, admit);
        let expected = [high[0], limited[0], free[0], free[1], free[2]];
        assert_eq!(merged, expected.map(|(_, id)| id));
        // `admit` is not called again for a stream that it refused.
        assert_eq!(asked, [2, 0, 0, 1, 1, 1]);
        // A refused job does not count towards the limit, and `admit` is not called once the limit
        // is reached.
        let mut asked = 0;
        let admit = |stream| {
            asked += 1;
            stream == 1
        };
        let Ok(merged) = merge_admitted(streams(), Aging::OFF, 10, 2, admit);
        assert_eq!(merged, [free[0].1, free[1].1]);
        assert_eq!(asked, 4);
    }

    #[test]
    fn a_skipped_job_does_not_end_its_stream() {
        let jobs = [1, 2, 3].map(|run_at: i64| (run_at, JobId::new()));
        let stream = jobs.iter().copied().map(Ok::<_, Infallible>);
        let mut asked = Vec::new();
        let decide = |_, id| {
            asked.push(id);
            Ok(match id == jobs[0].1 {
                true => Choice::Skip,
                false => Choice::Take,
            })
        };
        let merged = merge_decided([(Priority::Normal, stream)], Aging::OFF, 9, 1, decide);
        assert_eq!(merged, Ok(vec![jobs[1].1]));
        assert_eq!(asked, [jobs[0].1, jobs[1].1]);
    }

    proptest! {
        /// Merging ordered streams gives the same order as sorting all jobs by rank.
        #[test]
        fn merge_equals_sorting_by_rank(
            jobs in prop::collection::vec((0_i64..5, 0_i64..50), 0..60),
            interval in 0_u64..20,
            limit in 0_usize..70,
        ) {
            let (aging, now) = (Aging::every(Duration::from_millis(interval)), 40);
            let jobs: Vec<(Priority, i64, JobId)> = jobs
                .into_iter()
                .map(|(level, run_at)| (Priority::from_level(level).unwrap(), run_at, JobId::new()))
                .collect();
            let mut sorted: Vec<ClaimRank> = jobs
                .iter()
                .map(|&(priority, run_at, id)| ClaimRank::new(priority, run_at, id, aging, now))
                .collect();
            sorted.sort();
            let streams = Priority::ALL.map(|priority| {
                let mut stream: Vec<(i64, JobId)> = jobs
                    .iter()
                    .filter(|job| job.0 == priority)
                    .map(|job| (job.1, job.2))
                    .collect();
                stream.sort();
                (priority, stream.into_iter().map(Ok::<_, Infallible>))
            });
            let Ok(merged) = merge(streams, aging, now, limit);
            let expected: Vec<JobId> = sorted.iter().take(limit).map(ClaimRank::id).collect();
            prop_assert_eq!(merged, expected);
        }
    }
}
