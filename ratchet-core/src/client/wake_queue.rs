use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::id::NodeId;
use crate::model::ClaimRequest;
use crate::name::Name;
use crate::route::Route;

/// Wakes the loops of a node from within its process: its pollers, the loop that fires recurring
/// definitions, and the loop that looks for due jobs. Also wakes the loop that looks for jobs that
/// a transaction of the application has committed. If a loop is busy, the queue keeps the wakeup
/// until the loop is free, and merges several wakeups into one.
#[derive(Debug)]
pub(crate) struct WakeQueue {
    pollers: Vec<Poller>,
    /// The node id in the last heartbeat. `None` before the first heartbeat.
    node: Mutex<Option<NodeId>>,
    recurring: Notify,
    jobs_changed: Notify,
    commit_expected: Notify,
}

#[derive(Debug)]
struct Poller {
    /// Selects the jobs that the poller claims.
    takes: ClaimRequest,
    /// The number of free slots of the poller. 0 while the poller does not claim.
    room: AtomicUsize,
    notify: Notify,
}

impl WakeQueue {
    /// Creates a queue with one poller for each of these claim requests, in their order.
    pub(crate) fn new(pollers: impl IntoIterator<Item = ClaimRequest>) -> Self {
        let poller = |takes| Poller {
            takes,
            room: AtomicUsize::new(0),
            notify: Notify::new(),
        };
        Self {
            pollers: pollers.into_iter().map(poller).collect(),
            node: Mutex::default(),
            recurring: Notify::new(),
            jobs_changed: Notify::new(),
            commit_expected: Notify::new(),
        }
    }

    /// Sets the id under which the store now lists the node.
    pub(crate) fn set_node(&self, node: NodeId) {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
    }

    /// Returns the id under which the store lists the node. `None` before its first heartbeat.
    pub(crate) fn node(&self) -> Option<NodeId> {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the pollers that claim from `queue`. With `None`, wakes all pollers.
    pub(crate) fn wake(&self, queue: Option<&Name>) {
        for poller in &self.pollers {
            if queue.is_none_or(|queue| poller.takes.queues.contains(queue)) {
                poller.notify.notify_one();
            }
        }
        self.jobs_changed();
    }

    /// Tells the loop that looks for due jobs that this process has changed when jobs are due.
    pub(crate) fn jobs_changed(&self) {
        self.jobs_changed.notify_one();
    }

    /// Waits until this process has changed when jobs are due.
    pub(crate) async fn until_jobs_change(&self) {
        self.jobs_changed.notified().await;
    }

    /// Tells the loop that looks for committed jobs that this process has enqueued jobs in a
    /// transaction of the application.
    pub(crate) fn expect_commit(&self) {
        self.commit_expected.notify_one();
    }

    /// Waits until this process enqueues jobs in a transaction of the application.
    pub(crate) async fn until_commit_expected(&self) {
        self.commit_expected.notified().await;
    }

    /// Reserves slots of one poller for this many jobs of a route. Returns whether a poller had
    /// enough free slots. The reservation lasts until that poller next sets its number of free
    /// slots.
    pub(crate) fn reserve(&self, route: &Route, jobs: usize) -> bool {
        self.pollers.iter().any(|poller| {
            let fits = |room: usize| room.checked_sub(jobs);
            route.matches(&poller.takes)
                && poller
                    .room
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
                    .is_ok()
        })
    }

    /// Returns the seat of the poller with this index. Through it, the running poller reports its
    /// free slots and waits for wakeups.
    pub(crate) fn seat(&self, poller: usize) -> Seat<'_> {
        Seat(&self.pollers[poller])
    }

    /// Wakes the loop that fires recurring definitions, because their slots have changed.
    pub(crate) fn wake_recurring(&self) {
        self.recurring.notify_one();
    }

    /// Waits until the loop that fires recurring definitions is woken.
    pub(crate) async fn recurring_woken(&self) {
        self.recurring.notified().await;
    }
}

/// The place of a running poller in the [`WakeQueue`]. Dropping the seat sets the poller's number
/// of free slots to 0.
pub(crate) struct Seat<'a>(&'a Poller);

impl Seat<'_> {
    /// Sets the poller's number of free slots.
    pub(crate) fn set_room(&self, slots: usize) {
        self.0.room.store(slots, Ordering::SeqCst);
    }

    /// Waits until the poller is woken.
    pub(crate) async fn woken(&self) {
        self.0.notify.notified().await;
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.set_room(0);
    }
}
