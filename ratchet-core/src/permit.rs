//! Permits limit how many jobs that need a resource run at once in the cluster.
//!
//! Stores do not record which jobs hold permits: a job holds its permit exactly while it runs. So
//! the permit is free as soon as the job stops running, whatever the reason. A permit can neither
//! leak nor be returned twice. A store keeps only the number of permits of each resource. Before a
//! claim it counts the running jobs, and [`Budget`] decides which jobs are admitted.

use std::collections::BTreeMap;

use crate::model::PermitInfo;
use crate::name::Name;
use crate::route::Route;

/// The free permits of each resource. A claim call assigns these permits to jobs in claim order.
///
/// A store computes the budget from the current numbers of running jobs. The store must make sure
/// that no other claim call increases these numbers until it has claimed the admitted jobs.
///
/// ```
/// use ratchet::{Name, PermitInfo, Route};
/// use ratchet_core::permit::Budget;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let (max, held) = (3, 2);
/// let mut budget = Budget::new([PermitInfo::new(Name::new("permit", "api")?, max, held)]);
/// let route = Route::from_texts("mail", "send", "", "api")?;
/// assert!(budget.take(&route));
/// assert!(!budget.take(&route));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Budget(BTreeMap<Name, u64>);

impl Budget {
    /// Creates a budget from the free permits of these resources. All other resources have no free
    /// permits.
    #[must_use]
    pub fn new(permits: impl IntoIterator<Item = PermitInfo>) -> Self {
        let rest = |permit: PermitInfo| {
            let rest = u64::from(permit.max).saturating_sub(permit.held);
            (permit.resource, rest)
        };
        Self(permits.into_iter().map(rest).collect())
    }

    /// Returns how many more jobs of this route the budget admits; `None` if such jobs need no
    /// permit.
    #[must_use]
    pub fn rest(&self, route: &Route) -> Option<u64> {
        let resource = route.permit.as_ref()?;
        Some(self.0.get(resource).copied().unwrap_or(0))
    }

    /// Returns whether the budget admits one more job of this route. If the job needs a permit and
    /// a permit is free, this call uses up that permit.
    pub fn take(&mut self, route: &Route) -> bool {
        let Some(resource) = &route.permit else {
            return true;
        };
        match self.0.get_mut(resource) {
            Some(rest) if *rest > 0 => {
                *rest -= 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(permit: &str) -> Route {
        Route::from_texts("queue", "kind", "", permit).unwrap()
    }

    fn info(resource: &str, max: u32, held: u64) -> PermitInfo {
        PermitInfo::new(Name::new("permit", resource).unwrap(), max, held)
    }

    #[test]
    fn permits_are_given_out_until_none_is_left() {
        let mut budget = Budget::new([info("api", 3, 1), info("gpu", 1, 0)]);
        assert_eq!(budget.rest(&route("api")), Some(2));
        let taken = ["api", "gpu", "api", "api", "gpu"].map(|permit| budget.take(&route(permit)));
        assert_eq!(taken, [true, true, true, false, false]);
        assert_eq!(budget.rest(&route("api")), Some(0));
    }

    #[test]
    fn jobs_without_a_permit_are_always_admitted_and_unknown_resources_have_nothing() {
        let mut budget = Budget::default();
        assert!(budget.take(&route("")));
        assert_eq!(budget.rest(&route("")), None);
        assert!(!budget.take(&route("api")));
        assert_eq!(budget.rest(&route("api")), Some(0));
    }

    #[test]
    fn more_holders_than_permits_leave_nothing() {
        let mut budget = Budget::new([info("api", 2, 5)]);
        assert!(!budget.take(&route("api")));
    }
}
