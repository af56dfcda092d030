use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::Changed;

/// What [`PermitStore::set_permits`] does with a resource that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfKnown {
    /// Gives it the new number.
    Change,
    /// Keeps the number that it has.
    Keep,
}

/// Permits: how many jobs that need one resource may run at once.
///
/// A permit is held exactly by a running job; see [`permit`](crate::permit). Resources are never
/// deleted.
#[async_trait]
pub trait PermitStore: Debug + Send + Sync {
    /// Sets how many permits a resource has, which makes it known if it is not.
    ///
    /// # Contract
    /// - **[permit.declare]** With [`IfKnown::Keep`], an unknown resource gets the number
    ///   (`Changed`), and a known one keeps its own (`Unchanged`), whatever it is.
    /// - **[permit.change]** From the return of the call on, claims go by the new number. After it
    ///   was lowered, running jobs go on, and none is admitted until fewer run; 0 admits none.
    ///   A number that is as it was is `Unchanged`.
    /// - **[permit.free]** A job that does not run holds nothing: each settlement and each reclaim
    ///   that ends its claim frees the permit in the same write, and only once.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed>;

    /// Lists the resources by name.
    ///
    /// # Contract
    /// - **[permit.list]** Every resource that was ever set, once, ordered by name, with the number
    ///   of running jobs that hold a permit of it.
    ///
    /// # Errors
    /// A failure of the store.
    async fn permits(&self) -> Result<Vec<PermitInfo>>;
}
