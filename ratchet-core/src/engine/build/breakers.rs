//! Setters for circuit breakers.

use super::builder::NodeBuilder;
use crate::breaker::CircuitBreaker;
use crate::handler::Job;
use crate::name::Name;

impl NodeBuilder {
    /// Stops running jobs of this type while most of their attempts fail. Jobs that wait for this
    /// reason stay pending, occupy no slot and lose no attempt. See [`CircuitBreaker`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Charge;
    /// # impl Job for Charge {
    /// #     const KIND: &'static str = "charge";
    /// #     type Output = ();
    /// #     async fn run(self, _: JobContext) -> JobResult<()> { Ok(()) }
    /// # }
    /// use ratchet::CircuitBreaker;
    ///
    /// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .register::<Charge>()
    ///     .circuit_breaker::<Charge>(CircuitBreaker::new().failure_percent(80))
    ///     .build()?;
    /// # let _ = node;
    /// # Ok::<(), ratchet::BuildError>(())
    /// ```
    pub fn circuit_breaker<J: Job>(mut self, breaker: CircuitBreaker) -> Self {
        match Name::new("kind", J::KIND) {
            Err(problem) => self.problems.push(problem.into()),
            Ok(kind) => {
                if let Err(problem) = breaker.validate() {
                    let problem = format!("the circuit breaker of {kind} is invalid: {problem}");
                    self.problems.push(problem.into());
                }
                if self.breakers.insert(kind.clone(), breaker).is_some() {
                    let problem = format!("{kind} has two circuit breakers; declare one");
                    self.problems.push(problem.into());
                }
            }
        }
        self
    }

    /// Returns the problems of the circuit breakers with the registered kinds.
    pub(super) fn breaker_problems(&self) -> Vec<String> {
        let kinds = self.registry.kinds();
        let unknown = self.breakers.keys().filter(|kind| !kinds.contains(kind));
        let problem =
            |kind| format!("{kind} has a circuit breaker, but no job of this kind is registered");
        unknown.map(problem).collect()
    }
}
