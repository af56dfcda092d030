use ratchet_core::Name;
use ratchet_core::model::PermitInfo;
use ratchet_core::store::LockInfo;
use schemars::JsonSchema;
use serde::Serialize;

use super::millis;

/// The locks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Locks {
    /// By name.
    pub locks: Vec<Lock>,
}

/// A lock.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// The owner; null if it is free.
    pub owner: Option<String>,
    /// The token of the present or last tenure.
    pub fence: u64,
    /// How long it is held unless it is renewed; null if it is free.
    pub expires_in_ms: Option<u64>,
    /// How long ago it expired without having been released; null otherwise.
    pub expired_for_ms: Option<u64>,
}

impl Lock {
    /// A lock and how it stands.
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
    /// By name.
    pub permits: Vec<Permit>,
}

/// A resource of which a bounded number of jobs may hold a permit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Permit {
    /// The resource.
    pub resource: String,
    /// How many jobs may hold one at once.
    pub max: u32,
    /// How many running jobs hold one; more than `max` after that was lowered.
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
