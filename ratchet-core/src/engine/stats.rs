//! The totals that a node reports to its program.

use crate::name::Name;

/// The totals of a node since it was built.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use ratchet::{Job, JobContext, JobResult};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Mail;
/// # impl Job for Mail {
/// #     const KIND: &'static str = "mail";
/// #     type Output = ();
/// #     async fn run(self, _: JobContext) -> JobResult { Ok(()) }
/// # }
/// use ratchet::Ratchet;
///
/// let store = ratchet::connect("memory:").await?;
/// let node = Ratchet::builder(store).register::<Mail>().build()?;
/// assert_eq!(node.stats().claimed, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The number of claim calls that the node made to the store.
    pub claim_calls: u64,
    /// The number of jobs that the node's claim calls returned.
    pub claimed: u64,
    /// The number of claims that this node settled.
    pub settled: u64,
    /// The number of jobs that ended when this node settled them: succeeded, failed or cancelled.
    pub finished: u64,
    /// The number of settlements that came too late, because the node had already lost the claim.
    pub stale: u64,
    /// The number of jobs that this node created for slots of recurring definitions.
    pub fired: u64,
    /// The number of all store calls of the node, including those that its client made.
    pub store_calls: u64,
    /// How far the node's clock was ahead of the database's clock at the last heartbeat, in
    /// milliseconds. Negative if the node's clock was behind. The difference affects only labels
    /// and logs.
    pub clock_skew_millis: i64,
    /// The number of finished jobs that this node deleted because their retention time had passed.
    pub deleted: u64,
    /// The number of finished jobs that this node archived.
    pub archived: u64,
    /// The number of jobs that this node deleted from the archive.
    pub deleted_from_archive: u64,
}

/// The totals of one [pool](crate::Pool) of a node since the node was built.
///
/// ```
/// # fn example(node: &ratchet::Node) {
/// for pool in node.pools() {
///     println!("{}: {} claimed in {} calls", pool.name, pool.claimed, pool.claim_calls);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The name of the pool.
    pub name: Name,
    /// The maximum number of bodies that the pool runs at once.
    pub concurrency: usize,
    /// The number of claim calls that the pool made to the store.
    pub claim_calls: u64,
    /// The number of jobs that the pool's claim calls returned.
    pub claimed: u64,
    /// The number of claims that this pool settled.
    pub settled: u64,
    /// The number of jobs that ended when this pool settled them: succeeded, failed or cancelled.
    pub finished: u64,
    /// The number of settlements that came too late, because the node had already lost the claim.
    pub stale: u64,
}
