use std::time::Duration;

use crate::error::SettingProblem;
use crate::state::JobState;

/// The longest duration that a setting may have: ten years, far from every overflow.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The name of the setting [`Retention::archive`] in problems.
const ARCHIVE: &str = "retention.archive";

/// The retention of jobs that have ended.
///
/// Ages count from the end of the job, by the database's clock. A job stays, however old it is,
/// until all jobs that were linked to it have ended, because they may read its result.
///
/// An ended [batch](crate::Client::create_batch) is a row with counts. The row is deleted when it
/// is older than the longest age that is set here for jobs, so not before the jobs of the batch are
/// deleted or archived. Jobs that are kept forever outlive their batch. If jobs of every state are
/// kept forever, so are batches. The archive stores no batches; an archived job keeps the id of its
/// batch.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Retain, Retention};
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// // Successes for a day, dead letters for 90 and then in the archive, which keeps a year.
/// let retention = Retention::default()
///     .failed(Retain::Archive(90 * DAY))
///     .archive(Some(365 * DAY));
/// # let _ = retention;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    succeeded: Retain,
    failed: Retain,
    cancelled: Retain,
    archive: Option<Duration>,
}

/// The retention of jobs that ended in one state.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Retain, Retention};
///
/// let week = Duration::from_secs(7 * 86_400);
/// let retention = Retention::all(Retain::Delete(week)).failed(Retain::Forever);
/// # let _ = retention;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// The jobs are kept forever.
    Forever,
    /// The jobs are deleted when they are older than this.
    Delete(Duration),
    /// The jobs are moved to the archive when they are older than this.
    Archive(Duration),
}

impl Retention {
    /// Creates a retention that is the same for all terminal states.
    #[must_use]
    pub const fn all(retain: Retain) -> Self {
        Self {
            succeeded: retain,
            failed: retain,
            cancelled: retain,
            archive: None,
        }
    }

    /// Sets the retention of jobs that succeeded. By default they are deleted after a day.
    #[must_use]
    pub const fn succeeded(mut self, retain: Retain) -> Self {
        self.succeeded = retain;
        self
    }

    /// Sets the retention of dead letters. By default they are deleted after 90 days.
    #[must_use]
    pub const fn failed(mut self, retain: Retain) -> Self {
        self.failed = retain;
        self
    }

    /// Sets the retention of cancelled jobs. By default they are deleted after 90 days.
    #[must_use]
    pub const fn cancelled(mut self, retain: Retain) -> Self {
        self.cancelled = retain;
        self
    }

    /// Sets the age at which archived jobs are deleted. With `None`, the default, the archive keeps
    /// them forever.
    #[must_use]
    pub const fn archive(mut self, delete_after: Option<Duration>) -> Self {
        self.archive = delete_after;
        self
    }

    /// Returns the retention of the jobs in each terminal state.
    pub(crate) const fn states(&self) -> [(JobState, Retain); 3] {
        [
            (JobState::Succeeded, self.succeeded),
            (JobState::Failed, self.failed),
            (JobState::Cancelled, self.cancelled),
        ]
    }

    /// Returns the age at which ended batches are deleted: the longest age at which jobs are
    /// deleted or archived. `None` if batches are kept forever.
    pub(crate) fn batches(&self) -> Option<Duration> {
        let age = |(_, retain)| match retain {
            Retain::Forever => None,
            Retain::Delete(age) | Retain::Archive(age) => Some(age),
        };
        self.states().into_iter().filter_map(age).max()
    }

    /// Returns the age at which archived jobs are deleted. `None` if they are kept forever.
    pub(crate) const fn archived(&self) -> Option<Duration> {
        self.archive
    }

    /// Returns whether this retention needs an archive.
    pub(crate) fn needs_archive(&self) -> bool {
        let archives = |(_, retain)| matches!(retain, Retain::Archive(_));
        self.archive.is_some() || self.states().into_iter().any(archives)
    }

    /// Returns every setting that cannot work, each with its values.
    pub(crate) fn problems(&self) -> Vec<SettingProblem> {
        let mut problems = Vec::new();
        let mut refuse = |settings: &[&'static str], text: String| {
            problems.push(SettingProblem::new(settings, text));
        };
        let too_long = |age: Duration| age > LONGEST;
        let names = [
            "retention.succeeded",
            "retention.failed",
            "retention.cancelled",
        ];
        for ((state, retain), name) in self.states().into_iter().zip(names) {
            let (Retain::Delete(age) | Retain::Archive(age)) = retain else {
                continue;
            };
            if too_long(age) {
                let text = format!("retention {age:?} of {state} jobs is longer than ten years");
                refuse(&[name], text);
            }
            if let Some(kept) = self.archive
                && matches!(retain, Retain::Archive(_))
                && kept <= age
            {
                let text = format!(
                    "{state} jobs are archived after {age:?}, but retention.archive deletes them after {kept:?}; it must be longer"
                );
                refuse(&[name, ARCHIVE], text);
            }
        }
        if let Some(age) = self.archive.filter(|age| too_long(*age)) {
            let text = format!("retention {age:?} of the archive is longer than ten years");
            refuse(&[ARCHIVE], text);
        }
        problems
    }
}

impl Default for Retention {
    /// Deletes successes after a day, since they are many and rarely looked up later. Deletes dead
    /// letters and cancelled jobs, which an operator may look up, after 90 days.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self::all(Retain::Delete(90 * DAY)).succeeded(Retain::Delete(DAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn what_cannot_work_is_named() {
        assert_eq!(Retention::default().problems(), []);
        let archive = Retention::all(Retain::Archive(DAY));
        assert_eq!(archive.clone().archive(Some(2 * DAY)).problems(), []);
        let at_once = archive
            .archive(Some(DAY))
            .failed(Retain::Forever)
            .problems();
        assert_eq!(at_once.len(), 2, "{at_once:?}");
        assert!(
            at_once[1].to_string().contains("cancelled jobs"),
            "{at_once:?}"
        );
        let too_long = Retention::all(Retain::Delete(DAY))
            .failed(Retain::Archive(4_000 * DAY))
            .archive(Some(5_000 * DAY));
        assert_eq!(too_long.problems().len(), 2);
    }

    #[test]
    fn batches_go_after_the_last_jobs_that_go_and_stay_if_all_stay() {
        let days = |count| count * DAY;
        let kept = Retention::all(Retain::Forever);
        assert_eq!(kept.batches(), None);
        let some = kept.succeeded(Retain::Delete(days(3)));
        assert_eq!(some.batches(), Some(days(3)));
        let most = some.cancelled(Retain::Archive(days(7)));
        assert_eq!(most.batches(), Some(days(7)));
        assert_eq!(Retention::default().batches(), Some(days(90)));
    }

    #[test]
    fn an_archive_is_needed_by_who_fills_or_empties_it() {
        let forever = Retention::all(Retain::Forever);
        assert!(!forever.needs_archive() && !Retention::default().needs_archive());
        assert!(
            forever
                .clone()
                .cancelled(Retain::Archive(DAY))
                .needs_archive()
        );
        assert!(forever.archive(Some(DAY)).needs_archive());
    }
}
