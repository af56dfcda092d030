//! Applies the consequences of ended jobs: decides links, counts the jobs in their batches, and
//! releases or cancels other jobs.
//!
//! The core makes the decisions. This module reads the data for them and writes the results, in the
//! transaction that ends the jobs.
//!
//! A transaction that decides a link also changes the document of the child, even if the child
//! still waits. A transaction that counts a job changes the document of the batch. So two
//! concurrent transactions that decide links of the same child, or count jobs of the same batch,
//! change the same document. The server then aborts one of them, and the store retries it. The end
//! of a job and a concurrent call that links to the job conflict in a document of `parents`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mongodb::bson::{Bson, Document, RawDocument, doc};
use mongodb::options::Hint;
use ratchet_core::links::{Ask, Cascade, Changes, EndedJob, OpenLink, WaitingJob};
use ratchet_core::model::{BatchRecord, LinkState, Parent, Tally};
use ratchet_core::{BatchId, ClaimToken, JobId, JobState, Json};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::connection::Tx;
use crate::error::{Failure, Result};
use crate::links::{StoredLink, batch_record};
use crate::pipelines::{self, code, ids};
use crate::row;
use crate::signals;
use crate::store::MongoStore;

/// The children and the batch of a job, which its end may affect. Read from the job's document.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ties {
    children: bool,
    /// Batch of the job. `None` if the job is in no batch, or if the batch has already counted the
    /// job.
    batch: Option<BatchId>,
}

impl Ties {
    /// Fields of a job's document that [`read`](Self::read) needs.
    pub(crate) const FIELDS: [&'static str; 3] = ["children", "batch", "counted"];

    pub(crate) fn read(row: &RawDocument) -> Self {
        let batch = row::bytes(row, "batch").ok().flatten();
        let counted = row::flag(row, "counted");
        Self {
            children: row::flag(row, "children"),
            batch: batch.filter(|_| !counted).map(BatchId::from_bytes),
        }
    }

    /// Returns the batch that must count the end of the job, if any.
    pub(crate) const fn batch(self) -> Option<BatchId> {
        self.batch
    }

    pub(crate) const fn has_children(self) -> bool {
        self.children
    }

    /// Returns the end of the job that has these ties. The caller must have read the ties in the
    /// transaction that ends the job, because that transaction sets the job's flag `counted`.
    pub(crate) const fn end(self, job: JobId, state: JobState, result: Option<Json>) -> End {
        let job = EndedJob {
            job,
            state,
            result,
            has_children: self.children,
            in_batch: self.batch.is_some(),
        };
        End {
            job,
            batch: self.batch,
            earlier: false,
        }
    }
}

/// The end of a job, with the batch that must count it.
#[derive(Debug)]
pub(crate) struct End {
    job: EndedJob,
    batch: Option<BatchId>,
    /// Whether the job ended in an earlier transaction than the current one.
    earlier: bool,
}

impl End {
    /// Creates the end of a parent that ended before its new children were enqueued. If the parent
    /// is in a batch, the batch has already counted it.
    pub(crate) const fn earlier(job: JobId, state: JobState, result: Option<Json>) -> Self {
        let ties = Ties {
            children: true,
            batch: None,
        };
        let mut end = ties.end(job, state, result);
        end.earlier = true;
        end
    }

