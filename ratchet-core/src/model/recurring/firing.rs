//! Requests about recurring definitions, and their results.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::id::{Incarnation, NodeId};
use crate::limits;
use crate::model::{
    Definition, Enqueued, Guard, NewJob, RecurringRecord, RecurringToken, positive,
};
use crate::name::Name;
use crate::time::Timestamp;

/// A request to store a recurring definition under its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PutRecurring {
    /// The definition to store.
    pub definition: Definition,
    /// The incarnation that the definition gets if this request creates the definition.
    pub incarnation: Incarnation,
    /// Whether the definition is declared by a program when its node starts. Otherwise, a client
    /// stores the definition at run time.
    pub declared: bool,
}

impl PutRecurring {
    /// Creates a request for a definition that a client stores at run time.
    #[must_use]
    pub fn new(definition: Definition) -> Self {
        Self {
            definition,
            incarnation: Incarnation::new(),
            declared: false,
        }
    }

    /// Sets whether the definition is declared by a program when its node starts.
    /// [`RetireRecurring`] deletes only declared definitions.
    #[must_use]
    pub const fn declared(mut self, declared: bool) -> Self {
        self.declared = declared;
        self
    }

    /// Returns the record to store at `now`, and the outcome of the request; `None` if nothing
    /// changes. `found` is the stored definition with the same name.
    ///
    /// A stored definition that cannot be read is replaced completely.
    #[must_use]
    pub fn apply<E>(
        &self,
        found: Option<Result<RecurringRecord, E>>,
        now: Timestamp,
    ) -> Option<(RecurringRecord, PutOutcome)> {
        Some(match found {
            None => (RecurringRecord::created(self, now), PutOutcome::Created),
            Some(Ok(old)) => (old.edited(self, now)?, PutOutcome::Changed),
            Some(Err(_)) => (RecurringRecord::created(self, now), PutOutcome::Changed),
        })
    }
}

/// The outcome of storing a recurring definition.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet::{NewJob, PutOutcome, Ratchet, Recurring};
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let hourly = || {
///     let hourly = Recurring::every(Duration::from_secs(3_600));
///     hourly.job(NewJob::new("report", &())).named("hourly")
/// };
/// let recurring = client.recurring();
/// assert_eq!(recurring.put(hourly()).await?, PutOutcome::Created);
/// assert_eq!(recurring.put(hourly()).await?, PutOutcome::Unchanged);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutOutcome {
    /// The definition was created. No definition with this name existed before.
    Created,
    /// The definition replaced another definition with the same name.
    Changed,
    /// The same definition was already stored; nothing changed.
    Unchanged,
}

/// A request to claim recurring definitions whose next slot is due.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecurringClaimRequest {
    /// The node that claims the definitions.
    pub node: NodeId,
    /// The maximum number of definitions to claim; at least 1.
    pub limit: usize,
    /// The time during which no other node can claim these definitions.
    pub lease: Duration,
}

impl RecurringClaimRequest {
    /// Creates a request for up to `limit` definitions, with a lease of 30 s.
    #[must_use]
    pub const fn new(node: NodeId, limit: usize) -> Self {
        Self {
            node,
            limit,
            lease: Duration::from_secs(30),
        }
    }

    /// Sets the [`lease`](Self::lease).
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Checks that the limit is from 1 to [`limits::MAX_BATCH`] and that the lease is not zero.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] if the limit or the lease is out of range.
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_limit("limit", self.limit)
            .and_then(|()| positive("lease", self.lease))
            .map_err(|problem| invalid("claim_due_recurring", problem))
    }
}

/// The result of a [`RecurringClaimRequest`]: the claimed definitions, and the time until the next
/// claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueRecurring {
    /// The time of the claim, from the database's clock. The next slots of the definitions were due
    /// at this time.
    pub now: Timestamp,
    /// The claimed definitions in their state after the claim, including the tokens that are needed
    /// to fire them.
    pub definitions: Vec<RecurringRecord>,
    /// The time until a definition that is not in `definitions` can be claimed. `None` if all these
    /// definitions are paused or have no more slots.
    pub next_in: Option<Duration>,
    /// The number of definitions that were claimed but are not in `definitions`, because this
    /// version of Ratchet cannot read them. A newer version may be able to read them.
    pub unreadable: usize,
}

