//! Limits of fair keys: freed entries that outlive their jobs, claims that a new limit meets,
//! locked jobs, and what claims read.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{ClaimedJob, FairScope, JobSelector, Outcome, Settlement};
use ratchet_core::store::{ArchiveStore, Changed, Checked, FairStore, JobStore};
use ratchet_core::{JobAction, JobId, NewJob};
use ratchet_store_mongo::MongoStore;

use crate::claims::{claim, hold, ids, named, touch, waiting};
use crate::links::done;
use crate::open;
use crate::passes::all;
use crate::plans::{number, own, profile, profile_of};
use crate::server::Space;

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

fn flood(key: &str, count: usize) -> Vec<NewJob> {
    (0..count).map(|_| of(key)).collect()
}

async fn limit(store: &Checked<MongoStore>, max: u32) {
    let scope = FairScope::queues("*").unwrap();
    let changed = store.set_fair_limit(&scope, Some(max)).await.unwrap();
    assert_eq!(changed, Changed::Changed);
}

async fn claimed(store: &Checked<MongoStore>) -> Vec<ClaimedJob> {
    store.claim_next_batch(&request_all()).await.unwrap()
}

async fn end(store: &Checked<MongoStore>, jobs: &[ClaimedJob]) {
    let done: Vec<Settlement> = jobs.iter().map(done).collect();
    store.settle(&done).await.unwrap();
}

