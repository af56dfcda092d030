use ratchet_core::Name;
use ratchet_core::model::PermitInfo;
use ratchet_core::store::LockInfo;
use schemars::JsonSchema;
use serde::Serialize;

use super::millis;

/// All named locks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Locks {
    /// The locks, sorted by name.
    pub locks: Vec<Lock>,
}

/// A named lock and its owner.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Lock {
    /// The name of the lock.
    pub name: String,
    /// Owner of the lock. Null if the lock is free.
    pub owner: Option<String>,
    /// Fencing token of the owner. If the lock is free, the fencing token of its last owner.
    pub fence: u64,
    /// Time until the lock expires if the owner does not renew it, in milliseconds. Null if the
    /// lock is free.
    pub expires_in_ms: Option<u64>,
    /// Time since the lock expired, in milliseconds. Null if the lock is held, or if its last owner
    /// released it.
    pub expired_for_ms: Option<u64>,
}

impl Lock {
    /// Creates the view of a lock.
    #[must_use]
    pub fn new(name: &Name, info: &LockInfo) -> Self {
        let holder = info.holder.as_ref();
        Self {
            name: name.to_string(),
            owner: holder.map(|holder| holder.owner.to_string()),
            fence: info.fence.0,
            expires_in_ms: holder.map(|holder| millis(holder.remaining)),
            expired_for_ms: info.expired_for.map(millis),
        }
    }
}

/// All resources whose use is limited by permits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Permits {
    /// The resources, sorted by name.
    pub permits: Vec<Permit>,
}

/// A resource that only a limited number of running jobs may use at once.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Permit {
    /// The name of the resource.
    pub resource: String,
    /// Maximum number of jobs that may hold a permit of the resource at once.
    pub max: u32,
    /// Number of running jobs that hold a permit of the resource. This number can exceed `max`
    /// after `max` was lowered.
    pub held: u64,
}

impl From<&PermitInfo> for Permit {
    fn from(permit: &PermitInfo) -> Self {
        Self {
            resource: permit.resource.to_string(),
            max: permit.max,
            held: permit.held,
        }
    }
}
