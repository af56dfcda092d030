//! Setters for permits.

use super::builder::NodeBuilder;
use crate::error::SettingProblem;
use crate::name::Name;

impl NodeBuilder {
    /// Declares that at most `max` jobs with the [permit](crate::NewJob::permit) of this resource
    /// run at once in the cluster.
    ///
    /// Before its first enqueue and when it joins, the node creates the resource in the store
    /// unless it exists. An [`enqueue_in`](crate::Client::enqueue_in) does not create it. A program
    /// that enqueues in transactions before it runs the node must first call
    /// [`Node::declare_permits`](crate::Node::declare_permits).
    ///
    /// The first declaration wins. A number that an operator has set later
    /// ([`Client::set_permits`](crate::Client::set_permits)) stays, and so does the number of an
    /// earlier release. If the declared number differs from the stored one, the node logs the
    /// difference. In this builder, a second number for a resource replaces the first.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{Job, JobContext, JobResult, MemoryStore, NewJob, Ratchet};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Charge;
    /// impl Job for Charge {
    ///     const KIND: &'static str = "charge";
    ///     # type Output = ();
    ///     fn defaults(job: NewJob) -> NewJob {
    ///         job.permit("card-gateway")
    ///     }
    ///     # async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// }
    ///
    /// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .register::<Charge>()
    ///     .permits("card-gateway", 4)
    ///     .build()?;
    /// # let _ = node;
    /// # Ok::<(), ratchet::BuildError>(())
    /// ```
    pub fn permits(mut self, resource: &str, max: u32) -> Self {
        if let Some(resource) = self.keep(Name::new("permit", resource)) {
            self.permits.insert(resource, max);
        }
        self
    }

    /// Returns a problem if permits are declared but the store has no permits.
    pub(super) fn permit_problem(&self) -> Option<SettingProblem> {
        let missing = !self.permits.is_empty() && self.store.permits().is_none();
        missing.then(|| {
            SettingProblem::new(
                &["permit"],
                "permits are declared, but the store does \
                 not support permits",
            )
        })
    }
}
