use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::route::{Route, Selection};

/// The jobs that a pool of a node claims, and the number of its slots. A client uses profiles to
/// choose the node to wake for a new job.
///
/// The store keeps the profiles as JSON, and nodes of different versions read each other's
/// profiles. So fields may be added, but never renamed. If a node's list of profiles cannot be
/// read, its pools count as unknown.
///
/// ```
/// use ratchet::{Name, PoolProfile, Selection};
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let mut pool = PoolProfile::new(10, 4);
/// pool.queues = Selection::Only(vec![Name::new("queue", "mail")?]);
/// assert_eq!((pool.slots, pool.free), (10, 4));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolProfile {
    /// The queues from which the pool claims.
    pub queues: Selection,
    /// The kinds that the pool claims; [`Selection::All`] means all that the node runs.
    pub kinds: Selection,
    /// The capabilities that jobs in the pool may require.
    pub capabilities: Vec<Name>,
    /// Whether the pool claims jobs that require no capability.
    pub untagged: bool,
    /// The number of slots: how many bodies the pool may run at once.
    pub slots: u32,
    /// The number of slots that were free at the heartbeat.
    pub free: u32,
}

impl PoolProfile {
    /// Creates the profile of a pool that claims every job that requires no capability. Of its
    /// `slots`, `free` are free.
    #[must_use]
    pub const fn new(slots: u32, free: u32) -> Self {
        Self {
            queues: Selection::All,
            kinds: Selection::All,
            capabilities: Vec::new(),
            untagged: true,
            slots,
            free,
        }
    }

    /// Returns whether the pool claims jobs of this route, provided that the node runs their kind.
    #[must_use]
    pub fn takes(&self, route: &Route) -> bool {
        route.is_selected(&self.queues, &self.kinds, &self.capabilities, self.untagged)
    }
}
