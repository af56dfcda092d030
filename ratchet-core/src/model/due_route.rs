use std::collections::HashSet;
use std::time::Duration;

use crate::route::Route;
use crate::time::millis_between;

/// A route with a pending job that is due or will be due soon. A route is a queue, a kind, a
/// capability and a permit.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for due in client.due_routes().await? {
///     println!("{}/{}: {:?} overdue", due.route.queue, due.route.kind, due.overdue);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueRoute {
    /// The route of the pending jobs.
    pub route: Route,
    /// Whether the queue of the route is paused, so that no node can claim its jobs.
    pub queue_paused: bool,
    /// Whether the kind of the route is paused, so that no node can claim its jobs.
    pub kind_paused: bool,
    /// How long the first pending job of the route has been due, by the database's clock. Zero if
    /// no job is due.
    pub overdue: Duration,
    /// The time until the first pending job of the route is due. Zero if a job is already due.
    pub due_in: Duration,
}

impl DueRoute {
    /// Creates the entry of a route whose first pending job is due at `run_at`, and whose kind is
    /// not paused. `now` is the current time. Both times are in milliseconds since 1970.
    #[must_use]
    pub fn at(route: Route, queue_paused: bool, run_at: i64, now: i64) -> Self {
        Self {
            route,
            queue_paused,
            kind_paused: false,
            overdue: millis_between(run_at, now),
            due_in: millis_between(now, run_at),
        }
    }

    /// Sets whether the kind of the route is paused.
    #[must_use]
    pub const fn kind_paused(mut self, kind_paused: bool) -> Self {
        self.kind_paused = kind_paused;
        self
    }

    /// Returns whether no node can claim the jobs of the route, because its queue or its kind is
    /// paused.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.queue_paused || self.kind_paused
    }

    /// Sorts routes into the order in which stores list them. Routes with due jobs come first, the
    /// longest overdue before all others. Then come the other routes, by the time until their first
    /// job is due. Routes with equal times are sorted by route. Of several entries of one route,
    /// only the first in this order remains.
    pub fn sort(routes: &mut Vec<Self>) {
        routes.sort_by(|a, b| {
            let longest_first = b.overdue.cmp(&a.overdue);
            let first_due = a.due_in.cmp(&b.due_in);
            let order = longest_first.then(first_due);
            order.then_with(|| a.route.cmp(&b.route))
        });
        let mut seen = HashSet::new();
        routes.retain(|due| seen.insert(due.route.clone()));
    }
}