    /// Returns whether the job has children, or a batch must count the job.
    pub(crate) const fn matters(&self) -> bool {
        self.job.has_children || self.job.in_batch
    }
}

/// Returns whether the job has children or is in a batch. Such a job must end in a transaction,
/// because its end may affect other jobs or the batch. The job's lane is not considered.
pub(crate) fn is_tied(row: &RawDocument) -> bool {
    row::flag(row, "children") || matches!(row::bytes(row, "batch"), Ok(Some(_)) | Err(_))
}

/// Returns whether the end of the job may affect others: the next job of its lane, its children, or
/// its batch.
pub(crate) fn is_followed(row: &RawDocument) -> bool {
    is_tied(row) || matches!(row::text(row, "lane"), Ok(Some(_)) | Err(_))
}

/// Restricts the filter to jobs that have no children and are in no batch. Lanes are not
/// considered.
pub(crate) fn require_untied(filter: &mut Document) {
    filter.insert("children", Bson::Null);
    filter.insert("batch", Bson::Null);
}

/// A job whose claim the current transaction is about to end, as this transaction sees the job.
pub(crate) struct Held {
    pub(crate) state: JobState,
    pub(crate) claim: ClaimToken,
    pub(crate) cancel: bool,
    pub(crate) lane: Option<String>,
    pub(crate) ties: Ties,
    /// Result of [`is_followed`]: whether the end of the job may affect its lane, other jobs or a
    /// batch.
    pub(crate) followed: bool,
}

impl Held {
    fn read(row: &RawDocument) -> Result<(JobId, Self)> {
        let job = Self {
            state: JobState::from_code(row::int(row, "state")?)?,
            claim: row::token(row)?,
            cancel: row::flag(row, "cancel_requested"),
            lane: row::text(row, "lane_key")?.map(str::to_owned),
            ties: Ties::read(row),
            followed: is_followed(row),
        };
        Ok((row::job_id(row, "_id")?, job))
    }
}

/// Data about jobs that a cascade has read so far.
#[derive(Default)]
struct Known {
    /// Jobs that a batch must count, each with that batch.
    batches: HashMap<JobId, BatchId>,
    /// Jobs that wait for a signal.
    signals: HashSet<JobId>,
    /// Jobs that have children.
    parents: HashSet<JobId>,
}

impl MongoStore {
    /// Reads jobs whose claims this transaction is about to end. Skips a job that cannot be read,
    /// so that the other jobs can still end. [errors.poison]
    pub(crate) async fn held(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[JobId],
    ) -> Result<HashMap<JobId, Held>> {
        let these = doc! { "_id": { "$in": ids(jobs) } };
        let mut wanted = doc! {
            "state": 1, "claim_seq": 1, "node": 1, "claimed_at": 1, "cancel_requested": 1, "lane": 1,
            "lane_key": 1,
        };
        wanted.extend(tie_fields());
        let mut held = HashMap::with_capacity(jobs.len());
        for row in tx
            .find(&self.main().jobs, these, row::fields(wanted))
            .await?
        {
            match Held::read(&row) {
                Ok((id, job)) => drop(held.insert(id, job)),
                Err(error) => tracing::warn!(%error, "skipped a running job that cannot be read"),
            }
        }
        Ok(held)
    }

    /// Applies the consequences of ended jobs and of changed batches: decides links, counts jobs in
    /// batches, and releases or cancels waiting jobs. `batches` are the batches that this
    /// transaction has changed. [link.decide] [batch.count] [batch.callback]
    pub(crate) async fn follow(
        &self,
        tx: &mut Tx<'_>,
        ends: Vec<End>,
        batches: Vec<BatchRecord>,
    ) -> Result<()> {
        let mut known = Known::default();
        let mut cascade = Cascade::new();
        let mut nothing = batches.is_empty();
        let mut parents = Vec::new();
        for end in ends.into_iter().filter(End::matters) {
            nothing = false;
            if end.job.has_children && !end.earlier {
                parents.push(row::id(end.job.job));
            }
            known
                .batches
                .extend(end.batch.map(|batch| (end.job.job, batch)));
            cascade.ended(end.job);
        }
        if nothing {
            return Ok(());
        }
        let side = self.main();
        tx.meet(&side.parents, parents).await?;
        for batch in batches {
            cascade.batch(batch);
        }
        let now = self.now(self.main()).await?;
        while let Some(ask) = cascade.next() {
            match ask {
                Ask::Write(changes) => self.write_links(tx, &changes, &known, now).await?,
                Ask::Children(parents) => {
                    cascade.children(self.waiting_for(tx, &parents, &mut known).await?);
                }
                Ask::Count(ended) => cascade.counted(self.count(tx, &ended, &known).await?),
            }
        }
        Ok(())
    }

