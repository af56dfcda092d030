//! Stores new jobs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::ClientSession;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, RawArrayBuf, RawDocumentBuf, cstr, doc};
use ratchet_core::dictionary::Place;
use ratchet_core::links::waiting_state;
use ratchet_core::model::{EnqueuePlan, Enqueued, NewJob, TakenKeys, payload_version_to_stored};
use ratchet_core::time::{duration_millis, to_millis};
use ratchet_core::{JobId, JobState, Name, Route};

use crate::connection::Tx;
use crate::error::{Failure, Result};
use crate::fair::Levels;
use crate::lanes::{self, Places};
use crate::links::Linked;
use crate::pipelines::{code, ids};
use crate::row;
use crate::signals;
use crate::store::MongoStore;

impl MongoStore {
    /// Stores the jobs of one call, in a transaction if the server has transactions. A single job
    /// without idempotency key, fair key, lane, links, signal or batch needs no transaction, and is
    /// stored with one insert.
    pub(crate) async fn enqueue_jobs(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        if let [job] = jobs
            && job.spec().idempotency_key.is_none()
            && job.spec().fair_key.is_none()
            && !job.changes_holder()
            && !job.spec().needs_transaction()
        {
            return Ok(vec![self.enqueue_one(job).await?]);
        }
        let routes = self.route_ids(jobs).await?;
        let now = self.millis(self.main()).await?;
        if !self.has_transactions() {
            return self.enqueue_each(jobs, &routes, now).await;
        }
        let is_fair = jobs.iter().any(|job| job.spec().fair_key.is_some());
        let _giving = match is_fair {
            true => Some(self.giving_turns().await),
            false => None,
        };
        let mut tx = self.main().begin().await?;
        let stored = self.store_jobs(&mut tx, jobs, &routes, now).await;
        tx.finish(stored).await
    }

    /// Stores the jobs of one call inside the caller's transaction. Sets `writes` to true just
    /// before its first write in the transaction.
    pub(crate) async fn enqueue_within(
        &self,
        session: &mut ClientSession,
        jobs: &[NewJob],
        writes: &AtomicBool,
    ) -> Result<Vec<Enqueued>> {
        let routes = self.route_ids(jobs).await?;
        let now = self.millis(self.main()).await?;
        let mut tx = self.main().within(session);
        let plan = self.resolve(&mut tx, jobs, now).await?;
        let linked = self.check_links(&mut tx, &plan).await?;
        writes.store(true, Ordering::Relaxed);
        // The jobs get no turns, because these need locks that a transaction of the application
        // could hold for long.
        let levels = Levels::default();
        self.write_jobs(&mut tx, &plan, linked, (&routes, levels), now)
            .await?;
        Ok(plan.answers)
    }

    async fn enqueue_one(&self, job: &NewJob) -> Result<Enqueued> {
        let routes = self.route_ids(std::slice::from_ref(job)).await?;
        let now = self.millis(self.main()).await?;
        let row = document(job, routes[0], now, &mut Levels::default(), None, None)?;
        let mut on = self.main().plain();
        match on.insert_many(&self.main().jobs, &[row]).await {
            Ok(()) => return Ok(Enqueued::Created(job.id())),
            Err(failure) if failure.is_duplicate() => {}
            Err(failure) => return Err(failure),
        }
        let jobs = std::slice::from_ref(job);
        match self.resolve(&mut on, jobs, now).await? {
            plan if plan.new.is_empty() => {
                self.keep(&mut on, &[plan.answers[0].id()]).await?;
                Ok(plan.answers[0])
            }
            // A job held the key, but has ended since the insert, or a majority does not have that
            // job yet.
            _ => Err(Failure::contention(
                "the holder of a unique key changed during the call",
            )),
        }
    }

