use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::Changed;

/// What [`PermitStore::set_permits`] does if the resource is already known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfKnown {
    /// Sets the new number.
    Change,
    /// Keeps the existing number.
    Keep,
}

/// Permits: how many jobs that need a resource may run at once.
///
/// A job holds its permit exactly while it runs; see [`permit`](crate::permit). Resources are never
/// deleted.
#[async_trait]
pub trait PermitStore: Debug + Send + Sync {
    /// Sets how many permits a resource has. An unknown resource becomes known.
    ///
    /// # Contract
    /// - **[permit.declare]** With [`IfKnown::Keep`], an unknown resource gets the number
    ///   (`Changed`), and a known resource keeps its own number (`Unchanged`), whatever it is.
    /// - **[permit.change]** A claim made after the call has returned uses the new number. After
    ///   the number was lowered, running jobs continue, and no job is admitted until fewer run than
    ///   the number allows; 0 admits none. Setting the number that a resource already has is
    ///   `Unchanged`.
    /// - **[permit.free]** Only a running job holds a permit: each settlement and each reclaim that
    ///   ends its claim frees the permit in the same write, and only once.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed>;

    /// Lists the resources, ordered by name.
    ///
    /// # Contract
    /// - **[permit.list]** The list has every resource that was ever set, once, ordered by name,
    ///   each with the number of running jobs that hold a permit of it.
    ///
    /// # Errors
    /// A failure of the store.
    async fn permits(&self) -> Result<Vec<PermitInfo>>;
}
