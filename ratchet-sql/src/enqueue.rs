//! Stores new jobs.

use ratchet_core::dictionary::Place;
use ratchet_core::model::{
    Enqueued, JobFlags, JobSpec, NewJob, TakenKeys, payload_version_to_stored,
};
use ratchet_core::time::{duration_millis, to_millis};
use ratchet_core::{JobId, JobState, Name, StoreErrorKind, TraceContext};
use uuid::Uuid;

use crate::arguments::Column;
use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::fair::{Turned, Turns};
use crate::lanes::Lane;
use crate::routes::Mark;
use crate::row;
use crate::statement::{OwnStatements as _, Statement};
use crate::store::SqlStore;

impl<D: Dialect> SqlStore<D> {
    /// Stores the jobs of one call with one statement. If a job has a key, another statement first
    /// looks up the keys of the jobs. If a job has a lane, links, a batch, a signal or an expiry,
    /// all statements run in one transaction.
    ///
    /// Jobs without keys, lanes, links, batches, signals, expiries and recurring definitions are
    /// assumed to be new. However, a job may already be stored, if this call repeats an earlier
    /// call whose response was lost. If some jobs of the call have tags, the insert statement skips
    /// stored jobs. Without tags, it fails because of a stored job, and all jobs are then stored in
    /// the same way as jobs with keys.
    pub(crate) async fn enqueue_jobs(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        let routes = self.places_of(jobs).await?;
        let mut lease = self.lease().await?;
        if jobs
            .iter()
            .any(|job| needs_transaction(job) || is_fair(job))
        {
            lease.begin().await?;
            let stored = self
                .store_jobs(&mut lease, jobs, &routes, Turns::Given)
                .await;
            return lease.end(stored).await;
        }
        if !jobs
            .iter()
            .any(|job| job.spec().has_keys() || has_origin(job))
        {
            let insert = Insert::of(jobs.iter().zip(&routes))?;
            if jobs.iter().any(has_tags) {
                match self.insert_keyed(&mut lease, &insert).await {
                    Err(failure) if failure.duplicate => {}
                    done => return done.map(|_| created(jobs)),
                }
                return self
                    .store_jobs(&mut lease, jobs, &routes, Turns::Later)
                    .await;
            }
            let query = match self.sql().own.enqueue_job() {
                Some(one) if jobs.len() == 1 => insert.bind_one(one, self.with_queues()),
                _ => insert.bind_new(&self.sql().enqueue_jobs, self.with_queues()),
            };
            match lease.changed(query).await {
                Err(failure) if failure.duplicate => {}
                Ok(0) => return Err(self.refute(&mut lease, insert.last).await),
                done => return done.map(|_| created(jobs)),
            }
        }
        self.store_jobs(&mut lease, jobs, &routes, Turns::Later)
            .await
    }

