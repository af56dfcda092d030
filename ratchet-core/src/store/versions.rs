use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{Guard, Guarded};
use crate::name::Name;

/// Versions: shared numbers that show nodes when to read shared data again.
///
/// A program that changes shared data which others keep in memory, such as configuration, bumps the
/// namespace after the change. Other programs compare the version with the last one that they read.
#[async_trait]
pub trait VersionStore: Debug + Send + Sync {
    /// Increases the version of a namespace and returns it.
    ///
    /// # Contract
    /// - **[version.bump]** Each bump that is `Done` returns a version that no other bump returns,
    ///   and a later bump returns a larger one. The version is
    ///   [`next_in_time`](crate::next_in_time) of the previous version (0 if there is none) and the
    ///   database's clock. So a version that a failover or a restore has lost does not come again.
    ///
    /// # Errors
    /// A failure of the store; it is then unknown whether the version was increased.
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>>;

    /// Reads the versions of namespaces.
    ///
    /// # Contract
    /// - **[version.read]** The call returns one version per given namespace, in order; 0 for a
    ///   namespace that was never bumped. A read made after a bump has returned sees the bump.
    ///
    /// # Errors
    /// `Invalid` if there are too many namespaces, or a failure of the store.
    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>>;
}
