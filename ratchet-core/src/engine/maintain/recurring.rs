//! Recurring definitions: stores the definitions that the program declares when the node starts,
//! and fires the definitions whose slots have come.
//!
//! Every node runs this loop, and any node can fire any definition. The nodes race to claim the due
//! definitions, and the store decides which definitions are due. The token of a claim ensures that
//! only one node fires each definition. While the leader's beacons arrive, the other nodes claim a
//! little later, so that the leader usually fires all definitions.
//!
//! If a node dies between claim and firing, the claimed slots wait until its lease ends. By then
//! more slots may be overdue, and the misfire policy decides how these are handled. Between two
//! claims the loop sleeps until the next slot. Waking up too early only costs one call.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Client, RetryDelays, WakeQueue, recurring};
use crate::cluster::{ClusterCoordinator, WakeupStream};
use crate::engine::common::Common;
use crate::engine::membership::beacons::Beacons;
use crate::engine::membership::identity::Identity;
use crate::engine::pools::counters::Counters;
use crate::engine::totals::Totals;
use crate::error::{Result, StoreError};
use crate::id::NodeId;
use crate::metrics;
use crate::model::{
    Definition, DueRecurring, Enqueued, Fired, Guard, Guarded, PutOutcome, PutRecurring,
    RecurringClaimRequest, RecurringFiring, RetireRecurring,
};
use crate::name::Name;
use crate::store::Acquired;
use crate::time::{self, Timestamp, millis_between, to_millis};

/// Maximum number of recurring definitions that one call claims.
const BATCH: usize = 100;
/// Maximum number of jobs that one call creates. A definition that creates more jobs is fired in a
/// separate call.
const JOBS: usize = 500;
/// Time for which a claimed definition is reserved for the node that claimed it. The lease only
/// avoids duplicate work: each slot fires once in any case. The lease is short because, if the node
/// dies, the due slots of the definition wait until the lease ends.
const LEASE: Duration = Duration::from_secs(3);
/// Minimum time between two claims when a wakeup from another process causes the second claim.
const APART: Duration = Duration::from_millis(100);
/// Extra delay before this node claims definitions, after it has claimed a definition that it
/// cannot read, such as one of a newer release. Claiming such a definition keeps it from all other
/// nodes for a whole lease. The delay lets nodes that can read the definition claim it first. The
/// delay applies for [`BEHIND_FOR`].
const BEHIND: Duration = Duration::from_millis(500);
const BEHIND_FOR: Duration = Duration::from_secs(60);
/// Maximum random delay before a claim, so that nodes that wait for the same slot do not all claim
/// at once.
const JITTER: Duration = Duration::from_millis(20);
/// Minimum extra delay before a node other than the leader claims definitions, while it receives
/// the leader's beacons. The actual delay is random, between this value and twice this value. The
/// value is smaller than [`BEHIND`].
const FOLLOW: Duration = Duration::from_millis(200);
/// Maximum time between two claims of the leader while it receives its own beacons. The time can be
/// long, because wakeups announce changed definitions. [`LONGEST_FOLLOWING`] is the maximum time
/// for other nodes.
const LONGEST_LEADING: Duration = Duration::from_secs(30);
const LONGEST_FOLLOWING: Duration = Duration::from_secs(60);
/// Maximum number of tries of a call that fires definitions, if it fails with transient errors.
/// Definitions that are still not fired wait until their lease ends, and are then claimed again.
const TRIES: u32 = 4;
/// Number of definitions in a row that must fail with a transient error before the node skips the
/// remaining definitions.
const GIVE_UP: u32 = 3;

/// Maximum number of stored definitions that one call reads.
const PAGE: usize = 500;

