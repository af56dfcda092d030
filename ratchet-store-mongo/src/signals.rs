//! [`SignalStore`] on MongoDB servers with transactions. The signal of a job is part of the job's
//! document, so concurrent changes of the job and its signal conflict.

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use mongodb::options::FindOptions;
use ratchet_core::model::{Delivered, JobRecord, Signal, SignalRecord, SignalTarget, SignalWait};
use ratchet_core::store::SignalStore;
use ratchet_core::time::{duration_millis, from_millis};
use ratchet_core::{InvalidInput, JobId, JobState, Json, Name, Result};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::connection::Tx;
use crate::ends::{Ties, all_of, released, tie_fields};
use crate::error::Result as Inner;
use crate::pipelines::{self, LONGEST, any_job_id, ids, literal};
use crate::row;
use crate::store::MongoStore;

/// State of a signal for which its job still waits.
pub(crate) const OPEN: i32 = 0;
/// State of a signal that has arrived.
const COME: i32 = 1;
/// State of a signal that did not arrive before its job ended.
const CLOSED: i32 = 2;

#[async_trait]
impl SignalStore for MongoStore {
    async fn deliver(&self, signal: &Signal) -> Result<Delivered> {
        // If the reply was lost, a repeated delivery could reach other jobs, or no job at all.
        self.call_once("deliver", || self.deliver_signal(signal))
            .await
    }

    async fn expire(&self, limit: usize) -> Result<Vec<JobId>> {
        self.call_once("expire", || self.expire_signals(limit))
            .await
    }
}

impl MongoStore {
    async fn deliver_signal(&self, signal: &Signal) -> Inner<Delivered> {
        let now = self.now(self.main()).await?;
        let mut tx = self.main().begin().await?;
        let delivered = match &signal.target {
            SignalTarget::Key(key) => self.signal_all(&mut tx, key, &signal.payload, now).await,
            SignalTarget::Job(job) => self.signal_one(&mut tx, *job, &signal.payload, now).await,
            // A kind of target that this version does not know matches no job.
            _ => Ok(Delivered::NotFound),
        };
        tx.finish(delivered).await
    }

    /// Delivers a signal to all jobs that wait for this key. Uses index `signal`. [signal.deliver]
    /// [signal.answer]
    async fn signal_all(
        &self,
        tx: &mut Tx<'_>,
        key: &Name,
        payload: &Json,
        now: Now,
    ) -> Inner<Delivered> {
        let side = self.main();
        let mut waiting = in_time(now);
        waiting.insert("signal.key", key.as_str());
        let only = row::fields(doc! { "_id": 1 });
        let mut found = row::job_ids(&tx.find(&side.jobs, waiting, only).await?);
        if !found.is_empty() {
            found.sort_unstable();
            self.take_signals(tx, &found, payload, now).await?;
            return Ok(Delivered::To(found));
        }
        let had = doc! { "signal.key": key.as_str(), "signal.state": COME };
        Ok(match tx.find_one(&side.jobs, had).await? {
            Some(_) => Delivered::Already,
            None => Delivered::NotFound,
        })
    }

    /// Delivers a signal to one job, if this job waits for a signal. [signal.deliver] [signal.once]
    /// [signal.late] [signal.answer]
    async fn signal_one(
        &self,
        tx: &mut Tx<'_>,
        job: JobId,
        payload: &Json,
        now: Now,
    ) -> Inner<Delivered> {
        let side = self.main();
        let this = doc! { "_id": row::id(job) };
        let late = doc! { "$lte": ["$signal.deadline", now.expression()] };
        let wanted = row::fields(doc! { "state": 1, "signal.state": 1, "late": late });
        let found = tx.find(&side.jobs, this, wanted).await?;
        let Some(row) = found.first() else {
            return Ok(Delivered::NotFound);
        };
        if state_of(row) == Some(COME.into()) {
            return Ok(Delivered::Already);
        }
        if is_open(row) && !row::flag(row, "late") {
            self.take_signals(tx, &[job], payload, now).await?;
            return Ok(Delivered::To(vec![job]));
        }
        let state = JobState::from_code(row::int(row, "state")?)?;
        Ok(Delivered::NotWaiting(state))
    }

    /// Stores the payload of a signal in these jobs, each of which waits for a signal. Fails with
    /// `Contention` if the deadline of a job has passed since the job was read. The whole call is
    /// then retried.
    async fn take_signals(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[JobId],
        payload: &Json,
        now: Now,
    ) -> Inner<()> {
        let linked = self.have_open_links(tx, jobs).await?;
        let come = doc! { "$set": {
            "signal.state": COME,
            "signal.at": now.expression(),
            "signal.payload": literal(payload.as_str()),
        } };
        let (held, free): (Vec<JobId>, Vec<JobId>) =
            jobs.iter().partition(|job| linked.contains(job));
        let mut free_them = released(now);
        free_them.push(come.clone());
        for (jobs, pipeline) in [(held, vec![come]), (free, free_them)] {
            if jobs.is_empty() {
                continue;
            }
            let mut waiting = in_time(now);
            waiting.insert("_id", doc! { "$in": ids(&jobs) });
            let taken = tx.update_many(&self.main().jobs, waiting, pipeline).await?;
            all_of(taken, jobs.len())?;
        }
        Ok(())
    }

