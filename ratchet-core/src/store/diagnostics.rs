use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::model::Finding;

/// What a store can say about the health of its database, for operators.
#[async_trait]
pub trait DiagnosticStore: Debug + Send + Sync {
    /// Looks at the database: whether the schema is whole, and what stands in its way.
    ///
    /// # Contract
    /// - **[diag.read]** Nothing that is stored changes.
    /// - **[diag.sound]** A database as the store makes it, with jobs in it, has no finding that is
    ///   an [`Error`](crate::model::Severity::Error).
    /// - **[diag.order]** In the order of [`Finding::sort`].
    /// - **[diag.poison]** One finding per problem. A look that fails, or for which the store has
    ///   no right, is a finding itself ([`Findings`](crate::model::Findings)): it keeps no other
    ///   away and is no error of the call.
    ///
    /// # Errors
    /// A failure of the store: the database is not within reach.
    async fn findings(&self) -> Result<Vec<Finding>>;
}
