//! The figures that a node shows to its program.

use crate::name::Name;

/// What a node has done since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Calls that asked for jobs.
    pub claim_calls: u64,
    /// Jobs they returned.
    pub claimed: u64,
    /// Claims that were ended by this node.
    pub settled: u64,
    /// Jobs that reached their end with one of these claims: succeeded, failed or cancelled.
    pub finished: u64,
    /// Claims whose end came too late: the job had been taken away.
    pub stale: u64,
    /// Jobs of recurring definitions that this node made, for slots of theirs.
    pub fired: u64,
    /// Calls of the store, of every kind, those of the node's client included.
    pub store_calls: u64,
    /// By how many milliseconds the node's clock was ahead of the database's at the last heartbeat;
    /// negative: behind. Nothing depends on it but labels and logs.
    pub clock_skew_millis: i64,
    /// Finished jobs that this node deleted because they were old.
    pub deleted: u64,
    /// Finished jobs that it archived.
    pub archived: u64,
    /// Archived jobs that it deleted.
    pub deleted_from_archive: u64,
}

/// What one [pool](crate::Pool) of a node is and has done since the node was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Its name.
    pub name: Name,
    /// How many bodies it runs at once, at most.
    pub concurrency: usize,
    /// Calls that asked for jobs.
    pub claim_calls: u64,
    /// Jobs they returned.
    pub claimed: u64,
    /// Claims that were ended by this node.
    pub settled: u64,
    /// Jobs that reached their end with one of these claims.
    pub finished: u64,
    /// Claims whose end came too late.
    pub stale: u64,
}
