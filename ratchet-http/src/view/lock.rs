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

/// A named lock.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Lock {
    /// The name of the lock.
    pub name: String,
    /// The owner; null if the lock is free.
    pub owner: Option<String>,
    /// The fencing token of the present or last owner.
    pub fence: u64,
    /// The time until the lock expires unless it is renewed; null if the lock is free.
    pub expires_in_ms: Option<u64>,
    /// The time since the lock expired; null if it is held or was released.
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

/// The resources that have permits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Permits {
    /// The resources, sorted by name.
    pub permits: Vec<Permit>,
}

/// A resource that a limited number of running jobs may use at once.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Permit {
    /// The name of the resource.
    pub resource: String,
    /// The maximum number of permits that jobs hold at once.
    pub max: u32,
    /// The number of running jobs that hold a permit. It may exceed `max` after `max` was lowered.
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