/// The firing of one definition: the jobs of its due slots, and its next slot.
/// [`RecurringRecord::plan`] computes the firing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecurringFiring {
    /// The token of the claimed definition. If the definition has another token when it is fired,
    /// the firing is stale and changes nothing.
    pub token: RecurringToken,
    /// The jobs of the due slots that are not skipped, in order of their slots.
    pub jobs: Vec<NewJob>,
    /// The next slot of the definition; `None` if there are no more slots.
    pub next_fire: Option<Timestamp>,
    /// Whether the firing skips missed slots.
    pub missed: bool,
}

impl PartialEq for RecurringFiring {
    fn eq(&self, other: &Self) -> bool {
        let ids = |firing: &Self| -> Vec<_> { firing.jobs.iter().map(NewJob::id).collect() };
        self.token == other.token
            && self.next_fire == other.next_fire
            && self.missed == other.missed
            && ids(self) == ids(other)
    }
}

impl RecurringFiring {
    /// Returns the latest slot for which the firing has a job; `None` if the firing has no jobs.
    #[must_use]
    pub fn last_slot(&self) -> Option<Timestamp> {
        self.jobs.iter().filter_map(|job| job.id().slot()).max()
    }

    /// Checks the firings of one call: their number, their jobs, and that no definition is fired
    /// twice.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] with the first problem found.
    pub fn validate_all(firings: &[Self]) -> Result<(), StoreError> {
        let jobs: usize = firings.iter().map(|firing| firing.jobs.len()).sum();
        limits::check_batch("firings", firings.len())
            .and_then(|()| limits::check_batch("jobs", jobs))
            .and_then(|()| {
                firings
                    .iter()
                    .flat_map(|one| &one.jobs)
                    .try_for_each(NewJob::validate)
            })
            .and_then(|()| refuse_repeated(firings))
            .map_err(|problem| invalid("fire", problem))
    }
}

/// Refuses a call that fires the same definition twice. The second firing would always be stale.
fn refuse_repeated(firings: &[RecurringFiring]) -> Result<(), InvalidInput> {
    let mut seen = std::collections::BTreeSet::new();
    let repeated = firings.iter().find(|one| !seen.insert(&one.token.name));
    match repeated {
        None => Ok(()),
        Some(firing) => Err(InvalidInput::new(
            "firings",
            format!("contain the definition {} twice", firing.token.name),
        )),
    }
}

/// The outcome of a firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fired {
    /// The jobs were stored, and the definition was advanced to its next slot. Contains the answer
    /// for each job, in order.
    ///
    /// The answer `Duplicate` means that the job was skipped, because another job with its unique
    /// key has not ended.
    Applied(Vec<Enqueued>),
    /// The token of the firing is not the definition's current token; nothing changed.
    Stale,
}

/// A page of recurring definitions.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let page = client.recurring().list(None, 100).await?;
/// for record in page.definitions {
///     println!("{}: next at {:?}", record.definition.name(), record.next_fire);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecurringPage {
    /// The definitions, ordered by name.
    pub definitions: Vec<RecurringRecord>,
    /// The name after which the next page begins; `None` if this is the last page.
    pub next: Option<Name>,
}

impl RecurringPage {
    /// Creates a page of up to `limit` definitions from rows that are ordered by name. If `rows`
    /// has more than `limit` rows, there is a next page.
    ///
    /// `read` returns the name and the definition of a row. A name or a definition that cannot be
    /// read is `None`.
    #[must_use]
    pub fn of<R>(
        rows: impl IntoIterator<Item = R>,
        limit: usize,
        read: impl Fn(R) -> (Option<Name>, Option<RecurringRecord>),
    ) -> Self {
        let mut rows = rows.into_iter();
        let (mut last, mut definitions) = (None, Vec::new());
        for (name, definition) in rows.by_ref().take(limit).map(read) {
            last = name.or(last);
            definitions.extend(definition);
        }
        let next = last.filter(|_| rows.next().is_some());
        Self { definitions, next }
    }
}