    /// Stores the jobs of one call that are not stored yet. Must run in a transaction if any of the
    /// jobs has a lane, links, a batch, a signal or an expiry, or may change the holder of its
    /// unique key.
    ///
    /// Must also run in a transaction with [`Turns::Given`].
    ///
    /// Locks the lanes first, and then looks up which jobs are new. If the same call is repeated
    /// concurrently, the second call waits for these locks, and then finds the stored jobs. Locks
    /// the routes of jobs with a fair key last, so that a call that waits for a key, a job or a
    /// batch does not keep other calls from the routes.
    ///
    /// # Errors
    /// Returns failures of the database. Returns `Contention` if a concurrent call stored one of
    /// the jobs, or if the database lacks the routes of the jobs. The caller must then repeat the
    /// whole transaction.
    pub(crate) async fn store_jobs(
        &self,
        on: &mut impl Run<D>,
        jobs: &[NewJob],
        routes: &[Place<Mark>],
        turns: Turns,
    ) -> Result<Vec<Enqueued>> {
        let mut places = self.enter_lanes(on, jobs.iter().filter_map(lane)).await?;
        let found = on.rows(self.find_keys(jobs)).await?;
        let mut taken = TakenKeys::default();
        let mut free = Vec::new();
        for row in &found {
            note_taken(&mut taken, &mut free, row)?;
        }
        if !free.is_empty() {
            // If this call fails later, the keys are as free without their rows.
            on.execute(self.sql().drop_keys.query().bind(&free)).await?;
        }
        let (now, expiring) = self
            .lock_holders(on, &taken.contested(jobs), &mut taken)
            .await?;
        let plan = taken.resolve(jobs, now);
        let (jobs, new) = (&*plan.jobs, &plan.new);
        let linked = self.lock_parents(on, jobs, &plan.answers, new).await?;
        self.change_holders(on, &plan.holders, &expiring).await?;
        let mut asleep = Vec::new();
        if !new.is_empty() {
            let mut insert = Insert::of(new.iter().map(|place| (&jobs[*place], &routes[*place])))?;
            for (state, place) in insert.states.iter_mut().zip(new) {
                if let Some(lane) = lane(&jobs[*place]) {
                    *state = places.take(jobs[*place].id(), lane).code().into();
                }
            }
            for (id, flags) in insert.ids.iter().zip(&mut insert.flags) {
                if linked.is_parent(JobId::from(*id)) {
                    *flags |= JobFlags::CHILDREN.bits();
                }
            }
            let waits = need_more_than_an_insert(jobs);
            if turns == Turns::Given && !waits {
                self.give_turns(on, &mut insert).await?;
            }
            let stored = self.insert_keyed(on, &insert).await?;
            if turns == Turns::Given && waits && stored == new.len() {
                // The other statements of this call may wait for other transactions.
                asleep = insert.turned();
            }
            if stored < new.len() && jobs.iter().any(needs_transaction) {
                // A concurrent call stored one of these jobs. The stored job may lack the flag
                // `CHILDREN`, which marks jobs that have children. The caller repeats the
                // transaction, which then finds the stored job.
                return Err(Failure::new(
                    StoreErrorKind::Contention,
                    "a concurrent call stored one of the jobs",
                ));
            }
        }
        self.add_expiries(on, new.iter().map(|place| &jobs[*place]))
            .await?;
        self.leave_lanes(on, places, &[]).await?;
        self.link(on, linked).await?;
        self.wake_own(on, &asleep).await?;
        Ok(plan.answers)
    }

    /// Stores jobs that have no keys, lanes, links, batches, signals and expiries. Runs one
    /// statement, which skips the jobs that are already stored.
    ///
    /// # Errors
    /// Returns `Contention` if the database lacks the routes of the jobs. Returns failures of the
    /// database.
    pub(crate) async fn insert_new(
        &self,
        on: &mut impl Run<D>,
        jobs: &[NewJob],
        routes: &[Place<Mark>],
    ) -> Result<Vec<Enqueued>> {
        let insert = Insert::of(jobs.iter().zip(routes))?;
        self.insert_keyed(on, &insert).await?;
        Ok(created(jobs))
    }

    /// Gives the due jobs with a fair key their turns.
    async fn give_turns(&self, on: &mut impl Run<D>, insert: &mut Insert<'_>) -> Result<()> {
        let jobs = insert.turned();
        let Some(mut levels) = self.lock_and_read_levels(on, &jobs).await? else {
            return Ok(());
        };
        let mut jobs = jobs.iter().peekable();
        for (id, turn) in insert.ids.iter().zip(&mut insert.turns) {
            *turn = jobs
                .next_if(|job| job.id == *id)
                .and_then(|job| levels.give(job));
        }
        Ok(())
    }

    /// Runs the statement `enqueue_keyed`, and returns the number of jobs that the statement
    /// stored.
    async fn insert_keyed(&self, on: &mut impl Run<D>, insert: &Insert<'_>) -> Result<usize> {
        let statement = &self.sql().enqueue_keyed;
        let mut stored = 0;
        let with_turns = self.sql().own.turns().is_some();
        let query = insert.bind_keyed(statement, with_turns, self.with_queues());
        for row in on.rows(query).await? {
            if !row.try_get::<bool>(1)? {
                return Err(self.refute(on, insert.last).await);
            }
            // A dialect may divide a large statement, and returns a row for each part.
            stored += row::count::<usize>(row.try_get::<i64>(0)?, "count")?;
        }
        Ok(stored)
    }

