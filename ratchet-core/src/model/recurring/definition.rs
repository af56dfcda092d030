//! The definition of a recurring job by an application.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::limits::MAX_RUN_AT;
use crate::model::{JobSpec, NewJob, RecurringOrigin, RunAt};
use crate::name::Name;
use crate::schedule::{Misfire, Overlap, Schedule};
use crate::time::{self, Timestamp};

/// The definition of a recurring job. Create a definition with [`cron`](Self::cron) or
/// [`every`](Self::every), then complete it with the builder methods. A job and a name are
/// required.
///
/// The setters never fail. An invalid value is reported when the definition is stored or the node
/// is built. Nothing is stored in this case.
///
/// ```
/// use ratchet::{Misfire, Overlap};
/// use ratchet::{NewJob, Recurring};
///
/// let nightly = Recurring::cron("0 3 * * *")
///     .zone("Europe/Berlin")
///     .job(NewJob::new("report", &()).queue("reports"))
///     .misfire(Misfire::CatchUp(7))
///     .overlap(Overlap::Skip)
///     .named("nightly");
/// assert!(nightly.check().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Recurring {
    schedule: Result<Schedule, InvalidInput>,
    name: Option<String>,
    job: Option<NewJob>,
    misfire: Misfire,
    overlap: Overlap,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
}

impl Recurring {
    /// Creates a definition with a cron schedule. The expression has 5 to 7 fields; see
    /// [`Schedule::cron`]. The times are in UTC unless a [`zone`](Self::zone) is set.
    pub fn cron(expression: &str) -> Self {
        Self::on(Schedule::cron(expression, Schedule::DEFAULT_ZONE))
    }

    /// Creates a definition with a fixed interval of at least one second between slots.
    ///
    /// If [`starts_at`](Self::starts_at) is set, this time is the first slot. Otherwise the
    /// intervals are counted from the creation of the definition.
    pub fn every(interval: Duration) -> Self {
        Self::on(Schedule::every(interval))
    }

    /// Creates a definition with this schedule.
    pub fn schedule(schedule: Schedule) -> Self {
        Self::on(Ok(schedule))
    }

    fn on(schedule: Result<Schedule, InvalidInput>) -> Self {
        Self {
            schedule,
            name: None,
            job: None,
            misfire: Misfire::default(),
            overlap: Overlap::default(),
            starts_at: None,
            ends_at: None,
        }
    }

    /// Sets the time zone of the cron expression: a name from the IANA time zone database, such as
    /// `Europe/Berlin`.
    pub fn zone(mut self, zone: &str) -> Self {
        self.schedule = self.schedule.and_then(|schedule| schedule.in_zone(zone));
        self
    }

    /// Sets the job that runs. For each slot, a copy of `job` is enqueued, which is due at the time
    /// of the slot.
    ///
    /// `job` itself must have no idempotency key, lane, trace, due time, expiry, parent, batch or
    /// signal.
    /// It may have a unique key if the definition has [`Overlap::Skip`]. A slot is then skipped
    /// while any unfinished job has this key, also one that a client or another definition has
    /// enqueued, and the job of a slot makes their jobs duplicates.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratchet::{NewJob, Overlap, Recurring};
    ///
    /// // A client enqueues the same job, with the same key, when a customer asks for it.
    /// let hourly = Recurring::every(Duration::from_secs(3_600))
    ///     .job(NewJob::new("sync", &7).unique_key("sync:7"))
    ///     .overlap(Overlap::Skip)
    ///     .named("hourly-sync");
    /// assert!(hourly.check().is_ok());
    /// ```
    pub fn job(mut self, job: NewJob) -> Self {
        self.job = Some(job);
        self
    }

