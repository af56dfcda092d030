//! Stores the links and batches of new jobs, and updates the jobs and batches that are affected by
//! the end of a job.
//!
//! A link makes a child job wait for the end of a parent job. A transaction decides a link when it
//! stores whether the link's condition was met. Before that, it locks the children of the links
//! with one statement, in order of id. A later statement reads the links of these children. This
//! statement sees everything that was committed before the locks were acquired. A transaction that
//! links new jobs to stored parents changes the rows of the parents. A concurrent transaction that
//! ends a parent therefore either waits for the linking transaction, or has committed before and is
//! visible to the linking transaction. Batches are locked after all jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use ratchet_core::links::{self, Ask, Cascade, Changes, EndedJob, NewLinks, OpenLink, WaitingJob};
use ratchet_core::model::{BatchRecord, Enqueued, JobFlags, NewJob, Parent, Tally};
use ratchet_core::time::duration_millis;
use ratchet_core::{BatchId, JobId, JobState};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::links_read::StoredLink;
use crate::row;
use crate::store::SqlStore;

/// Links, signals and batches of the new jobs of one enqueue call. The parents that are already
/// stored are locked.
#[derive(Debug, Default)]
pub(crate) struct Linked<'a> {
    links: NewLinks<'a>,
    /// Parents that were already stored and have ended.
    ended: Vec<Uuid>,
}

