use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::id::{Fence, NodeId};
use crate::metrics::{LeaderAmount, StepDown};
use crate::model::Guard;
use crate::name::Name;
use crate::time;

/// Reports whether this process leads in a role, as far as the process can know. Clones share their
/// state.
///
/// An [`Election`](super::Election) keeps the state up to date. Reading it needs no I/O and errs on
/// the safe side. Once the last successful renewal is older than the fence timeout, this process
/// counts as not leading, even if the database is unavailable or the process was suspended. A write
/// that the leader sends can still reach the database after its term, so pass the
/// [`guard`](Self::guard) with such writes.
///
/// ```
/// # async fn example(leadership: ratchet::Leadership) {
/// let mut watch = leadership.watch();
/// while let Some(term) = watch.changed().await {
///     println!("leads in term {}", term.0);
///     if let Some(guard) = leadership.guard() {
///         println!("writes are guarded by {}", guard.lock);
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    role: Name,
    lock: Name,
    tenure: Mutex<Option<Tenure>>,
    changes: watch::Sender<Option<Fence>>,
    /// Publishes the metrics of the tenure that watchers were notified of. `None` if there is none.
    amount: Mutex<Option<LeaderAmount>>,
}

/// The last tenure of this process.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) owner: Name,
    pub(super) term: Fence,
    /// When this process stops trusting the tenure. In the past if the tenure has ended.
    pub(super) until: Instant,
    /// Whether watchers were notified of the start of the tenure but not yet of its end.
    announced: bool,
    /// Whether this process has resigned, so the lock of the tenure must be released.
    pub(super) resigned: bool,
    /// Whether the lock of the tenure was released.
    pub(super) released: bool,
}

impl Leadership {
    pub(super) fn new(role: Name, lock: Name) -> Self {
        Self(Arc::new(Inside {
            role,
            lock,
            tenure: Mutex::new(None),
            changes: watch::Sender::new(None),
            amount: Mutex::new(None),
        }))
    }

