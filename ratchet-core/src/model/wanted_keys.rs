//! Decides which requeued jobs get their unique key back.

use std::collections::HashMap;

use crate::id::JobId;
use crate::state::{JobAction, JobState, Response};

/// The unique keys that jobs must get back when they are [requeued](JobAction::Requeue).
///
/// ```
/// use std::collections::HashMap;
/// use ratchet_core::model::WantedKeys;
/// use ratchet::{JobId, JobState};
///
/// let [first, second, holder] = [JobId::new(), JobId::new(), JobId::new()];
/// let mut wanted = WantedKeys::default();
/// wanted.want(first, JobState::Failed, Some("nightly"));
/// wanted.want(second, JobState::Failed, Some("weekly"));
/// let refused = wanted.refused(&HashMap::from([("nightly".to_owned(), holder)]));
/// assert_eq!(refused, HashMap::from([(first, holder)]));
/// ```
#[derive(Debug, Default)]
pub struct WantedKeys<'a>(Vec<(&'a str, JobId)>);

impl<'a> WantedKeys<'a> {
    /// Adds the unique key `key` that `job` lost when the job ended. Does nothing if a job in this
    /// state cannot be requeued.
    ///
    /// Call this method for the jobs in the order of the request.
    pub fn want(&mut self, job: JobId, state: JobState, key: Option<&'a str>) {
        if state.respond(JobAction::Requeue) != Response::Refuse {
            self.0.extend(key.map(|key| (key, job)));
        }
    }

    /// Returns whether no job needs a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys, in the order in which they were added.
    #[must_use]
    pub fn keys(&self) -> Vec<&'a str> {
        self.0.iter().map(|(key, _)| *key).collect()
    }

    /// Returns the jobs that need these keys, in the order of [`keys`](Self::keys).
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.0.iter().map(|(_, job)| *job)
    }

    /// Returns the jobs that do not get their unique key back. For each of them, also returns the
    /// job that has the key.
    ///
    /// `holders` contains the unfinished job that has the key, for each key in use. If several jobs
    /// need the same free key, the first one gets the key. `[requeue.key]`
    #[must_use]
    pub fn refused(self, holders: &HashMap<String, JobId>) -> HashMap<JobId, JobId> {
        let mut taken: HashMap<&str, JobId> = HashMap::new();
        let mut refused = HashMap::new();
        for (key, job) in self.0 {
            let holder = holders.get(key).copied();
            let holder = holder.unwrap_or_else(|| *taken.entry(key).or_insert(job));
            if holder != job {
                refused.insert(job, holder);
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_jobs_the_first_gets_a_free_key_and_none_a_taken_one() {
        let [a, b, c, holder] = [(); 4].map(|()| JobId::new());
        let mut wanted = WantedKeys::default();
        wanted.want(b, JobState::Failed, Some("free"));
        wanted.want(a, JobState::Failed, Some("free"));
        wanted.want(c, JobState::Failed, Some("taken"));
        wanted.want(holder, JobState::Failed, None);
        assert_eq!(wanted.keys(), ["free", "free", "taken"]);
        assert!(wanted.jobs().eq([b, a, c]));
        let holders = HashMap::from([("taken".to_owned(), holder)]);
        assert_eq!(
            wanted.refused(&holders),
            HashMap::from([(a, b), (c, holder)])
        );
    }

    #[test]
    fn a_job_that_cannot_be_requeued_wants_nothing() {
        let mut wanted = WantedKeys::default();
        for state in JobState::ALL {
            if state.respond(JobAction::Requeue) == Response::Refuse {
                wanted.want(JobId::new(), state, Some("u"));
            }
        }
        assert!(wanted.is_empty());
    }
}