    /// Sets the name that identifies the definition in the store.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Returns the name that was set, which may be invalid.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Sets the policy for missed slots. By default, only the oldest missed slot runs.
    pub const fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
    }

    /// Sets whether the jobs of different slots may run at the same time. By default, they may.
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the start time of the schedule. There are no slots before this time.
    pub const fn starts_at(mut self, at: Timestamp) -> Self {
        self.starts_at = Some(at);
        self
    }

    /// Sets the end time of the schedule. There are no slots after this time.
    pub const fn ends_at(mut self, at: Timestamp) -> Self {
        self.ends_at = Some(at);
        self
    }

    /// Checks the whole definition and returns it in its checked form.
    ///
    /// # Errors
    /// The first [`InvalidInput`] found, which names the invalid field.
    pub fn check(self) -> Result<Definition, InvalidInput> {
        let missing = |field| InvalidInput::new(field, "is missing");
        let name = Name::new("name", self.name.ok_or_else(|| missing("name"))?)?;
        Definition {
            name,
            schedule: self.schedule?,
            misfire: self.misfire,
            overlap: self.overlap,
            starts_at: self.starts_at.map(whole),
            ends_at: self.ends_at.map(whole),
            job: template(&self.job.ok_or_else(|| missing("job"))?)?,
        }
        .checked()
    }
}

fn whole(at: Timestamp) -> Timestamp {
    time::from_millis(time::to_millis(at))
}

/// Returns the specification that all jobs of the definition share.
fn template(job: &NewJob) -> Result<JobSpec, InvalidInput> {
    job.validate()?;
    for (field, set) in [
        ("run_at", job.due() != RunAt::Now),
        ("on_conflict", job.changes_holder()),
        ("all_or_nothing", job.is_all_or_nothing()),
        ("unique_for", job.key_lifetime().is_some()),
        ("expires_in", matches!(job.expiry(), Some(RunAt::In(_)))),
        ("expires_at", matches!(job.expiry(), Some(RunAt::At(_)))),
    ] {
        if set {
            return Err(refused(field));
        }
    }
    Ok(job.spec().clone())
}

/// Returns the error for a field that the job of a recurring definition must not set.
fn refused(field: &'static str) -> InvalidInput {
    InvalidInput::new(field, "cannot be set on the job of a recurring definition")
}

/// A recurring definition that [`Recurring::check`] has found valid.
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
pub struct Definition {
    pub(super) name: Name,
    pub(super) schedule: Schedule,
    pub(super) misfire: Misfire,
    pub(super) overlap: Overlap,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) ends_at: Option<Timestamp>,
    pub(super) job: JobSpec,
}

impl Definition {
    /// The prefix of the unique keys that jobs get under [`Overlap::Skip`], unless the definition
    /// has a key of its own. After the prefix, the key contains the name of the definition.
    pub const KEY_PREFIX: &'static str = "recurring/";

    /// The maximum length of a definition's name, in bytes. With [`KEY_PREFIX`](Self::KEY_PREFIX)
    /// in front of it, the name must still be a valid unique key.
    pub const MAX_NAME_BYTES: usize = Name::MAX_BYTES - Self::KEY_PREFIX.len();

    /// Returns the name of the definition.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the schedule, which determines the slots.
    #[must_use]
    pub const fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the policy for missed slots.
    #[must_use]
    pub const fn misfire(&self) -> Misfire {
        self.misfire
    }

    /// Returns the policy that decides whether jobs of different slots may run at the same time.
    #[must_use]
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Returns the start time of the schedule, if it has one. There are no slots before this time.
    #[must_use]
    pub const fn starts_at(&self) -> Option<Timestamp> {
        self.starts_at
    }

