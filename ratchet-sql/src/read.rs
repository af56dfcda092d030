//! Reads jobs, their inputs and their history.

use std::collections::HashMap;

use ratchet_core::model::{
    Among, Attempt, Detail, JobFilter, JobFlags, JobInput, JobOrder, JobRecord, PageRequest,
    StateCounts,
};
use ratchet_core::time::{from_millis, to_millis};
use ratchet_core::{ClaimToken, JobId, JobState, Json, Name};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::Result;
use crate::row;
use crate::statement::{OwnStatements as _, Statement};
use crate::store::SqlStore;

impl<D: Dialect> SqlStore<D> {
    /// Returns the job with each of these ids, in the order of `ids`. An entry is `None` if the job
    /// does not exist or cannot be read.
    pub(crate) async fn read_jobs(
        &self,
        ids: &[JobId],
        detail: Detail,
    ) -> Result<Vec<Option<JobRecord>>> {
        self.read_jobs_on(&mut self.lease().await?, ids, detail)
            .await
    }

    /// Returns the same as [`read_jobs`](Self::read_jobs), but reads through the connection `on`.
    pub(crate) async fn read_jobs_on(
        &self,
        on: &mut impl Run<D>,
        ids: &[JobId],
        detail: Detail,
    ) -> Result<Vec<Option<JobRecord>>> {
        let wanted: Vec<Uuid> = ids.iter().map(JobId::as_uuid).collect();
        let get = self.sql().get_jobs.query();
        let get = get.bind(&wanted).bind(detail == Detail::Whole);
        let rows = on.rows(get).await?;
        let mut tagged = Vec::new();
        let mut jobs = HashMap::with_capacity(rows.len());
        let (mut linked, mut expiring) = (Vec::new(), Vec::new());
        for row in &rows {
            let id = row::job_id(row, 0)?;
            match row::job_record(row) {
                Ok(job) => {
                    let flags: JobFlags = row.try_get(32)?;
                    if flags.has_any(JobFlags::LINKED) {
                        linked.push(id.as_uuid());
                    }
                    if flags.has_any(JobFlags::TAGS) {
                        tagged.push(id.as_uuid());
                    }
                    if flags.has_any(JobFlags::EXPIRES) {
                        expiring.push(id.as_uuid());
                    }
                    jobs.insert(id, job);
                }
                Err(error) => tracing::warn!(job = %id, %error, "a stored job cannot be read"),
            }
        }
        if let (Some(find), false) = (self.sql().own.tags_of(), tagged.is_empty()) {
            for row in on.rows(find.query().bind(&tagged)).await? {
                show_tag(&row, &mut jobs)?;
            }
        }
        for (id, expires_at) in self.expiries_of(on, &expiring).await? {
            if let Some(job) = jobs.get_mut(&id) {
                job.expires_at = Some(from_millis(expires_at));
            }
        }
        if !linked.is_empty() {
            self.show_links(on, &linked, &mut jobs).await?;
            if detail == Detail::Outline {
                // An outline omits the payloads of signals, which may be large.
                jobs = jobs
                    .into_iter()
                    .map(|(id, job)| (id, job.outline()))
                    .collect();
            }
        }
        Ok(ids.iter().map(|id| jobs.get(id).cloned()).collect())
    }

