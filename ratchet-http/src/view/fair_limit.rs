use ratchet_core::model;
use schemars::JsonSchema;
use serde::Serialize;

/// The limits of fair keys.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FairLimits {
    /// The limits, sorted by queue or pattern, and then by key.
    pub limits: Vec<FairLimit>,
}

/// How many jobs of a fair key may run at once in a queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FairLimit {
    /// The name of the queue, or a pattern: a prefix and `*`.
    pub queue: String,
    /// The fair key. Null if the limit applies to each key.
    pub key: Option<String>,
    /// Maximum number of running jobs of the key. With 0, no job of the key starts.
    pub max: u32,
}

impl From<&model::FairLimit> for FairLimit {
    fn from(limit: &model::FairLimit) -> Self {
        Self {
            queue: limit.scope.queue().to_string(),
            key: limit.scope.fair_key().map(ToString::to_string),
            max: limit.max,
        }
    }
}
