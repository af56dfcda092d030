use serde::{Deserialize, Serialize};

/// What a node has done since it was built. The numbers never decrease, even if the node continues
/// under a new id after it was declared dead.
///
/// The difference between two readings of one node, divided by the time between them, is a rate;
/// [`Meter`](crate::throughput::Meter) computes it.
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
    /// The number of bodies that began.
    pub begun: u64,
    /// The total time between due time and claim of the jobs of these bodies, in milliseconds, by
    /// the database's clock.
    pub waited_ms: u64,
    /// The number of claims that ended in success.
    pub succeeded: u64,
    /// The number of claims that made a dead letter.
    pub failed: u64,
    /// The number of failed attempts that will be retried.
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
