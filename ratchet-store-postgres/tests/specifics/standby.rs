//! A standby server.

use std::sync::Arc;
use std::time::Duration;

use ratchet_conformance::kit::{assert_kind, enqueue, heartbeat, job, request_all};
use ratchet_core::StoreErrorKind;
use ratchet_core::model::{Detail, JobFilter, PageRequest};
use ratchet_core::store::{DiagnosticStore, JobStore, NodeStore, QueueStore};
use ratchet_store_postgres::PostgresStore;

use crate::open;
use crate::server::{self, Schema};

pub(crate) async fn a_standby_can_be_read_and_says_so(schema: Arc<Schema>) {
    let id = enqueue(&open(&schema).await, job()).await;
    let url = server::STANDBY.url().unwrap();
    let patience = Duration::from_secs(60);
    let followed = tokio::time::timeout(patience, async {
        loop {
            let standby = PostgresStore::builder(&url).schema(&schema.name);
            if let Ok(standby) = standby.connect().await
                && standby.get(&[id], Detail::Whole).await.unwrap()[0].is_some()
            {
                return standby;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let standby = followed.await.expect("the standby should apply the write");
    let filter = JobFilter::all().queue(job().spec().route.queue.clone());
    let listed = standby.list(&filter, &PageRequest::first(9)).await.unwrap();
    assert_eq!(listed.jobs.len(), 1);
    assert_eq!(standby.due_routes(Duration::ZERO).await.unwrap().len(), 1);
    assert_eq!(QueueStore::queues(&standby).await.unwrap().len(), 1);
    let findings = standby.findings().await.unwrap();
    let told = findings.iter().find(|finding| finding.code == "read_only");
    assert!(told.unwrap().summary.contains("standby"), "{findings:?}");
    for refused in [
        standby.enqueue(&[job()]).await.map(drop),
        standby.claim_next_batch(&request_all()).await.map(drop),
        standby.heartbeat(&heartbeat()).await.map(drop),
    ] {
        assert_kind(&refused.unwrap_err(), StoreErrorKind::ReadOnly);
    }
}
