use ratchet_core::model::{FairKeyInfo, FairKeyUsage};
use schemars::JsonSchema;
use serde::Serialize;

/// The fair keys with the most jobs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FairKeys {
    /// The keys, those with the most jobs first.
    pub keys: Vec<FairKey>,
    /// Whether all jobs were read. If not, only the 10,000 newest jobs and at most 10,000 running
    /// jobs are counted.
    pub complete: bool,
}

/// How many jobs a fair key has in a queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FairKey {
    /// The name of the queue.
    pub queue: String,
    /// The fair key.
    pub key: String,
    /// Number of running jobs.
    pub running: u64,
    /// Number of pending jobs, whether they are due or not.
    pub waiting: u64,
}

impl From<&FairKeyUsage> for FairKeys {
    fn from(usage: &FairKeyUsage) -> Self {
        Self {
            keys: usage.keys.iter().map(FairKey::from).collect(),
            complete: usage.complete,
        }
    }
}

impl From<&FairKeyInfo> for FairKey {
    fn from(info: &FairKeyInfo) -> Self {
        Self {
            queue: info.queue.to_string(),
            key: info.key.to_string(),
            running: info.running,
            waiting: info.waiting,
        }
    }
}
