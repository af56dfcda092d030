//! A stored recurring definition and all its changes, as pure functions for all stores.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, JobId, NodeId};
use crate::model::{Definition, NewJob, PutRecurring, RecurringFiring, RunAt};
use crate::name::Name;
use crate::schedule::slots_to_fire;
use crate::time::{self, Timestamp};

/// A stored recurring definition with its current state. All times are from the database's clock.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let page = client.recurring().list(None, 100).await?;
/// for record in page.definitions {
///     println!("{}: next at {:?}", record.definition.name(), record.next_fire);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecurringRecord {
    /// The definition.
    pub definition: Definition,
    /// The incarnation, which identifies the definition from its creation to its deletion.
    pub incarnation: Incarnation,
    /// The revision number. Every change, claim and firing of the definition increases it by one.
    pub revision: u64,
    /// The time of the next slot; `None` if there are no more slots.
    pub next_fire: Option<Timestamp>,
    /// The time of the latest slot that was fired; `None` if no slot was fired yet.
    pub last_slot: Option<Timestamp>,
    /// Whether the definition is paused. A paused definition is not fired.
    pub paused: bool,
    /// Whether the definition is declared by a program when its node starts. Otherwise, a client
    /// stored the definition at run time.
    pub declared: bool,
    /// When the definition was created.
    pub created_at: Timestamp,
    /// The node that has claimed the definition in order to fire it, and the end of the node's
    /// lease. `None` if the definition is not claimed.
    pub claim: Option<(NodeId, Timestamp)>,
}

/// The fencing token of a recurring definition. Every change, claim and firing of the definition
/// makes older tokens stale. A firing with a stale token changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecurringToken {
    /// The name of the definition.
    pub name: Name,
    /// The incarnation, which identifies the definition from its creation to its deletion.
    pub incarnation: Incarnation,
    /// The revision number of the definition.
    pub revision: u64,
}

/// The recurring definition and the slot for which a job was created.
///
/// ```
/// # use ratchet::{BoxError, Client, JobId};
/// # async fn example(client: &Client, job: JobId) -> Result<(), BoxError> {
/// if let Some(origin) = client.job(job).await?.and_then(|job| job.spec.recurring) {
///     println!("the job of {} for the slot {:?}", origin.name, origin.slot);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecurringOrigin {
    /// The name of the recurring definition.
    pub name: Name,
    /// The time of the slot; `None` if the job was triggered by hand.
    pub slot: Option<Timestamp>,
}

impl RecurringRecord {
    /// Creates the record of a definition that is not paused, not claimed and was never fired. Set
    /// the other fields directly.
    #[must_use]
    pub const fn new(
        definition: Definition,
        incarnation: Incarnation,
        revision: u64,
        next_fire: Option<Timestamp>,
        created_at: Timestamp,
    ) -> Self {
        Self {
            definition,
            incarnation,
            revision,
            next_fire,
            last_slot: None,
            paused: false,
            declared: false,
            created_at,
            claim: None,
        }
    }

    /// Creates the record of the definition that the request `put` creates at `now`.
    #[must_use]
    pub fn created(put: &PutRecurring, now: Timestamp) -> Self {
        let next_fire = put.definition.next_after(now, now);
        let mut record = Self::new(put.definition.clone(), put.incarnation, 1, next_fire, now);
        record.declared = put.declared;
        record
    }

    /// Returns the record after the request `put` has replaced the definition in the record; `None`
    /// if nothing changes.
    ///
    /// If the new definition has other slots, the next slot is the first of them in the future.
    /// Otherwise the next slot stays the same, even if it is overdue.
    #[must_use]
    pub fn edited(&self, put: &PutRecurring, now: Timestamp) -> Option<Self> {
        if self.definition == put.definition && self.declared == put.declared {
            return None;
        }
        let mut edited = self.clone();
        edited.definition = put.definition.clone();
        edited.declared = put.declared;
        if !self.definition.has_slots_of(&put.definition) {
            edited.next_fire = edited.next_slot(now);
        }
        Some(edited.changed())
    }

