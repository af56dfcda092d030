use serde::{Deserialize, Serialize};

/// What a node has done since it was built. The numbers never decrease, even if the node continues
/// under a new id after it was declared dead.
///
/// Rates are differences between two readings of one node, divided by the time between them:
/// [`Meter`](crate::throughput::Meter).
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for node in client.nodes().await? {
///     if let Some(totals) = node.load.totals {
///         println!("{}: {} succeeded, {} failed", node.label, totals.succeeded, totals.failed);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeTotals {
    /// Bodies that began.
    pub begun: u64,
    /// The sum of the times that the jobs of these bodies had been due when they were claimed, in
    /// milliseconds, by the database's clock.
    pub waited_ms: u64,
    /// Claims that ended in success.
    pub succeeded: u64,
    /// Claims that made a dead letter.
    pub failed: u64,
    /// Failed attempts that will be retried.
    pub retried: u64,
}

impl NodeTotals {
    /// Creates the totals from these numbers, in the order of the fields.
    #[must_use]
    pub const fn new(
        begun: u64,
        waited_ms: u64,
        succeeded: u64,
        failed: u64,
        retried: u64,
    ) -> Self {
        Self {
            begun,
            waited_ms,
            succeeded,
            failed,
            retried,
        }
    }
}
