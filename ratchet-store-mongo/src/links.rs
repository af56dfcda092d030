//! Links: what jobs wait for.
//!
//! Each link is a document, with indexes by child and by parent. A job with links has the flag
//! `links`. A job that other jobs wait for has the flag `children`. Transactions of MongoDB do not
//! wait for each other, and each of them reads a snapshot of the time when it began. So an enqueue
//! that links to a stored job changes the same document as the end of that job. Likewise, an
//! enqueue that joins a batch or waits for it changes the same document as a call that counts jobs
//! in the batch. Of two such concurrent calls, one is retried and then sees the changes of the
//! other.

use std::collections::{HashMap, HashSet};

use mongodb::bson::{Bson, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::links::{self, NewLinks};
use ratchet_core::model::{
    After, BatchRecord, Enqueued, HolderChange, JobRecord, Link, LinkState, NewJob, Parent,
};
use ratchet_core::time::from_millis;
use ratchet_core::{BatchId, InvalidInput, JobId, JobState, Json};

use crate::connection::Tx;
use crate::ends::End;
use crate::error::{Failure, Result};
use crate::pipelines::{code, ids};
use crate::row;
use crate::store::MongoStore;

/// The links of the jobs of an enqueue, with the states of the parents.
#[derive(Debug, Default)]
pub(crate) struct Linked<'a> {
    links: NewLinks<'a>,
    /// State and result of each parent that is already stored, as the transaction sees them.
    stored: HashMap<JobId, (JobState, Option<Json>)>,
    /// Ends of the stored parents that have already ended.
    ended: Vec<End>,
}

impl Linked<'_> {
    /// Returns whether a new job of this enqueue waits for `job`.
    pub(crate) fn is_parent(&self, job: JobId) -> bool {
        self.links.is_parent(job)
    }
}

