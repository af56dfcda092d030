use std::time::Duration;

use tokio::time::Instant;

use super::leaders::PREFIX;
use super::leadership::Leadership;
use super::timings::LeaderTimings;
use crate::error::{InvalidInput, Result, StoreError, StoreErrorKind};
use crate::id::{Fence, NodeId};
use crate::metrics::{self, StepDown};
use crate::model::Fenced;
use crate::name::Name;
use crate::store::{Acquired, Checked, HeldLock, LockInfo, SharedStore};
use crate::time;

/// What a turn of an [`Election`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionOutcome {
    /// This candidate leads from now on, in this term.
    Elected(Fence),
    /// It did already, and renewed.
    AlreadyLeader(Fence),
    /// Somebody else leads, for so long at least.
    OtherLeader {
        /// Who.
        leader: Name,
        /// The time left on the lock.
        remaining: Duration,
    },
    /// The tenure that this candidate had is over, or nobody leads but this candidate may not yet:
    /// who leads shows at the next turn.
    Conflict,
}

/// Campaigns for a role: takes its lock, keeps it, and gives it back.
///
/// The lock of a role has one owner at a time in the database, and its fence, which grows with every
/// change of owner, is the term. A candidate makes one [`turn`](Self::turn) per heartbeat.
#[derive(Debug)]
pub struct Election {
    store: SharedStore,
    leadership: Leadership,
    timings: LeaderTimings,
    takeover_delay: Duration,
    /// Until when this candidate takes no part: after a resignation, so that others can lead.
    sitting_out: Option<Instant>,
    rival: Option<Rival>,
}

/// Another owner of the lock, when this candidate last asked.
#[derive(Clone, Debug)]
struct Rival {
    owner: Name,
    /// The term of the owner, or of an earlier one if that is larger.
    fence: Fence,
    /// Until when that owner may trust its tenure, by this process's clock.
    until: Instant,
}

impl Election {
    /// A candidate for this role.
    ///
    /// # Errors
    /// If the timings cannot work, or the name of the role is too long to make a lock of it.
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
        })
    }

    /// Waits so long before it takes over from a leader that vanished, so that others are preferred.
    /// A role that was given up in order is taken at once by anybody. The delay begins when the lock
    /// expires, and such a candidate waits for that: where a store frees a lock sooner, because its
    /// holder's connection is gone, that is left to the others.
    #[must_use]
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.takeover_delay = delay;
        self
    }

    /// The name of the lock of a role.
    ///
    /// # Errors
    /// If that would be too long.
    pub fn lock_of(role: &Name) -> Result<Name, InvalidInput> {
        Name::new("role", format!("{PREFIX}{role}"))
    }

    /// Who leads, from the row of the lock itself.
    ///
    /// # Errors
    /// A failure of the store, or a role whose name is too long.
    pub async fn inspect(store: &SharedStore, role: &Name) -> Result<Option<LockInfo>> {
        let lock = Self::lock_of(role)?;
        store.locks().inspect(&lock).await
    }

    /// What this candidate is.
    #[must_use]
    pub const fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Renews, or tries to be elected. A candidate that has another `owner` than before gives its old
    /// tenure up first.
    ///
    /// # Errors
    /// A failure of the store; `Timeout` if it took longer than the renewal timeout. Leadership
    /// is kept through it, until the fence timeout.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lock was taken or renewed; the next turn finds
    /// out. Leadership is never believed for longer than it lasts.
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

    /// Whether the next turn of this `owner` gives up a tenure of an earlier one.
    pub(crate) fn is_of_another(&self, owner: NodeId) -> bool {
        let tenure = self.leadership.unreleased();
        tenure.is_some_and(|tenure| tenure.owner != owner_name(owner))
    }

    /// How long to wait before the next turn.
    #[must_use]
    pub fn next_turn(&self, outcome: &ElectionOutcome) -> Duration {
        match outcome {
            // To be there when the lock expires.
            ElectionOutcome::OtherLeader { remaining, .. } => {
                (*remaining + Duration::from_millis(1)).min(self.timings.heartbeat)
            }
            _ => self.timings.heartbeat,
        }
    }

    /// Gives the role up at once, if this candidate has it.
    ///
    /// # Errors
    /// A failure of the store; the leadership is given up in any case, and the lock expires by
    /// itself.
    pub async fn resign(&mut self) -> Result<()> {
        self.leadership.step_down(StepDown::Resigned);
        self.give_back().await
    }

    /// Frees the lock of the last tenure, if that has not been done.
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

    /// Gives the role up and takes no part for a while, so that somebody else can have it.
    ///
    /// # Errors
    /// As for [`resign`](Self::resign).
    pub async fn sit_out(&mut self, pause: Duration) -> Result<()> {
        self.sitting_out = Some(time::monotonic() + pause);
        self.resign().await
    }

    async fn renew(&self, owner: &Name, term: Fence) -> Result<ElectionOutcome> {
        // Before the call: the database counts from when it gets it, which is later.
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
                tracing::warn!(role = %self.leadership.role(), "the leadership was lost");
                self.leadership.step_down(StepDown::Superseded);
                ElectionOutcome::Conflict
            }
        })
    }

    async fn campaign(&mut self, owner: &Name) -> Result<ElectionOutcome> {
        // A release whose answer was lost may take effect later: not in a tenure with the same fence.
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

    /// Why this candidate may not try to acquire the lock yet: another node holds it, or the database
    /// says that the lock is free and it is too early to believe that or, with a takeover delay, to act on
    /// it.
    ///
    /// The database's clock may have stepped forward, another server with another clock may have taken
    /// over, or the database may have gone back to a state without the leader's tenure. The leader does not
    /// know of that before its next renewal. So a candidate that saw the lock held waits until the leader's
    /// trust has ended by its own clock, unless the leader released the lock.
    async fn must_wait(&mut self, owner: &Name) -> Result<Option<ElectionOutcome>> {
        let rival = self.rival.clone();
        let rival = rival.filter(|rival| time::monotonic() < rival.until);
        let locks = self.store.locks();
        let inspect = locks.inspect(self.leadership.lock());
        let lock = within(self.timings.renew_timeout, "inspect", inspect).await?;
        let still_held = rival.as_ref().map(Rival::leads);
        let Some(lock) = lock else {
            return Ok(still_held);
        };
        Ok(match (lock.holder, lock.expired_for, rival) {
            // The store gives it to this candidate, unless that is to prefer others.
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

    /// Notes that another owner has the lock. It trusts its tenure for less than a ttl from now on, even
    /// if the lock lasts longer, as it does after a step back of the database's clock. This candidate waits
    /// for no shorter time than it had to before: the database may have gone back to an earlier holder.
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
    /// What a turn comes to while this owner may lead.
    fn leads(&self) -> ElectionOutcome {
        ElectionOutcome::OtherLeader {
            leader: self.owner.clone(),
            remaining: self.until.saturating_duration_since(time::monotonic()),
        }
    }
}

/// How a node is called as the owner of a lock.
fn owner_name(node: NodeId) -> Name {
    match Name::new("owner", node.to_string()) {
        Ok(owner) => owner,
        Err(_) => unreachable!("an id makes a valid name"),
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