/// Name of the lock that a node holds while it deletes the definitions that its program no longer
/// declares.
const STARTUP: &str = "startup/recurring";
/// Maximum number of attempts to acquire the lock [`STARTUP`]. The node waits for [`STARTUP_PAUSE`]
/// between two attempts.
const STARTUP_TRIES: u32 = 10;
const STARTUP_PAUSE: Duration = Duration::from_millis(500);
/// The TTL of the lock [`STARTUP`].
const STARTUP_TTL: Duration = Duration::from_secs(30);

/// Shared state that the loop for recurring definitions uses.
pub(crate) struct RecurringHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) client: Client,
    pub(crate) beacons: Arc<Beacons>,
    pub(crate) coordinator: Arc<dyn ClusterCoordinator>,
    /// Sender id in the wakeups that this node sends. The node ignores received wakeups with this
    /// id.
    pub(crate) source: NodeId,
    pub(crate) wake_queue: Arc<WakeQueue>,
    /// Recurring definitions that the program declares.
    pub(crate) declared: Arc<Vec<Definition>>,
    pub(crate) totals: Arc<Totals>,
    /// Tracks the firings under way. Before the node leaves the cluster, it waits until they have
    /// ended.
    pub(crate) under_way: TaskTracker,
    /// Token that is cancelled when the run stops claiming jobs.
    pub(crate) draining: CancellationToken,
}

/// Stores the declared definitions, then fires due definitions until the run stops claiming.
pub(crate) async fn run(run: Arc<RecurringHandles>) {
    let mut wakeups = run.coordinator.subscribe();
    let mut waiting;
    tokio::select! {
        biased;
        () = run.draining.cancelled() => return,
        refused = declare(&run) => waiting = refused,
    }
    let mut backoff = RetryDelays::of("recurring");
    let mut met: Option<Instant> = None;
    while !run.draining.is_cancelled() {
        wakeups.clear();
        let looked = time::monotonic();
        put_again(&run, &mut waiting).await;
        let under_way = run.under_way.token();
        let ticked = tick(&run).await;
        drop(under_way);
        let pause = match ticked {
            Ok(looked) => {
                backoff.reset();
                if looked.unreadable {
                    met = Some(time::monotonic());
                }
                // Subtracts the time that has passed since the call from the time until the next
                // slot.
                let passed = looked.asked.elapsed();
                let now = to_millis(looked.now);
                let wait = |next| millis_between(now, to_millis(next)).saturating_sub(passed);
                Pause::until(looked.next.map(wait), &run)
            }
            Err(error) => Pause::of(backoff.failed(&error, run.common.random())),
        };
        // A program without the feature `cron` can never read definitions with a cron schedule, so
        // its delay does not end.
        let behind = met.filter(|met| met.elapsed() < BEHIND_FOR || cfg!(not(feature = "cron")));
        let behind = behind.map_or(Duration::ZERO, |_| BEHIND);
        let heed_from = looked + APART + behind;
        let mut pause = pause.longer(behind);
        if !waiting.is_empty() {
            // A node that joins and stores the limit of a permit sends no wakeup. This node
            // therefore sleeps only as long as without beacons, and then tries again to store the
            // waiting definitions.
            pause = Pause::of(pause.wait);
        }
        idle(&run, pause, &mut wakeups, heed_from).await;
    }
}

/// Fires the due definitions. Returns the time of the next slot, by the database's clock. Returns
/// `None` if no slot is planned.
#[cfg(feature = "testing")]
pub(crate) async fn fire_due(run: &RecurringHandles) -> Result<Option<Timestamp>> {
    if run.common.calls.store().recurring().is_none() {
        return Ok(None);
    }
    Ok(tick(run).await?.next)
}

/// Result of claiming and firing the due definitions.
struct Looked {
    /// Time at which the last claim call began, by this node's monotonic clock.
    asked: Instant,
    /// Time of the last claim call, by the database's clock.
    now: Timestamp,
    /// Time of the earliest slot that is not yet due, by the database's clock. `None` if no slot is
    /// planned.
    next: Option<Timestamp>,
    /// Whether a claim call returned a definition that this node cannot read.
    unreadable: bool,
}

