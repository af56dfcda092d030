//! Links, batches and signals: what jobs wait for, and what the ends of jobs change in other jobs.
//! All changes are made in the transaction that ends the jobs. There is only one writer, so nothing
//! changes between a read and the write that depends on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ratchet_core::links::{self, Ask, Cascade, Changes, EndedJob, NewLinks, OpenLink, WaitingJob};
use ratchet_core::model::{
    After, BatchRecord, Enqueued, JobFlags, JobRecord, Link, LinkState, NewJob, Parent,
    SignalRecord, SignalWait, Tally,
};
use ratchet_core::time::{duration_millis, from_millis};
use ratchet_core::{BatchId, InvalidInput, JobId, JobState};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::{Failure, Result};
use crate::request::Work;
use crate::row;
use crate::settle::give_up;
use crate::statements::{Connection, SQL};

/// Ended jobs and changed batches of a request, whose consequences are applied at the end of the
/// request.
#[derive(Debug, Default)]
pub(crate) struct Come {
    ended: BTreeSet<JobId>,
    batches: BTreeSet<BatchId>,
}

impl Come {
    /// Records that a job has ended. The job has children or is in a batch. Also called for each
    /// parent of a new job, because the parent may have ended earlier.
    pub(crate) fn ended(&mut self, job: JobId) {
        self.ended.insert(job);
    }

    /// Records that a batch was closed, or that a new job waits for the batch.
    pub(crate) fn batch(&mut self, batch: BatchId) {
        self.batches.insert(batch);
    }
}

/// Stores the links, signals and batch memberships of new jobs, which are already stored
/// themselves.
pub(crate) fn link(
    work: &Work<'_>,
    jobs: &[NewJob],
    answers: &[Enqueued],
    new: &[usize],
) -> Result<()> {
    let links = NewLinks::of(jobs, answers, new).map_err(Failure::refused)?;
    check_parents(work.conn, &links, answers)?;
    add_links(work, &links)?;
    let mut add_signal = work.conn.prepare_cached(&SQL.add_signal)?;
    for (job, wait) in &links.signals {
        let timeout = duration_millis(wait.timeout);
        let deadline = work.now.saturating_add(timeout);
        let id = job.as_bytes();
        add_signal.execute(params![id, wait.key.as_str(), timeout, deadline])?;
    }
    let mut grow = work.conn.prepare_cached(&SQL.grow_batch)?;
    let mut join = work.conn.prepare_cached(&SQL.join_batch)?;
    for (job, batch) in &links.members {
        grow.execute([batch.as_bytes()])?;
        join.execute([job.as_bytes(), batch.as_bytes()])?;
    }
    Ok(())
}

/// Fails if a parent is not stored, or if a batch does not exist or is closed.
fn check_parents(conn: Connection<'_>, links: &NewLinks<'_>, answers: &[Enqueued]) -> Result<()> {
    let mut exists = conn.prepare_cached(&SQL.job_exists)?;
    for parent in links.stored_parents() {
        if !exists.query_row([parent.as_bytes()], |row| row.get::<_, bool>(0))? {
            return Err(Failure::refused(links::missing_parent(*parent, answers)));
        }
    }
    let mut closed = HashMap::new();
    for batch in links.batches() {
        if let Some(record) = read_batch(conn, batch)? {
            closed.insert(batch, record.closed);
        }
    }
    let closed = |batch: BatchId| closed.get(&batch).copied();
    links.check_batches(closed).map_err(Failure::refused)
}

fn add_links(work: &Work<'_>, links: &NewLinks<'_>) -> Result<()> {
    let mut add = work.conn.prepare_cached(&SQL.add_link)?;
    let mut flag = work.conn.prepare_cached(&SQL.flag_parent)?;
    for (child, after) in &links.after {
        for (place, one) in (0_i64..).zip(after) {
            let parent = one.parent();
            add.execute(params![
                child.as_bytes(),
                place,
                parent.code(),
                parent.as_bytes(),
                one.to_stored(),
            ])?;
            match parent {
                Parent::Batch(batch) => work.come.borrow_mut().batch(batch),
                Parent::Job(parent) => {
                    flag.execute([parent.as_bytes()])?;
                    // The parent may have ended already.
                    work.come.borrow_mut().ended(parent);
                }
            }
        }
    }
    Ok(())
}