    /// Stores the jobs one after the other, without a transaction. If one insert fails, removes the
    /// jobs that this call has already stored. If the server crashes or the deadline passes, the
    /// jobs stored so far remain. A repeated enqueue of the same jobs then stores the missing ones.
    async fn enqueue_each(
        &self,
        jobs: &[NewJob],
        routes: &[Place<i32>],
        now: i64,
    ) -> Result<Vec<Enqueued>> {
        let mut on = self.main().plain();
        let EnqueuePlan { answers, new, .. } = self.resolve(&mut on, jobs, now).await?;
        let stored: HashSet<JobId> = new.iter().map(|place| jobs[*place].id()).collect();
        let withheld = |answer: &&Enqueued| matches!(answer, Enqueued::Withheld(_));
        let withheld: HashSet<JobId> = answers
            .iter()
            .filter(withheld)
            .map(|one| one.id())
            .collect();
        let answered = answers.iter().map(|answer| answer.id());
        let others = answered.filter(|id| !stored.contains(id) && !withheld.contains(id));
        let others: Vec<JobId> = others.collect();
        self.keep(&mut on, &others).await?;
        let call = ObjectId::new();
        let mut rows = Vec::with_capacity(new.len());
        for place in &new {
            let levels = &mut Levels::default();
            let mut row = document(&jobs[*place], routes[*place], now, levels, None, None)?;
            row.append(cstr!("claim"), call);
            rows.push(row);
        }
        let stored = on.insert_many(&self.main().jobs, &rows).await;
        if let Err(failure) = stored {
            let new: Vec<JobId> = new.iter().map(|place| jobs[*place].id()).collect();
            // The mark selects only jobs that this call stored. It excludes jobs of another call
            // with the same ids, and claimed jobs, because a claim replaces the mark.
            let mine = doc! { "_id": { "$in": ids(&new) }, "claim": call };
            on.delete_many(&self.main().jobs, mine).await?;
            return Err(failure);
        }
        Ok(answers)
    }

    /// Ensures that these jobs, which another call has stored, remain stored. Only then may this
    /// call report them as stored. Without transactions, the other call marks its jobs, and deletes
    /// all marked jobs if it fails. So this function removes the marks.
    async fn keep(&self, on: &mut Tx<'_>, jobs: &[JobId]) -> Result<()> {
        if self.has_transactions() || jobs.is_empty() {
            return Ok(());
        }
        let side = self.main();
        let marked = doc! {
            "_id": { "$in": ids(jobs) },
            "state": code(JobState::Pending),
            "claim": { "$exists": true },
        };
        let unmark = doc! { "$unset": { "claim": "" } };
        on.update_many(&side.jobs, marked, unmark).await?;
        let stored = doc! { "_id": { "$in": ids(jobs) } };
        let only_id = row::fields(doc! { "_id": 1 });
        let stored = on.find(&side.jobs, stored, only_id).await?.len();
        if stored < jobs.iter().collect::<HashSet<_>>().len() {
            return Err(Failure::contention("a concurrent call removed a job"));
        }
        Ok(())
    }