/// Claims and fires due definitions until no more are due.
async fn tick(run: &RecurringHandles) -> Result<Looked> {
    let mut unreadable = false;
    loop {
        let request = RecurringClaimRequest::new(run.identity.node(), BATCH).lease(LEASE);
        let asked = time::monotonic();
        let claim = run.common.calls.call("claim_due_recurring", |store| async {
            let definitions = recurring(store, "claim_due_recurring")?;
            definitions.claim_due_recurring(&request).await
        });
        let due = claim.await?;
        unreadable |= due.unreadable > 0;
        metrics::unreadable_definitions(due.unreadable);
        let next = fire_all(run, &due).await?;
        if due.definitions.len() + due.unreadable < request.limit {
            let next_of_others = due.next_in.map(|wait| time::add(due.now, wait));
            let next = next_of_others.into_iter().chain(next).min();
            return Ok(Looked {
                asked,
                now: due.now,
                next,
                unreadable,
            });
        }
    }
}

/// Fires the claimed definitions. Returns the time of their earliest next slot, or `None` if they
/// have no further slots.
async fn fire_all(run: &RecurringHandles, due: &DueRecurring) -> Result<Option<Timestamp>> {
    let plans = due.definitions.iter();
    let firings: Vec<RecurringFiring> = plans.filter_map(|one| one.plan(due.now)).collect();
    firings.iter().for_each(|one| metrics::late(one, due.now));
    let mut rest = firings.as_slice();
    let mut failed = Ok(());
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(part_of(rest));
        // A definition that fails does not delay the slots of later definitions.
        failed = failed.and(fire_part(run, part).await);
        rest = behind;
    }
    failed?;
    Ok(firings.iter().filter_map(|firing| firing.next_fire).min())
}

/// Returns how many of the firings the next call contains, counted from the first. Together, they
/// create at most [`JOBS`] jobs. The result is at least 1.
fn part_of(firings: &[RecurringFiring]) -> usize {
    let mut jobs = 0;
    let fits = firings.iter().take_while(|firing| {
        jobs += firing.jobs.len();
        jobs <= JOBS
    });
    fits.count().max(1)
}

/// Fires definitions in one call. If that call fails, fires each definition in a separate call,
/// because a single definition may be the cause.
async fn fire_part(run: &RecurringHandles, part: &[RecurringFiring]) -> Result<()> {
    let tried = fire(run, part, TRIES).await;
    let (Err(error), true) = (&tried, part.len() > 1) else {
        return lasting(tried, part);
    };
    tracing::debug!(%error, "could not fire the definitions in one call; firing them one by one");
    let mut failed = Ok(());
    let mut in_a_row = 0;
    for one in part.iter().map(std::slice::from_ref) {
        let fired = lasting(fire(run, one, 1).await, one);
        in_a_row = if fired.is_err() { in_a_row + 1 } else { 0 };
        failed = failed.and(fired);
        if in_a_row == GIVE_UP {
            // The database is probably unavailable, so the cause is not a single definition.
            break;
        }
    }
    failed
}

/// Logs a permanent failure and returns `Ok`, because a definition that cannot be fired must not
/// stop the others. Returns a transient failure as an error.
fn lasting(fired: Result<()>, part: &[RecurringFiring]) -> Result<()> {
    match fired {
        Err(error) if !error.is_transient() => {
            let names = part.iter().map(|firing| &firing.token.name);
            let names: Vec<&Name> = names.collect();
            tracing::error!(%error, definitions = ?names, "could not fire recurring definitions");
            Ok(())
        }
        fired => fired,
    }
}