    /// Refreshes the cached routes. Called after a statement stored no jobs because the database
    /// lacks the route `mark`. Returns the failure of this statement. The caller must then repeat
    /// the whole call.
    async fn refute(&self, on: &mut impl Run<D>, mark: Mark) -> Failure {
        let renewed = match self.routes().refute(mark, on, self.sql()).await {
            Ok(true) => self.pools().liveness.renew().await,
            Ok(false) => Ok(()),
            Err(failure) => Err(failure),
        };
        renewed.err().unwrap_or_else(|| {
            let mut failure = Failure::new(StoreErrorKind::Contention, D::ROUTES_MISSING);
            failure.refuted = true;
            failure
        })
    }

    /// Returns the entry of each job in the dictionary of routes. Stores the entries that are not
    /// stored yet.
    ///
    /// # Errors
    /// Returns `Invalid` if a route needs a permit for which no limit is stored. Returns failures
    /// of the database.
    pub(crate) async fn places_of(&self, jobs: &[NewJob]) -> Result<Vec<Place<Mark>>> {
        loop {
            let routes = jobs.iter().map(|job| (&job.spec().route, is_fair(job)));
            if let Some(places) = self.routes().places(routes) {
                return Ok(places);
            }
            for job in jobs {
                self.place_of(job.spec()).await?;
            }
        }
    }

    /// Returns the entry of a job in the dictionary of routes. Stores the entry if it is not stored
    /// yet. Fails if a new route needs a permit for which no limit is stored.
    pub(crate) async fn place_of(&self, job: &JobSpec) -> Result<Place<Mark>> {
        let routes = self.routes();
        let fair = job.fair_key.is_some();
        routes
            .place(self.pools(), self.sql(), &job.route, fair)
            .await
    }

    /// Returns whether the statements of the dialect have the queues of shared routes.
    pub(crate) fn with_queues(&self) -> bool {
        self.sql().own.queues().is_some()
    }

    fn find_keys(&self, jobs: &[NewJob]) -> D::Query {
        let ids: Vec<Uuid> = jobs.iter().map(|job| job.id().as_uuid()).collect();
        let keys = |key: fn(&NewJob) -> Option<&Name>| -> Vec<&str> {
            jobs.iter().filter_map(key).map(Name::as_str).collect()
        };
        let find = &self.sql().find_keys;
        find.query()
            .bind(&ids)
            .bind(&keys(|job| job.spec().idempotency_key.as_ref()))
            .bind(&keys(|job| job.spec().unique_key.as_ref()))
    }
}

/// Returns whether any of these jobs has a key, a lane, links, a batch, a signal or an expiry. Such
/// a job needs more than one insert statement.
pub(crate) fn need_more_than_an_insert(jobs: &[NewJob]) -> bool {
    let needs_more = |job: &NewJob| job.spec().has_keys() || needs_transaction(job);
    jobs.iter().any(needs_more)
}

fn has_origin(job: &NewJob) -> bool {
    job.spec().recurring.is_some()
}

fn is_fair(job: &NewJob) -> bool {
    job.spec().fair_key.is_some()
}

fn has_tags(job: &NewJob) -> bool {
    !job.spec().tags.is_empty()
}

fn needs_transaction(job: &NewJob) -> bool {
    job.needs_transaction()
}

fn lane(job: &NewJob) -> Option<Lane> {
    let lane = job.spec().lane.as_ref()?;
    Some(Lane::new(&job.spec().route.queue, lane))
}

fn created(jobs: &[NewJob]) -> Vec<Enqueued> {
    jobs.iter().map(|job| Enqueued::Created(job.id())).collect()
}

