//! Claims that commit but whose answer never reaches the node.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::model::{AttemptOutcome, Detail};
use ratchet_core::store::{IfKnown, JobStore, PermitStore};
use ratchet_core::{Job, JobContext, JobId, JobResult, JobState, Name, NewJob, Ratchet};
use ratchet_store_postgres::PostgresStore;
use serde::{Deserialize, Serialize};

use crate::network::proxy_to;
use crate::open;
use crate::server::Schema;

/// A job whose body does nothing. The proxy recognizes the answer of a claim by the job's payload.
#[derive(Deserialize, Serialize)]
struct Marked(String);

impl Job for Marked {
    const KIND: &'static str = "marked";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        Ok(())
    }
}

/// Runs a node through a proxy until both jobs have succeeded. The claim of the first job commits,
/// but its answer is lost. The jobs must succeed long before the start timeout of five minutes.
async fn run_both(schema: &Arc<Schema>, swallowed: &'static [&'static [u8]], jobs: [NewJob; 2]) {
    let deadline = Duration::from_secs(2);
    let (proxy, url) = proxy_to(&schema.url).await;
    let through = PostgresStore::builder(&url)
        .schema(&schema.name)
        .deadline(deadline);
    let node = Ratchet::builder(Arc::new(through.connect().await.unwrap()))
        .register::<Marked>()
        .store_deadline(deadline)
        .build()
        .unwrap();
    let store = open(schema).await;
    proxy.swallow(swallowed);
    store.enqueue(&jobs).await.unwrap();
    let ids: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
    let both_succeeded = async {
        loop {
            let stored = store.get(&ids, Detail::Whole).await.unwrap();
            let mut stored = stored.iter().flatten();
            if stored.all(|job| job.state == JobState::Succeeded) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Duration::from_secs(120);
    let ended = tokio::time::timeout(patience, node.run_until(both_succeeded));
    ended.await.expect("the jobs ran").unwrap();
    let outcomes: Vec<AttemptOutcome> = {
        let history = store.history(ids[0]).await.unwrap();
        history.iter().map(|entry| entry.outcome).collect()
    };
    assert_eq!(
        outcomes,
        [AttemptOutcome::Undelivered, AttemptOutcome::Succeeded]
    );
    let first = store
        .get(&ids[..1], Detail::Whole)
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    assert_eq!((first.attempts, first.crash_count), (1, 0));
}

pub(crate) async fn a_lane_whose_head_was_claimed_unheard_goes_on(schema: Arc<Schema>) {
    let job = |text: &str| Marked(text.to_owned()).into_job().lane("orders");
    let jobs = [job("swallow-this"), job("second")];
    run_both(&schema, &[b"swallow-this"], jobs).await;
}

pub(crate) async fn a_permit_that_was_claimed_unheard_is_free_again(schema: Arc<Schema>) {
    let resource = Name::new("permit", "printer").unwrap();
    let store = open(&schema).await;
    store
        .set_permits(&resource, 1, IfKnown::Change)
        .await
        .unwrap();
    let job = |text: &str| Marked(text.to_owned()).into_job().permit("printer");
    let jobs = [job("swallow-this"), job("second")];
    // A claim of jobs that need permits runs in a transaction, so here the answer to its commit is
    // lost too.
    run_both(&schema, &[b"swallow-this", b"COMMIT\0"], jobs).await;
}
