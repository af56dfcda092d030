//! Determines which jobs of an enqueue are new, and what becomes of the jobs that have their keys.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::{Condition, Enqueued, HolderChange, KeyHolder, NewJob};
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
/// let plan = taken.resolve(&jobs, 0);
/// assert_eq!(plan.answers[0], Enqueued::Duplicate(earlier));
/// assert_eq!(plan.new, [1]);
/// ```
#[derive(Debug, Default)]
pub struct TakenKeys<'a> {
    stored: HashSet<JobId>,
    idempotency_keys: HashMap<&'a str, JobId>,
    unique_keys: HashMap<&'a str, JobId>,
    holders: HashMap<JobId, KeyHolder>,
}

/// What a store does for one enqueue call.
///
/// The store first makes the changes to the holders of unique keys, and then stores the new jobs.
#[derive(Debug)]
#[non_exhaustive]
pub struct EnqueuePlan<'a> {
    /// The answer for each job of the call, in order.
    pub answers: Vec<Enqueued>,
    /// The indexes of the jobs that the store must add.
    pub new: Vec<usize>,
    /// The jobs of the call, in order. A job that runs after the holder of its unique key waits for
    /// the holder.
    pub jobs: Cow<'a, [NewJob]>,
    /// The changes to the holders of unique keys. Each holder occurs once.
    pub holders: Vec<HolderChange>,
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

    /// Returns the holders of unique keys which the plan may change, in order of id. The store
    /// reads and locks these jobs, and passes them to [`holder`](Self::holder). It repeats the call
    /// if one of them has ended in the meantime, or no longer has its unique key.
    #[must_use]
    pub fn contested(&self, jobs: &[NewJob]) -> Vec<JobId> {
        let contested = jobs.iter().filter_map(|job| {
            let key = job.spec().unique_key.as_ref()?;
            let free = !self.stored.contains(&job.id());
            (free && job.changes_holder())
                .then(|| self.unique_keys.get(key.as_str()).copied())
                .flatten()
        });
        let mut contested: Vec<JobId> = contested.collect();
        contested.sort_unstable();
        contested.dedup();
        contested
    }

    /// Records the state of a holder that [`contested`](Self::contested) has returned. Without it,
    /// a job with the key is a duplicate.
    pub fn holder(&mut self, holder: KeyHolder) {
        self.holders.insert(holder.job, holder);
    }

    /// Decides what the store does for the jobs of the enqueue call. `now` is the time of the
    /// database in milliseconds since 1970; it matters only if there are holders.
    ///
    /// If a job is already stored, an earlier attempt of the same call stored it. The answer for
    /// such a job is `Created`. Once a new job has a key, a later job of the call with the same key
    /// is a duplicate. If a duplicate asks for all or nothing, no job is new.
    /// `[keys.idempotency]` `[keys.unique]` `[keys.all]` `[enqueue.repeat]`
    #[must_use]
    pub fn resolve<'j: 'a>(mut self, jobs: &'j [NewJob], now: i64) -> EnqueuePlan<'j> {
        let mut plan = EnqueuePlan {
            answers: Vec::with_capacity(jobs.len()),
            new: Vec::new(),
            jobs: Cow::Borrowed(jobs),
            holders: Vec::new(),
        };
        for (place, job) in jobs.iter().enumerate() {
            let answer = self.answer(&mut plan, place, job, now);
            plan.answers.push(answer);
        }
        let duplicate = |answer: &Enqueued| matches!(answer, Enqueued::Duplicate(_));
        let mut both = plan.answers.iter().zip(jobs);
        if both.any(|(answer, job)| job.is_all_or_nothing() && duplicate(answer)) {
            plan.withhold(jobs);
        }
        plan
    }

    fn answer<'j: 'a>(
        &mut self,
        plan: &mut EnqueuePlan<'j>,
        place: usize,
        job: &'j NewJob,
        now: i64,
    ) -> Enqueued {
        let (id, spec) = (job.id(), job.spec());
        if self.stored.contains(&id) {
            return Enqueued::Created(id);
        }
        let once = spec.idempotency_key.as_ref().map(Name::as_str);
        let unique = spec.unique_key.as_ref().map(Name::as_str);
        if let Some(first) = once.and_then(|key| self.idempotency_keys.get(key)) {
            return Enqueued::Duplicate(*first);
        }
        if let Some(job_id) = unique.and_then(|key| self.unique_keys.get(key).copied()) {
            let holder = self.holders.get(&job_id);
            let change = holder.and_then(|holder| job.conflict().decide(job, holder, now));
            match &change {
                None => return Enqueued::Duplicate(job_id),
                Some(HolderChange::Replace { .. }) => {
                    plan.holders.extend(change);
                    return Enqueued::Replaced(job_id);
                }
                Some(HolderChange::GiveUp { job: holder, .. }) => {
                    let job = job.clone().after(*holder, Condition::Ended);
                    plan.jobs.to_mut()[place] = job;
                    plan.holders.extend(change);
                }
            }
        }
        self.idempotency_keys.extend(once.map(|key| (key, id)));
        self.unique_keys.extend(unique.map(|key| (key, id)));
        plan.new.push(place);
        Enqueued::Created(id)
    }
}