/// Adds a row of the statement `find_keys` to `taken`. The row contains a job that is already
/// stored, or a key that another job has. Adds the key to `free` instead if it is an idempotency
/// key that is free again.
fn note_taken<'r>(
    taken: &mut TakenKeys<'r>,
    free: &mut Vec<&'r str>,
    row: &'r impl Row,
) -> Result<()> {
    let job = row::job_id(row, 2)?;
    match row.try_get(0)? {
        0_i32 => taken.stored(job),
        1 => taken.idempotency_key(row.try_get(1)?, job),
        2 => taken.unique_key(row.try_get(1)?, job),
        _ => free.push(row.try_get(1)?),
    }
    Ok(())
}

/// Values for the enqueue statements: one list per column, with one element per job. The lists
/// `tagged` and `tags` have one element per tag.
#[derive(Default)]
struct Insert<'a> {
    ids: Vec<Uuid>,
    routes: Vec<i32>,
    /// Mark (id and stamp) of the route with the largest id among the routes of these jobs.
    last: Mark,
    priorities: Vec<i16>,
    flags: Vec<i16>,
    run_at: Vec<Option<i64>>,
    delays: Vec<i64>,
    payloads: Vec<&'a str>,
    retries: Vec<Option<String>>,
    timeouts: Vec<Option<i64>>,
    stall_timeouts: Vec<Option<i64>>,
    traceparents: Vec<Option<&'a str>>,
    tracestates: Vec<Option<&'a str>>,
    payload_versions: Vec<Option<i32>>,
    unique_keys: Vec<Option<&'a str>>,
    idempotency_keys: Vec<Option<&'a str>>,
    lanes: Vec<Option<&'a str>>,
    states: Vec<i16>,
    definitions: Vec<Option<&'a str>>,
    slots: Vec<Option<i64>>,
    unique_for: Vec<Option<i64>>,
    fair_keys: Vec<Option<&'a str>>,
    fair_costs: Vec<Option<i32>>,
    turns: Vec<Option<i64>>,
    /// The queues of the jobs that have a shared route.
    queues: Vec<Option<&'a str>>,
    tagged: Vec<Uuid>,
    tags: Vec<&'a str>,
}

impl<'a> Insert<'a> {
    fn of(jobs: impl Iterator<Item = (&'a NewJob, &'a Place<Mark>)>) -> Result<Self> {
        let mut insert = Self::default();
        for (job, place) in jobs {
            let (spec, route) = (job.spec(), place.id);
            let flags = JobFlags::of_new(job).bits();
            let state = if spec.waits() {
                JobState::Blocked
            } else {
                JobState::Pending
            };
            let (run_at, delay) = row::due(job.due());
            insert.ids.push(job.id().as_uuid());
            insert.routes.push(route.id);
            insert.last = insert.last.max(route);
            insert.priorities.push(spec.priority.level().into());
            insert.flags.push(flags);
            insert.run_at.push(run_at);
            insert.delays.push(delay);
            insert.payloads.push(spec.payload.as_str());
            insert.retries.push(spec.retry.to_stored()?);
            insert.timeouts.push(spec.timeout.map(duration_millis));
            insert
                .stall_timeouts
                .push(spec.stall_timeout.map(duration_millis));
            let trace = spec.trace.as_ref();
            insert
                .traceparents
                .push(trace.map(TraceContext::traceparent));
            insert
                .tracestates
                .push(trace.and_then(TraceContext::tracestate));
            insert
                .payload_versions
                .push(payload_version_to_stored(spec.payload_version));
            insert
                .unique_keys
                .push(spec.unique_key.as_ref().map(Name::as_str));
            insert
                .idempotency_keys
                .push(spec.idempotency_key.as_ref().map(Name::as_str));
            insert.lanes.push(spec.lane.as_ref().map(Name::as_str));
            insert.states.push(state.code().into());
            let origin = spec.recurring.as_ref();
            insert
                .definitions
                .push(origin.map(|origin| origin.name.as_str()));
            insert
                .slots
                .push(origin.and_then(|origin| origin.slot).map(to_millis));
            insert
                .unique_for
                .push(job.key_lifetime().map(duration_millis));
            let fair = spec.fair_key.as_ref();
            insert.fair_keys.push(fair.map(|key| key.name().as_str()));
            let cost = fair.map(|key| i32::try_from(key.cost()).unwrap_or(i32::MAX));
            insert.fair_costs.push(cost);
            insert.turns.push(None);
            let queue = place.shared.then_some(spec.route.queue.as_str());
            insert.queues.push(queue);
            for tag in &spec.tags {
                insert.tagged.push(job.id().as_uuid());
                insert.tags.push(tag.as_str());
            }
        }
        Ok(insert)
    }

