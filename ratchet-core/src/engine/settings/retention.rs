use std::time::Duration;

use crate::error::SettingProblem;
use crate::state::JobState;

/// Maximum duration of a setting: ten years. No calculation with such a duration overflows.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Name of the setting [`Retention::archive`] in reported problems.
const ARCHIVE: &str = "retention.archive";

/// Rules for how long ended jobs are kept, and whether they are then deleted or archived.
///
/// The age of a job counts from its end, by the database's clock. A job is kept, whatever its age,
/// until all jobs that wait for its end by a link have ended. These jobs may read its result.
///
/// An ended [batch](crate::Client::create_batch) is a row with counts. The row is deleted at the
/// longest age that is set here for jobs. By then the jobs of the batch have been deleted or
/// archived, unless they are kept forever. If jobs of every state are kept forever, batches are
/// also kept forever. The archive stores no batches, but an archived job keeps the id of its batch.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Retain, Retention};
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// // Keeps successes for a day. Archives dead letters after 90 days, and deletes them from the
/// // archive after a year.
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

/// Rule for jobs that ended in one state: how long they are kept, and what happens then.
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
    /// The jobs are deleted when this time has passed since their end.
    Delete(Duration),
    /// The jobs are moved to the archive when this time has passed since their end.
    Archive(Duration),
}

impl Retention {
    /// Creates a retention with the same rule for jobs of all terminal states.
    #[must_use]
    pub const fn all(retain: Retain) -> Self {
        Self {
            succeeded: retain,
            failed: retain,
            cancelled: retain,
            archive: None,
        }
    }

    /// Sets the rule for jobs that succeeded. By default, these jobs are deleted after a day.
    #[must_use]
    pub const fn succeeded(mut self, retain: Retain) -> Self {
        self.succeeded = retain;
        self
    }

    /// Sets the rule for jobs that failed (dead letters). By default, these jobs are deleted after
    /// 90 days.
    #[must_use]
    pub const fn failed(mut self, retain: Retain) -> Self {
        self.failed = retain;
        self
    }

    /// Sets the rule for cancelled jobs. By default, these jobs are deleted after 90 days.
    #[must_use]
    pub const fn cancelled(mut self, retain: Retain) -> Self {
        self.cancelled = retain;
        self
    }

    /// Sets the age at which archived jobs are deleted from the archive. With `None`, the default,
    /// the archive keeps them forever.
    #[must_use]
    pub const fn archive(mut self, delete_after: Option<Duration>) -> Self {
        self.archive = delete_after;
        self
    }

    /// Returns each terminal state of jobs with its rule.
    pub(crate) const fn states(&self) -> [(JobState, Retain); 3] {
        [
            (JobState::Succeeded, self.succeeded),
            (JobState::Failed, self.failed),
            (JobState::Cancelled, self.cancelled),
        ]
    }

    /// Returns the age at which ended batches are deleted. It is the longest age at which jobs are
    /// deleted or archived. Returns `None` if batches are kept forever.
    pub(crate) fn batches(&self) -> Option<Duration> {
        let age = |(_, retain)| match retain {
            Retain::Forever => None,
            Retain::Delete(age) | Retain::Archive(age) => Some(age),
        };
        self.states().into_iter().filter_map(age).max()
    }

    /// Returns the age at which archived jobs are deleted. Returns `None` if they are kept forever.
    pub(crate) const fn archived(&self) -> Option<Duration> {
        self.archive
    }

    /// Returns whether this retention needs a store with an archive.
    pub(crate) fn needs_archive(&self) -> bool {
        let archives = |(_, retain)| matches!(retain, Retain::Archive(_));
        self.archive.is_some() || self.states().into_iter().any(archives)
    }

    /// Returns the settings that are invalid or conflict with each other. Each problem contains the
    /// values.
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
                    "{state} jobs are archived after {age:?}, but retention.archive deletes \
                     archived jobs after {kept:?}, which must be longer"
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
    /// Deletes jobs that succeeded after a day, because they are many and rarely needed later.
    /// Deletes failed and cancelled jobs after 90 days, because an operator may want to inspect
    /// them.
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
