use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{FairLimit, FairScope};
use crate::store::Changed;

/// Limits of the running jobs of each fair key; see [`fair`](crate::fair).
///
/// A store that has this part also has fair keys.
#[async_trait]
pub trait FairStore: Debug + Send + Sync {
    /// Sets how many jobs of each fair key of a scope may run at once, or removes this limit if
    /// `max` is `None`. The limit of a key replaces that of its queue, which replaces that of
    /// the longest pattern.
    ///
    /// # Contract
    /// - **[fair.limit.max]** A claim made after the call has returned takes no job of a key if as
    ///   many jobs of the key run in its queue as the limit allows, on whichever nodes, with
    ///   whichever kinds and priorities. Jobs that were claimed before the limit was set count.
    /// - **[fair.limit.others]** Jobs that wait for a place of their key delay no other job, and
    ///   the jobs of other keys and jobs without a key are claimed in the same order.
    /// - **[fair.limit.free]** Only a running job takes up a place. After the write that ends its
    ///   claim, by a settlement or a reclaim, the next claim takes the next waiting job of the key.
    ///   Which of the waiting jobs this is follows from priorities and due times, as in
    ///   `[claim.order]`.
    /// - **[fair.limit.wait]** A job that waits for a place is `Pending`. Each action works as on
    ///   other pending jobs, and another waiting job of the key gets the place if the one that was
    ///   to get it cannot use it.
    /// - **[fair.limit.change]** After a limit was raised or removed, jobs that waited can be
    ///   claimed at once, by several claims if there are thousands of them. No key waits until all
    ///   jobs of another are claimed. After it was lowered, running jobs continue. With 0, no
    ///   job of the key is claimed. If the scope already has this limit, the answer is `Unchanged`.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed>;

    /// Lists the limits.
    ///
    /// # Contract
    /// - **[fair.limit.list]** The list has each limit once, ordered by the text of the queue or
    ///   pattern and then by key. The limit of all keys comes before those of single keys.
    ///
    /// # Errors
    /// A failure of the store.
    async fn fair_limits(&self) -> Result<Vec<FairLimit>>;
}
