use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::Finding;

/// Checks the health of a database, for operators.
#[async_trait]
pub trait DiagnosticStore: Debug + Send + Sync {
    /// Checks the database: whether the schema is complete, and what slows the store down.
    ///
    /// # Contract
    /// - **[diag.read]** The call changes nothing that is stored.
    /// - **[diag.sound]** A database that the store has set up, with jobs in it, has no finding
    ///   with the severity [`Error`](crate::model::Severity::Error).
    /// - **[diag.order]** The findings are in the order of [`Finding::sort`].
    /// - **[diag.poison]** Each problem is one finding, and a check that fails, or for which the
    ///   store lacks a permission, is a finding itself. It does not prevent other checks
    ///   ([`Findings`](crate::model::Findings)). It does not fail the call either, unless its error
    ///   is transient.
    ///
    /// # Errors
    /// A failure of the store: the database cannot be reached.
    async fn findings(&self) -> Result<Vec<Finding>>;
}