    /// Returns the jobs that have open links to these parents. Adds the batches, signals and
    /// children of these jobs to `known`. Uses the indexes `open` and `child` of the collection
    /// `links`.
    async fn waiting_for(
        &self,
        tx: &mut Tx<'_>,
        parents: &[Parent],
        known: &mut Known,
    ) -> Result<Vec<WaitingJob>> {
        let side = self.main();
        let open = i32::from(LinkState::Open.code());
        let all: Vec<Bson> = parents.iter().map(|parent| row::id(*parent)).collect();
        let on_these = doc! { "parent": { "$in": all }, "state": open };
        let mut children = BTreeSet::new();
        let mut only = row::fields(doc! { "child": 1 });
        only.hint = Some(Hint::Name("open".to_owned()));
        for row in tx.find(&side.links, on_these, only).await? {
            children.insert(row::job_id(&row, "child")?);
        }
        if children.is_empty() {
            return Ok(Vec::new());
        }
        let children: Vec<JobId> = children.into_iter().collect();
        let mut wanted = doc! { "state": 1, "signal.state": 1 };
        wanted.extend(tie_fields());
        let these = doc! { "_id": { "$in": ids(&children) } };
        let mut waiting = BTreeMap::new();
        for row in tx.find(&side.jobs, these, row::fields(wanted)).await? {
            let (job, ties) = (row::job_id(&row, "_id")?, Ties::read(&row));
            known.batches.extend(ties.batch.map(|batch| (job, batch)));
            let awaits_signal = signals::is_open(&row);
            known.signals.extend(awaits_signal.then_some(job));
            known.parents.extend(ties.children.then_some(job));
            let child = WaitingJob {
                job,
                state: JobState::from_code(row::int(&row, "state")?)?,
                awaits_signal,
                has_children: ties.children,
                in_batch: ties.batch.is_some(),
                open: Vec::new(),
            };
            waiting.insert(job, child);
        }
        let theirs = doc! { "child": { "$in": ids(&children) }, "state": open };
        for row in tx.find(&side.links, theirs, row::fields(doc! {})).await? {
            let link = StoredLink::read(&row)?;
            if let Some(child) = waiting.get_mut(&link.child) {
                child.open.push(OpenLink {
                    place: link.place,
                    parent: link.parent,
                    after: link.after.ok(),
                });
            }
        }
        Ok(waiting.into_values().collect())
    }

    /// Writes to the documents of these batches, in which the transaction will count jobs. A
    /// conflict about a batch then occurs before the transaction writes anything else.
    pub(crate) async fn meet_batches(
        &self,
        tx: &mut Tx<'_>,
        batches: &BTreeSet<BatchId>,
    ) -> Result<()> {
        let these: Vec<Bson> = batches.iter().map(|batch| row::id(*batch)).collect();
        let these = doc! { "_id": { "$in": these } };
        let meet = doc! { "$inc": { "rev": 1_i64 } };
        tx.update_many(&self.main().batches, these, meet).await?;
        Ok(())
    }

    /// Counts ended jobs in their batches. Returns the updated batches. [batch.count]
    async fn count(
        &self,
        tx: &mut Tx<'_>,
        ended: &[(JobId, JobState)],
        known: &Known,
    ) -> Result<Vec<BatchRecord>> {
        let side = self.main();
        let mut tallies: BTreeMap<BatchId, Tally> = BTreeMap::new();
        for (job, state) in ended {
            if let Some(batch) = known.batches.get(job) {
                tallies.entry(*batch).or_default().count(*state);
            }
        }
        if tallies.is_empty() {
            return Ok(Vec::new());
        }
        let tally = |(batch, tally): (&BatchId, &Tally)| {
            let add = doc! { "$set": {
                "succeeded": { "$add": ["$succeeded", tally.succeeded.cast_signed()] },
                "failed": { "$add": ["$failed", tally.failed.cast_signed()] },
                "cancelled": { "$add": ["$cancelled", tally.cancelled.cast_signed()] },
            } };
            Statement::new(doc! { "_id": row::id(*batch) }, vec![add])
        };
        let statements = tallies.iter().map(tally).collect();
        tx.bulk(&side.batches, statements).await?;
        let all: Vec<Bson> = tallies.keys().map(|batch| row::id(*batch)).collect();
        let these = doc! { "_id": { "$in": all } };
        let rows = tx.find(&side.batches, these, row::fields(doc! {})).await?;
        let batches = rows.iter().map(|row| batch_record(row));
        Ok(batches.collect::<std::result::Result<_, _>>()?)
    }

