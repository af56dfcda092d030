use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::{Guard, Guarded};
use crate::name::Name;

/// Version tokens: shared numbers by which nodes see that what they have read was changed.
///
/// A program that changes what others keep in memory, such as configuration, bumps its
/// namespace after the change; the others compare the number with the one they saw.
#[async_trait]
pub trait VersionStore: Debug + Send + Sync {
    /// Makes the version of a namespace larger and returns it.
    ///
    /// # Contract
    /// - **[version.bump]** Each bump that is `Done` returns a version that no other returns, and
    ///   later ones return larger ones: [`next_in_time`](crate::next_in_time) of the version before
    ///   it (0: none) and the database's clock. So no version comes again after a failover or a
    ///   restore that has lost it.
    ///
    /// # Errors
    /// A failure of the store; whether the version was made larger is then unknown.
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>>;

    /// Reads the versions of namespaces.
    ///
    /// # Contract
    /// - **[version.read]** One version per given namespace, in that order; 0 for one that was
    ///   never bumped. A bump that has returned is seen by every later read.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a failure of the store.
    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>>;
}
