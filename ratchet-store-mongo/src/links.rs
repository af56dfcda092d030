//! Links: what jobs wait for.
//!
//! A link is a document of its own, found by its child and by its parent; a job that has some says so
//! (`links`), and one that others wait for too (`children`). Transactions here do not wait for each
//! other, and see what was there when they began. So an enqueue that links to a stored job changes
//! the document of that job: if its end came first, the enqueue is done again and sees it; if it comes
//! later, it finds the flag. And it changes the documents of the batches that it joins or waits for,
//! which whoever counts in them changes too.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::links;
use ratchet_core::model::{
    After, BatchRecord, Enqueued, JobRecord, Link, LinkState, NewJob, Parent,
};
use ratchet_core::time::from_millis;
use ratchet_core::{BatchId, InvalidInput, JobId, JobState};

use crate::connection::Tx;
use crate::ends::{End, Ties};
use crate::error::{Failure, Result};
use crate::pipelines::{code, ids};
use crate::row;
use crate::store::MongoStore;

/// What the new jobs of an enqueue wait for, and which batches they are in.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    after: Vec<(JobId, Vec<After>)>,
    members: BTreeMap<BatchId, i64>,
    parents: HashSet<JobId>,
    /// Stored parents that have ended.
    ended: Vec<End>,
}

impl Linked {
    /// Whether a new job waits for this one.
    pub(crate) fn is_parent(&self, job: JobId) -> bool {
        self.parents.contains(&job)
    }
}

/// Whether a job waits for others or for a signal, or is in a batch.
pub(crate) fn is_linked(job: &NewJob) -> bool {
    job.spec().waits() || job.spec().batch.is_some()
}

impl MongoStore {
    /// Finds out what the new jobs of an enqueue wait for, and flags the stored ones among that.
    /// [link.enqueue] [link.missing] [link.cycle] [link.duplicate]
    pub(crate) async fn flag_parents(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[NewJob],
        answers: &[Enqueued],
        new: &[usize],
    ) -> Result<Linked> {
        let mut linked = Linked::default();
        if new.iter().all(|place| !is_linked(&jobs[*place])) {
            return Ok(linked);
        }
        let after = links::resolve(jobs, answers, new).map_err(Failure::refused)?;
        let own: HashSet<JobId> = new.iter().map(|place| jobs[*place].id()).collect();
        for (place, after) in new.iter().zip(after) {
            for one in &after {
                if let Parent::Job(parent) = one.parent() {
                    linked.parents.insert(parent);
                }
            }
            if !after.is_empty() {
                linked.after.push((jobs[*place].id(), after));
            }
            if let Some(batch) = jobs[*place].spec().batch {
                *linked.members.entry(batch).or_default() += 1;
            }
        }
        let stored: BTreeSet<JobId> = linked.parents.difference(&own).copied().collect();
        let stored: Vec<JobId> = stored.into_iter().collect();
        if stored.is_empty() {
            return Ok(linked);
        }
        let side = self.main();
        let these = doc! { "_id": { "$in": ids(&stored) } };
        let flag = doc! { "$set": { "children": true }, "$inc": { "rev": 1_i64 } };
        tx.update_many(&side.jobs, these.clone(), flag).await?;
        let only = fields(doc! { "state": 1, "result": 1 });
        let mut found = HashSet::with_capacity(stored.len());
        for row in tx.find(&side.jobs, these, only).await? {
            let id = row::job_id(&row, "_id")?;
            let state = JobState::from_code(row::int(&row, "state")?)?;
            if state.is_terminal() {
                // It was counted in its batch when it ended.
                let ties = Ties::parent();
                let end = ties.end(id, state, row::json(&row, "result"));
                linked.ended.push(end);
            }
            found.insert(id);
        }
        match stored.into_iter().find(|parent| !found.contains(parent)) {
            Some(parent) => Err(Failure::refused(links::missing(Parent::Job(parent)))),
            None => Ok(linked),
        }
    }

