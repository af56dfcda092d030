use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::route::{Route, Selection};

/// Describes which jobs a pool of a node takes, and how many slots it has: enough to choose the
/// node that is woken for a new job.
///
/// Nodes of different versions read each other's profiles, as JSON in the nodes' rows. So fields
/// may be added and none renamed; of a list that cannot be read nothing is known.
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
    /// The queues that it takes from.
    pub queues: Selection,
    /// The kinds that it takes; [`Selection::All`] means all that the node runs.
    pub kinds: Selection,
    /// The capabilities that its jobs may require.
    pub capabilities: Vec<Name>,
    /// Whether it takes jobs that require no capability.
    pub untagged: bool,
    /// How many bodies it may run at once.
    pub slots: u32,
    /// For how many more it had slots at the heartbeat.
    pub free: u32,
}

impl PoolProfile {
    /// Creates a pool for every job that requires no capability, with these slots, `free` of them
    /// free.
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

    /// Returns whether it takes jobs of this route, if the node runs their kind.
    #[must_use]
    pub fn takes(&self, route: &Route) -> bool {
        route.is_selected(&self.queues, &self.kinds, &self.capabilities, self.untagged)
    }
}