    /// Returns the pending jobs with a fair key that are due now, or from a given time on, in the
    /// order of the jobs.
    fn turned(&self) -> Vec<Turned<'a>> {
        let pending: i16 = JobState::Pending.code().into();
        let turned = |place: usize| {
            let job = Turned {
                id: self.ids[place],
                route: self.routes[place],
                priority: self.priorities[place],
                key: self.fair_keys[place]?,
                cost: u32::try_from(self.fair_costs[place]?).ok()?,
                run_at: self.run_at[place],
            };
            let delayed = job.run_at.is_none() && self.delays[place] > 0;
            (self.states[place] == pending && !delayed).then_some(job)
        };
        (0..self.ids.len()).filter_map(turned).collect()
    }

    /// Binds the values to the statement `enqueue_job`, which stores one new job without keys.
    fn bind_one<D: Dialect>(&self, statement: &Statement<D>, with_queues: bool) -> D::Query {
        let query = statement.query().row(&self.columns(with_queues));
        query.bind(self.last.stamp)
    }

    /// Binds the values to the statement `enqueue_jobs`, which stores new jobs without keys.
    fn bind_new<D: Dialect>(&self, statement: &Statement<D>, with_queues: bool) -> D::Query {
        let query = statement.query().table(&self.columns(with_queues));
        query.bind(self.last.id).bind(self.last.stamp)
    }

    /// Binds the values to the statement `enqueue_keyed`, which stores jobs with or without keys,
    /// lanes and tags. With `with_turns`, the statement has the columns of fair keys. With
    /// `with_queues`, it has the column of shared queues.
    fn bind_keyed<D: Dialect>(
        &self,
        statement: &Statement<D>,
        with_turns: bool,
        with_queues: bool,
    ) -> D::Query {
        let mut columns = self.columns(false);
        columns.extend([
            ("unique_key", &self.unique_keys as &dyn Column),
            ("idempotency_key", &self.idempotency_keys),
            ("lane", &self.lanes),
            ("state", &self.states),
            ("recurring", &self.definitions),
            ("slot", &self.slots),
            ("unique_for", &self.unique_for),
        ]);
        if with_turns {
            columns.extend([
                ("fair_key", &self.fair_keys as &dyn Column),
                ("fair_cost", &self.fair_costs),
                ("turn", &self.turns),
            ]);
        }
        if with_queues {
            columns.push(("queue", &self.queues));
        }
        let query = statement
            .query()
            .table(&columns)
            .table(&[("job", &self.tagged), ("tag", &self.tags)]);
        query.bind(self.last.id).bind(self.last.stamp)
    }

    /// Returns the names and the values of the columns that all enqueue statements insert.
    fn columns(&self, with_queues: bool) -> Vec<(&'static str, &dyn Column)> {
        let mut columns: Vec<(&'static str, &dyn Column)> = vec![
            ("id", &self.ids),
            ("route", &self.routes),
            ("priority", &self.priorities),
            ("flags", &self.flags),
            ("run_at", &self.run_at),
            ("delay", &self.delays),
            ("payload", &self.payloads),
            ("retry", &self.retries),
            ("timeout", &self.timeouts),
            ("stall_timeout", &self.stall_timeouts),
            ("traceparent", &self.traceparents),
            ("tracestate", &self.tracestates),
            ("payload_version", &self.payload_versions),
        ];
        if with_queues {
            columns.push(("queue", &self.queues));
        }
        columns
    }
}