/// Fires definitions in one call. Repeats the call after transient failures, up to `most_tries`
/// calls in total. Repeating is safe: the store ignores a firing that has already taken effect.
async fn fire(run: &RecurringHandles, firings: &[RecurringFiring], most_tries: u32) -> Result<()> {
    let mut backoff = RetryDelays::of("recurring");
    let mut tries = 1;
    let answers = loop {
        let fire = run.common.calls.call("fire", |store| async {
            recurring(store, "fire")?.fire(firings).await
        });
        match fire.await {
            Err(error) if error.is_transient() && tries < most_tries => {
                tracing::debug!(%error, "firing recurring definitions failed; retrying after a \
                    pause");
                tries += 1;
                tokio::time::sleep(backoff.next(run.common.random())).await;
            }
            answers => break answers?,
        }
    };
    let mut fired = Vec::new();
    for (firing, answer) in firings.iter().zip(&answers) {
        note(run, firing, answer);
        if tries > 1 || matches!(answer, Fired::Applied(_)) {
            fired.extend(&firing.jobs);
        }
    }
    run.client.wake_for(fired.iter().copied()).await;
    Ok(())
}

/// Records the result of a firing in the totals, the metrics and the log.
fn note(run: &RecurringHandles, firing: &RecurringFiring, answer: &Fired) {
    let name = &firing.token.name;
    let Fired::Applied(jobs) = answer else {
        metrics::not_fired();
        tracing::debug!(definition = %name, "a firing had no effect, because another process \
            changed or fired the definition");
        return;
    };
    let created = |job: &&Enqueued| matches!(job, Enqueued::Created(_));
    let made = jobs.iter().filter(created).count();
    let skipped = jobs.len() - made;
    Counters::add(&run.totals.fired, made);
    metrics::fired(firing, made, skipped);
    tracing::debug!(definition = %name, jobs = made, skipped, "fired a recurring definition");
    if firing.missed {
        tracing::warn!(definition = %name, jobs = made, "a recurring definition missed slots; no \
            jobs are created for them");
    }
}

/// Times to sleep before the next claim. [`Pause::now`] selects one of these times by the leader's
/// beacons.
#[derive(Clone, Copy)]
struct Pause {
    /// Time to sleep while no beacons arrive. It also applies while this node leads and wakeups do
    /// not reach all nodes.
    wait: Duration,
    /// Time to sleep while this node leads, receives its own beacons, and wakeups reach all nodes.
    leading: Duration,
    /// Time to sleep while beacons arrive from another node, which is the leader.
    following: Duration,
}

impl Pause {
    /// Creates a pause that is `wait` long, whether or not beacons arrive.
    const fn of(wait: Duration) -> Self {
        Self {
            wait,
            leading: wait,
            following: wait,
        }
    }

    /// Creates a pause until the next slot. `next` is the time until that slot, or `None` if no
    /// slot is planned. The length of the pause is limited, because a definition may change without
    /// a wakeup.
    fn until(next: Option<Duration>, run: &RecurringHandles) -> Self {
        let random = run.common.random();
        let slot = next.map(|next| next.max(JITTER / 2) + JITTER.mul_f64(random));
        let until = |slot: Option<Duration>, longest: Duration| {
            let aligned = run.common.aligned(longest);
            let longest = aligned.unwrap_or(longest.mul_f64(0.9 + 0.1 * random));
            slot.map_or(longest, |slot| slot.min(longest))
        };
        let late = next.map(|next| next + FOLLOW.mul_f64(1.0 + random));
        let longest = run.common.config.recurring_interval;
        Self {
            wait: until(slot, longest),
            leading: until(slot, longest.max(LONGEST_LEADING)),
            following: until(late, longest.max(LONGEST_FOLLOWING)),
        }
    }

    /// Returns this pause with `by` added to each of its times.
    fn longer(self, by: Duration) -> Self {
        Self {
            wait: self.wait + by,
            leading: self.leading + by,
            following: self.following + by,
        }
    }

    /// Returns the time to sleep now, depending on whether beacons arrive from another node, from
    /// this node, or not at all.
    fn now(self, run: &RecurringHandles) -> Duration {
        match run.beacons.leader() {
            Some(leader) if leader != run.identity.node() => self.following,
            Some(_) if run.coordinator.reaches_all_nodes() => self.leading,
            _ => self.wait,
        }
    }
}