    /// Returns the role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.0.role
    }

    /// Returns the name of the role's lock.
    pub(super) fn lock(&self) -> &Name {
        &self.0.lock
    }

    /// Returns whether this process leads. The method is synchronous and does no I/O.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Returns the term of this process. `None` while it does not lead.
    #[must_use]
    pub fn term(&self) -> Option<Fence> {
        let now = time::monotonic();
        let tenure = self.tenure();
        tenure
            .as_ref()
            .filter(|tenure| now < tenure.until)
            .map(|tenure| tenure.term)
    }

    /// Returns how much longer this process trusts that it leads. `None` while it does not lead.
    pub(crate) fn leads_for(&self) -> Option<Duration> {
        let left = self.current()?.until;
        Some(left.saturating_duration_since(time::monotonic()))
    }

    /// Returns the node that acquired the lock of the last tenure, unless the lock was released.
    pub(crate) fn lock_holder(&self) -> Option<NodeId> {
        self.unreleased()?.owner.as_str().parse().ok()
    }

    /// Returns the guard for writes that only the leader may make. `None` if this process never
    /// led.
    ///
    /// After a term has ended, this method still returns its guard. The store rejects a write with
    /// an old guard, but would accept a write without a guard.
    #[must_use]
    pub fn guard(&self) -> Option<Guard> {
        self.tenure().as_ref().map(|tenure| Guard {
            lock: self.0.lock.clone(),
            owner: tenure.owner.clone(),
            fence: tenure.term,
        })
    }

    /// Subscribes to the changes of this leadership from now on.
    #[must_use]
    pub fn watch(&self) -> LeadershipWatch {
        LeadershipWatch {
            leadership: self.clone(),
            changes: self.0.changes.subscribe(),
        }
    }

    /// Returns the last tenure, if this process still trusts it.
    pub(super) fn current(&self) -> Option<Tenure> {
        let now = time::monotonic();
        self.tenure().clone().filter(|tenure| now < tenure.until)
    }

    /// Starts or extends a tenure, which this process trusts until `until`.
    pub(super) fn lead(&self, owner: &Name, term: Fence, until: Instant) {
        let mut slot = self.tenure();
        *slot = Some(Tenure {
            owner: owner.clone(),
            term,
            until,
            announced: true,
            resigned: false,
            released: false,
        });
        drop(slot);
        if time::monotonic() < until {
            self.announce(Some(term), StepDown::Superseded);
        }
    }

    /// Returns the last tenure, whether or not it has ended, unless its lock was released.
    pub(super) fn unreleased(&self) -> Option<Tenure> {
        self.tenure().clone().filter(|tenure| !tenure.released)
    }

    /// Marks the lock of the tenure as released.
    pub(super) fn released(&self) {
        if let Some(tenure) = &mut *self.tenure() {
            tenure.released = true;
        }
    }

    /// Ends the leadership. Keeps the tenure, because [`guard`](Self::guard) still returns its
    /// guard.
    pub(crate) fn step_down(&self, mut why: StepDown) {
        if let Some(tenure) = &mut *self.tenure() {
            let now = time::monotonic();
            tenure.resigned |= matches!(why, StepDown::Resigned);
            if tenure.until <= now {
                why = StepDown::Fenced;
            }
            tenure.until = tenure.until.min(now);
            tenure.announced = false;
        }
        self.announce(None, why);
    }

    /// Notifies the watchers as soon as a tenure is no longer trusted. Never returns, and does no
    /// I/O.
    pub async fn watchdog(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            let until = self
                .tenure()
                .as_ref()
                .filter(|tenure| tenure.announced)
                .map(|t| t.until);
            match until {
                None => {
                    // There is no tenure that could end before the next change.
                    let _ = changes.changed().await;
                }
                Some(until) if time::monotonic() >= until => {
                    tracing::warn!(role = %self.0.role, "the node gave up its leadership, because \
                        it could not renew the lock within fence_timeout");
                    self.step_down(StepDown::Fenced);
                }
                Some(until) => tokio::time::sleep_until(until).await,
            }
        }
    }

    /// Notifies the watchers of a change. `why` is the reason why the previous tenure ended.
    fn announce(&self, term: Option<Fence>, why: StepDown) {
        self.0.changes.send_if_modified(|told| {
            let changed = *told != term;
            *told = term;
            if changed {
                self.measure(term, why);
            }
            changed
        });
    }

    fn measure(&self, term: Option<Fence>, why: StepDown) {
        let mut amount = self
            .0
            .amount
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if let Some(ended) = amount.take() {
            ended.steps_down(why);
        }
        *amount = term.map(|term| LeaderAmount::new(&self.0.role, term));
    }

    fn tenure(&self) -> MutexGuard<'_, Option<Tenure>> {
        self.0
            .tenure
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Watches the changes of a [`Leadership`].
///
/// ```
/// # async fn example(leadership: ratchet::Leadership) {
/// let mut watch = leadership.watch();
/// while let Some(term) = watch.changed().await {
///     println!("leads in term {}", term.0);
///     if let Some(guard) = leadership.guard() {
///         println!("writes are guarded by {}", guard.lock);
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeadershipWatch {
    leadership: Leadership,
    changes: watch::Receiver<Option<Fence>>,
}

impl LeadershipWatch {
    /// Waits for the next change, and returns the term. `None` while this process does not lead.
    /// Changes in quick succession may be reported as one.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub async fn changed(&mut self) -> Option<Fence> {
        if self.changes.changed().await.is_err() {
            // Unreachable in practice: this watch's own `leadership` keeps the sender alive.
            std::future::pending::<()>().await;
        }
        self.changes.borrow_and_update();
        self.leadership.term()
    }

    /// Waits until this process leads, and returns the term. Returns at once if it leads already.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub async fn elected(&mut self) -> Fence {
        loop {
            self.changes.borrow_and_update();
            if let Some(term) = self.leadership.term() {
                return term;
            }
            self.changed().await;
        }
    }

    /// Waits until this process no longer leads in this term. Returns at once if it does not.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub async fn lost(&mut self, term: Fence) {
        loop {
            self.changes.borrow_and_update();
            if self.leadership.term() != Some(term) {
                return;
            }
            self.changed().await;
        }
    }
}
