use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{Guard, Guarded};
use crate::name::Name;

/// Stores versions: shared numbers that tell nodes when to read shared data again.
///
/// Programs may keep shared data, such as configuration, in memory. A program that has changed the
/// stored data then increases the version of the data's namespace. The other programs compare this
/// version with the last one that they read.
#[async_trait]
pub trait VersionStore: Debug + Send + Sync {
    /// Increases the version of a namespace and returns it.
    ///
    /// # Contract
    /// - **[version.bump]** Each call that is `Done` returns a version that no other call returns,
    ///   and a later call returns a larger version. The version is
    ///   [`next_in_time`](crate::next_in_time) of the previous version (0 if there is none) and the
    ///   database's clock. So if a failover or a restore loses a version, no later call returns
    ///   that version again.
    ///
    /// # Errors
    /// A failure of the store. It is then unknown whether the version was increased.
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>>;

    /// Reads the versions of namespaces.
    ///
    /// # Contract
    /// - **[version.read]** The call returns one version per given namespace, in order, and 0 for a
    ///   namespace that was never bumped. A read that begins after a bump has returned includes the
    ///   bump.
    ///
    /// # Errors
    /// `Invalid` if there are too many namespaces, or a failure of the store.
    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>>;
}