    /// Returns the end time of the schedule, if it has one. There are no slots after this time.
    #[must_use]
    pub const fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at
    }

    /// Returns the specification that all jobs of the definition share.
    #[must_use]
    pub const fn job(&self) -> &JobSpec {
        &self.job
    }

    /// Returns the first slot that is later than `after` and between the start and end times of the
    /// schedule; `None` if there is no such slot.
    ///
    /// The intervals of a fixed-interval schedule are counted from [`starts_at`](Self::starts_at)
    /// if it is set, otherwise from `created_at`.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, created_at: Timestamp) -> Option<Timestamp> {
        let before_start = self
            .starts_at
            .map(|start| time::from_millis(time::to_millis(start) - 1));
        let after = before_start.map_or(after, |before| before.max(after));
        let anchor = self.starts_at.unwrap_or(created_at);
        let next = self.schedule.next_after(after, anchor)?;
        self.ends_at.is_none_or(|end| next <= end).then_some(next)
    }

    /// Returns whether this definition has the same slots as `other`.
    pub(super) fn has_slots_of(&self, other: &Self) -> bool {
        self.schedule == other.schedule
            && self.starts_at == other.starts_at
            && self.ends_at == other.ends_at
    }

    /// Returns the specification of the job for this slot. `None` means that the job is triggered
    /// by hand.
    pub(super) fn spec(&self, slot: Option<Timestamp>) -> JobSpec {
        let mut spec = self.job.clone();
        spec.recurring = Some(RecurringOrigin {
            name: self.name.clone(),
            slot,
        });
        if self.overlap == Overlap::Skip && spec.unique_key.is_none() {
            let key = format!("{}{}", Self::KEY_PREFIX, self.name);
            // The name was checked to be short enough.
            spec.unique_key = Name::new("unique_key", key).ok();
        }
        spec
    }

    pub(super) fn checked(self) -> Result<Self, InvalidInput> {
        let bytes = self.name.as_str().len();
        if bytes > Self::MAX_NAME_BYTES {
            let allowed = Self::MAX_NAME_BYTES;
            let problem = format!("has {bytes} bytes; at most {allowed} are allowed");
            return Err(InvalidInput::new("name", problem));
        }
        self.misfire.validate()?;
        for (field, bound) in [("starts_at", self.starts_at), ("ends_at", self.ends_at)] {
            let inside = |at| (0..=MAX_RUN_AT).contains(&time::to_millis(at));
            if !bound.is_none_or(inside) {
                let problem = "is not between the years 1970 and 9999";
                return Err(InvalidInput::new(field, problem));
            }
        }
        if let (Some(start), Some(end)) = (self.starts_at, self.ends_at)
            && end < start
        {
            return Err(InvalidInput::new("ends_at", "is before starts_at"));
        }
        // Lists every field, so that this function stops compiling when a field is added. The
        // author must then decide whether many jobs can share the value of the new field.
        let JobSpec {
            route: _,
            payload: _,
            payload_version: _,
            priority: _,
            retry: _,
            timeout: _,
            stall_timeout: _,
            tags: _,
            fair_key: _,
            unique_key,
            idempotency_key,
            lane,
            trace,
            recurring,
            after,
            batch,
            signal,
        } = &self.job;
        if unique_key.is_some() && self.overlap == Overlap::Allow {
            let problem = "of the job of a recurring definition needs `Overlap::Skip`";
            return Err(InvalidInput::new("unique_key", problem));
        }
        for (field, set) in [
            ("idempotency_key", idempotency_key.is_some()),
            ("lane", lane.is_some()),
            ("trace", trace.is_some()),
            ("recurring", recurring.is_some()),
            ("parent", !after.is_empty()),
            ("batch", batch.is_some()),
            ("signal", signal.is_some()),
        ] {
            if set {
                return Err(refused(field));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BatchId, JobId};
    use crate::model::{Condition, OnConflict};
    use crate::trace::TraceContext;

    fn whole_one() -> Recurring {
        Recurring::cron("0 3 * * *")
            .job(NewJob::new("kind", &1))
            .named("nightly")
    }

    fn field(recurring: Recurring) -> &'static str {
        recurring.check().unwrap_err().field()
    }

    #[test]
    fn what_is_wrong_is_told_and_named() {
        assert!(whole_one().check().is_ok());
        assert_eq!(
            field(Recurring::cron("x").job(NewJob::new("k", &1)).named("n")),
            "cron"
        );
        assert_eq!(field(whole_one().zone("Nowhere")), "zone");
        assert_eq!(field(whole_one().named("")), "name");
        assert_eq!(field(whole_one().named(&"n".repeat(119))), "name");
        assert!(whole_one().named(&"n".repeat(118)).check().is_ok());
        assert_eq!(field(Recurring::cron("0 3 * * *").named("n")), "job");
        assert_eq!(
            field(Recurring::cron("0 3 * * *").job(NewJob::new("k", &1))),
            "name"
        );
        assert_eq!(field(whole_one().misfire(Misfire::CatchUp(0))), "misfire");
        assert_eq!(
            field(whole_one().misfire(Misfire::CatchUp(1_001))),
            "misfire"
        );
        let at = time::from_millis;
        assert_eq!(field(whole_one().starts_at(at(-1))), "starts_at");
        assert_eq!(field(whole_one().ends_at(at(i64::MAX))), "ends_at");
        assert_eq!(
            field(whole_one().starts_at(at(2)).ends_at(at(1))),
            "ends_at"
        );
        assert!(whole_one().starts_at(at(1)).ends_at(at(1)).check().is_ok());
    }

    #[test]
    fn jobs_cannot_share_what_is_one_jobs() {
        let job = || NewJob::new("kind", &1);
        let trace = TraceContext::from_stored("00-1-2-00".to_owned(), None);
        for (job, refused) in [
            (job().queue(""), "queue"),
            (job().unique_key("k"), "unique_key"),
            (job().idempotency_key("k"), "idempotency_key"),
            (job().lane("l"), "lane"),
            (job().trace(trace), "trace"),
            (job().delay(Duration::from_secs(1)), "run_at"),
            (job().run_at(time::from_millis(1)), "run_at"),
            (job().after(JobId::new(), Condition::Ended), "parent"),
            (job().in_batch(BatchId::new()), "batch"),
            (job().wait_for("s", Duration::from_secs(1)), "signal"),
            (job().expires_in(Duration::from_secs(1)), "expires_in"),
            (job().expires_at(time::from_millis(1)), "expires_at"),
        ] {
            assert_eq!(field(whole_one().job(job)), refused);
        }
        let keyed = || job().unique_key("k");
        for (job, refused) in [
            (keyed().on_conflict(OnConflict::Replace), "on_conflict"),
            (keyed().all_or_nothing(), "all_or_nothing"),
            (
                keyed()
                    .idempotency_key("i")
                    .unique_for(Duration::from_secs(1)),
                "unique_for",
            ),
        ] {
            let skipping = whole_one().overlap(Overlap::Skip).job(job);
            assert_eq!(field(skipping), refused);
        }
    }

    #[test]
    fn the_jobs_of_slots_have_the_key_of_the_definition_or_one_by_its_name() {
        let skipping = || whole_one().overlap(Overlap::Skip);
        let keyed = skipping().job(NewJob::new("kind", &1).unique_key("sync"));
        for (recurring, expected) in [
            (whole_one(), None),
            (skipping(), Some("recurring/nightly")),
            (keyed, Some("sync")),
        ] {
            let spec = recurring.check().unwrap().spec(None);
            assert_eq!(spec.unique_key.as_ref().map(Name::as_str), expected);
        }
    }

    #[test]
    fn bounds_are_inside() {
        let at = |seconds: i64| time::from_millis(seconds * 1_000);
        let minutely = Recurring::every(Duration::from_secs(60))
            .job(NewJob::new("kind", &1))
            .named("n");
        let definition = minutely.clone().starts_at(at(90)).ends_at(at(210)).check();
        let definition = definition.unwrap();
        let slots =
            [0, 89, 90, 149, 150, 209, 210].map(|after| definition.next_after(at(after), at(7)));
        let expected = [90, 90, 150, 150, 210, 210].map(|slot| Some(at(slot)));
        assert_eq!(slots[..6], expected);
        assert_eq!(slots[6], None);
        let free = minutely.check().unwrap();
        assert_eq!(free.next_after(at(7), at(7)), Some(at(67)));
        assert_eq!(free.next_after(at(67), at(7)), Some(at(127)));
        let daily = whole_one().starts_at(at(3 * 3_600)).check().unwrap();
        assert_eq!(daily.next_after(at(0), at(0)), Some(at(3 * 3_600)));
    }
}