    /// Links new jobs, which are stored, to what they wait for, and decides what is decided already.
    /// [link.wait] [link.enqueue] [batch.join]
    pub(crate) async fn link(&self, tx: &mut Tx<'_>, linked: Linked) -> Result<()> {
        let mut rows = Vec::new();
        let mut awaited = BTreeSet::new();
        for (child, after) in &linked.after {
            for (place, one) in (0_i32..).zip(after) {
                let parent = one.parent();
                if let Parent::Batch(batch) = parent {
                    awaited.insert(batch);
                }
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
        let mut batches = Vec::with_capacity(awaited.len());
        let meant: BTreeSet<BatchId> = linked.members.keys().chain(&awaited).copied().collect();
        for batch in meant {
            let joined = linked.members.get(&batch).copied();
            let record = self.meet_batch(tx, batch, joined).await?;
            batches.extend(awaited.contains(&batch).then_some(record));
        }
        self.follow(tx, linked.ended, batches).await
    }

    /// Lets so many jobs join a batch, or notes that some wait for it; how it stands then.
    async fn meet_batch(
        &self,
        tx: &mut Tx<'_>,
        batch: BatchId,
        joined: Option<i64>,
    ) -> Result<BatchRecord> {
        let side = self.main();
        let mut this = doc! { "_id": row::id(batch) };
        if joined.is_some() {
            this.insert("closed", false);
        }
        let grow = doc! { "$inc": { "total": joined.unwrap_or_default(), "rev": 1_i64 } };
        if let Some(row) = tx.change(&side.batches, this, grow, false).await? {
            return Ok(batch_record(&row)?);
        }
        let this = doc! { "_id": row::id(batch) };
        Err(Failure::refused(
            match tx.find_one(&side.batches, this).await? {
                None => links::missing(Parent::Batch(batch)),
                Some(_) => links::closed(batch),
            },
        ))
    }

    /// Those of these jobs that have open links. Index `child`. [link.requeue]
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
        let only = fields(doc! { "child": 1 });
        let rows = tx.find(&self.main().links, open, only).await?;
        let children = rows.iter().map(|row| row::job_id(row, "child"));
        Ok(children.collect::<std::result::Result<_, _>>()?)
    }

    /// Those of these jobs, given as documents, of which a child has not ended. Index `parent`.
    /// [purge.awaited] [archive.awaited]
    pub(crate) async fn awaited(
        &self,
        tx: &mut Tx<'_>,
        jobs: &[RawDocumentBuf],
    ) -> Result<HashSet<JobId>> {
        let parents = flagged(jobs, "children")?;
        if parents.is_empty() {
            return Ok(HashSet::new());
        }
        let side = self.main();
        let on_these = doc! {
            "parent": { "$in": ids(&parents) },
            "kind": i32::from(Parent::Job(parents[0]).code()),
        };
        let only = fields(doc! { "parent": 1, "child": 1 });
        let mut links = Vec::new();
        let mut children = BTreeSet::new();
        for row in tx.find(&side.links, on_these, only).await? {
            let child = row::job_id(&row, "child")?;
            links.push((row::job_id(&row, "parent")?, child));
            children.insert(child);
        }
        let unfinished = JobState::ALL.iter().filter(|state| !state.is_terminal());
        let unfinished: Vec<i32> = unfinished.map(|state| code(*state)).collect();
        let children: Vec<JobId> = children.into_iter().collect();
        let these = doc! { "_id": { "$in": ids(&children) }, "state": { "$in": unfinished } };
        let rows = tx
            .find(&side.jobs, these, fields(doc! { "_id": 1 }))
            .await?;
        let unfinished = rows.iter().map(|row| row::job_id(row, "_id"));
        let unfinished: HashSet<JobId> = unfinished.collect::<std::result::Result<_, _>>()?;
        links.retain(|(_, child)| unfinished.contains(child));
        Ok(links.into_iter().map(|(parent, _)| parent).collect())
    }

    /// Completes jobs that are shown with what they wait, or waited, for.
    pub(crate) async fn show_links(&self, linked: &[JobId], jobs: &mut [JobRecord]) -> Result<()> {
        if linked.is_empty() {
            return Ok(());
        }
        let mut links = self.links_of(linked).await?;
        for job in jobs {
            for link in links.remove(&job.id).unwrap_or_default() {
                match link.after {
                    Ok(after) => job.spec.after.push(after),
                    Err(problem) => {
                        job.last_error
                            .get_or_insert_with(|| row::unreadable(&problem));
                    }
                }
            }
        }
        Ok(())
    }

    /// The links of jobs, those of each in order. Index `child`.
    async fn links_of(&self, jobs: &[JobId]) -> Result<HashMap<JobId, Vec<StoredLink>>> {
        let side = self.main();
        let theirs = doc! { "child": { "$in": ids(jobs) } };
        let options = FindOptions::builder()
            .sort(doc! { "child": 1, "place": 1 })
            .build();
        let mut links: HashMap<JobId, Vec<StoredLink>> = HashMap::new();
        for row in side.plain().find(&side.links, theirs, options).await? {
            let link = StoredLink::read(&row)?;
            links.entry(link.child).or_default().push(link);
        }
        Ok(links)
    }

    /// [link.parents]
    pub(crate) async fn read_parents(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let mut links: HashMap<JobId, Vec<Link>> = self
            .links_of(jobs)
            .await?
            .into_iter()
            .map(|(job, links)| {
                (
                    job,
                    links.into_iter().filter_map(StoredLink::shown).collect(),
                )
            })
            .collect();
        // Ids may be repeated.
        let mut of = |job: &JobId| links.get_mut(job).cloned().unwrap_or_default();
        Ok(jobs.iter().map(&mut of).collect())
    }

    /// The links on a parent, of children behind one. Index `parent`. [link.children]
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

/// Those of these jobs, given as documents, that have a flag.
pub(crate) fn flagged(jobs: &[RawDocumentBuf], flag: &'static str) -> Result<Vec<JobId>> {
    let with = jobs.iter().filter(|row| row::flag(row, flag));
    let with = with.map(|row| row::job_id(row, "_id"));
    Ok(with.collect::<std::result::Result<_, _>>()?)
}

pub(crate) fn fields(projection: Document) -> FindOptions {
    FindOptions::builder().projection(projection).build()
}

/// A document of `links`; what cannot be read of it does not hide the rest.
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

    /// The link, unless it cannot be read, which is logged.
    fn shown(self) -> Option<Link> {
        let child = self.child;
        self.after
            .map(|after| Link::new(child, after, self.state))
            .map_err(|error| tracing::warn!(job = %child, %error, "a link cannot be read"))
            .ok()
    }
}

/// The batch of a document of `batches`.
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
