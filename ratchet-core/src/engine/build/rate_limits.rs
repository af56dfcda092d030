//! Setters for rate limits.

use super::builder::NodeBuilder;
use crate::handler::Job;
use crate::limiter::RateLimit;
use crate::name::Name;

impl NodeBuilder {
    /// Limits how fast bodies of this type begin. Jobs that have to wait occupy no slot and use no
    /// attempt.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet, RateLimit};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Mail;
    /// # impl Job for Mail {
    /// #     const KIND: &'static str = "mail";
    /// #     type Output = ();
    /// #     async fn run(self, _: JobContext) -> JobResult<()> { Ok(()) }
    /// # }
    /// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .register::<Mail>()
    ///     .rate_limit::<Mail>(RateLimit::per_second(10).burst(20).strict())
    ///     .build()?;
    /// # let _ = node;
    /// # Ok::<(), ratchet::BuildError>(())
    /// ```
    pub fn rate_limit<J: Job>(mut self, limit: RateLimit<J>) -> Self {
        let limit = limit.erased();
        match Name::new("kind", J::KIND) {
            Err(problem) => self.problems.push(problem.into()),
            Ok(kind) => {
                if let Err(problem) = limit.rate.validate() {
                    let problem = format!("the rate limit of {kind} is invalid: {problem}");
                    self.problems.push(problem.into());
                }
                if self.limits.insert(kind.clone(), limit).is_some() {
                    let problem = format!("{kind} has two rate limits; declare one");
                    self.problems.push(problem.into());
                }
            }
        }
        self
    }

    /// Returns the problems of the rate limits with the registered kinds and with the store.
    pub(super) fn limit_problems(&self) -> Vec<String> {
        let kinds = self.registry.kinds();
        let mut problems = Vec::new();
        for (kind, limit) in &self.limits {
            if !kinds.contains(kind) {
                problems.push(format!(
                    "{kind} has a rate limit, but no job of this kind is \
                     registered"
                ));
            }
            if limit.strategy.needs_store() && self.store.rates().is_none() {
                problems.push(format!(
                    "the rate limit of {kind} is counted in the store, but the store does not \
                     support rate limits"
                ));
            }
        }
        problems
    }
}
