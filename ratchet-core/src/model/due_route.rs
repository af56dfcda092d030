use std::time::Duration;

use crate::route::Route;

/// A route of which a pending job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueRoute {
    /// Which.
    pub route: Route,
    /// Whether its queue is paused, so that its jobs cannot be claimed.
    pub paused: bool,
    /// For how long its longest-due pending job has been due, by the database's clock.
    pub overdue: Duration,
}

impl DueRoute {
    /// Creates a route whose oldest due job has been due for this long.
    #[must_use]
    pub const fn new(route: Route, paused: bool, overdue: Duration) -> Self {
        Self {
            route,
            paused,
            overdue,
        }
    }

    /// Brings routes into the order in which stores list them: the longest overdue first, and then
    /// by route.
    pub fn sort(routes: &mut [Self]) {
        routes.sort_by(|a, b| {
            let longest_first = b.overdue.cmp(&a.overdue);
            longest_first.then_with(|| a.route.cmp(&b.route))
        });
    }
}
