//! The floor on MySQL and MariaDB, with sqlx.
//!
//! Each producer and each worker has its own connection. There are eight workers, because more
//! workers slow each other down. A transaction of a SELECT with SKIP LOCKED and an UPDATE claims a
//! batch of jobs, and a second UPDATE completes the batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_bench::figures::Outcome;
use ratchet_bench::load::{Ledger, Nothing};
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, MySqlPool};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{BATCH, payloads};
use crate::Options;
use crate::measure::Meter;

/// Number of workers. Each worker has one connection.
const WORKERS: usize = 8;
/// Number of rows per insert, when jobs are stored before the measurement.
const LOAD: usize = 1_000;

const SCHEMA: &str = "
    DROP TABLE IF EXISTS floor_jobs;
    CREATE TABLE floor_jobs (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, payload LONGTEXT NOT NULL,
        state TINYINT NOT NULL DEFAULT 0, priority TINYINT NOT NULL DEFAULT 2,
        run_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
        INDEX floor_jobs_due (state, priority DESC, run_at, id)
    ) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4";
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
const CLAIM: &str = "
    SELECT id, payload FROM floor_jobs
    WHERE state = 0 AND run_at <= NOW(3)
    ORDER BY priority DESC, run_at, id
    LIMIT ? FOR UPDATE SKIP LOCKED";

pub(super) async fn run(scenario: &str, options: &Options) -> Result<Outcome> {
    let mut connection = MySqlConnection::connect(&options.url).await?;
    sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
    match scenario {
        "enqueue" => enqueue(options).await,
        "drain" => drain(connection, options).await,
        _ => latency(options).await,
    }
}

async fn connections(options: &Options, count: usize) -> Result<Vec<MySqlConnection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = MySqlConnection::connect(&options.url).await?;
        sqlx::raw_sql(ISOLATION).execute(&mut connection).await?;
        connections.push(connection);
    }
    Ok(connections)
}