impl Linked<'_> {
    /// Returns whether a new job of the enqueue call waits for the given job.
    pub(crate) fn is_parent(&self, job: JobId) -> bool {
        self.links.is_parent(job)
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Determines the links of the new jobs of an enqueue call. Locks the parents that are already
    /// stored, so no other transaction can end these jobs before this transaction ends.
    pub(crate) async fn lock_parents<'a>(
        &self,
        on: &mut impl Run<D>,
        jobs: &'a [NewJob],
        answers: &[Enqueued],
        new: &[usize],
    ) -> Result<Linked<'a>> {
        let links = NewLinks::of(jobs, answers, new).map_err(Failure::refused)?;
        let stored = links.stored_parents();
        let mut ended = Vec::new();
        if !stored.is_empty() {
            let wanted: Vec<Uuid> = stored.iter().map(JobId::as_uuid).collect();
            let flag = self.sql().flag_parents.query().bind(&wanted);
            let mut found = HashSet::new();
            for row in on.rows(flag).await? {
                let id = row::job_id(&row, 0)?;
                if JobState::from_code(row.try_get::<i16>(1)?.into())?.is_terminal() {
                    ended.push(id.as_uuid());
                }
                found.insert(id);
            }
            if let Some(parent) = stored.iter().find(|parent| !found.contains(*parent)) {
                return Err(Failure::refused(links::missing_parent(*parent, answers)));
            }
        }
        Ok(Linked { links, ended })
    }

    /// Stores the links, signals and batches of new jobs. The new jobs themselves must already be
    /// stored. Then decides each link whose condition is already met, or can no longer be met.
    pub(crate) async fn link(&self, on: &mut impl Run<D>, linked: Linked<'_>) -> Result<()> {
        let (sql, Linked { links, ended }) = (self.sql(), linked);
        let mut columns = (vec![], vec![], vec![], vec![], vec![]);
        for (child, after) in &links.after {
            for (place, one) in (0_i32..).zip(after) {
                let parent = one.parent();
                columns.0.push(child.as_uuid());
                columns.1.push(place);
                columns.2.push(i16::from(parent.code()));
                columns.3.push(Uuid::from_bytes(*parent.as_bytes()));
                columns.4.push(one.to_stored());
            }
        }
        if !columns.0.is_empty() {
            on.execute(sql.add_links.query().table(&[
                ("child", &columns.0),
                ("place", &columns.1),
                ("kind", &columns.2),
                ("parent", &columns.3),
                ("condition", &columns.4),
            ]))
            .await?;
        }
        if !links.signals.is_empty() {
            let mut columns = (vec![], vec![], vec![]);
            for (job, wait) in &links.signals {
                columns.0.push(job.as_uuid());
                columns.1.push(wait.key.as_str());
                columns.2.push(duration_millis(wait.timeout));
            }
            on.execute(sql.add_signals.query().table(&[
                ("job", &columns.0),
                ("key", &columns.1),
                ("timeout", &columns.2),
            ]))
            .await?;
        }
        if !links.members.is_empty() {
            let members = links.members.iter();
            let (jobs, batches): (Vec<Uuid>, Vec<Uuid>) = members
                .map(|(job, batch)| (job.as_uuid(), batch.as_uuid()))
                .unzip();
            on.execute(
                sql.join_batches
                    .query()
                    .table(&[("job", &jobs), ("batch", &batches)]),
            )
            .await?;
        }
        let batches = self.lock_batches(on, &links).await?;
        let ended: Vec<(Uuid, JobFlags)> = ended
            .into_iter()
            .map(|id| (id, JobFlags::CHILDREN))
            .collect();
        self.follow(on, &ended, batches).await
    }

    /// Locks the batches that new jobs wait for or join. Adds the number of joining jobs to the
    /// total of each batch. Returns the batches that new jobs wait for.
    async fn lock_batches(
        &self,
        on: &mut impl Run<D>,
        links: &NewLinks<'_>,
    ) -> Result<Vec<BatchRecord>> {
        let wanted = links.batches();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = wanted.iter().map(BatchId::as_uuid).collect();
        let lock = self.sql().lock_batches.query().bind(&ids);
        let mut batches = HashMap::with_capacity(wanted.len());
        for row in on.rows(lock).await? {
            let batch = row::batch_record(&row)?;
            batches.insert(batch.id, batch);
        }
        let closed = |batch: BatchId| batches.get(&batch).map(|batch: &BatchRecord| batch.closed);
        links.check_batches(closed).map_err(Failure::refused)?;
        let joined = links.joined();
        if !joined.is_empty() {
            let (mut ids, mut counts) = (Vec::new(), Vec::new());
            for (id, count) in joined {
                ids.push(id.as_uuid());
                counts.push(count.cast_signed());
                if let Some(batch) = batches.get_mut(&id) {
                    batch.total += count;
                }
            }
            on.execute(
                self.sql()
                    .grow_batches
                    .query()
                    .table(&[("id", &ids), ("count", &counts)]),
            )
            .await?;
        }
        let awaited = links.awaited();
        batches.retain(|batch, _| awaited.contains(batch));
        Ok(batches.into_values().collect())
    }

    /// Updates the jobs and batches that are affected by the end of the given jobs. `ended`
    /// contains each ended job with its flags.
    pub(crate) async fn follow_ends(
        &self,
        on: &mut impl Run<D>,
        ended: &[(Uuid, JobFlags)],
    ) -> Result<()> {
        self.follow(on, ended, Vec::new()).await
    }

    /// Updates the jobs and batches that are affected by the end of the given jobs, or by the state
    /// of the given batches. `ended` contains each ended job with its flags. The batches must be
    /// locked.
    pub(crate) async fn follow(
        &self,
        on: &mut impl Run<D>,
        ended: &[(Uuid, JobFlags)],
        batches: Vec<BatchRecord>,
    ) -> Result<()> {
        let ended = ended.iter();
        let ended = ended.filter(|(_, flags)| flags.has_any(JobFlags::FOLLOWED));
        let ended: Vec<Uuid> = ended.map(|(id, _)| *id).collect();
        if ended.is_empty() && batches.is_empty() {
            return Ok(());
        }
        let mut cascade = Cascade::new();
        if !ended.is_empty() {
            let find = self.sql().find_ended.query().bind(&ended);
            for row in on.rows(find).await? {
                cascade.ended(ended_job(&row)?);
            }
        }
        for batch in batches {
            cascade.batch(batch);
        }
        while let Some(ask) = cascade.next() {
            match ask {
                Ask::Write(changes) => self.write_links(on, &changes).await?,
                Ask::Children(parents) => {
                    cascade.children(self.waiting_for(on, &parents).await?);
                }
                Ask::Count(ended) => cascade.counted(self.count(on, &ended).await?),
            }
        }
        Ok(())
    }

    async fn waiting_for(
        &self,
        on: &mut impl Run<D>,
        parents: &[Parent],
    ) -> Result<Vec<WaitingJob>> {
        let sql = self.sql();
        let ids = parents
            .iter()
            .map(|parent| Uuid::from_bytes(*parent.as_bytes()));
        let ids: Vec<Uuid> = ids.collect();
        let kinds = parents.iter().map(|parent| i16::from(parent.code()));
        let kinds: Vec<i16> = kinds.collect();
        let mut waiting = BTreeMap::new();
        let lock = sql
            .lock_children
            .query()
            .table(&[("parent", &ids), ("kind", &kinds)]);
        for row in on.rows(lock).await? {
            let (job, flags) = (row::job_id(&row, 0)?, row.try_get::<JobFlags>(2)?);
            let child = WaitingJob {
                job,
                state: JobState::from_code(row.try_get::<i16>(1)?.into())?,
                awaits_signal: false,
                has_children: flags.has_any(JobFlags::CHILDREN),
                in_batch: flags.has_any(JobFlags::BATCH),
                open: Vec::new(),
            };
            waiting.insert(job, child);
        }
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        // The children are locked at this point, so no other transaction changes their links.
        let children: Vec<Uuid> = waiting.keys().map(JobId::as_uuid).collect();
        let undecided = sql.undecided_links.query().bind(&children);
        for row in on.rows(undecided).await? {
            let link = StoredLink::read(&row)?;
            if let Some(child) = waiting.get_mut(&link.child) {
                child.awaits_signal = row.try_get(6)?;
                child.open.push(OpenLink {
                    place: link.place,
                    parent: link.parent,
                    after: link.after.ok(),
                });
            }
        }
        // Ignore the children without an open link: a concurrent transaction has already decided
        // all their links.
        waiting.retain(|_, child| !child.open.is_empty());
        Ok(waiting.into_values().collect())
    }

    async fn count(
        &self,
        on: &mut impl Run<D>,
        ended: &[(JobId, JobState)],
    ) -> Result<Vec<BatchRecord>> {
        let sql = self.sql();
        let states: HashMap<JobId, JobState> = ended.iter().copied().collect();
        let jobs: Vec<Uuid> = states.keys().map(JobId::as_uuid).collect();
        let mut tallies: BTreeMap<Uuid, Tally> = BTreeMap::new();
        for row in on.rows(sql.count_children.query().bind(&jobs)).await? {
            if let Some(state) = states.get(&row::job_id(&row, 0)?) {
                tallies.entry(row.try_get(1)?).or_default().count(*state);
            }
        }
        if tallies.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = tallies.keys().copied().collect();
        if ids.len() > 1 {
            // The statement `count_in_batches` may lock the batches in any order. To avoid
            // deadlocks, lock them here first, in order of id.
            on.rows(sql.lock_batches.query().bind(&ids)).await?;
        }
        let column = |count: fn(&Tally) -> u64| -> Vec<i64> {
            let counts = tallies.values().map(count);
            counts.map(u64::cast_signed).collect()
        };
        let rows = on
            .rows(sql.count_in_batches.query().table(&[
                ("id", &ids),
                ("succeeded", &column(|tally| tally.succeeded)),
                ("failed", &column(|tally| tally.failed)),
                ("cancelled", &column(|tally| tally.cancelled)),
            ]))
            .await?;
        rows.iter().map(row::batch_record).collect()
    }

    async fn write_links(&self, on: &mut impl Run<D>, changes: &Changes) -> Result<()> {
        let sql = self.sql();
        let uuids = |jobs: &[JobId]| -> Vec<Uuid> { jobs.iter().map(JobId::as_uuid).collect() };
        if !changes.links.is_empty() {
            let mut columns = (vec![], vec![], vec![]);
            for (child, place, state) in &changes.links {
                columns.0.push(child.as_uuid());
                columns.1.push(place.cast_signed());
                columns.2.push(i16::from(state.code()));
            }
            on.execute(sql.decide_links.query().table(&[
                ("child", &columns.0),
                ("place", &columns.1),
                ("state", &columns.2),
            ]))
            .await?;
        }
        if !changes.cancelled.is_empty() {
            let jobs = uuids(&changes.cancelled);
            let states = vec![i16::from(JobState::Cancelled.code()); jobs.len()];
            on.execute(
                sql.change_state
                    .query()
                    .table(&[("job", &jobs), ("state", &states)]),
            )
            .await?;
        }
        if !changes.released.is_empty() {
            let release = sql.release_jobs.query();
            on.execute(release.bind(&uuids(&changes.released))).await?;
        }
        if !changes.ended.is_empty() {
            let ids: Vec<Uuid> = changes.ended.iter().map(BatchId::as_uuid).collect();
            on.execute(sql.end_batches.query().bind(&ids)).await?;
        }
        Ok(())
    }
}

fn ended_job(row: &impl Row) -> Result<EndedJob> {
    let flags: JobFlags = row.try_get(2)?;
    Ok(EndedJob {
        job: row::job_id(row, 0)?,
        state: JobState::from_code(row.try_get::<i16>(1)?.into())?,
        result: row::json(row, 3),
        has_children: flags.has_any(JobFlags::CHILDREN),
        in_batch: flags.has_any(JobFlags::BATCH),
    })
}