impl MongoStore {
    /// Finds the parents of the new jobs, and rejects invalid links. Writes nothing. [link.enqueue]
    /// [link.missing] [link.cycle] [link.duplicate]
    pub(crate) async fn find_parents<'a>(
        &self,
        tx: &mut Tx<'_>,
        jobs: &'a [NewJob],
        answers: &[Enqueued],
        new: &[usize],
    ) -> Result<Linked<'a>> {
        let links = NewLinks::of(jobs, answers, new).map_err(Failure::refused)?;
        let parents: Vec<JobId> = links.stored_parents().iter().copied().collect();
        let mut stored = HashMap::new();
        if !parents.is_empty() {
            stored = self.parents_inside(tx, &parents, answers).await?;
        }
        self.check_batches(tx, &links).await?;
        Ok(Linked {
            links,
            stored,
            ended: Vec::new(),
        })
    }

    /// Returns the state and the result of each parent, as the transaction sees them. Fails if a
    /// parent does not exist. [link.missing]
    async fn parents_inside(
        &self,
        tx: &mut Tx<'_>,
        parents: &[JobId],
        answers: &[Enqueued],
    ) -> Result<HashMap<JobId, (JobState, Option<Json>)>> {
        let side = self.main();
        let these = doc! { "_id": { "$in": ids(parents) } };
        let only = row::fields(doc! { "state": 1, "result": 1 });
        let mut inside = HashMap::with_capacity(parents.len());
        for row in tx.find(&side.jobs, these, only).await? {
            let state = JobState::from_code(row::int(&row, "state")?)?;
            let known = (state, row::json(&row, "result"));
            inside.insert(row::job_id(&row, "_id")?, known);
        }
        let Some(missing) = parents.iter().find(|parent| !inside.contains_key(*parent)) else {
            return Ok(inside);
        };
        let this = doc! { "_id": row::id(*missing) };
        Err(match side.plain().find_one(&side.jobs, this).await? {
            None => Failure::refused(links::missing_parent(*missing, answers)),
            Some(_) => older(),
        })
    }

    /// Fails if a batch does not exist, or if a new job would join a closed batch. Reads the
    /// batches in the transaction.
    async fn check_batches(&self, tx: &mut Tx<'_>, links: &NewLinks<'_>) -> Result<()> {
        let all: Vec<Bson> = links
            .batches()
            .iter()
            .map(|batch| row::id(*batch))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let these = doc! { "_id": { "$in": all } };
        let mut closed = HashMap::new();
        let rows = tx.find(&self.main().batches, these, FindOptions::default());
        for row in rows.await? {
            let batch = batch_record(&row)?;
            closed.insert(batch.id, batch.closed);
        }
        let closed = |batch: BatchId| closed.get(&batch).copied();
        links.check_batches(closed).map_err(Failure::refused)
    }

    /// Makes this transaction conflict with every concurrent call that ends a stored parent. So no
    /// parent can end unnoticed while its children are stored.
    ///
    /// First, the function sets the flag `children` of the parents outside of the transaction.
    /// Because of this flag, a call that ends a parent also uses a transaction. Both transactions
    /// then write to the same document of the collection `parents`, and so conflict. Within this
    /// transaction, unfinished parents stay unlocked in `jobs`. So a long transaction of the
    /// application delays only the ends of these parents.
    pub(crate) async fn meet_parents(
        &self,
        tx: &mut Tx<'_>,
        linked: &mut Linked<'_>,
        holders: &[HolderChange],
    ) -> Result<()> {
        let side = self.main();
        let mut inside = std::mem::take(&mut linked.stored);
        // This transaction writes these parents in `jobs`, with the flag `children`.
        inside.retain(|parent, _| holders.iter().all(|change| change.job() != *parent));
        if inside.is_empty() {
            return Ok(());
        }
        let mut parents: Vec<JobId> = inside.keys().copied().collect();
        parents.sort_unstable();
        let mut unfinished = doc! { "_id": { "$in": ids(&parents) } };
        let these = unfinished.clone();
        unfinished.insert("state", doc! { "$in": unfinished_states() });
        let flag = doc! { "$set": { "children": true } };
        let mut on = side.plain();
        let flagged = on.update_many(&side.jobs, unfinished, flag).await?;
        let all = usize::try_from(flagged) == Ok(parents.len());
        let mut outside = HashMap::with_capacity(parents.len());
        if !all {
            let only = row::fields(doc! { "state": 1, "children": 1 });
            for row in on.find(&side.jobs, these, only).await? {
                let state = JobState::from_code(row::int(&row, "state")?)?;
                let ends_unseen = !state.is_terminal() && !row::flag(&row, "children");
                if ends_unseen {
                    return Err(Failure::contention("a concurrent call requeued a parent"));
                }
                outside.insert(row::job_id(&row, "_id")?, state);
            }
        }
        let (mut free, mut own) = (Vec::new(), Vec::new());
        for parent in parents {
            match (inside.remove(&parent), outside.get(&parent)) {
                (None, _) => return Err(older()),
                (Some((state, result)), _) if state.is_terminal() => {
                    linked.ended.push(End::earlier(parent, state, result));
                    own.push(parent);
                }
                (Some(_), Some(state)) if state.is_terminal() => return Err(older()),
                // Either this transaction created the parent, or another call deleted the parent.
                // In the second case, the write below conflicts.
                (Some(_), None) if !all => own.push(parent),
                (Some(_), _) => free.push(row::id(parent)),
            }
        }
        tx.meet(&side.parents, free).await?;
        if !own.is_empty() {
            let these = doc! { "_id": { "$in": ids(&own) } };
            let change = doc! { "$set": { "children": true }, "$inc": { "rev": 1_i64 } };
            tx.update_many(&side.jobs, these, change).await?;
        }
        Ok(())
    }

    /// Stores the links of new jobs, whose documents are already written. Adds the jobs to their
    /// batches. Decides the links whose parents have already ended. [link.wait] [link.enqueue]
    /// [batch.join]
    pub(crate) async fn link(&self, tx: &mut Tx<'_>, linked: Linked<'_>) -> Result<()> {
        let mut rows = Vec::new();
        let links = &linked.links;
        for (child, after) in &links.after {
            for (place, one) in (0_i32..).zip(after) {
                let parent = one.parent();
                rows.push(RawDocumentBuf::try_from(&doc! {
                    "child": row::id(*child),
                    "place": place,
                    "kind": i32::from(parent.code()),
                    "parent": row::id(parent),
                    "state": i32::from(LinkState::Open.code()),
                    "condition": one.to_stored(),
                })?);
            }
        }
        tx.insert_many(&self.main().links, &rows).await?;
        let (awaited, joined) = (links.awaited(), links.joined());
        let mut batches = Vec::with_capacity(awaited.len());
        for batch in links.batches() {
            let joined = joined.get(&batch).copied();
            let record = self.meet_batch(tx, batch, joined).await?;
            batches.extend(awaited.contains(&batch).then_some(record));
        }
        self.follow(tx, linked.ended, batches).await
    }

    /// Writes to a batch that new jobs join or wait for, and returns the batch. Adds the number of
    /// joining jobs to its total. Conflicts if another call has closed the batch since this
    /// transaction began.
    async fn meet_batch(
        &self,
        tx: &mut Tx<'_>,
        batch: BatchId,
        joined: Option<u64>,
    ) -> Result<BatchRecord> {
        let side = self.main();
        let mut this = doc! { "_id": row::id(batch) };
        if joined.is_some() {
            this.insert("closed", false);
        }
        let total = joined.unwrap_or_default().cast_signed();
        let grow = doc! { "$inc": { "total": total, "rev": 1_i64 } };
        if let Some(row) = tx.change(&side.batches, this, grow, false).await? {
            return Ok(batch_record(&row)?);
        }
        // This transaction has checked that the batch exists, and that the batch is open if jobs
        // join it. So a concurrent call has changed the batch since then.
        Err(Failure::contention("a concurrent call changed a batch"))
    }

    /// Returns the jobs in `jobs` that have open links. Uses index `child`. [link.requeue]
    pub(crate) async fn have_open_links(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[JobId],
    ) -> Result<HashSet<JobId>> {
        if jobs.is_empty() {
            return Ok(HashSet::new());
        }
        let open = doc! {
            "child": { "$in": ids(jobs) },
            "state": i32::from(LinkState::Open.code()),
        };
        let only = row::fields(doc! { "child": 1 });
        let rows = tx.find(&self.main().links, open, only).await?;
        let children = rows.iter().map(|row| row::job_id(row, "child"));
        Ok(children.collect::<std::result::Result<_, _>>()?)
    }

    /// Adds the links of the jobs in `linked` to their records in `jobs`. If a link cannot be read,
    /// the job's last error reports this, unless the job already has a last error.
    pub(crate) async fn show_links(
        &self,
        on: &mut Tx<'_>,
        linked: &[JobId],
        jobs: &mut [JobRecord],
    ) -> Result<()> {
        if linked.is_empty() {
            return Ok(());
        }
        let mut links = self.links_of(on, linked).await?;
        for job in jobs {
            for link in links.remove(&job.id).unwrap_or_default() {
                match link.after {
                    Ok(after) => job.spec.after.push(after),
                    Err(problem) => {
                        job.last_error
                            .get_or_insert_with(|| problem.of_stored_job());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the links of each job to its parents, sorted by their positions in the job's list of
    /// links. Uses index `child`.
    async fn links_of(
        &self,
        on: &mut Tx<'_>,
        jobs: &[JobId],
    ) -> Result<HashMap<JobId, Vec<StoredLink>>> {
        let side = self.main();
        let theirs = doc! { "child": { "$in": ids(jobs) } };
        let options = FindOptions::builder()
            .sort(doc! { "child": 1, "place": 1 })
            .build();
        let mut links: HashMap<JobId, Vec<StoredLink>> = HashMap::new();
        for row in on.find(&side.links, theirs, options).await? {
            let link = StoredLink::read(&row)?;
            links.entry(link.child).or_default().push(link);
        }
        Ok(links)
    }

    /// Returns the links of each of these jobs to its parents, sorted by their positions in the
    /// job's list of links. [link.parents]
    pub(crate) async fn read_parents(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let mut links: HashMap<JobId, Vec<Link>> = self
            .links_of(&mut self.main().plain(), jobs)
            .await?
            .into_iter()
            .map(|(job, links)| {
                (
                    job,
                    links.into_iter().filter_map(StoredLink::shown).collect(),
                )
            })
            .collect();
        // Clone the links, because `jobs` may contain the same id several times.
        let mut of = |job: &JobId| links.get_mut(job).cloned().unwrap_or_default();
        Ok(jobs.iter().map(&mut of).collect())
    }

    /// Returns up to `limit` links whose parent is `parent`. If `after` is set, returns only links
    /// of children with greater ids. Uses index `parent`. [link.children]
    pub(crate) async fn read_children(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        let side = self.main();
        let mut on_it = doc! { "parent": row::id(parent), "kind": i32::from(parent.code()) };
        if let Some(after) = after {
            on_it.insert("child", doc! { "$gt": row::id(after) });
        }
        let options = FindOptions::builder()
            .sort(doc! { "child": 1, "place": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let rows = side.plain().find(&side.links, on_it, options).await?;
        let links = rows.iter().map(|row| StoredLink::read(row));
        let links: Vec<StoredLink> = links.collect::<std::result::Result<_, _>>()?;
        Ok(links.into_iter().filter_map(StoredLink::shown).collect())
    }
}

fn older() -> Failure {
    Failure::contention("a parent changed after the transaction began")
}

pub(crate) fn unfinished_states() -> Vec<i32> {
    let unfinished = JobState::ALL.iter().filter(|state| !state.is_terminal());
    unfinished.map(|state| code(*state)).collect()
}

/// A document of the collection `links`. If only the condition of the link cannot be read, `after`
/// is the error and the other fields are valid.
pub(crate) struct StoredLink {
    pub(crate) child: JobId,
    pub(crate) place: u32,
    pub(crate) parent: Parent,
    state: LinkState,
    pub(crate) after: Result<After, InvalidInput>,
}

impl StoredLink {
    pub(crate) fn read(row: &RawDocument) -> Result<Self, InvalidInput> {
        let missing = || InvalidInput::new("parent", "is missing");
        let parent = row::bytes(row, "parent")?.ok_or_else(missing)?;
        let parent = Parent::from_stored(row::int(row, "kind")?, parent)?;
        let after = row::text(row, "condition");
        Ok(Self {
            child: row::job_id(row, "child")?,
            place: row::count(row, "place")?,
            parent,
            state: LinkState::from_code(row::int(row, "state")?)?,
            after: after.and_then(|text| After::from_stored(parent, text.unwrap_or_default())),
        })
    }

    /// Converts this to a link. If the condition cannot be read, logs the problem and returns
    /// `None`.
    fn shown(self) -> Option<Link> {
        let child = self.child;
        self.after
            .map(|after| Link::new(child, after, self.state))
            .map_err(|error| {
                tracing::warn!(job = %child, %error, "skipped a stored link that \
                    cannot be read");
            })
            .ok()
    }
}

/// Reads a batch from a document of the collection `batches`.
pub(crate) fn batch_record(row: &RawDocument) -> Result<BatchRecord, InvalidInput> {
    let missing = || InvalidInput::new("_id", "is missing");
    let id = BatchId::from_bytes(row::bytes(row, "_id")?.ok_or_else(missing)?);
    let mut batch = BatchRecord::new(id, from_millis(row::int(row, "created_at")?));
    batch.total = row::count(row, "total")?;
    batch.succeeded = row::count(row, "succeeded")?;
    batch.failed = row::count(row, "failed")?;
    batch.cancelled = row::count(row, "cancelled")?;
    batch.closed = row::flag(row, "closed");
    batch.ended_at = row::optional_int(row, "ended_at")?.map(from_millis);
    Ok(batch)
}
