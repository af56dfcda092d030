//! The kit for testing jobs (`ratchet_core::testing`), on this store.

use std::sync::Arc;

use ratchet_core::testing::{assert_enqueued, drain, refute_enqueued, run_job};
use ratchet_core::{Job, JobContext, JobResult, JobState, Ratchet};
use serde::{Deserialize, Serialize};

use crate::open;
use crate::server::Database;

/// A job that counts down: each job enqueues a job for the next lower number.
#[derive(Deserialize, Serialize)]
struct Count {
    from: u32,
}

impl Job for Count {
    const KIND: &'static str = "count";
    const VERSION: u32 = 3;
    type Output = u32;

    async fn run(self, ctx: JobContext) -> JobResult<u32> {
        if self.from > 0 {
            let next = Self {
                from: self.from - 1,
            };
            ctx.enqueue(next.into_job().lane("countdown")).await?;
        }
        Ok(self.from)
    }
}

pub(crate) async fn stored_jobs_are_run_for_a_test(database: Arc<Database>) {
    let store = Arc::new(open(&database).await);
    let node = Ratchet::builder(store).register::<Count>().build().unwrap();
    let ids = [3, 2].map(|from| Count { from }.into_job());
    node.client().enqueue_all(&ids).await.unwrap();
    let ran = run_job(&node, ids[1].id()).await.unwrap();
    assert_eq!(
        (ran.job.state, ran.job.spec.payload_version),
        (JobState::Succeeded, 3)
    );
    assert_enqueued!(node, Count { from: 1 }, lane = "countdown", count = 1);
    let drained = drain(&node).await.unwrap();
    assert_eq!((drained.succeeded, drained.total()), (6, 6));
    refute_enqueued!(node, Count { .. });
    let error = {
        node.client()
            .enqueue_all(&ids.map(|job| job.another()))
            .await
            .unwrap();
        drain(&node).limit(2).await.unwrap_err()
    };
    assert!(
        error
            .to_string()
            .starts_with("a job is still due after the limit of 2"),
        "{error}"
    );
}