    /// Returns the record after the definition is paused or resumed; `None` if the definition is
    /// already in that state.
    ///
    /// After a resume, the next slot is the first slot in the future. The slots during the pause
    /// are skipped.
    #[must_use]
    pub fn with_pause(&self, paused: bool, now: Timestamp) -> Option<Self> {
        if self.paused == paused {
            return None;
        }
        let mut other = self.clone();
        other.paused = paused;
        if !paused {
            other.next_fire = other.next_slot(now);
        }
        Some(other.changed())
    }

    /// Returns whether a node can claim the definition at `now`.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.wakes_in(now) == Some(Duration::ZERO)
    }

    /// Returns the time from `now` until a node can claim the definition. At that time, the next
    /// slot is due and any earlier claim has expired. `None` if the definition is paused or has no
    /// more slots.
    #[must_use]
    pub fn wakes_in(&self, now: Timestamp) -> Option<Duration> {
        let next = self.next_fire.filter(|_| !self.paused)?;
        let free = self.claim.map_or(next, |(_, until)| next.max(until));
        Some(time::millis_between(
            time::to_millis(now),
            time::to_millis(free),
        ))
    }

    /// Returns the record after `node` has claimed the definition with a lease that ends at
    /// `until`.
    #[must_use]
    pub fn claimed(&self, node: NodeId, until: Timestamp) -> Self {
        let mut claimed = self.clone().changed();
        claimed.claim = Some((node, until));
        claimed
    }

    /// Returns the record after this firing; `None` if the token of the firing is stale.
    #[must_use]
    pub fn fired(&self, firing: &RecurringFiring) -> Option<Self> {
        if self.token() != firing.token {
            return None;
        }
        let mut fired = self.clone().changed();
        fired.next_fire = firing.next_fire;
        fired.last_slot = self.last_slot.max(firing.last_slot());
        Some(fired)
    }

    /// Returns the token of the definition's current state.
    #[must_use]
    pub fn token(&self) -> RecurringToken {
        RecurringToken {
            name: self.definition.name.clone(),
            incarnation: self.incarnation,
            revision: self.revision,
        }
    }

    /// Computes the firing of the definition at `now`; `None` if no slot is due.
    ///
    /// The firing has the jobs of the due slots that the misfire policy does not skip. It also has
    /// the next slot in the future.
    #[must_use]
    pub fn plan(&self, now: Timestamp) -> Option<RecurringFiring> {
        let first = self.next_fire.filter(|next| *next <= now)?;
        let definition = &self.definition;
        let (slots, missed) = slots_to_fire(definition.misfire, first, now, |slot| {
            definition.next_after(slot, self.created_at)
        });
        let job = |slot: Timestamp| {
            let id = JobId::of_slot(self.incarnation, slot);
            NewJob::of_spec(id, definition.spec(Some(slot)), RunAt::At(slot))
        };
        Some(RecurringFiring {
            token: self.token(),
            jobs: slots.into_iter().map(job).collect(),
            next_fire: definition.next_after(now, self.created_at),
            missed,
        })
    }

    /// Creates a job of the definition that is due now and belongs to no slot.
    #[must_use]
    pub fn job_now(&self) -> NewJob {
        NewJob::of_spec(JobId::new(), self.definition.spec(None), RunAt::Now)
    }

    /// Returns the first slot that is in the future and was never fired. If the clock was set back,
    /// slots in the future may already have been fired.
    fn next_slot(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.last_slot.map_or(now, |last| last.max(now));
        self.definition.next_after(after, self.created_at)
    }

    /// Returns the record with the next revision number and without a claim.
    fn changed(mut self) -> Self {
        self.revision += 1;
        self.claim = None;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recurring;
    use crate::schedule::{Misfire, Overlap};

    fn at(seconds: i64) -> Timestamp {
        time::from_millis(seconds * 1_000)
    }

    fn put(recurring: Recurring) -> PutRecurring {
        let recurring = recurring.job(NewJob::new("kind", &1)).named("n");
        PutRecurring::new(recurring.check().unwrap())
    }

    fn every(seconds: u64, misfire: Misfire) -> RecurringRecord {
        let recurring = Recurring::every(Duration::from_secs(seconds)).misfire(misfire);
        RecurringRecord::created(&put(recurring), at(0))
    }

    fn slots(firing: &RecurringFiring) -> Vec<i64> {
        let slot = |job: &NewJob| job.id().slot().unwrap().timestamp();
        firing.jobs.iter().map(slot).collect()
    }

    #[test]
    fn the_misfire_table() {
        let all = [
            Misfire::Skip,
            Misfire::FireOnce,
            Misfire::CatchUp(1),
            Misfire::CatchUp(4),
            Misfire::CatchUp(1_000),
        ];
        for misfire in all {
            let record = every(10, misfire);
            assert_eq!(record.plan(at(9)), None);
            // A single overdue slot runs, however late it is.
            for now in [10, 19] {
                let firing = record.plan(at(now)).unwrap();
                assert_eq!(slots(&firing), [10], "{misfire:?} at {now}");
                assert_eq!((firing.next_fire, firing.missed), (Some(at(20)), false));
            }
        }
        let ten: Vec<i64> = (1..=10).map(|slot| slot * 10).collect();
        for (misfire, run) in all.into_iter().zip([0, 1, 1, 4, 10]) {
            let firing = every(10, misfire).plan(at(105)).unwrap();
            assert_eq!(slots(&firing), ten[..run], "{misfire:?}");
            assert_eq!(firing.next_fire, Some(at(110)));
            assert_eq!(firing.missed, run < 10);
            // At the exact time of a slot, the slot is due, and the next slot is a later one.
            let firing = every(10, misfire).plan(at(100)).unwrap();
            assert_eq!(
                (slots(&firing).len(), firing.next_fire),
                (run, Some(at(110)))
            );
        }
    }

    #[test]
    fn bounds_end_the_slots() {
        let bounded = |misfire| {
            let recurring = Recurring::every(Duration::from_secs(10)).misfire(misfire);
            RecurringRecord::created(&put(recurring.ends_at(at(30))), at(0))
        };
        let record = bounded(Misfire::CatchUp(10));
        let firing = record.plan(at(1_000)).unwrap();
        assert_eq!((slots(&firing), firing.next_fire), (vec![10, 20, 30], None));
        let over = record.fired(&firing).unwrap();
        assert_eq!((over.next_fire, over.last_slot), (None, Some(at(30))));
        assert_eq!(
            (over.plan(at(9_999)), over.wakes_in(at(9_999))),
            (None, None)
        );
        // Only the last slot is overdue.
        let mut last = bounded(Misfire::Skip);
        last.next_fire = Some(at(30));
        let firing = last.plan(at(1_000)).unwrap();
        assert_eq!((slots(&firing), firing.next_fire), (vec![30], None));
    }

    /// Planning must not visit all 31 million slots one by one, because that would take minutes.
    #[test]
    fn a_year_of_seconds_is_planned_by_looking_at_what_runs() {
        const YEAR: i64 = 365 * 86_400;
        let recurring = Recurring::cron("* * * * * *").misfire(Misfire::CatchUp(3));
        let record = RecurringRecord::created(&put(recurring), at(0));
        let looks = std::cell::Cell::new(0);
        let (slots, missed) = slots_to_fire(Misfire::CatchUp(3), at(1), at(YEAR), |slot| {
            looks.set(looks.get() + 1);
            record.definition.next_after(slot, at(0))
        });
        assert_eq!((slots.len(), missed), (3, true));
        assert!(looks.get() < 10, "{}", looks.get());
        let firing = record.plan(at(YEAR)).unwrap();
        assert_eq!(firing.next_fire, Some(at(YEAR + 1)));
    }

    #[test]
    fn an_edit_takes_effect_at_once_and_leaves_the_rest() {
        let record = every(3_600, Misfire::Skip);
        assert_eq!(
            record.edited(
                &put(Recurring::every(Duration::from_secs(3_600)).misfire(Misfire::Skip)),
                at(5)
            ),
            None
        );
        let shorter = put(Recurring::every(Duration::from_secs(60)));
        let edited = record.edited(&shorter, at(90)).unwrap();
        assert_eq!((edited.next_fire, edited.revision), (Some(at(120)), 2));
        assert_eq!(
            (edited.incarnation, edited.created_at),
            (record.incarnation, at(0))
        );
        // If an edit does not change the slots, an overdue slot stays overdue.
        let other = put(Recurring::every(Duration::from_secs(3_600)).overlap(Overlap::Skip));
        let edited = record.edited(&other, at(4_000)).unwrap();
        assert_eq!((edited.next_fire, edited.revision), (Some(at(3_600)), 2));
        let declared = put(Recurring::every(Duration::from_secs(3_600)).misfire(Misfire::Skip));
        assert!(
            record
                .edited(&declared.declared(true), at(5))
                .unwrap()
                .declared
        );
    }

    #[test]
    fn no_slot_is_fired_again_when_the_clock_was_set_back() {
        let record = every(10, Misfire::Skip);
        let fired = record.fired(&record.plan(at(10)).unwrap()).unwrap();
        assert_eq!(fired.last_slot, Some(at(10)));
        let other = put(Recurring::every(Duration::from_secs(5)));
        assert_eq!(fired.edited(&other, at(3)).unwrap().next_fire, Some(at(15)));
        let paused = fired.with_pause(true, at(3)).unwrap();
        let resumed = paused.with_pause(false, at(3)).unwrap();
        assert_eq!(resumed.next_fire, Some(at(20)));
    }

    #[test]
    fn a_pause_or_a_claim_keeps_it_from_being_due() {
        let record = every(10, Misfire::Skip);
        assert_eq!(record.wakes_in(at(4)), Some(Duration::from_secs(6)));
        assert!(!record.is_due(at(9)) && record.is_due(at(10)));
        let claimed = record.claimed(NodeId::new(), at(40));
        assert!(!claimed.is_due(at(39)) && claimed.is_due(at(40)));
        assert_eq!(record.fired(&claimed.plan(at(10)).unwrap()), None);
        assert_eq!(claimed.fired(&record.plan(at(10)).unwrap()), None);
        let paused = claimed.with_pause(true, at(12)).unwrap();
        assert_eq!((paused.wakes_in(at(99)), paused.claim), (None, None));
        assert_eq!(paused.with_pause(true, at(12)), None);
        // The slots during the pause are skipped.
        let resumed = paused.with_pause(false, at(55)).unwrap();
        assert_eq!((resumed.next_fire, resumed.revision), (Some(at(60)), 4));
    }

    #[test]
    fn overlap_is_a_key_and_the_origin_is_told() {
        let record = every(10, Misfire::Skip);
        assert_eq!(record.job_now().spec().unique_key, None);
        let skip = put(Recurring::every(Duration::from_secs(10)).overlap(Overlap::Skip));
        let record = RecurringRecord::created(&skip, at(0));
        let firing = record.plan(at(10)).unwrap();
        let (job, now) = (&firing.jobs[0], record.job_now());
        for spec in [job.spec(), now.spec()] {
            assert_eq!(spec.unique_key.as_ref().unwrap().as_str(), "recurring/n");
        }
        assert_eq!(job.due(), RunAt::At(at(10)));
        assert_eq!(job.id(), JobId::of_slot(record.incarnation, at(10)));
        let origin = |slot| {
            let name = record.definition.name.clone();
            Some(RecurringOrigin { name, slot })
        };
        assert_eq!(job.spec().recurring, origin(Some(at(10))));
        assert_eq!(
            (now.spec().recurring.clone(), now.due()),
            (origin(None), RunAt::Now)
        );
    }
}
