//! Measures the store on a bucket in memory whose requests take a given time.
//!
//! `cargo run --release -p ratchet-jobs-store-object --example figures -- 20` simulates 20 ms for
//! each request.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use ratchet_core::model::{ClaimRequest, NewJob, Outcome, Settlement};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobId, NodeId, Result, StoreError, time};
use ratchet_store_object::{ObjectStore, object_store};
use tokio::task::JoinSet;

type Store = Arc<Checked<ObjectStore>>;

const PRODUCERS: usize = 64;

fn job() -> NewJob {
    NewJob::new("kind", &"a payload of a few bytes").tag("tag")
}

/// Lets tasks enqueue `jobs` jobs, `at_once` in each call.
async fn enqueue(store: &Store, producers: usize, jobs: usize, at_once: usize) -> Result<f64> {
    let began = time::monotonic();
    let mut tasks = JoinSet::new();
    for _ in 0..producers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            for _ in 0..jobs / producers / at_once {
                let jobs: Vec<NewJob> = (0..at_once).map(|_| job()).collect();
                store.enqueue(&jobs).await?;
            }
            Ok::<(), StoreError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap_or(Ok(()))?;
    }
    let count = u32::try_from(jobs / producers / at_once * producers * at_once).unwrap_or(0);
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

/// Lets workers claim and settle all jobs, 100 at once.
async fn drain(store: &Store, workers: usize) -> Result<f64> {
    let began = time::monotonic();
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let request = ClaimRequest::new(NodeId::new(), 100);
            let mut ended = 0;
            loop {
                let claimed = store.claim_next_batch(&request).await?;
                if claimed.is_empty() {
                    return Ok::<u32, StoreError>(ended);
                }
                let done = || Outcome::Succeeded { result: None };
                let settlements: Vec<Settlement> = claimed
                    .iter()
                    .map(|job| Settlement::new(job.claim.token, done()))
                    .collect();
                ended += u32::try_from(settlements.len()).unwrap_or(0);
                store.settle(&settlements).await?;
            }
        });
    }
    let mut ended = 0;
    while let Some(done) = tasks.join_next().await {
        ended += done.unwrap_or(Ok(0))?;
    }
    Ok(f64::from(ended) / began.elapsed().as_secs_f64())
}

/// Measures the median latency of single calls without any other call.
async fn latency(store: &Store) -> Result<(Duration, Duration)> {
    let mut puts = Vec::new();
    let mut gets = Vec::new();
    for _ in 0..51 {
        let began = time::monotonic();
        store.enqueue(&[job()]).await?;
        puts.push(began.elapsed());
        let began = time::monotonic();
        store
            .get(&[JobId::new()], ratchet_core::model::Detail::Outline)
            .await?;
        gets.push(began.elapsed());
    }
    puts.sort();
    gets.sort();
    Ok((puts[25], gets[25]))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program reports to its caller")]
async fn main() -> Result<()> {
    let millis = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let wait = Duration::from_millis(millis.unwrap_or(20));
    let slow = ThrottleConfig {
        wait_put_per_call: wait,
        wait_get_per_call: wait,
        wait_list_per_call: wait,
        wait_delete_per_call: wait,
        ..ThrottleConfig::default()
    };
    let bucket = Arc::new(ThrottledStore::new(InMemory::new(), slow));
    let open = async |prefix: &str| -> Result<Store> {
        let bucket = Arc::clone(&bucket);
        Ok(Arc::new(ObjectStore::on(bucket, prefix).connect().await?))
    };
    let store = open("one").await?;
    let (put, get) = latency(&store).await?;
    println!("latency of an enqueue {put:?}, of a read {get:?}");
    let rate = enqueue(&store, PRODUCERS, 20_000, 1).await?;
    println!("enqueue one by one, {PRODUCERS} producers: {rate:.0}/s");
    let store = open("many").await?;
    let rate = enqueue(&store, 8, 100_000, 100).await?;
    println!("enqueue in hundreds, 8 producers: {rate:.0}/s");
    let began = time::monotonic();
    let other = open("many").await?;
    other
        .get(&[JobId::new()], ratchet_core::model::Detail::Outline)
        .await?;
    println!(
        "open with 100,000 live jobs, log only: {:?}",
        began.elapsed()
    );
    let rate = drain(&store, 8).await?;
    println!("drain, 8 workers with claims of 100: {rate:.0}/s");
    let store = {
        let bucket = Arc::clone(&bucket);
        let builder = ObjectStore::on(bucket, "snapshots").snapshot_every(100);
        Arc::new(builder.connect().await?)
    };
    enqueue(&store, 8, 100_000, 100).await?;
    store.enqueue(&[job()]).await?;
    // Lets the snapshot of the last hundred segments end.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let began = time::monotonic();
    let other = open("snapshots").await?;
    other
        .get(&[JobId::new()], ratchet_core::model::Detail::Outline)
        .await?;
    println!(
        "open with 100,000 live jobs, from a snapshot: {:?}",
        began.elapsed()
    );
    Ok(())
}