async fn enqueue(options: &Options) -> Result<Outcome> {
    let connections = connections(options, options.producers).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let meter = Meter::start(&options.url).await?;
    let mut producers = JoinSet::new();
    for mut connection in connections {
        let next = Arc::clone(&next);
        let (batch, total) = (options.batch, options.jobs);
        producers.spawn(async move {
            loop {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first >= total {
                    return anyhow::Ok(());
                }
                insert(&mut connection, first, batch.min(total - first)).await?;
            }
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, options.jobs).await?;
    Ok(outcome)
}

async fn insert(connection: &mut MySqlConnection, first: usize, count: usize) -> Result<()> {
    let values = vec!["(?)"; count].join(", ");
    let insert = format!("INSERT INTO floor_jobs (payload) VALUES {values}");
    let mut insert = sqlx::query(AssertSqlSafe(insert));
    for payload in payloads(first, count)? {
        insert = insert.bind(payload);
    }
    insert.execute(connection).await?;
    Ok(())
}

/// Sets the state of the jobs with these ids.
async fn set_state(on: &mut MySqlConnection, from: u8, to: u8, ids: &[i64]) -> Result<()> {
    let places = vec!["?"; ids.len()].join(", ");
    let update =
        format!("UPDATE floor_jobs SET state = {to} WHERE id IN ({places}) AND state = {from}");
    let mut update = sqlx::query(AssertSqlSafe(update));
    for id in ids {
        update = update.bind(id);
    }
    update.execute(on).await?;
    Ok(())
}

/// Claims, runs and completes one batch of jobs. Returns the number of jobs in the batch.
async fn work(connection: &mut MySqlConnection, ledger: &Ledger) -> Result<usize> {
    let mut claiming = connection.begin().await?;
    let claim = sqlx::query_as(CLAIM).bind(i64::try_from(BATCH)?);
    let claimed: Vec<(i64, String)> = claim.fetch_all(&mut *claiming).await?;
    if claimed.is_empty() {
        return Ok(0);
    }
    let ids: Vec<i64> = claimed.iter().map(|(id, _)| *id).collect();
    set_state(&mut claiming, 0, 1, &ids).await?;
    claiming.commit().await?;
    for (_, payload) in claimed {
        let job: Nothing = serde_json::from_str(&payload)?;
        ledger.began(job.n);
    }
    set_state(connection, 1, 2, &ids).await?;
    Ok(ids.len())
}

async fn drain(mut connection: MySqlConnection, options: &Options) -> Result<Outcome> {
    for first in (0..options.jobs).step_by(LOAD) {
        insert(&mut connection, first, LOAD.min(options.jobs - first)).await?;
    }
    // Otherwise the server would collect the statistics soon after the start.
    sqlx::raw_sql("ANALYZE TABLE floor_jobs")
        .fetch_all(&mut connection)
        .await?;
    let ledger = Ledger::new(options.jobs);
    let (done, claims) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let connections = connections(options, WORKERS).await?;
    let meter = Meter::start(&options.url).await?;
    let mut workers = JoinSet::new();
    for mut connection in connections {
        let (ledger, total) = (Arc::clone(&ledger), options.jobs);
        let (done, claims) = (Arc::clone(&done), Arc::clone(&claims));
        workers.spawn(async move {
            while done.load(Ordering::Relaxed) < total {
                let worked = work(&mut connection, &ledger).await?;
                claims.fetch_add(1, Ordering::Relaxed);
                done.fetch_add(worked, Ordering::Relaxed);
                if worked == 0 {
                    // Other workers hold the remaining jobs.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, options.jobs).await?;
    outcome.claims = claims.load(Ordering::Relaxed) as u64;
    ledger.judge(&mut outcome);
    Ok(outcome)
}

/// Measures start latencies. Inserts jobs at a fixed rate, and wakes a worker in this process after
/// each insert.
async fn latency(options: &Options) -> Result<Outcome> {
    let total = options.rate as usize * options.seconds as usize;
    let ledger = Ledger::new(total);
    let pool = producers(options).await?;
    let mut worker = MySqlConnection::connect(&options.url).await?;
    sqlx::raw_sql(ISOLATION).execute(&mut worker).await?;
    let wake = Arc::new(Notify::new());
    let meter = Meter::start(&options.url).await?;
    let sending = {
        let (ledger, wake) = (Arc::clone(&ledger), Arc::clone(&wake));
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / options.rate);
        tokio::spawn(async move {
            let mut sends = JoinSet::new();
            for n in 0..total {
                ticks.tick().await;
                let (pool, ledger, wake) = (pool.clone(), Arc::clone(&ledger), Arc::clone(&wake));
                sends.spawn(async move {
                    insert(&mut *pool.acquire().await?, n, 1).await?;
                    ledger.sent(n);
                    wake.notify_one();
                    anyhow::Ok(())
                });
            }
            while let Some(sent) = sends.join_next().await {
                sent??;
            }
            anyhow::Ok(())
        })
    };
    let mut done = 0;
    while done < total {
        let woken = tokio::time::timeout(Duration::from_secs(10), wake.notified()).await;
        ensure!(
            woken.is_ok(),
            "no wakeup in 10 s, with {done} of {total} jobs done"
        );
        done += work(&mut worker, &ledger).await?;
    }
    sending.await??;
    let mut outcome = Outcome::default();
    meter.stop(&mut outcome, total).await?;
    ledger.judge(&mut outcome);
    outcome.percentiles(ledger.latencies());
    Ok(outcome)
}

/// Returns the producers' connection pool. The pool does not ping a connection before each use,
/// because a ping would double the round trips.
async fn producers(options: &Options) -> Result<MySqlPool> {
    let size = u32::try_from(options.producers)?;
    let pool = MySqlPoolOptions::new()
        .min_connections(size)
        .max_connections(size);
    Ok(pool
        .test_before_acquire(false)
        .connect(&options.url)
        .await?)
}