    /// Returns the ids of one page of the jobs that match `filter`.
    pub(crate) async fn select_jobs(
        &self,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<Vec<JobId>> {
        let mut lease = self.lease().await?;
        let mut routes = self.routes_of(&mut lease, filter).await?;
        // Return early: without a matching route no job matches, but the statement would still read
        // all jobs in these states.
        if routes.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        loop {
            let of_routes = self.select_of(&mut lease, routes.as_deref(), filter, page);
            let ids = of_routes.await?;
            match self.more_routes(&mut lease, filter, &routes).await? {
                None => return Ok(ids),
                more => routes = more,
            }
        }
    }

    /// Returns the ids of one page of the jobs that match `filter` and have one of these routes.
    async fn select_of(
        &self,
        lease: &mut D::Lease,
        routes: Option<&[i32]>,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<Vec<JobId>> {
        let sql = self.sql();
        let among = Among::of(filter);
        let [oldest, newest] = match among {
            Among::Batch => [&sql.list_batch_oldest, &sql.list_batch_newest],
            Among::Tagged => [&sql.list_tagged_oldest, &sql.list_tagged_newest],
            Among::Ended => [&sql.list_ended_oldest, &sql.list_ended_newest],
            Among::Unfinished => [&sql.list_unfinished_oldest, &sql.list_unfinished_newest],
            _ => [&sql.list_oldest, &sql.list_newest],
        };
        let in_order = |oldest, newest| match page.order {
            JobOrder::OldestFirst => oldest,
            JobOrder::NewestFirst => newest,
        };
        let list = |statement: &Statement<D>| {
            let list = statement.query().states(&filter.wanted_states());
            let list = list.any_of(routes);
            list.bind(beginning(page))
                .bind(i64::try_from(page.limit).unwrap_or(i64::MAX))
        };
        if among == Among::Unfinished {
            let front = in_order(&sql.list_front_oldest, &sql.list_front_newest);
            let look_at = i64::try_from(Among::front(page.limit)).unwrap_or(i64::MAX);
            let front = self.of_queue(list(front).bind(look_at), filter);
            let rows = lease.rows(front).await?;
            if rows.len() == page.limit {
                return rows.iter().map(|row| row::job_id(row, 0)).collect();
            }
        }
        let list = narrowed(list(in_order(oldest, newest)), filter);
        let list = self.of_queue(list, filter);
        let rows = lease.rows(list).await?;
        rows.iter().map(|row| row::job_id(row, 0)).collect()
    }

    /// Returns the number of jobs that match `filter`, by state.
    pub(crate) async fn count_matching(&self, filter: &JobFilter) -> Result<StateCounts> {
        let sql = self.sql();
        let statement = match (&filter.batch, &filter.tag) {
            (Some(_), _) => &sql.count_batch,
            (None, Some(_)) => &sql.count_tagged,
            (None, None) => &sql.count_matching,
        };
        let mut lease = self.lease().await?;
        let mut routes = self.routes_of(&mut lease, filter).await?;
        let rows = loop {
            let count = statement.query().states(&filter.wanted_states());
            let count = narrowed(count.any_of(routes.as_deref()), filter);
            let count = self.of_queue(count, filter);
            let rows = lease.rows(count).await?;
            match self.more_routes(&mut lease, filter, &routes).await? {
                None => break rows,
                more => routes = more,
            }
        };
        let mut counts = StateCounts::new();
        for row in rows {
            let state = JobState::from_code(row.try_get::<i16>(0)?.into())?;
            counts.insert(state, row::count(row.try_get::<i64>(1)?, "count")?);
        }
        Ok(counts)
    }

    /// Binds the queue of `filter`, if the statements of the dialect have the queues of shared
    /// routes. An empty text matches every queue.
    fn of_queue(&self, query: D::Query, filter: &JobFilter) -> D::Query {
        match self.with_queues() {
            true => query.bind(filter.queue.as_ref().map_or("", Name::as_str)),
            false => query,
        }
    }

    /// Returns the ids of the routes with the queue and the kind of `filter`, and of the shared
    /// routes with the kind. Returns `None` if the filter names neither a queue nor a kind.
    async fn routes_of(
        &self,
        lease: &mut D::Lease,
        filter: &JobFilter,
    ) -> Result<Option<Vec<i32>>> {
        if filter.queue.is_none() && filter.kind.is_none() {
            return Ok(None);
        }
        let find = self.sql().find_routes.query();
        let find = find
            .bind(filter.queue.as_ref().map_or("", Name::as_str))
            .bind(filter.kind.as_ref().map_or("", Name::as_str));
        let rows = lease.rows(find).await?;
        let ids = rows.iter().map(|row| row.try_get(0));
        ids.collect::<Result<_>>().map(Some)
    }

    /// Reads the routes of `filter` again, after a read of the jobs of `routes`. Returns them if
    /// there are more of them now. Then the read may have missed jobs that moved from a shared
    /// route to a new one, so the caller must repeat it. [queue.separate]
    async fn more_routes(
        &self,
        lease: &mut D::Lease,
        filter: &JobFilter,
        routes: &Option<Vec<i32>>,
    ) -> Result<Option<Vec<i32>>> {
        if routes.is_none() || !self.with_queues() {
            return Ok(None);
        }
        let now = self.routes_of(lease, filter).await?;
        let count = |routes: &Option<Vec<i32>>| routes.as_ref().map(Vec::len);
        Ok((count(&now) > count(routes)).then_some(now).flatten())
    }

    /// Returns the input of each claim, in the order of `tokens`. An entry is `None` if the claim
    /// is no longer valid.
    pub(crate) async fn read_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        let mut jobs: Vec<Uuid> = Vec::with_capacity(tokens.len());
        let mut seqs = Vec::with_capacity(tokens.len());
        let mut owners = Vec::with_capacity(tokens.len());
        let mut claimed_at = Vec::with_capacity(tokens.len());
        for token in tokens {
            if let Ok(seq) = i64::try_from(token.seq) {
                jobs.push(token.job.as_uuid());
                seqs.push(seq);
                owners.push(row::owner(token));
                claimed_at.push(to_millis(token.claimed_at));
            }
        }
        let load = self.sql().load_inputs.query().table(&[
            ("job", &jobs),
            ("seq", &seqs),
            ("node", &owners),
            ("claimed_at", &claimed_at),
        ]);
        let rows = self.lease().await?.rows(load).await?;
        let mut inputs = HashMap::with_capacity(rows.len());
        for row in &rows {
            let token = row::token(row, [0, 1, 2, 3])?;
            let input = JobInput {
                payload: row::json(row, 4).unwrap_or_else(|| Json::from_stored("missing")),
                checkpoint: row::json(row, 5),
            };
            inputs.insert(token, input);
        }
        Ok(tokens
            .iter()
            .map(|token| inputs.get(token).cloned())
            .collect())
    }

    /// Returns the past attempts of a job, one for each of its claims that has ended. Skips
    /// attempts that cannot be read.
    pub(crate) async fn read_history(&self, job: JobId) -> Result<Vec<Attempt>> {
        let mut lease = self.lease().await?;
        let rows = lease
            .rows(self.sql().history.query().bind(job.as_uuid()))
            .await?;
        let mut attempts = Vec::with_capacity(rows.len());
        for row in &rows {
            match row::attempt(row) {
                Ok(attempt) => attempts.push(attempt),
                Err(error) => tracing::warn!(%job, %error, "skipped a stored attempt that cannot \
                    be read"),
            }
        }
        Ok(attempts)
    }
}

/// Adds the tag in `row` to the job in `jobs` that has this tag.
///
/// If the tag cannot be read, the job's last error says so, unless the job already has a last
/// error.
fn show_tag(row: &impl Row, jobs: &mut HashMap<JobId, JobRecord>) -> Result<()> {
    let Some(job) = jobs.get_mut(&row::job_id(row, 0)?) else {
        return Ok(());
    };
    match row::name(row, 1, "tag") {
        Ok(tag) => job.spec.tags.extend(tag),
        Err(problem) => {
            job.last_error
                .get_or_insert_with(|| problem.of_stored_job());
        }
    }
    Ok(())
}

/// Returns the id after which the page begins. For the first page, this is the smallest possible id
/// if the oldest jobs come first, otherwise the largest possible id. No job has either of these
/// ids.
pub(crate) fn beginning(page: &PageRequest) -> Uuid {
    match (page.after, page.order) {
        (Some(after), _) => after.as_uuid(),
        (None, JobOrder::OldestFirst) => Uuid::nil(),
        (None, JobOrder::NewestFirst) => Uuid::max(),
    }
}

/// Binds the batch and the tag of `filter` to the query, if the filter has them. With a batch,
/// always binds three parameters: the batch, whether the filter has a tag, and the tag.
fn narrowed<Q: Query>(query: Q, filter: &JobFilter) -> Q {
    let tag = filter.tag.as_ref().map(Name::as_str);
    match (&filter.batch, tag) {
        (Some(batch), tag) => query
            .bind(batch.as_uuid())
            .bind(tag.is_some())
            .bind(tag.unwrap_or_default()),
        (None, Some(tag)) => query.bind(tag),
        (None, None) => query,
    }
}
