//! The floor on SQLite, with rusqlite.
//!
//! The floor uses one writer connection on one thread, WAL, `synchronous = FULL`, batches of 100,
//! and group commit for concurrent inserts. It keeps finished rows. It has no claim tokens, no
//! history, no unique keys and only one node. A program that needs these features pays for them,
//! with or without a library.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ratchet_bench::figures::Outcome;
use ratchet_bench::load::{Clock, Ledger, Nothing};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{BATCH, payloads};
use crate::Options;

pub(super) fn run(scenario: &str, options: &Options, path: &str) -> Result<Outcome> {
    let connection = open(path)?;
    match scenario {
        "enqueue" => enqueue(connection, options),
        "drain" => drain(connection, options),
        _ => latency(connection, options),
    }
}

fn open(path: &str) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         CREATE TABLE jobs (
             id INTEGER PRIMARY KEY, payload TEXT NOT NULL, state INTEGER NOT NULL DEFAULT 0,
             priority INTEGER NOT NULL DEFAULT 2, run_at INTEGER NOT NULL);
         CREATE INDEX jobs_due ON jobs (priority DESC, run_at, id) WHERE state = 0;",
    )?;
    Ok(connection)
}

/// Jobs to insert, and a channel. The writer sends a message to the channel when the jobs are
/// durable.
struct Insert {
    payloads: Vec<String>,
    done: SyncSender<()>,
}

/// Inserts jobs until all senders are dropped. Each transaction handles all requests that are
/// queued at that time, up to 256 requests.
fn write(connection: &mut Connection, inserts: &Receiver<Insert>) -> Result<()> {
    while let Ok(first) = inserts.recv() {
        let transaction = begin(connection)?;
        let mut done = Vec::new();
        for insert in std::iter::once(first).chain(inserts.try_iter().take(255)) {
            insert_rows(&transaction, &insert.payloads)?;
            done.push(insert.done);
        }
        transaction.commit()?;
        done.iter().try_for_each(|done| done.send(()))?;
    }
    Ok(())
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

fn insert_rows(transaction: &Transaction<'_>, payloads: &[String]) -> Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO jobs (payload, run_at) VALUES (?1, CAST(unixepoch('subsec') * 1000 AS INTEGER))",
    )?;
    payloads
        .iter()
        .try_for_each(|payload| insert.execute([payload]).map(drop))?;
    Ok(())
}

fn enqueue(mut connection: Connection, options: &Options) -> Result<Outcome> {
    let (queue, inserts) = channel();
    let next = Arc::new(AtomicUsize::new(0));
    let clock = Clock::start();
    let mut producers = Vec::new();
    for _ in 0..options.producers {
        let (queue, next): (Sender<Insert>, _) = (queue.clone(), Arc::clone(&next));
        let (batch, total) = (options.batch, options.jobs);
        producers.push(thread::spawn(move || {
            loop {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first >= total {
                    return anyhow::Ok(());
                }
                let (done, wait) = sync_channel(1);
                let payloads = payloads(first, batch.min(total - first))?;
                queue.send(Insert { payloads, done })?;
                wait.recv()?;
            }
        }));
    }
    drop(queue);
    write(&mut connection, &inserts)?;
    for producer in producers {
        producer.join().ok().context("a producer panicked")??;
    }
    let mut outcome = Outcome::default();
    outcome.timed(options.jobs, clock.elapsed());
    Ok(outcome)
}

/// Claims, runs and completes one batch of jobs. Returns the number of jobs in the batch.
fn work(connection: &mut Connection, ledger: &Ledger) -> Result<usize> {
    let transaction = begin(connection)?;
    let mut claimed: Vec<(i64, String)> = Vec::with_capacity(BATCH);
    {
        let mut due = transaction.prepare_cached(
            "SELECT id, payload FROM jobs
             WHERE state = 0 AND run_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
             ORDER BY priority DESC, run_at, id LIMIT ?1",
        )?;
        let rows = due.query_map([i64::try_from(BATCH)?], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        for row in rows {
            claimed.push(row?);
        }
        let mut claim = transaction.prepare_cached("UPDATE jobs SET state = 1 WHERE id = ?1")?;
        claimed
            .iter()
            .try_for_each(|(id, _)| claim.execute([id]).map(drop))?;
    }
    transaction.commit()?;
    for (_, payload) in &claimed {
        let job: Nothing = serde_json::from_str(payload)?;
        ledger.began(job.n);
    }
    let transaction = begin(connection)?;
    {
        let mut complete =
            transaction.prepare_cached("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1")?;
        claimed
            .iter()
            .try_for_each(|(id, _)| complete.execute(params![id]).map(drop))?;
    }
    transaction.commit()?;
    Ok(claimed.len())
}

fn drain(mut connection: Connection, options: &Options) -> Result<Outcome> {
    let transaction = begin(&mut connection)?;
    insert_rows(&transaction, &payloads(0, options.jobs)?)?;
    transaction.commit()?;
    let ledger = Ledger::new(options.jobs);
    let (clock, mut done, mut claims) = (Clock::start(), 0, 0);
    while done < options.jobs {
        done += work(&mut connection, &ledger)?;
        claims += 1;
    }
    let mut outcome = Outcome::default();
    outcome.timed(options.jobs, clock.elapsed());
    outcome.claims = claims;
    ledger.judge(&mut outcome);
    Ok(outcome)
}

fn latency(mut connection: Connection, options: &Options) -> Result<Outcome> {
    let total = options.rate as usize * options.seconds as usize;
    let ledger = Ledger::new(total);
    let (queue, inserts) = channel::<Insert>();
    let producer = {
        let (ledger, rate) = (Arc::clone(&ledger), options.rate);
        thread::spawn(move || {
            let start = Clock::start();
            for n in 0..total {
                let at = Duration::from_secs(1) / rate * u32::try_from(n)?;
                thread::sleep(at.saturating_sub(start.elapsed()));
                let (done, wait) = sync_channel(1);
                let payloads = payloads(n, 1)?;
                queue.send(Insert { payloads, done })?;
                wait.recv()?;
                ledger.sent(n);
            }
            anyhow::Ok(())
        })
    };
    let (clock, mut done) = (Clock::start(), 0);
    while done < total {
        let insert = inserts
            .recv_timeout(Duration::from_secs(10))
            .with_context(|| format!("the producer stopped with {done} of {total} jobs done"))?;
        let transaction = begin(&mut connection)?;
        insert_rows(&transaction, &insert.payloads)?;
        transaction.commit()?;
        insert.done.send(())?;
        done += work(&mut connection, &ledger)?;
    }
    producer.join().ok().context("the producer panicked")??;
    let mut outcome = Outcome::default();
    outcome.timed(total, clock.elapsed());
    ledger.judge(&mut outcome);
    outcome.percentiles(ledger.latencies());
    Ok(outcome)
}
