//! Determines which jobs of an enqueue are new.

use std::collections::{HashMap, HashSet};

use super::{Enqueued, NewJob};
use crate::id::JobId;
use crate::name::Name;

/// The job ids and keys that an enqueue call contains and that stored jobs already use.
///
/// ```
/// use ratchet_core::model::{Enqueued, TakenKeys};
/// use ratchet::{JobId, NewJob};
///
/// let earlier = JobId::new();
/// let mut taken = TakenKeys::default();
/// taken.unique_key("nightly", earlier);
/// let jobs = [NewJob::new("report", &1).unique_key("nightly"), NewJob::new("report", &2)];
/// let (answers, new) = taken.resolve(&jobs);
/// assert_eq!(answers[0], Enqueued::Duplicate(earlier));
/// assert_eq!(new, [1]);
/// ```
#[derive(Debug, Default)]
pub struct TakenKeys<'a> {
    stored: HashSet<JobId>,
    idempotency_keys: HashMap<&'a str, JobId>,
    unique_keys: HashMap<&'a str, JobId>,
}

impl<'a> TakenKeys<'a> {
    /// Records that this job of the enqueue call is already stored.
    pub fn stored(&mut self, job: JobId) {
        self.stored.insert(job);
    }

    /// Records that `first` was the first job with this idempotency key.
    pub fn idempotency_key(&mut self, key: &'a str, first: JobId) {
        self.idempotency_keys.insert(key, first);
    }

    /// Records that the unfinished job `holder` has this unique key.
    pub fn unique_key(&mut self, key: &'a str, holder: JobId) {
        self.unique_keys.insert(key, holder);
    }