pub(crate) async fn a_job_that_is_removed_leaves_its_freed_entry(space: Arc<Space>) {
    let store = open(&space).await;
    limit(&store, 1).await;
    let jobs = flood("k", 5);
    store.enqueue(&jobs).await.unwrap();
    for (place, removed) in ["purged", "archived", "deleted", "kept"]
        .into_iter()
        .enumerate()
    {
        let first = claimed(&store).await;
        assert_eq!(ids(&first), [jobs[place].id()], "{removed}");
        assert_eq!(ids(&claimed(&store).await), []);
        end(&store, &first).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        match removed {
            "purged" => drop(store.purge(&all(10)).await.unwrap()),
            "archived" => drop(ArchiveStore::archive(&store, &all(10)).await.unwrap()),
            "deleted" => {
                let this = JobSelector::Ids(vec![first[0].claim.token.job]);
                store.act(&this, JobAction::Delete).await.unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(ids(&claimed(&store).await), [jobs[4].id()]);
}

pub(crate) async fn without_limits_nothing_is_kept_of_removed_jobs(space: Arc<Space>) {
    let store = open(&space).await;
    let id = enqueue(&store, of("k")).await;
    let this = JobSelector::Ids(vec![id]);
    for action in [JobAction::Cancel, JobAction::Delete] {
        store.act(&this, action).await.unwrap();
    }
    let freed = space.of_majority("freed");
    assert_eq!(freed.count_documents(Document::new()).await.unwrap(), 0);
}

/// A claim has found a job, and waits for another transaction while it takes the job.
pub(crate) async fn a_claim_gives_back_what_a_new_limit_may_meet(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    let first = enqueue(&plain, of("a")).await;
    let unkeyed = enqueue(&plain, job()).await;
    let mut other = hold(&space, first, touch()).await;
    let claiming = claim(&store, request_all());
    waiting(&space, &name).await;
    limit(&plain, 0).await;
    other.abort_transaction().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap().unwrap()), [unkeyed]);
    limit(&plain, 1).await;
    assert_eq!(ids(&claimed(&plain).await), [first]);
}

/// A claim has found three jobs, and waits for another transaction while it takes the first one.
pub(crate) async fn a_job_that_was_cancelled_meanwhile_uses_no_place(space: Arc<Space>) {
    let (plain, (store, name)) = (open(&space).await, named(&space).await);
    limit(&plain, 1).await;
    let unkeyed = enqueue(&plain, job()).await;
    let waiting_jobs = flood("a", 2);
    plain.enqueue(&waiting_jobs).await.unwrap();
    let mut other = hold(&space, unkeyed, touch()).await;
    let claiming = claim(&store, request_all());
    waiting(&space, &name).await;
    let first = JobSelector::Ids(vec![waiting_jobs[0].id()]);
    plain.act(&first, JobAction::Cancel).await.unwrap();
    other.abort_transaction().await.unwrap();
    let claimed = ids(&claiming.await.unwrap().unwrap());
    assert_eq!(claimed, [unkeyed, waiting_jobs[1].id()]);
}

/// Two transactions that write to the same limit conflict.
pub(crate) async fn a_new_limit_meets_those_that_it_replaces(space: Arc<Space>) {
    let store = open(&space).await;
    let scopes = ["*", "m*", "mail", "other", "mailing*"].map(FairScope::queues);
    for scope in scopes {
        store
            .set_fair_limit(&scope.unwrap(), Some(9))
            .await
            .unwrap();
    }
    let limits = space.of_majority("fair_limits");
    let clear = doc! { "$unset": { "uses": "" } };
    limits.update_many(doc! {}, clear).await.unwrap();
    let scope = FairScope::key("mail", "k").unwrap();
    store.set_fair_limit(&scope, Some(1)).await.unwrap();
    let met = doc! { "uses": { "$exists": true } };
    let mut met = limits.find(met).await.unwrap();
    let mut queues = Vec::new();
    while met.advance().await.unwrap() {
        let id = met.current().get_document("_id").unwrap();
        queues.push(id.get_str("queue").unwrap().to_owned());
    }
    queues.sort();
    assert_eq!(queues, ["*", "m*", "mail"]);
}

/// Another program has locked jobs that wait for places.
pub(crate) async fn locked_parked_jobs_keep_no_other_key_waiting(space: Arc<Space>) {
    let store = open(&space).await;
    limit(&store, 1).await;
    let keys = ["a", "b", "c", "d", "e"];
    let jobs: Vec<NewJob> = keys.iter().flat_map(|key| flood(key, 2)).collect();
    store.enqueue(&jobs).await.unwrap();
    let first = claimed(&store).await;
    assert_eq!(first.len(), keys.len());
    assert_eq!(ids(&claimed(&store).await), []);
    end(&store, &first).await;
    let waits = |place: usize| jobs[2 * place + 1].id();
    let mut other = hold(&space, waits(1), touch()).await;
    let expected: Vec<JobId> = [0, 2, 3, 4].map(waits).into();
    assert_eq!(ids(&claimed(&store).await), expected);
    other.commit_transaction().await.unwrap();
    assert_eq!(ids(&claimed(&store).await), [waits(1)]);
}

pub(crate) async fn a_claim_with_limits_reads_few_of_many_jobs(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    limit(&store, 20).await;
    for _ in 0..3 {
        let jobs: Vec<NewJob> = (0..1_000).map(|n| of(&format!("k{}", n % 10))).collect();
        store.enqueue(&jobs).await.unwrap();
    }
    let request = request_all().limit(1_000);
    let first = store.claim_next_batch(&request).await.unwrap();
    assert_eq!(first.len(), 200);
    for _ in 0..3 {
        // Parks the others.
        assert_eq!(ids(&store.claim_next_batch(&request).await.unwrap()), []);
    }
    let rows = profile(&own, async {
        assert_eq!(ids(&claimed(&store).await), []);
    })
    .await;
    for row in &rows {
        assert!(number(row, "keysExamined") <= 20, "{row:#?}");
        assert!(number(row, "docsExamined") <= 5, "{row:#?}");
    }
    end(&store, &first[..5]).await;
    let next = async || assert_eq!(claimed(&store).await.len(), 5);
    let rows = profile(&own, next()).await;
    for row in &rows {
        // The running jobs of the keys are counted in the index.
        assert!(number(row, "keysExamined") <= 220, "{row:#?}");
        assert!(number(row, "docsExamined") <= 20, "{row:#?}");
        assert!(!row.get_bool("hasSortStage").unwrap_or(false), "{row:#?}");
    }
    let released = first[5..10].iter();
    let released = released.map(|job| Settlement::new(job.claim.token, Outcome::Released));
    store.settle(&released.collect::<Vec<_>>()).await.unwrap();
    let rows = profile_of(&own, "meta", next()).await;
    own.database.drop().await.unwrap();
    for row in &rows {
        assert!(number(row, "keysExamined") <= 300, "{row:#?}");
        assert!(number(row, "docsExamined") <= 60, "{row:#?}");
    }
}
