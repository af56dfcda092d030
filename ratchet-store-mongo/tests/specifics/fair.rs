//! Turns of jobs with a fair key: calls that give them at the same time, and what they read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{ClaimRequest, Outcome, Settlement};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobId, NewJob, NodeId};
use ratchet_store_mongo::MongoStore;

use crate::open;
use crate::plans::{own, profile, profile_of};
use crate::server::Space;
use crate::transactions::{application, begin};

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

/// Returns fair key and turn of each job that has a turn.
async fn turns(space: &Space) -> Vec<(String, i64)> {
    let filter = doc! { "turn": { "$exists": true } };
    let mut cursor = space.of_majority("jobs").find(filter).await.unwrap();
    let mut turns = Vec::new();
    while cursor.advance().await.unwrap() {
        let job = Document::try_from(cursor.current()).unwrap();
        let key = job.get_str("fair_key").unwrap().to_owned();
        turns.push((key, job.get_i64("turn").unwrap()));
    }
    turns
}

async fn claimed(store: &Checked<MongoStore>) -> Vec<JobId> {
    let jobs = store.claim_next_batch(&request_all()).await.unwrap();
    jobs.iter().map(|job| job.claim.token.job).collect()
}

pub(crate) async fn calls_at_once_give_no_key_the_same_turn(space: Arc<Space>) {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&space).await);
    }
    // Enqueues give turns to their jobs, and claims to the jobs that were released.
    let enqueues = stores.iter().map(|store| async {
        for key in ["a", "b", "a", "a", "b"] {
            enqueue(store, of(key)).await;
            store.enqueue(&[of("a"), of("b")]).await.unwrap();
        }
    });
    let claims = stores.iter().map(|store| async {
        for _ in 0..8 {
            let request = ClaimRequest::new(NodeId::new(), 2);
            let jobs = store.claim_next_batch(&request).await.unwrap();
            let released = jobs
                .iter()
                .map(|job| Settlement::new(job.claim.token, Outcome::Released));
            let released: Vec<Settlement> = released.collect();
            store.settle(&released).await.unwrap();
        }
    });
    tokio::join!(join_all(enqueues), join_all(claims));
    // Gives the remaining jobs turns.
    let request = ClaimRequest::new(NodeId::new(), 1);
    let last = stores[0].claim_next_batch(&request).await.unwrap();
    assert_eq!(last.len(), 1);
    let turns = turns(&space).await;
    assert_eq!(turns.len(), 4 * 5 * 3 - 1);
    let distinct: HashSet<&(String, i64)> = turns.iter().collect();
    assert_eq!(distinct.len(), turns.len(), "{turns:?}");
}

pub(crate) async fn a_transaction_of_the_application_locks_no_level(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let first = enqueue(&store, of("a")).await;
    let mut session = begin(&space, &client).await;
    let inside = of("a");
    let these = std::slice::from_ref(&inside);
    store.enqueue_in(&mut session, these).await.unwrap();
    let beside = enqueue(&store, of("b")).await;
    assert_eq!(claimed(&store).await, [first, beside]);
    session.commit_transaction().await.unwrap();
    assert_eq!(turns(&space).await, [], "the job sleeps");
    assert_eq!(claimed(&store).await, [inside.id()]);
}

/// A transaction of another program holds some of the jobs that sleep.
pub(crate) async fn locked_sleepers_keep_no_other_job_waiting(space: Arc<Space>) {
    let (client, store) = application(&space).await;
    let jobs = client.database(space.database.name());
    let jobs = jobs.collection::<Document>(&space.name("jobs"));
    for range in [17..18, 20..26] {
        let mut inside = begin(&space, &client).await;
        let asleep: Vec<NewJob> = (0..40)
            .map(|number| of(&format!("k{}", number % 8)))
            .collect();
        store.enqueue_in(&mut inside, &asleep).await.unwrap();
        inside.commit_transaction().await.unwrap();
        let mut session = begin(&space, &client).await;
        let locked: Vec<JobId> = asleep[range].iter().map(NewJob::id).collect();
        for id in &locked {
            let id = Binary {
                subtype: BinarySubtype::Uuid,
                bytes: id.as_bytes().to_vec(),
            };
            let write = jobs.update_one(doc! { "_id": id }, doc! { "$set": { "theirs": 1 } });
            write.session(&mut session).await.unwrap();
        }
        let others = [
            enqueue(&store, job()).await,
            enqueue(&store, of("k0")).await,
        ];
        let free = asleep.iter().map(NewJob::id).chain(others);
        let free: HashSet<JobId> = free.filter(|id| !locked.contains(id)).collect();
        let first: HashSet<JobId> = claimed(&store).await.into_iter().collect();
        assert_eq!(first, free);
        session.commit_transaction().await.unwrap();
        let then: HashSet<JobId> = claimed(&store).await.into_iter().collect();
        assert_eq!(then, locked.into_iter().collect());
    }
}

fn number(row: &Document, field: &str) -> i64 {
    let number = row.get_i32(field).map(i64::from);
    number.or_else(|_| row.get_i64(field)).unwrap_or(0)
}

pub(crate) async fn calls_read_few_of_many_turns(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let key = |number: usize| format!("k{}", number % 100);
    let due: Vec<NewJob> = (0..3_000).map(|number| of(&key(number))).collect();
    let delay = Duration::from_secs(3_600);
    let later: Vec<NewJob> = (0..3_000)
        .map(|number| of(&key(number)).delay(delay))
        .collect();
    for jobs in [due, later].concat().chunks(1_000) {
        store.enqueue(jobs).await.unwrap();
    }
    let rows = profile(&own, async {
        assert_eq!(claimed(&store).await.len(), request_all().limit);
        store.enqueue(&[of("k7"), of("k200")]).await.unwrap();
        let request = request_all().limit(1);
        let jobs = store.claim_next_batch(&request).await.unwrap();
        let released = Settlement::new(jobs[0].claim.token, Outcome::Released);
        store.settle(&[released]).await.unwrap();
        // Gives the released job another turn.
        store.claim_next_batch(&request).await.unwrap();
    })
    .await;
    // The reads of the first turn and of the last turns of two keys.
    let known = profile_of(&own, "meta", async {
        store.enqueue(&[of("k7"), of("k201")]).await.unwrap();
    })
    .await;
    own.database.drop().await.unwrap();
    let limit = i64::try_from(request_all().limit).unwrap();
    for row in &rows {
        assert!(number(row, "keysExamined") <= 2 * limit + 20, "{row:#?}");
        let text = row.to_string();
        let is_search = text.contains("$unionWith") && text.contains("fair_key");
        let documents = if is_search { 3 } else { limit + 10 };
        assert!(number(row, "docsExamined") <= documents, "{row:#?}");
        assert!(!row.get_bool("hasSortStage").unwrap_or(false), "{row:#?}");
    }
    for row in &known {
        assert!(number(row, "keysExamined") <= 5, "{row:#?}");
        assert!(number(row, "docsExamined") <= 5, "{row:#?}");
    }
}