impl EnqueuePlan<'_> {
    /// Makes the plan store and change nothing. `[keys.all]`
    fn withhold(&mut self, jobs: &[NewJob]) {
        for place in self.new.drain(..) {
            self.answers[place] = Enqueued::Withheld(jobs[place].id());
        }
        for (answer, job) in self.answers.iter_mut().zip(jobs) {
            if matches!(answer, Enqueued::Replaced(_)) {
                *answer = Enqueued::Withheld(job.id());
            }
        }
        self.holders.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{After, OnConflict};
    use crate::state::JobState;

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
        let EnqueuePlan { answers, new, .. } = taken.resolve(&jobs, 0);
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
        let EnqueuePlan { answers, new, .. } = TakenKeys::default().resolve(&jobs, 0);
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
        let EnqueuePlan { answers, new, .. } = taken.resolve(&jobs, 0);
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
        let EnqueuePlan { new, .. } = taken().resolve(&jobs, 0);
        assert_eq!(new, [0]);
        let asking = jobs.clone().map(NewJob::all_or_nothing);
        let EnqueuePlan { answers, new, .. } = taken().resolve(&asking, 0);
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
        let EnqueuePlan { answers, new, .. } = stored.resolve(&asking[..2], 0);
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
        let EnqueuePlan { answers, new, .. } = taken.resolve(&jobs[..1], 0);
        assert_eq!(answers, [Enqueued::Created(jobs[0].id())]);
        assert!(new.is_empty());
        // A stored job that has finished no longer has its unique key.
        let mut taken = TakenKeys::default();
        taken.stored(jobs[0].id());
        let EnqueuePlan { answers, new, .. } = taken.resolve(&jobs, 0);
        assert_eq!(answers[1], Enqueued::Created(jobs[1].id()));
        assert_eq!(new, [1]);
    }

    fn holder(job: JobId, state: JobState) -> KeyHolder {
        KeyHolder::new(job, state, Name::new("kind", "kind").unwrap(), 0, 0)
    }

    fn running(job: JobId) -> KeyHolder {
        holder(job, JobState::Running)
    }

    #[test]
    fn a_job_that_runs_after_the_holder_gets_its_key_and_waits_for_it() {
        let [holder, kept] = [JobId::new(), JobId::new()];
        let jobs = [
            job().unique_key("k"),
            job().unique_key("u").on_conflict(OnConflict::Restart),
        ];
        let mut taken = TakenKeys::default();
        taken.unique_key("k", kept);
        taken.unique_key("u", holder);
        assert_eq!(taken.contested(&jobs), [holder]);
        taken.holder(running(holder));
        let plan = taken.resolve(&jobs, 0);
        assert_eq!(plan.answers[1], Enqueued::Created(jobs[1].id()));
        assert_eq!(plan.new, [1]);
        let cancel = true;
        assert_eq!(
            plan.holders,
            [HolderChange::GiveUp {
                job: holder,
                cancel
            }]
        );
        let after = &plan.jobs[1].spec().after;
        assert_eq!(
            after[..],
            [After::Job {
                parent: holder,
                condition: Condition::Ended
            }]
        );
        assert!(jobs[1].spec().after.is_empty());
    }

    #[test]
    fn nothing_is_contested_by_a_repetition_or_without_a_key_that_is_taken() {
        let holder = JobId::new();
        let replaces = || job().unique_key("u").on_conflict(OnConflict::Replace);
        let jobs = [replaces()];
        assert!(TakenKeys::default().contested(&jobs).is_empty());
        let mut taken = TakenKeys::default();
        taken.unique_key("u", holder);
        taken.stored(jobs[0].id());
        assert!(taken.contested(&jobs).is_empty());
        assert!(taken.resolve(&jobs, 0).holders.is_empty());
        // A holder that cannot be read does not change.
        let mut taken = TakenKeys::default();
        taken.unique_key("u", holder);
        assert_eq!(
            taken.resolve(&jobs, 0).answers,
            [Enqueued::Duplicate(holder)]
        );
    }

    #[test]
    fn a_plan_that_withholds_its_jobs_changes_no_holder() {
        let [first, waiting, runs] = [JobId::new(), JobId::new(), JobId::new()];
        let replaces = |key| job().unique_key(key).on_conflict(OnConflict::Replace);
        let jobs = [
            replaces("waiting"),
            replaces("runs"),
            job().idempotency_key("i").all_or_nothing(),
        ];
        let mut taken = TakenKeys::default();
        taken.unique_key("waiting", waiting);
        taken.unique_key("runs", runs);
        taken.idempotency_key("i", first);
        taken.holder(running(runs));
        taken.holder(holder(waiting, JobState::Paused));
        let plan = taken.resolve(&jobs, 0);
        let withheld = |index: usize| Enqueued::Withheld(jobs[index].id());
        assert_eq!(
            plan.answers,
            [withheld(0), withheld(1), Enqueued::Duplicate(first)]
        );
        assert!(plan.new.is_empty() && plan.holders.is_empty());
    }
}
