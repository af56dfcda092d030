//! Tools for the tests of applications. They need the Cargo feature `testing`.
//!
//! | to test | use |
//! |---|---|
//! | what a body does and returns | [`perform`], without store and engine |
//! | what a body reports, and how it stops | [`TestContext`], which creates contexts for a body |
//! | what code enqueues | [`assert_enqueued!`], [`refute_enqueued!`] |
//! | how stored jobs end | [`drain`] and [`run_job`], which run jobs as a node does |
//! | what is logged | [`Logs`] |
//! | what happens later | [`memory_store`] and its clock, [`advance_to_next`], [`drain_until`] |
//!
//! The functions that move a clock need a store whose clock can be set. The memory store has such a
//! clock, and SQLite has one with `Builder::manual_clock`. Everything else works on every store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use ratchet::testing::{assert_enqueued, drain, memory_store, perform, refute_enqueued};
//! use ratchet::{Job, JobContext, JobResult, NodeBuilder, Ratchet, SharedStore};
//! # use serde::{Deserialize, Serialize};
//!
//! // The application.
//! #[derive(Serialize, Deserialize)]
//! struct SignUp {
//!     name: String,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Remind {
//!     name: String,
//! }
//!
//! impl Job for SignUp {
//!     const KIND: &'static str = "sign_up";
//!     type Output = String;
//!
//!     async fn run(self, ctx: JobContext) -> JobResult<String> {
//!         let remind = Remind { name: self.name.clone() };
//!         ctx.enqueue(remind.into_job().delay(Duration::from_secs(3 * 86_400))).await?;
//!         Ok(format!("welcome {}", self.name))
//!     }
//! }
//!
//! impl Job for Remind {
//!     const KIND: &'static str = "remind";
//!     type Output = ();
//!
//!     async fn run(self, _ctx: JobContext) -> JobResult<()> {
//!         Ok(())
//!     }
//! }
//!
//! fn node(store: SharedStore) -> NodeBuilder {
//!     Ratchet::builder(store).register::<SignUp>().register::<Remind>()
//! }
//!
//! // A test of one body.
//! let said = perform(SignUp { name: "Ada".into() }).await;
//! assert_eq!(said.unwrap(), "welcome Ada");
//!
//! // A test of the whole path.
//! let (store, clock) = memory_store();
//! let node = node(store).build()?;
//! node.enqueue(SignUp { name: "Ada".into() }.into_job()).await?;
//! assert_eq!(drain(&node).await?.succeeded, 1);
//! assert_enqueued!(node, Remind { name } if name == "Ada", delayed = true);
//!
//! clock.advance(Duration::from_secs(3 * 86_400));
//! assert_eq!(drain(&node).await?.succeeded, 1);
//! refute_enqueued!(node, Remind);
//! # Ok(()) }
//! ```

mod context;
mod drain;
mod enqueued;
mod logs;

use std::sync::Arc;

pub use context::{Perform, TestContext, perform};
pub use drain::{Drain, Drained, Ran, advance_to_next, drain, drain_until, run_job};
pub use enqueued::HasClient;
#[doc(hidden)]
pub use enqueued::Wanted;
pub use logs::{LogLine, Logs};

pub use crate::{assert_enqueued, refute_enqueued};

use crate::engine::RunError;
use crate::error::StoreError;
use crate::id::JobId;
use crate::memory::{ManualClock, MemoryStore};
use crate::model::JobRecord;
use crate::time;

/// Returns an empty memory store and its clock. The clock starts at the current time, and changes
/// only when the test changes it.
///
/// This clock decides which jobs are due. The timeouts of bodies follow tokio's clock instead,
/// which advances automatically in a `#[tokio::test(start_paused = true)]`.
#[must_use]
pub fn memory_store() -> (Arc<MemoryStore>, ManualClock) {
    let clock = ManualClock::new(time::wall_clock());
    (Arc::new(MemoryStore::with_clock(clock.clone())), clock)
}

/// The error of a function that runs jobs for a test.
///
/// ```
/// # async fn example(node: &ratchet::Node) {
/// use ratchet::testing::{TestingError, drain};
///
/// match drain(node).limit(10).await {
///     Err(TestingError::Limit { drained }) => println!("more is due after {drained:?}"),
///     other => println!("{other:?}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestingError {
    /// The node could not join, or is already running.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The drain has run as many jobs as its limit allows, and a job is still due.
    #[error("a job is still due after the limit of {} jobs was reached: {drained:?}", drained.total())]
    Limit {
        /// The outcomes of the jobs that the drain ran.
        drained: Drained,
    },
    /// No further job, slot or signal deadline comes, and the expected condition is not met.
    #[error("no job, slot or signal deadline is left to wait for after {} jobs were run: \
        {drained:?}", drained.total())]
    NothingComes {
        /// The outcomes of the jobs that the drains ran.
        drained: Drained,
    },
    /// There is no job with this id.
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The node cannot claim the job, for one of these reasons:
    ///
    /// - The job is not pending, is not due, or its queue or kind is paused.
    /// - The node does not claim the job's queue, kind or capability.
    /// - The job needs a permit, and running jobs and jobs before it in the claim order need all
    ///   permits of its resource.
    #[error(
        "the job {} cannot be claimed by this node: it is {}, due at {}, a {} in queue {}, with the \
         required capability {:?} and the permit {:?}",
        job.id, job.state, job.run_at, job.spec.route.kind, job.spec.route.queue,
        job.spec.route.capability, job.spec.route.permit
    )]
    NotRunnable {
        /// The stored job.
        job: Box<JobRecord>,
    },
}