    /// Returns the answer for each job of the enqueue call, in order, and the indexes of the jobs
    /// that the store must add.
    ///
    /// If a job is already stored, an earlier attempt of the same call stored it. The answer for
    /// such a job is `Created`. Once a new job has a key, a later job of the call with the same key
    /// is a duplicate. If a duplicate asks for all or nothing, no job is new.
    /// `[keys.idempotency]` `[keys.unique]` `[keys.all]` `[enqueue.repeat]`
    #[must_use]
    pub fn resolve(mut self, jobs: &'a [NewJob]) -> (Vec<Enqueued>, Vec<usize>) {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut new = Vec::new();
        for (place, job) in jobs.iter().enumerate() {
            let (id, spec) = (job.id(), job.spec());
            let once = spec.idempotency_key.as_ref().map(Name::as_str);
            let unique = spec.unique_key.as_ref().map(Name::as_str);
            let earlier = once
                .and_then(|key| self.idempotency_keys.get(key))
                .or_else(|| self.unique_keys.get(unique?));
            answers.push(match earlier {
                _ if self.stored.contains(&id) => Enqueued::Created(id),
                Some(earlier) => Enqueued::Duplicate(*earlier),
                None => {
                    self.idempotency_keys.extend(once.map(|key| (key, id)));
                    self.unique_keys.extend(unique.map(|key| (key, id)));
                    new.push(place);
                    Enqueued::Created(id)
                }
            });
        }
        let duplicate = |answer: &Enqueued| matches!(answer, Enqueued::Duplicate(_));
        let mut both = answers.iter().zip(jobs);
        if both.any(|(answer, job)| job.is_all_or_nothing() && duplicate(answer)) {
            for place in new.drain(..) {
                answers[place] = Enqueued::Withheld(jobs[place].id());
            }
        }
        (answers, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> NewJob {
        NewJob::new("kind", &1)
    }

    #[test]
    fn a_key_of_a_stored_job_makes_a_duplicate() {
        let [first, holder] = [JobId::new(), JobId::new()];
        let mut taken = TakenKeys::default();
        taken.idempotency_key("i", first);
        taken.unique_key("u", holder);
        let jobs = [
            job().idempotency_key("i"),
            job().unique_key("u"),
            job().idempotency_key("i").unique_key("u"),
            // Keys of different types are independent.
            job().idempotency_key("u").unique_key("i"),
        ];
        let (answers, new) = taken.resolve(&jobs);
        let duplicate = Enqueued::Duplicate;
        assert_eq!(
            answers,
            [
                duplicate(first),
                duplicate(holder),
                // If both keys are taken, the idempotency key decides.
                duplicate(first),
                Enqueued::Created(jobs[3].id()),
            ]
        );
        assert_eq!(new, [3]);
    }

    #[test]
    fn a_key_of_an_earlier_job_of_the_enqueue_makes_a_duplicate() {
        let jobs = [
            job().idempotency_key("i").unique_key("u"),
            job().idempotency_key("i"),
            job().unique_key("u"),
            job(),
        ];
        let (answers, new) = TakenKeys::default().resolve(&jobs);
        let first = jobs[0].id();
        assert_eq!(answers[0], Enqueued::Created(first));
        assert_eq!(answers[1], Enqueued::Duplicate(first));
        assert_eq!(answers[2], Enqueued::Duplicate(first));
        assert_eq!(new, [0, 3]);
    }

    #[test]
    fn a_duplicate_takes_none_of_its_keys() {
        let holder = JobId::new();
        let mut taken = TakenKeys::default();
        taken.unique_key("u", holder);
        let jobs = [
            job().idempotency_key("i").unique_key("u"),
            job().idempotency_key("i"),
        ];
        let (answers, new) = taken.resolve(&jobs);
        assert_eq!(answers[0], Enqueued::Duplicate(holder));
        assert_eq!(answers[1], Enqueued::Created(jobs[1].id()));
        assert_eq!(new, [1]);
    }

    #[test]
    fn a_duplicate_that_asks_for_all_or_nothing_leaves_no_job_new() {
        let holder = JobId::new();
        let taken = || {
            let mut taken = TakenKeys::default();
            taken.unique_key("u", holder);
            taken
        };
        let jobs = [
            job().unique_key("v").all_or_nothing(),
            job().unique_key("u"),
            job().unique_key("v"),
        ];
        // Jobs that are new ask for all or nothing, and duplicates that do not.
        let (_, new) = taken().resolve(&jobs);
        assert_eq!(new, [0]);
        let asking = jobs.clone().map(NewJob::all_or_nothing);
        let (answers, new) = taken().resolve(&asking);
        let first = jobs[0].id();
        assert_eq!(
            answers,
            [
                Enqueued::Withheld(first),
                Enqueued::Duplicate(holder),
                Enqueued::Duplicate(first),
            ]
        );
        assert!(new.is_empty());
        // A job that an earlier try has stored is no duplicate.
        let mut stored = taken();
        stored.stored(asking[0].id());
        stored.stored(asking[1].id());
        let (answers, new) = stored.resolve(&asking[..2]);
        assert_eq!(
            answers,
            asking[..2]
                .iter()
                .map(|job| Enqueued::Created(job.id()))
                .collect::<Vec<_>>()
        );
        assert!(new.is_empty());
    }

    #[test]
    fn a_stored_job_is_created_again_and_not_new_whichever_job_has_its_keys() {
        let jobs = [job().unique_key("u"), job().unique_key("u")];
        let mut taken = TakenKeys::default();
        taken.stored(jobs[0].id());
        taken.unique_key("u", JobId::new());
        let (answers, new) = taken.resolve(&jobs[..1]);
        assert_eq!(answers, [Enqueued::Created(jobs[0].id())]);
        assert!(new.is_empty());
        // A stored job that has finished no longer has its unique key.
        let mut taken = TakenKeys::default();
        taken.stored(jobs[0].id());
        let (answers, new) = taken.resolve(&jobs);
        assert_eq!(answers[1], Enqueued::Created(jobs[1].id()));
        assert_eq!(new, [1]);
    }
}