/// Applies the consequences of the ended jobs and changed batches of this request. Other jobs may
/// thereby be released or cancelled, and batches may end.
pub(crate) fn follow(work: &Work<'_>) -> Result<()> {
    let Come { ended, batches } = work.come.take();
    if ended.is_empty() && batches.is_empty() {
        return Ok(());
    }
    let mut cascade = Cascade::new();
    for id in ended {
        if let Some(job) = find_ended(work.conn, id)? {
            cascade.ended(job);
        }
    }
    for batch in batches {
        if let Some(batch) = read_batch(work.conn, batch)? {
            cascade.batch(batch);
        }
    }
    while let Some(ask) = cascade.next() {
        match ask {
            Ask::Write(changes) => write(work, &changes)?,
            Ask::Children(parents) => cascade.children(waiting_for(work.conn, &parents)?),
            Ask::Count(ended) => cascade.counted(count(work.conn, &ended)?),
        }
    }
    // Discards the events that the cascade has recorded, because the cascade has already applied
    // them.
    work.come.take();
    Ok(())
}

fn find_ended(conn: Connection<'_>, id: JobId) -> Result<Option<EndedJob>> {
    let found = conn
        .prepare_cached(&SQL.find_ended)?
        .query_row([id.as_bytes()], |row| {
            let flags = row::flags(row, 1)?;
            Ok((row.get::<_, i64>(0)?, flags, row::json(row, 2)))
        })
        .optional()?;
    let Some((state, flags, result)) = found else {
        return Ok(None);
    };
    Ok(Some(EndedJob {
        job: id,
        state: JobState::from_code(state)?,
        result,
        has_children: flags.has_any(JobFlags::CHILDREN),
        in_batch: flags.has_any(JobFlags::BATCH),
    }))
}

fn waiting_for(conn: Connection<'_>, parents: &[Parent]) -> Result<Vec<WaitingJob>> {
    let mut children = BTreeSet::new();
    let mut find = conn.prepare_cached(&SQL.open_children)?;
    for parent in parents {
        let found = find.query_map(params![parent.as_bytes(), parent.code()], |row| {
            row::job_id(row, 0)
        })?;
        for child in found {
            children.insert(child?);
        }
    }
    let mut waiting = Vec::with_capacity(children.len());
    for child in children {
        let found = conn
            .prepare_cached(&SQL.read_state)?
            .query_row([child.as_bytes()], |row| {
                Ok((row.get(0)?, row::flags(row, 2)?))
            })
            .optional()?;
        // A deleted child has no links.
        let Some((state, flags)) = found else {
            continue;
        };
        let open = links_of(conn, child)?.into_iter().filter_map(|link| {
            (link.state == LinkState::Open).then_some(OpenLink {
                place: link.place,
                parent: link.parent,
                after: link.after.ok(),
            })
        });
        waiting.push(WaitingJob {
            job: child,
            state: JobState::from_code(state)?,
            awaits_signal: signal_of(conn, child)?.is_some_and(|signal| signal.is_open()),
            has_children: flags.has_any(JobFlags::CHILDREN),
            in_batch: flags.has_any(JobFlags::BATCH),
            open: open.collect(),
        });
    }
    Ok(waiting)
}

fn count(conn: Connection<'_>, ended: &[(JobId, JobState)]) -> Result<Vec<BatchRecord>> {
    let mut tallies: BTreeMap<BatchId, Tally> = BTreeMap::new();
    let mut note = conn.prepare_cached(&SQL.count_child)?;
    for (job, state) in ended {
        let batch = note
            .query_row([job.as_bytes()], |row| row.get(0).map(BatchId::from_bytes))
            .optional()?;
        if let Some(batch) = batch {
            tallies.entry(batch).or_default().count(*state);
        }
    }
    let mut add = conn.prepare_cached(&SQL.count_in_batch)?;
    let mut batches = Vec::with_capacity(tallies.len());
    for (batch, tally) in tallies {
        add.execute(params![
            batch.as_bytes(),
            tally.succeeded.cast_signed(),
            tally.failed.cast_signed(),
            tally.cancelled.cast_signed(),
        ])?;
        batches.extend(read_batch(conn, batch)?);
    }
    Ok(batches)
}