    /// Fails up to `limit` jobs whose signal deadline has passed, and returns their ids. Uses index
    /// `deadline`. [signal.expire] [signal.limit]
    async fn expire_signals(&self, limit: usize) -> Inner<Vec<JobId>> {
        let side = self.main();
        let now = self.millis(side).await?;
        let overdue = doc! {
            "signal.state": OPEN,
            "signal.deadline": { "$lte": now },
            "_id": any_job_id(),
        };
        let options = |limit: usize| {
            let mut wanted = doc! { "state": 1, "signal": 1 };
            wanted.extend(tie_fields());
            FindOptions::builder()
                .sort(doc! { "signal.deadline": 1, "_id": 1 })
                .limit(i64::try_from(limit).unwrap_or(i64::MAX))
                .projection(wanted)
                .build()
        };
        let mut on = side.plain();
        let some = on.find(&side.jobs, overdue.clone(), options(1)).await?;
        if some.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = side.begin().await?;
        let failed = async {
            let rows = tx.find(&side.jobs, overdue, options(limit)).await?;
            self.fail_waiting(&mut tx, &rows).await
        }
        .await;
        tx.finish(failed).await
    }

    /// Fails these jobs because their signal deadline has passed. Returns their ids in ascending
    /// order.
    async fn fail_waiting(&self, tx: &mut Tx<'_>, rows: &[RawDocumentBuf]) -> Inner<Vec<JobId>> {
        let side = self.main();
        let now = self.now(side).await?;
        let mut failed = Vec::with_capacity(rows.len());
        let (mut statements, mut ends) = (Vec::new(), Vec::new());
        for row in rows {
            let job = row::job_id(row, "_id")?;
            let error = match wait(row) {
                Ok(wait) => wait.missed(),
                Err(problem) => problem.of_stored_job(),
            };
            let mut fail = pipelines::moved(JobState::Failed, now);
            fail.push(closed());
            fail.push(doc! { "$set": { "last_error": literal(&error) } });
            let open = doc! { "_id": row::id(job), "signal.state": OPEN };
            statements.push(Statement::new(open, fail).bytes(error.len()));
            ends.push(Ties::read(row).end(job, JobState::Failed, None));
            failed.push(job);
        }
        let matched = tx.bulk(&side.jobs, statements).await?;
        all_of(matched, failed.len())?;
        self.follow(tx, ends, Vec::new()).await?;
        failed.sort_unstable();
        Ok(failed)
    }
}

/// Returns the stored form of the signal for which a new job waits.
pub(crate) fn stored(wait: &SignalWait, now: i64) -> RawDocumentBuf {
    let timeout = duration_millis(wait.timeout);
    rawdoc! {
        "key": wait.key.as_str(),
        "timeout": timeout,
        "deadline": now.saturating_add(timeout),
        "state": OPEN,
    }
}

/// Returns the stage that marks the signal of a job as not arrived, because the job ends.
/// [signal.late]
pub(crate) fn closed() -> Document {
    doc! { "$set": { "signal.state": CLOSED } }
}

/// Returns the stage that makes a requeued job wait for its signal again. The deadline starts anew.
/// [link.requeue]
pub(crate) fn renewed(now: Now) -> Document {
    let timeout = doc! { "$min": ["$signal.timeout", LONGEST] };
    doc! { "$set": {
        "signal.state": OPEN,
        "signal.deadline": { "$add": [now.expression(), timeout] },
    } }
}

/// Returns a filter for jobs that wait for a signal whose deadline has not passed.
fn in_time(now: Now) -> Document {
    let deadline = match now {
        Now::Fixed(now) => doc! { "signal.deadline": { "$gt": now } },
        Now::Server => doc! {
            "$expr": { "$gt": ["$signal.deadline", now.expression()] },
        },
    };
    let mut waiting = doc! { "signal.state": OPEN };
    waiting.extend(deadline);
    waiting
}

fn signal(row: &RawDocument) -> Option<&RawDocument> {
    row.get_document("signal").ok()
}

fn state_of(row: &RawDocument) -> Option<i64> {
    row::optional_int(signal(row)?, "state").ok().flatten()
}

/// Returns whether the job still waits for its signal.
pub(crate) fn is_open(row: &RawDocument) -> bool {
    state_of(row) == Some(OPEN.into())
}

/// Returns whether the job has a signal that has not arrived. The job may still wait for it, or may
/// have ended without it.
pub(crate) fn is_missing(row: &RawDocument) -> bool {
    state_of(row).is_some_and(|state| state != i64::from(COME))
}

/// Reads the key and the timeout of the job's signal.
fn wait(row: &RawDocument) -> std::result::Result<SignalWait, InvalidInput> {
    let missing = || InvalidInput::new("signal", "is missing");
    let signal = signal(row).ok_or_else(missing)?;
    let key = row::name(signal, "key")?.ok_or_else(missing)?;
    let timeout = row::duration(signal, "timeout")?.ok_or_else(missing)?;
    Ok(SignalWait::new(key, timeout))
}

/// Reads the signal in a job's document, and adds it to the job's record.
pub(crate) fn show(
    row: &RawDocument,
    job: &mut JobRecord,
) -> std::result::Result<(), InvalidInput> {
    let Some(signal) = signal(row) else {
        return Ok(());
    };
    let mut record = SignalRecord::new(from_millis(row::int(signal, "deadline")?));
    let at = row::optional_int(signal, "at")?;
    if let (Some(at), Some(payload)) = (at, row::json(signal, "payload")) {
        record = record.delivered(from_millis(at), payload);
    }
    job.signal = Some(record);
    job.spec.signal = Some(wait(row)?);
    Ok(())
}
