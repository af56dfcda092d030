use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::leaders::PREFIX;
use super::leadership::Leadership;
use super::role_locks::RoleLocks;
use super::timings::LeaderTimings;
use crate::error::{InvalidInput, Result, StoreError, StoreErrorKind};
use crate::id::{Fence, NodeId};
use crate::metrics::{self, StepDown};
use crate::model::Fenced;
use crate::name::Name;
use crate::store::{Acquired, Checked, HeldLock, LockInfo, SharedStore};
use crate::time;

/// The outcome of one turn of an [`Election`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionOutcome {
    /// This candidate was elected: it leads from now on, in this term.
    Elected(Fence),
    /// This candidate already led, and renewed its lock.
    AlreadyLeader(Fence),
    /// Another node leads, or may still lead.
    OtherLeader {
        /// The owner of the lock, as this candidate last saw it.
        leader: Name,
        /// How much longer that node may lead unless it renews the lock.
        remaining: Duration,
    },
    /// This candidate's term has ended, or the candidate may not campaign yet although no node
    /// leads. The next turn shows which node leads.
    Conflict,
}

/// Campaigns for a role: acquires, renews and releases its lock.
///
/// The lock of a role has one owner at a time in the database. The fence of the lock grows with
/// every change of owner, and serves as the term. A candidate takes one [`turn`](Self::turn) per
/// heartbeat.
#[derive(Debug)]
pub struct Election {
    store: SharedStore,
    leadership: Leadership,
    timings: LeaderTimings,
    takeover_delay: Duration,
    /// The time before which this candidate does not campaign, because it resigned in favor of
    /// another candidate.
    sitting_out: Option<Instant>,
    rival: Option<Rival>,
    /// Whether this candidate did not read its lock at the last turn, because the shared reading
    /// had failed and the last holder could still lead.
    skipped: bool,
    /// Recent readings of the role locks, shared with this node's candidates for other roles.
    readings: Option<Arc<RoleLocks>>,
}

/// The last owner of the lock, other than this candidate, that this candidate saw.
#[derive(Clone, Debug)]
struct Rival {
    owner: Name,
    /// The owner's term, or the term of an earlier owner if that is larger.
    fence: Fence,
    /// The time, by this process's clock, after which that owner can no longer trust that it leads.
    until: Instant,
}

impl Election {
    /// Creates a candidate for this role.
    ///
    /// # Errors
    /// If the timings are invalid, or the role's name is too long for a lock name.
    pub fn new(
        store: SharedStore,
        role: &Name,
        timings: LeaderTimings,
    ) -> Result<Self, InvalidInput> {
        if let Some(problem) = timings.problems().into_iter().next() {
            return Err(InvalidInput::new("timings", problem));
        }
        let lock = Self::lock_of(role)?;
        Ok(Self {
            store: Checked::shared(store),
            leadership: Leadership::new(role.clone(), lock),
            timings,
            takeover_delay: Duration::ZERO,
            sitting_out: None,
            rival: None,
            skipped: false,
            readings: None,
        })
    }