fn write(work: &Work<'_>, changes: &Changes) -> Result<()> {
    let mut decide = work.conn.prepare_cached(&SQL.decide_link)?;
    for (child, place, state) in &changes.links {
        decide.execute(params![child.as_bytes(), place, state.code()])?;
    }
    for id in &changes.cancelled {
        let (data, flags) = work
            .conn
            .prepare_cached(&SQL.read_state)?
            .query_row([id.as_bytes()], |row| {
                Ok((row.get(1)?, row::flags(row, 2)?))
            })?;
        work.conn
            .prepare_cached(&SQL.change_state)?
            .execute(params![
                id.as_bytes(),
                JobState::Blocked.code(),
                JobState::Cancelled.code(),
                work.now,
            ])?;
        give_up(work, *id, data, flags)?;
    }
    for id in &changes.released {
        release(work, *id)?;
    }
    for batch in &changes.ended {
        work.conn
            .prepare_cached(&SQL.end_batch)?
            .execute(params![batch.as_bytes(), work.now])?;
    }
    Ok(())
}

/// Makes a blocked job claimable, once the job waits for nothing any more.
pub(crate) fn release(work: &Work<'_>, id: JobId) -> Result<()> {
    work.conn
        .prepare_cached(&SQL.release_job)?
        .execute(params![id.as_bytes(), work.now])?;
    Ok(())
}

/// Makes a requeued job wait again for its open links and for a signal that has not arrived.
/// Returns the job's new state.
pub(crate) fn wait_again(work: &Work<'_>, id: JobId) -> Result<JobState> {
    let awaits_signal = work
        .conn
        .prepare_cached(&SQL.renew_signal)?
        .query_row(params![id.as_bytes(), work.now], |_| Ok(()))
        .optional()?
        .is_some();
    let has_open_links = has_open_links(work.conn, id)?;
    Ok(links::waiting_state(has_open_links, awaits_signal))
}

pub(crate) fn has_open_links(conn: Connection<'_>, id: JobId) -> Result<bool> {
    Ok(conn
        .prepare_cached(&SQL.has_open_links)?
        .query_row([id.as_bytes()], |row| row.get(0))?)
}

/// Deletes the links, the signal and the batch membership of a purged job.
pub(crate) fn forget(conn: Connection<'_>, id: JobId) -> Result<()> {
    for sql in [&SQL.purge_links, &SQL.purge_signal, &SQL.purge_membership] {
        conn.prepare_cached(sql)?.execute([id.as_bytes()])?;
    }
    Ok(())
}

pub(crate) fn read_batch(conn: Connection<'_>, batch: BatchId) -> Result<Option<BatchRecord>> {
    let mut get = conn.prepare_cached(&SQL.get_batch)?;
    let mut rows = get.query([batch.as_bytes()])?;
    rows.next()?.map(row::batch_record).transpose()
}

/// A link as it is stored. If only the condition of the link cannot be read, `after` is the error
/// and the other fields are valid.
pub(crate) struct StoredLink {
    place: u32,
    parent: Parent,
    pub(crate) state: LinkState,
    pub(crate) after: Result<After, InvalidInput>,
}

impl StoredLink {
    fn read(row: &Row<'_>) -> Result<Self> {
        let parent = Parent::from_stored(row.get(1)?, row.get(2)?)?;
        Ok(Self {
            place: row.get(0)?,
            parent,
            state: LinkState::from_code(row.get(3)?)?,
            after: row::text(row, 4, "condition")
                .and_then(|text| After::from_stored(parent, text.unwrap_or_default())),
        })
    }
}

