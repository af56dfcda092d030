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
    /// - **[diag.read]** The call changes no stored data.
    /// - **[diag.sound]** For a database that the store itself has set up, the call returns no
    ///   finding with the severity [`Error`](crate::model::Severity::Error), even if the database
    ///   contains jobs.
    /// - **[diag.order]** The findings are in the order of [`Finding::sort`].
    /// - **[diag.poison]** The call returns one finding for each problem, for each check that
    ///   fails, and for each check for which the store lacks a permission. The other checks still
    ///   run ([`Findings`](crate::model::Findings)). The whole call fails only if the error of a
    ///   check is transient.
    ///
    /// # Errors
    /// A failure of the store: the database cannot be reached.
    async fn findings(&self) -> Result<Vec<Finding>>;
}