    /// Stores those jobs that are not stored yet, and gives turns to the due ones that have a fair
    /// key. Returns the answer for each job. [fair.turn]
    pub(crate) async fn store_jobs<'j>(
        &self,
        tx: &mut Tx<'_>,
        jobs: &'j [NewJob],
        routes: &[Place<i32>],
        now: i64,
    ) -> Result<Vec<Enqueued>> {
        let due = |(job, route): (&'j NewJob, &Place<i32>)| {
            // Some of these jobs may be blocked instead, and then get no turn.
            let (spec, run_at) = (job.spec(), job.due().resolve(now));
            let key = spec.due_fair_key(JobState::Pending, run_at, now)?;
            Some((route.id, spec.priority, key.name()))
        };
        let due: Vec<_> = jobs.iter().zip(routes).filter_map(due).collect();
        let levels = self.lock_and_read_levels(tx, &due, now).await?;
        let plan = self.resolve(tx, jobs, now).await?;
        let linked = self.check_links(tx, &plan).await?;
        self.write_jobs(tx, &plan, linked, (routes, levels), now)
            .await?;
        Ok(plan.answers)
    }

    /// Fails if a new job has an invalid link. Writes nothing.
    async fn check_links<'a>(
        &self,
        tx: &mut Tx<'_>,
        plan: &'a EnqueuePlan<'_>,
    ) -> Result<Linked<'a>> {
        self.find_parents(tx, &plan.jobs, &plan.answers, &plan.new)
            .await
    }

    async fn write_jobs(
        &self,
        tx: &mut Tx<'_>,
        plan: &EnqueuePlan<'_>,
        mut linked: Linked<'_>,
        (routes, mut levels): (&[Place<i32>], Levels),
        now: i64,
    ) -> Result<()> {
        let (jobs, new) = (&*plan.jobs, &plan.new);
        self.meet_parents(tx, &mut linked, &plan.holders).await?;
        self.change_holders(tx, &plan.holders, &linked).await?;
        let wanted = new
            .iter()
            .filter_map(|place| lanes::of(jobs[*place].spec()));
        let mut places = self.find_places(tx, wanted.collect()).await?;
        let mut rows = Vec::with_capacity(new.len());
        let (mut keys, mut names) = (Vec::new(), Vec::new());
        for place in new {
            let (job, route) = (&jobs[*place], routes[*place]);
            let places = Some(&mut places);
            let row = document(job, route, now, &mut levels, places, Some(&linked))?;
            rows.push(row);
            if let Some(key) = &job.spec().idempotency_key {
                let mut used = doc! { "_id": key.as_str(), "job": row::id(job.id()) };
                if let Some(until) = job.key_expiry(now) {
                    used.insert("until", until);
                }
                keys.push(RawDocumentBuf::try_from(&used)?);
                names.push(Bson::from(key.as_str()));
            }
        }
        if !names.is_empty() {
            // The passes of the leader have not deleted these yet.
            let free = doc! { "_id": { "$in": names }, "until": { "$lte": now } };
            tx.delete_many(&self.main().keys, free).await?;
        }
        tx.insert_many(&self.main().keys, &keys).await?;
        tx.insert_many(&self.main().jobs, &rows).await?;
        // This comes after the inserts, because it locks the lanes until the transaction ends.
        self.keep_places(tx, places).await?;
        self.link(tx, linked).await
    }

    /// Looks up the ids and keys of the jobs, and decides what becomes of the jobs. A job counts as
    /// stored only when a majority of the members has it.
    async fn resolve<'j>(
        &self,
        on: &mut Tx<'_>,
        jobs: &'j [NewJob],
        now: i64,
    ) -> Result<EnqueuePlan<'j>> {
        let all: Vec<JobId> = jobs.iter().map(NewJob::id).collect();
        let only = |field: &str| row::fields(doc! { field: 1 });
        let keys = |key: fn(&NewJob) -> Option<&Name>| -> Vec<&str> {
            jobs.iter().filter_map(key).map(Name::as_str).collect()
        };
        let side = self.main();
        let these = doc! { "_id": { "$in": ids(&all) } };
        let stored = on.find(&side.jobs, these, only("_id")).await?;
        let (mut used, mut held) = (Vec::new(), Vec::new());
        let once = keys(|job| job.spec().idempotency_key.as_ref());
        if !once.is_empty() {
            let these = doc! {
                "_id": { "$in": once },
                "$or": [{ "until": Bson::Null }, { "until": { "$gt": now } }],
            };
            used = on.find(&side.keys, these, only("job")).await?;
        }
        let unique = keys(|job| job.spec().unique_key.as_ref());
        if !unique.is_empty() {
            let these = doc! { "live_key": { "$in": unique } };
            held = on.find(&side.jobs, these, only("live_key")).await?;
        }
        let mut taken = TakenKeys::default();
        for row in &stored {
            taken.stored(row::job_id(row, "_id")?);
        }
        for row in &used {
            let key = row::text(row, "_id")?.unwrap_or_default();
            taken.idempotency_key(key, row::job_id(row, "job")?);
        }
        for row in &held {
            let key = row::text(row, "live_key")?.unwrap_or_default();
            taken.unique_key(key, row::job_id(row, "_id")?);
        }
        let contested = taken.contested(jobs);
        self.find_holders(on, &contested, &mut taken).await?;
        Ok(taken.resolve(jobs, now))
    }

    /// Returns the number of each job's route, and whether the route is shared. Stores new routes
    /// first, and these remain even if the enqueue fails later. Rejects a job that needs a permit
    /// of a resource whose limit was never set. [permit.unknown]
    pub(crate) async fn route_ids(&self, jobs: &[NewJob]) -> Result<Vec<Place<i32>>> {
        let routes: Vec<&Route> = jobs.iter().map(|job| &job.spec().route).collect();
        self.require_permits(&routes).await?;
        let mut numbers = Vec::with_capacity(jobs.len());
        for job in jobs {
            let route = &job.spec().route;
            let fair = job.spec().fair_key.is_some();
            numbers.push(self.routes().place(self.live(), route, fair).await?);
        }
        Ok(numbers)
    }
}