/// Returns the links of a job, in the order of their positions in the job.
pub(crate) fn links_of(conn: Connection<'_>, child: JobId) -> Result<Vec<StoredLink>> {
    let mut find = conn.prepare_cached(&SQL.links_of)?;
    let mut rows = find.query([child.as_bytes()])?;
    let mut links = Vec::new();
    while let Some(row) = rows.next()? {
        links.push(StoredLink::read(row)?);
    }
    Ok(links)
}

/// Returns up to `limit` links whose parent is `parent`. If `after` is set, returns only links of
/// children with greater ids.
pub(crate) fn children_of(
    conn: Connection<'_>,
    parent: Parent,
    limit: usize,
    after: Option<JobId>,
) -> Result<Vec<Link>> {
    let mut find = conn.prepare_cached(&SQL.children_of)?;
    let behind = after.as_ref().map_or(&[][..], |id| id.as_bytes());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = find.query(params![parent.as_bytes(), parent.code(), behind, limit])?;
    let mut links = Vec::new();
    while let Some(row) = rows.next()? {
        let child = row::job_id(row, 0)?;
        let text = row::text(row, 2, "condition")?.unwrap_or_default();
        match After::from_stored(parent, text) {
            Ok(after) => {
                let state = LinkState::from_code(row.get(1)?)?;
                links.push(Link::new(child, after, state));
            }
            Err(error) => tracing::warn!(job = %child, %error, "skipped a stored link that cannot \
                be read"),
        }
    }
    Ok(links)
}

/// The signal of a job as it is stored. If the key or the timeout cannot be read, `wait` is the
/// error and the other fields are valid.
pub(crate) struct StoredSignal {
    pub(crate) wait: Result<SignalWait, InvalidInput>,
    pub(crate) deadline: i64,
    state: i64,
    pub(crate) record: SignalRecord,
}

impl StoredSignal {
    /// Returns whether the job still waits for the signal.
    pub(crate) const fn is_open(&self) -> bool {
        self.state == 0
    }
}

pub(crate) fn signal_of(conn: Connection<'_>, job: JobId) -> Result<Option<StoredSignal>> {
    let mut find = conn.prepare_cached(&SQL.find_signal)?;
    let mut rows = find.query([job.as_bytes()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let missing = || InvalidInput::new("signal", "is missing");
    let wait = row::name(row, 0, "signal").and_then(|key| {
        let timeout = row::duration(row, 1, "timeout")?.ok_or_else(missing)?;
        Ok(SignalWait::new(key.ok_or_else(missing)?, timeout))
    });
    let deadline = row.get(2)?;
    let mut record = SignalRecord::new(from_millis(deadline));
    if let (Some(at), Some(payload)) = (row.get(4)?, row::json(row, 5)) {
        record = record.delivered(from_millis(at), payload);
    }
    Ok(Some(StoredSignal {
        wait,
        deadline,
        state: row.get(3)?,
        record,
    }))
}

/// Adds the links, the batch and the signal to the record of a job. If one of these cannot be read,
/// the job's last error reports this, unless the job already has a last error.
pub(crate) fn show(conn: Connection<'_>, job: &mut JobRecord) -> Result<()> {
    let mut problem = None;
    for link in links_of(conn, job.id)? {
        match link.after {
            Ok(after) => job.spec.after.push(after),
            Err(error) => problem = Some(error),
        }
    }
    job.spec.batch = conn
        .prepare_cached(&SQL.batch_of)?
        .query_row([job.id.as_bytes()], |row| {
            row.get(0).map(BatchId::from_bytes)
        })
        .optional()?;
    if let Some(signal) = signal_of(conn, job.id)? {
        job.signal = Some(signal.record);
        match signal.wait {
            Ok(wait) => job.spec.signal = Some(wait),
            Err(error) => problem = Some(error),
        }
    }
    if let Some(problem) = problem {
        job.last_error
            .get_or_insert_with(|| problem.of_stored_job());
    }
    Ok(())
}