/// Sleeps for `pause`, or until a definition changes or the run stops claiming. After a wakeup from
/// another node, returns at `heed_from` at the earliest.
async fn idle(
    run: &RecurringHandles,
    pause: Pause,
    wakeups: &mut WakeupStream,
    heed_from: Instant,
) {
    let began = time::monotonic();
    let mut until = began + pause.wait;
    loop {
        tokio::select! {
            biased;
            () = run.draining.cancelled() => return,
            () = run.wake_queue.recurring_woken() => return,
            wakeup = wakeups.next() => {
                // Wakeups for one queue concern jobs and not definitions.
                if wakeup.is_for_all() && !wakeup.is_echo_of(run.source) {
                    break;
                }
            }
            () = tokio::time::sleep_until(until) => {
                let end = began + pause.now(run);
                if end <= until {
                    return;
                }
                // Checks again soon whether beacons still arrive.
                until = end.min(until + run.common.config.recurring_interval);
            }
        }
    }
    tokio::select! {
        biased;
        () = run.draining.cancelled() => {}
        () = tokio::time::sleep_until(heed_from) => {}
    }
}

/// Stores the definitions that the program declares, and retries while the database is unavailable.
/// Then, if configured, deletes definitions that are no longer declared. Returns the definitions
/// that cannot be stored yet, because their permit names a resource without a limit.
pub(crate) async fn declare(run: &RecurringHandles) -> Vec<&Definition> {
    let (mut waiting, mut any_changed) = (Vec::new(), false);
    for definition in outdated(run).await {
        let mut backoff = RetryDelays::of("recurring");
        loop {
            let error = match put(run, definition).await {
                Ok(changed) => {
                    any_changed |= changed;
                    break;
                }
                Err(error) => error,
            };
            let name = definition.name();
            if run.common.calls.store().permits().is_some() && lacks_a_permit(&error) {
                tracing::warn!(%error, definition = %name, "cannot store a recurring definition \
                    until the limit of its permit is set");
                waiting.push(definition);
                break;
            }
            if !error.is_transient() {
                tracing::error!(%error, definition = %name, "cannot store a recurring definition");
                break;
            }
            tracing::warn!(%error, definition = %name, "cannot store a recurring definition yet; \
                retrying after a pause");
            tokio::time::sleep(backoff.next(run.common.random())).await;
        }
    }
    if any_changed {
        run.client.recurring().slots_changed().await;
    }
    if run.common.config.retire_recurring
        && let Err(error) = retire(run).await
    {
        tracing::warn!(%error, "could not retire the recurring definitions that are no longer \
            declared");
    }
    waiting
}

/// Returns the declared definitions that are not stored in their declared form. If all are stored
/// in that form, a starting node reads a few pages and writes nothing. The result includes
/// definitions that could not be compared: storing an unchanged definition again has no effect.
async fn outdated(run: &RecurringHandles) -> Vec<&Definition> {
    let mut declared: BTreeMap<&Name, &Definition> = BTreeMap::new();
    declared.extend(run.declared.iter().map(|one| (one.name(), one)));
    let calls = &run.common.calls;
    let mut after = None;
    // The number of pages is limited: if the store has many more definitions, reading all of them
    // costs more than storing the declared ones.
    for _ in 0..declared.len() {
        let page = calls.call("definitions", |store| async {
            let definitions = recurring(store, "definitions")?;
            definitions.definitions(after.as_ref(), PAGE).await
        });
        let Ok(page) = page.await else {
            break;
        };
        for stored in page.definitions {
            let name = stored.definition.name().clone();
            let same = declared.get(&name).is_some_and(|declared| {
                let put = PutRecurring::new((*declared).clone()).declared(true);
                let now = stored.created_at;
                put.apply::<StoreError>(Some(Ok(stored)), now).is_none()
            });
            if same {
                declared.remove(&name);
            }
        }
        after = page.next;
        let last = declared.keys().next_back();
        if after.is_none() || last.is_none_or(|last| after.as_ref().is_some_and(|at| at >= *last)) {
            break;
        }
    }
    // Restores the order of the declaration, so that log lines appear in that order.
    let declared: HashSet<&Name> = declared.into_keys().collect();
    let outdated = run.declared.iter();
    outdated
        .filter(|one| declared.contains(one.name()))
        .collect()
}