/// A request to delete the declared definitions that a program no longer declares.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetireRecurring {
    /// The names of the definitions that the program declares. These definitions are kept.
    pub known: Vec<Name>,
    /// The node that runs the program. Only definitions that were created before this node started
    /// are deleted.
    pub node: NodeId,
    /// The leader's term in which the request is made. The deletion takes effect only while this
    /// term lasts.
    pub guard: Guard,
}

impl RetireRecurring {
    /// Creates a request to delete all declared definitions that are not in `known` and were
    /// created before the node started.
    #[must_use]
    pub const fn new(known: Vec<Name>, node: NodeId, guard: Guard) -> Self {
        Self { known, node, guard }
    }

    /// Returns whether the request deletes a definition with these properties. `node_began` is the
    /// time at which [`node`](Self::node) started.
    #[must_use]
    pub fn retires(
        &self,
        name: &Name,
        declared: bool,
        created_at: Timestamp,
        node_began: Timestamp,
    ) -> bool {
        declared && created_at < node_began && !self.known.contains(name)
    }

    /// Checks that there are at most [`limits::MAX_BATCH`] names.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] if there are more names.
    pub fn validate(&self) -> Result<(), StoreError> {
        limits::check_batch("known", self.known.len()).map_err(|problem| invalid("retire", problem))
    }
}

fn invalid(operation: &'static str, problem: InvalidInput) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, operation).with_source(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recurring;
    use crate::time::from_millis;

    fn put(name: &str, seconds: u64) -> PutRecurring {
        let recurring = Recurring::every(Duration::from_secs(seconds));
        let recurring = recurring.job(NewJob::new("kind", &1)).named(name);
        PutRecurring::new(recurring.check().unwrap())
    }

    fn stored(put: &PutRecurring) -> RecurringRecord {
        let created = put.apply(None::<Result<_, InvalidInput>>, from_millis(1_000));
        created.unwrap().0
    }

    #[test]
    fn a_put_creates_changes_or_leaves_what_is_stored() {
        let (first, now) = (put("n", 10), from_millis(5_000));
        let apply = |put: &PutRecurring, found| put.apply::<InvalidInput>(found, now);
        let (record, outcome) = apply(&first, None).unwrap();
        assert_eq!(outcome, PutOutcome::Created);
        assert_eq!(
            (record.incarnation, record.revision),
            (first.incarnation, 1)
        );
        assert_eq!(apply(&put("n", 10), Some(Ok(record.clone()))), None);
        let (edited, outcome) = apply(&put("n", 20), Some(Ok(record.clone()))).unwrap();
        assert_eq!(outcome, PutOutcome::Changed);
        assert_eq!(
            (edited.incarnation, edited.revision),
            (first.incarnation, 2)
        );
    }

    #[test]
    fn a_put_replaces_what_cannot_be_read() {
        let (put, now) = (put("n", 10), from_millis(5_000));
        let found = Some(Err(InvalidInput::new("definition", "is spoiled")));
        let (record, outcome) = put.apply(found, now).unwrap();
        assert_eq!(outcome, PutOutcome::Changed);
        assert_eq!(
            (record.incarnation, record.created_at),
            (put.incarnation, now)
        );
    }

    #[test]
    fn a_page_ends_at_its_last_name_that_can_be_read_if_there_are_more() {
        let name = |text: &str| Name::new("name", text).unwrap();
        let record = |text: &str| (Some(name(text)), Some(stored(&put(text, 10))));
        let rows = [
            record("a"),
            (Some(name("b")), None),
            (None, None),
            record("d"),
        ];
        let page = |limit| {
            let page = RecurringPage::of(rows.iter(), limit, Clone::clone);
            let names = page.definitions.iter();
            let names: Vec<String> = names.map(|one| one.definition.name().to_string()).collect();
            (names.concat(), page.next.map(|next| next.to_string()))
        };
        assert_eq!(page(1), ("a".to_owned(), Some("a".to_owned())));
        assert_eq!(page(2), ("a".to_owned(), Some("b".to_owned())));
        assert_eq!(page(3), ("a".to_owned(), Some("b".to_owned())));
        assert_eq!(page(4), ("ad".to_owned(), None));
        assert_eq!(page(9), ("ad".to_owned(), None));
    }
}
