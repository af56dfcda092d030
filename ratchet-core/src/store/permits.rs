use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::PermitInfo;
use crate::name::Name;
use crate::store::Changed;

/// The action of [`PermitStore::set_permits`] if the resource is already known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfKnown {
    /// Sets the new number of permits.
    Change,
    /// Keeps the existing number of permits.
    Keep,
}

/// Permits, which limit how many jobs that need a resource run at once.
///
/// A job holds its permit exactly while it runs; see [`permit`](crate::permit). Resources are never
/// deleted.
#[async_trait]
pub trait PermitStore: Debug + Send + Sync {
    /// Sets the number of permits of a resource. An unknown resource becomes known.
    ///
    /// # Contract
    /// - **[permit.declare]** With [`IfKnown::Keep`], an unknown resource gets the number
    ///   (`Changed`), and a known resource keeps its existing number (`Unchanged`).
    /// - **[permit.change]** A claim made after the call has returned uses the new number. After
    ///   the number was lowered, running jobs continue, and no other job gets a permit until fewer
    ///   jobs run than the number allows. With the number 0, no job gets a permit. If the resource
    ///   already has the number, the answer is `Unchanged`.
    /// - **[permit.free]** Only a running job holds a permit, and the write that ends the job's
    ///   claim frees the permit, exactly once. This holds for each settlement and each reclaim.
    ///
    /// # Errors
    /// A failure of the store.
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed>;

    /// Lists the resources, ordered by name.
    ///
    /// # Contract
    /// - **[permit.list]** The list has every resource that was ever set, once, ordered by name.
    ///   Each entry has the number of running jobs that hold a permit of the resource.
    ///
    /// # Errors
    /// A failure of the store.
    async fn permits(&self) -> Result<Vec<PermitInfo>>;
}