/// Returns whether the store rejected a definition because no limit is set for the resource of its
/// permit. The limit may be set later.
fn lacks_a_permit(error: &StoreError) -> bool {
    error
        .invalid_input()
        .is_some_and(|problem| problem.field() == "permit")
}

/// Tries again to store the definitions in `waiting`, whose permit names a resource without a
/// limit. Removes the definitions that are now stored from `waiting`.
async fn put_again(run: &RecurringHandles, waiting: &mut Vec<&Definition>) {
    let (mut still, mut any_changed) = (Vec::new(), false);
    for definition in waiting.drain(..) {
        match put(run, definition).await {
            Ok(changed) => any_changed |= changed,
            Err(_) => still.push(definition),
        }
    }
    *waiting = still;
    if any_changed {
        run.client.recurring().slots_changed().await;
    }
}

/// Stores a definition, and returns whether the stored definition changed. If it did, the caller
/// must wake the other nodes.
async fn put(run: &RecurringHandles, definition: &Definition) -> Result<bool> {
    let put = PutRecurring::new(definition.clone()).declared(true);
    let outcome = run.client.recurring().put_quietly(&put).await?;
    tracing::debug!(definition = %definition.name(), ?outcome, "stored a declared recurring \
        definition");
    Ok(outcome != PutOutcome::Unchanged)
}

/// Deletes stored definitions that some program declared earlier and that this program does not
/// declare. Keeps the definitions that were created after this node started. Holds the lock
/// [`STARTUP`], so that two programs that start together do not delete the definitions of each
/// other.
async fn retire(run: &RecurringHandles) -> Result<()> {
    let Some(guard) = startup_guard(run).await? else {
        tracing::warn!(
            "could not retire recurring definitions, because another node kept holding \
             the lock"
        );
        return Ok(());
    };
    let calls = &run.common.calls;
    let known = run.declared.iter();
    let known = known.map(|definition| definition.name().clone()).collect();
    let request = RetireRecurring::new(known, run.identity.node(), guard.clone());
    let retired = calls.call("retire", |store| async {
        recurring(store, "retire")?.retire(&request).await
    });
    let retired = retired.await;
    let release = calls.call("release", |store| {
        let locks = store.locks();
        locks.release(&guard.lock, &guard.owner, guard.fence)
    });
    if let Err(error) = release.await {
        tracing::debug!(%error, "could not release the lock for retiring definitions; it stays \
            until it expires");
    }
    if let Guarded::Done(names) = retired? {
        for name in names {
            tracing::info!(definition = %name, "retired a recurring definition that is no longer \
                declared");
        }
    }
    Ok(())
}

/// Acquires the lock [`STARTUP`], which a node must hold to delete undeclared definitions. Returns
/// `None` if another node held the lock at every attempt.
async fn startup_guard(run: &RecurringHandles) -> Result<Option<Guard>> {
    let lock = Name::new("lock", STARTUP).map_err(StoreError::from)?;
    let owner = Name::new("owner", run.identity.node().to_string()).map_err(StoreError::from)?;
    for _ in 0..STARTUP_TRIES {
        let acquire = run.common.calls.call("acquire", |store| {
            store.locks().acquire(&lock, &owner, STARTUP_TTL)
        });
        if let Acquired::Acquired { fence } = acquire.await? {
            return Ok(Some(Guard { lock, owner, fence }));
        }
        tokio::time::sleep(STARTUP_PAUSE).await;
    }
    Ok(None)
}
