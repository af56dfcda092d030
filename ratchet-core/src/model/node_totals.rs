use serde::{Deserialize, Serialize};

/// The totals of a node's work since the node was built. The numbers never decrease, even if the
/// node continues under a new id after it was declared dead.
///
/// [`Meter`](crate::throughput::Meter) computes rates from the differences between two readings of
/// a node.
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
    /// The number of job bodies that began.
    pub begun: u64,
    /// The total time that the jobs of these bodies waited, from their due time to their claim. In
    /// milliseconds, by the database's clock.
    pub waited_ms: u64,
    /// The number of claims that the node settled as succeeded.
    pub succeeded: u64,
    /// The number of claims that the node settled as failed, without a further attempt.
    pub failed: u64,
    /// The number of claims that the node settled as failed, with a further attempt.
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
