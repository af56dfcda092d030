use std::time::Duration;

use crate::route::Route;
use crate::time::millis_between;

/// A route with a pending job that is due or will be due soon.
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
    /// The route.
    pub route: Route,
    /// Whether the route's queue is paused, so that its jobs cannot be claimed.
    pub paused: bool,
    /// For how long the route's first pending job has been due, by the database's clock; zero if
    /// none is due.
    pub overdue: Duration,
    /// The time until the route's first pending job is due; zero if one is due.
    pub due_in: Duration,
}

impl DueRoute {
    /// Creates the entry of a route whose first pending job is due at `run_at`, as of `now`. Both
    /// times are milliseconds.
    #[must_use]
    pub fn at(route: Route, paused: bool, run_at: i64, now: i64) -> Self {
        Self {
            route,
            paused,
            overdue: millis_between(run_at, now),
            due_in: millis_between(now, run_at),
        }
    }

    /// Sorts routes into the order in which stores list them: the longest overdue first, then those
    /// that are due first, then by route.
    pub fn sort(routes: &mut [Self]) {
        routes.sort_by(|a, b| {
            let longest_first = b.overdue.cmp(&a.overdue);
            let first_due = a.due_in.cmp(&b.due_in);
            let order = longest_first.then(first_due);
            order.then_with(|| a.route.cmp(&b.route))
        });
    }
}