/// Returns the document of a new job. Omits the fields of absent values. `levels` gives a due job
/// with a fair key its turn. `places` assigns the job's position in its lane. `linked` tells
/// whether other new jobs wait for this job.
fn document(
    job: &NewJob,
    route: Place<i32>,
    now: i64,
    levels: &mut Levels,
    places: Option<&mut Places>,
    linked: Option<&Linked<'_>>,
) -> Result<RawDocumentBuf> {
    let spec = job.spec();
    let mut row = RawDocumentBuf::new();
    let place = places.zip(lanes::of(spec));
    let place = place.and_then(|(places, lane)| Some((places.take(&lane)?, lane)));
    let waits = waiting_state(!spec.after.is_empty(), spec.signal.is_some());
    let state = place.as_ref().map_or(waits, |(place, _)| place.state);
    row.append(cstr!("_id"), row::uuid(job.id()));
    row.append(cstr!("route"), route.id);
    if route.shared {
        row.append(cstr!("queue"), spec.route.queue.as_str());
    }
    row.append(cstr!("priority"), i32::from(spec.priority.level()));
    row.append(cstr!("state"), code(state));
    let run_at = job.due().resolve(now);
    row.append(cstr!("run_at"), run_at);
    row.append(cstr!("created_at"), now);
    row.append(cstr!("claim_seq"), 0_i64);
    row.append(cstr!("attempts"), 0_i64);
    row.append(cstr!("crash_count"), 0_i64);
    if let Some(resource) = &spec.route.permit {
        row.append(cstr!("permit"), resource.as_str());
    }
    if let Some(version) = payload_version_to_stored(spec.payload_version) {
        row.append(cstr!("payload_version"), version);
    }
    if let Some(retry) = spec.retry.to_stored()? {
        row.append(cstr!("retry"), retry);
    }
    if let Some(timeout) = spec.timeout {
        row.append(cstr!("timeout"), duration_millis(timeout));
    }
    if let Some(timeout) = spec.stall_timeout {
        row.append(cstr!("stall_timeout"), duration_millis(timeout));
    }
    if let Some(key) = &spec.unique_key {
        row.append(cstr!("unique_key"), key.as_str());
        row.append(cstr!("live_key"), key.as_str());
    }
    if let Some(key) = &spec.idempotency_key {
        row.append(cstr!("idempotency_key"), key.as_str());
    }
    if let Some(lane) = &spec.lane {
        row.append(cstr!("lane"), lane.as_str());
    }
    if let Some(key) = &spec.fair_key {
        row.append(cstr!("fair_key"), key.name().as_str());
        row.append(cstr!("fair_cost"), i64::from(key.cost()));
    }
    let key = spec.due_fair_key(state, run_at, now);
    let turn = key.and_then(|key| {
        let key = (key.name(), key.cost());
        levels.give((route.id, spec.priority), key, run_at)
    });
    if let Some(turn) = turn {
        row.append(cstr!("turn"), turn);
    }
    if let Some(expires_at) = job.resolve_expiry(now) {
        row.append(cstr!("expires_at"), expires_at);
    }
    if let Some((place, lane)) = place {
        row.append(cstr!("lane_key"), lane);
        row.append(cstr!("lane_seq"), place.seq);
    }
    if let Some(trace) = &spec.trace {
        row.append(cstr!("traceparent"), trace.traceparent());
        if let Some(state) = trace.tracestate() {
            row.append(cstr!("tracestate"), state);
        }
    }
    if let Some(origin) = &spec.recurring {
        row.append(cstr!("recurring"), origin.name.as_str());
        if let Some(slot) = origin.slot {
            row.append(cstr!("slot"), to_millis(slot));
        }
    }
    if linked.is_some_and(|linked| linked.is_parent(job.id())) {
        row.append(cstr!("children"), true);
    }
    if !spec.after.is_empty() {
        row.append(cstr!("links"), true);
    }
    if let Some(batch) = spec.batch {
        row.append(cstr!("batch"), row::uuid(batch));
    }
    if let Some(wait) = &spec.signal {
        row.append(cstr!("signal"), signals::stored(wait, now));
    }
    if !spec.tags.is_empty() {
        let mut tags = RawArrayBuf::new();
        for tag in &spec.tags {
            tags.push(tag.as_str());
        }
        row.append(cstr!("tags"), tags);
    }
    row.append(cstr!("payload"), spec.payload.as_str());
    Ok(row)
}