    /// Delays the takeover from a leader that vanished, so that other candidates are preferred.
    ///
    /// The delay starts when the lock expires. If the store frees the lock earlier, because the
    /// connection of its holder is gone, this candidate still waits for the regular expiry and the
    /// delay. After a leader has resigned there is no delay: any candidate may take over the role
    /// at once.
    #[must_use]
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.takeover_delay = delay;
        self
    }

    /// Shares readings of locks with this node's candidates for other roles. A shared reading is at
    /// most a tenth of the leader's heartbeat interval old.
    pub(crate) fn share(mut self, readings: &Arc<RoleLocks>) -> Self {
        self.readings = Some(Arc::clone(readings));
        self
    }

    /// Returns the name of a role's lock.
    ///
    /// # Errors
    /// If the name of the lock would be too long.
    pub fn lock_of(role: &Name) -> Result<Name, InvalidInput> {
        Name::new("role", format!("{PREFIX}{role}"))
    }

    /// Returns the row of the role's lock, which names the leader.
    ///
    /// # Errors
    /// A failure of the store, or a role whose name is too long.
    pub async fn inspect(store: &SharedStore, role: &Name) -> Result<Option<LockInfo>> {
        let lock = Self::lock_of(role)?;
        store.locks().inspect(&lock).await
    }

    /// Returns this candidate's view of its own leadership.
    #[must_use]
    pub const fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Renews the lock, or tries to be elected. If the candidate holds the lock under another
    /// owner, it only resigns in this turn.
    ///
    /// # Errors
    /// A failure of the store; `Timeout` if a call took longer than the renewal timeout. The
    /// candidate keeps its leadership despite an error, until the fence timeout.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been acquired or renewed; the next
    /// turn finds out. The candidate never trusts its leadership for longer than the lock lasts.
    pub async fn turn(&mut self, owner: NodeId) -> Result<ElectionOutcome> {
        let outcome = self.take_turn(owner).await;
        metrics::election_turn(self.leadership.role(), &outcome);
        outcome
    }

    async fn take_turn(&mut self, owner: NodeId) -> Result<ElectionOutcome> {
        if self.is_of_another(owner) {
            self.resign().await?;
            return Ok(ElectionOutcome::Conflict);
        }
        let owner = owner_name(owner);
        match self.leadership.current() {
            Some(tenure) => self.renew(&owner, tenure.term).await,
            None => self.campaign(&owner).await,
        }
    }

    /// Returns whether this candidate has not yet released the lock of a tenure with another owner.
    /// If so, the next turn only resigns.
    pub(crate) fn is_of_another(&self, owner: NodeId) -> bool {
        let tenure = self.leadership.unreleased();
        tenure.is_some_and(|tenure| tenure.owner != owner_name(owner))
    }

    /// Returns whether this node is the last one that this candidate saw hold the lock.
    pub(crate) fn has_seen(&self, leader: NodeId) -> bool {
        let rival = self.rival.as_ref();
        rival.is_some_and(|rival| rival.owner == owner_name(leader))
    }

    /// Records that this leader trusts its tenure until `leads_until`, as its beacon said.
    ///
    /// Until the leader has stopped, this candidate does not take a lock that it finds free. A
    /// beacon that arrives in time delays no takeover, because the leader stops before its lock can
    /// expire (see [`LeaderTimings`]). A beacon that is late delays a takeover by as much.
    pub(crate) fn heard_leader(&mut self, leader: NodeId, leads_until: Instant) {
        let stopped = leads_until + self.timings.tick() + self.timings.teardown;
        let rival = self.rival.as_mut();
        if let Some(rival) = rival.filter(|rival| rival.owner == owner_name(leader)) {
            rival.until = rival.until.max(stopped);
        }
    }

    /// Returns the time to wait before the next turn.
    #[must_use]
    pub fn next_turn(&self, outcome: &ElectionOutcome) -> Duration {
        match outcome {
            // Takes the next turn as soon as the other node's lock expires.
            ElectionOutcome::OtherLeader { remaining, .. } => {
                (*remaining + Duration::from_millis(1)).min(self.timings.heartbeat)
            }
            _ => self.timings.heartbeat,
        }
    }

    /// Resigns the role at once, if this candidate holds it.
    ///
    /// # Errors
    /// A failure of the store. The leadership ends in any case, and the lock expires on its own.
    pub async fn resign(&mut self) -> Result<()> {
        self.leadership.step_down(StepDown::Resigned);
        self.give_back().await
    }

    /// Releases the lock of this candidate's last tenure, unless it was released before.
    async fn give_back(&self) -> Result<()> {
        let Some(tenure) = self.leadership.unreleased() else {
            return Ok(());
        };
        let locks = self.store.locks();
        let lock = self.leadership.lock();
        let release = locks.release(lock, &tenure.owner, tenure.term);
        within(self.timings.renew_timeout, "release", release).await?;
        self.leadership.released();
        Ok(())
    }

    /// Resigns the role and does not campaign for a while, so that another candidate can be
    /// elected.
    ///
    /// # Errors
    /// As for [`resign`](Self::resign).
    pub async fn sit_out(&mut self, pause: Duration) -> Result<()> {
        self.sitting_out = Some(time::monotonic() + pause);
        self.resign().await
    }

    async fn renew(&self, owner: &Name, term: Fence) -> Result<ElectionOutcome> {
        // The clock is read before the call. The TTL in the database starts later, when the
        // database receives the call, so this process stops trusting the lock before it expires.
        let asked = time::monotonic();
        let lock = self.leadership.lock();
        let locks = self.store.locks();
        let renew = locks.renew(lock, owner, term, self.timings.ttl);
        let renewed = within(self.timings.renew_timeout, "renew", renew).await?;
        Ok(match renewed {
            Fenced::Applied => {
                self.leadership
                    .lead(owner, term, asked + self.timings.fence_timeout);
                ElectionOutcome::AlreadyLeader(term)
            }
            Fenced::Stale => {
                tracing::warn!(role = %self.leadership.role(), "the node lost its leadership: the \
                    store did not renew the lock, because this term has ended");
                self.leadership.step_down(StepDown::Superseded);
                ElectionOutcome::Conflict
            }
        })
    }

    async fn campaign(&mut self, owner: &Name) -> Result<ElectionOutcome> {
        // A release whose answer was lost may take effect later, and would then end a new tenure
        // with the same fence. So the release is repeated before the candidate campaigns.
        if self
            .leadership
            .unreleased()
            .is_some_and(|tenure| tenure.resigned)
        {
            self.give_back().await?;
        }
        let asked = time::monotonic();
        if self.sitting_out.is_some_and(|until| asked < until) {
            return Ok(ElectionOutcome::Conflict);
        }
        if let Some(outcome) = self.must_wait(owner).await? {
            return Ok(outcome);
        }
        let asked = time::monotonic();
        let lock = self.leadership.lock();
        let locks = self.store.locks();
        let acquire = locks.acquire(lock, owner, self.timings.ttl);
        let acquired = within(self.timings.renew_timeout, "acquire", acquire).await?;
        Ok(match acquired {
            Acquired::Acquired { fence } => {
                let again = self
                    .leadership
                    .guard()
                    .is_some_and(|guard| guard.fence == fence);
                self.leadership
                    .lead(owner, fence, asked + self.timings.fence_timeout);
                if again {
                    ElectionOutcome::AlreadyLeader(fence)
                } else {
                    ElectionOutcome::Elected(fence)
                }
            }
            Acquired::Held(held) => self.note_rival(held),
        })
    }

    /// Returns the node that led at this candidate's last reading, while that node may still trust
    /// its tenure.
    fn rival(&self) -> Option<Rival> {
        let rival = self.rival.clone();
        rival.filter(|rival| time::monotonic() < rival.until)
    }

    /// Returns the outcome of the turn if this candidate may not try to acquire the lock yet.
    /// `None` if it may.
    ///
    /// The candidate may not try in four cases:
    ///
    /// - Another node holds the lock.
    /// - The takeover delay has not passed.
    /// - The database reports the lock as free, but the report cannot be trusted yet.
    /// - The shared reading of the locks has failed, and the last holder may still lead. At the
    ///   next turn, the candidate reads the lock itself.
    ///
    /// The report cannot be trusted if the database's clock may have stepped forward, or if another
    /// server with another clock may have taken over. Nor can it be trusted if the database may
    /// have been rolled back to a state without the leader's tenure. The leader notices none of
    /// this before its next renewal, and still leads until then. So a candidate that saw the lock
    /// held waits, by its own clock, until the leader no longer trusts its tenure. It need not wait
    /// if the leader released the lock.
    async fn must_wait(&mut self, owner: &Name) -> Result<Option<ElectionOutcome>> {
        if let Some(readings) = self.readings.clone() {
            let age = self.timings.heartbeat / 10;
            let (store, lock) = (
                SharedStore::clone(&self.store),
                self.leadership.lock().clone(),
            );
            let holder = readings.holder(store, lock, age);
            let holder = within(age.min(self.timings.renew_timeout), "list_locks", holder).await;
            match (holder, self.rival()) {
                (Ok(Some(holder)), _) if holder.owner != *owner => {
                    return Ok(Some(self.note_rival(holder)));
                }
                // The shared reading is slow or fails. Reading each lock on its own at each turn
                // would load the database further, so a candidate does it at every second turn. It
                // then also finds a lock that its holder has released.
                (Err(_), Some(rival)) if !self.skipped => {
                    self.skipped = true;
                    return Ok(Some(rival.leads()));
                }
                // The lock may be free. A decision needs a new reading, even if the shared reading
                // is slow: that reading uses a connection for jobs, and jobs that use all of these
                // connections must not delay a takeover.
                _ => {}
            }
        }
        self.skipped = false;
        let rival = self.rival();
        let locks = self.store.locks();
        let inspect = locks.inspect(self.leadership.lock());
        let lock = within(self.timings.renew_timeout, "inspect", inspect).await?;
        let still_held = rival.as_ref().map(Rival::leads);
        let Some(lock) = lock else {
            return Ok(still_held);
        };
        Ok(match (lock.holder, lock.expired_for, rival) {
            // The connection of the holder is gone, so the store grants the lock at once. A
            // candidate with a takeover delay leaves the lock to other candidates.
            _ if lock.holder_gone && self.takeover_delay.is_zero() => None,
            (Some(holder), ..) if holder.owner != *owner => Some(self.note_rival(holder)),
            (None, None, Some(rival)) if lock.fence < rival.fence => still_held,
            (None, Some(_), Some(_)) => still_held,
            (None, Some(expired), None) if expired < self.takeover_delay => {
                Some(ElectionOutcome::Conflict)
            }
            _ => None,
        })
    }

    /// Remembers that another owner holds the lock.
    ///
    /// That owner trusts its tenure for less than a `ttl` from now, even if the lock lasts longer
    /// because the database's clock stepped back. This candidate never shortens its wait, because
    /// the database may have been rolled back to an earlier holder.
    fn note_rival(&mut self, holder: HeldLock) -> ElectionOutcome {
        let trusted = holder.remaining.min(self.timings.ttl);
        let until = time::monotonic() + trusted;
        let before = self.rival.take();
        self.rival = Some(Rival {
            owner: holder.owner.clone(),
            fence: before
                .as_ref()
                .map_or(holder.fence, |rival| rival.fence.max(holder.fence)),
            until: before.map_or(until, |rival| rival.until.max(until)),
        });
        ElectionOutcome::OtherLeader {
            leader: holder.owner,
            remaining: holder.remaining,
        }
    }
}

impl Rival {
    /// Returns the outcome of a turn while this owner may lead.
    fn leads(&self) -> ElectionOutcome {
        ElectionOutcome::OtherLeader {
            leader: self.owner.clone(),
            remaining: self.until.saturating_duration_since(time::monotonic()),
        }
    }
}

/// Returns the name of a node as the owner of a lock.
fn owner_name(node: NodeId) -> Name {
    match Name::new("owner", node.to_string()) {
        Ok(owner) => owner,
        Err(_) => unreachable!("a node id is always a valid name"),
    }
}

async fn within<T>(
    timeout: Duration,
    operation: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let asked = time::monotonic();
    let answer = match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(StoreErrorKind::Timeout, "election")),
    };
    metrics::store_call(operation, asked.elapsed(), &answer);
    answer
}