    /// Writes the decisions of the cascade: decided links, released and cancelled jobs, and ended
    /// batches. [link.decide] [link.release] [link.cancel] [link.once] [batch.end]
    async fn write_links(
        &self,
        tx: &mut Tx<'_>,
        changes: &Changes,
        known: &Known,
        now: Now,
    ) -> Result<()> {
        let side = self.main();
        let statement = Statement::new;
        let (mut links, mut children) = (Vec::new(), BTreeSet::new());
        for (child, place, state) in &changes.links {
            let open = doc! {
                "child": row::id(*child),
                "place": i64::from(*place),
                "state": i32::from(LinkState::Open.code()),
            };
            let decide = doc! { "$set": { "state": i32::from(state.code()) } };
            links.push(statement(open, vec![decide]));
            children.insert(*child);
        }
        let blocked = |job: JobId| {
            doc! { "_id": row::id(job), "state": code(JobState::Blocked) }
        };
        let mut jobs = Vec::new();
        for job in &changes.cancelled {
            let mut cancel = pipelines::moved(JobState::Cancelled, now);
            if known.signals.contains(job) {
                cancel.push(signals::closed());
            }
            jobs.push(statement(blocked(*job), cancel));
            children.remove(job);
        }
        for job in &changes.released {
            jobs.push(statement(blocked(*job), released(now)));
            children.remove(job);
        }
        for job in &children {
            // The child keeps its state. This write makes the transaction conflict with a
            // concurrent call that decides another link of the child.
            let meet =
                doc! { "$set": { "rev": { "$add": [{ "$ifNull": ["$rev", 0_i64] }, 1_i64] } } };
            jobs.push(statement(doc! { "_id": row::id(*job) }, vec![meet]));
        }
        for (rows, statements) in [(&side.links, links), (&side.jobs, jobs)] {
            let count = statements.len();
            if count > 0 {
                let matched = tx.bulk(rows, statements).await?;
                all_of(matched, count)?;
            }
        }
        let parents = changes.cancelled.iter();
        let parents = parents.filter(|job| known.parents.contains(job));
        let parents = parents.map(|job| row::id(*job)).collect();
        tx.meet(&side.parents, parents).await?;
        if !changes.ended.is_empty() {
            let ended: Vec<Bson> = changes.ended.iter().map(|batch| row::id(*batch)).collect();
            let these = doc! { "_id": { "$in": ended }, "ended_at": Bson::Null };
            let end = vec![doc! { "$set": { "ended_at": now.expression() } }];
            tx.update_many(&side.batches, these, end).await?;
        }
        Ok(())
    }
}

/// Returns the update that makes a blocked job claimable. The job must not wait for any link or
/// signal any more. [link.release] [signal.deliver]
pub(crate) fn released(now: Now) -> Vec<Document> {
    vec![doc! { "$set": {
        "state": code(JobState::Pending),
        "run_at": { "$max": ["$run_at", now.expression()] },
    } }]
}

/// Returns `Contention` unless all `count` statements matched a document, so that the whole call is
/// retried. A concurrent call has changed each document that did not match.
pub(crate) fn all_of(matched: u64, count: usize) -> Result<()> {
    if usize::try_from(matched) == Ok(count) {
        return Ok(());
    }
    Err(Failure::contention("a concurrent call changed a job"))
}

/// Returns the projection of the fields that [`Ties::read`] needs.
pub(crate) fn tie_fields() -> Document {
    Ties::FIELDS
        .iter()
        .map(|field| ((*field).to_owned(), Bson::Int32(1)))
        .collect()
}
