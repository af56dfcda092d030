//! Applies the actions of operators to jobs.

use std::collections::{BTreeSet, HashMap, HashSet};

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use ratchet_core::links::waiting_state;
use ratchet_core::model::{Acted, ActionOutcome, WantedKeys};
use ratchet_core::state::Response;
use ratchet_core::{JobAction, JobId, JobState, StoreErrorKind};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::connection::Tx;
use crate::ends::{End, Ties, tie_fields};
use crate::error::{Failure, Result};
use crate::freed::Freed;
use crate::lanes::{self, Places};
use crate::pipelines::{self, code};
use crate::purge::Gone;
use crate::row;
use crate::signals;
use crate::store::{MongoStore, pause};

/// A job to which an action is applied.
struct Target {
    state: JobState,
    /// Unique key of the job. The job holds this key only while it is unfinished.
    key: Option<String>,
    /// Key of the job's lane.
    lane: Option<String>,
    /// Whether the job has links to parents.
    links: bool,
    /// Whether the job has open links, for which it still waits. Set only if the action is a
    /// requeue.
    has_open_links: bool,
    /// Whether the job waits, or waited until it ended, for a signal that has not arrived.
    lacks_signal: bool,
    ties: Ties,
    /// The freed entry of a fair key that the job is.
    freed: Option<Freed>,
}

impl MongoStore {
    /// Applies the action to each of these jobs, and returns the outcomes.
    ///
    /// On a server with transactions, changes all jobs in one transaction. Retries the transaction
    /// if another call changes one of the jobs at the same time.
    ///
    /// On a server without transactions, changes each job in a separate write. Each write applies
    /// only if the job has not changed since it was read. After a failure, earlier changes remain.
    pub(crate) async fn act_on_jobs(
        &self,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        if !self.has_transactions() {
            return self.act_each(ids, from, action).await;
        }
        let mut first = false;
        loop {
            let mut tx = self.main().begin().await?;
            let done = async {
                if first {
                    let all = doc! { "_id": { "$in": pipelines::ids(ids) } };
                    let meet = doc! { "$inc": { "rev": 1_i64 } };
                    tx.update_these(&self.main().jobs, all, meet).await?;
                }
                self.act_together(&mut tx, ids, from, action).await
            }
            .await;
            match tx.finish(done).await {
                // Other calls claim the jobs at the head of a queue all the time, so the retry
                // could conflict again. It therefore writes to all jobs first. Concurrent calls
                // then wait for the retry.
                Err(failure) if failure.kind == StoreErrorKind::Contention && !first => {
                    first = true;
                }
                done => return done,
            }
        }
    }

    /// Applies the action to all of these jobs in the transaction `tx`, or to none of them.
    pub(crate) async fn act_together(
        &self,
        tx: &mut Tx<'_>,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let (acted, write) = self.plan(tx, ids, from, action).await?;
        let count = write.statements.len();
        let side = self.main();
        let matched = tx.bulk(&side.jobs, write.statements).await?;
        if usize::try_from(matched) != Ok(count) {
            return Err(Failure::contention("a concurrent call changed a job"));
        }
        if !write.removed.jobs.is_empty() {
            let count = write.removed.jobs.len();
            let ended = JobState::ALL.iter().filter(|state| state.is_terminal());
            let ended: Vec<i32> = ended.map(|state| code(*state)).collect();
            let still = doc! { "state": { "$in": ended } };
            let gone = self.forget(tx, &write.removed, still).await?;
            if usize::try_from(gone) != Ok(count) {
                return Err(Failure::contention("a concurrent call changed a job"));
            }
        }
        self.keep_places(tx, write.places).await?;
        self.leave_lanes(tx, write.left.into_iter().collect())
            .await?;
        self.follow(tx, write.ends, Vec::new()).await?;
        Ok(acted)
    }

    /// Applies the action to each of these jobs in a separate write, with many writes in one
    /// command. Each write also sets a mark on its job. If a job lacks the mark afterwards, another
    /// call has changed the job at the same time. The action is then retried on each such job, one
    /// by one.
    async fn act_each(
        &self,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        const MOST: usize = 1_000;
        let side = self.main();
        let mut on = side.plain();
        let mut all = Vec::with_capacity(ids.len());
        if action == JobAction::Delete {
            // A deleted job cannot carry this call's mark, so each job is deleted separately.
            for id in ids {
                all.push(self.act_on_one(*id, from, action).await?);
            }
            return Ok(all);
        }
        for ids in ids.chunks(MOST) {
            let (acted, mut write) = self.plan(&mut on, ids, from, action).await?;
            let mark = ObjectId::new();
            for statement in &mut write.statements {
                statement.pipeline.push(doc! { "$set": { "acted": mark } });
            }
            let count = write.statements.len();
            let matched = on.bulk(&side.jobs, write.statements);
            match matched.await {
                Ok(matched) if usize::try_from(matched) == Ok(count) => {
                    all.extend(acted);
                    continue;
                }
                Err(failure) if failure.kind != StoreErrorKind::Contention => return Err(failure),
                Ok(_) | Err(_) => {}
            }
            let marked = doc! { "_id": { "$in": pipelines::ids(ids) }, "acted": mark };
            let only = row::fields(doc! { "_id": 1 });
            let rows = on.find(&side.jobs, marked, only).await?;
            let done: HashSet<JobId> = row::job_ids(&rows).into_iter().collect();
            for one in acted {
                let wrote = matches!(
                    one.outcome,
                    ActionOutcome::Became(_)
                        | ActionOutcome::CancelRequested
                        | ActionOutcome::Changed
                );
                all.push(if wrote && !done.contains(&one.job) {
                    self.act_on_one(one.job, from, action).await?
                } else {
                    one
                });
            }
        }
        Ok(all)
    }

    async fn act_on_one(&self, job: JobId, from: &[JobState], action: JobAction) -> Result<Acted> {
        let mut tries = 0;
        loop {
            let mut on = self.main().plain();
            match self.act_together(&mut on, &[job], from, action).await {
                Err(failure) if failure.kind == StoreErrorKind::Contention => {
                    tries += 1;
                    tokio::time::sleep(pause(tries)).await;
                }
                done => {
                    let missing = Acted {
                        job,
                        outcome: ActionOutcome::NotFound,
                    };
                    return Ok(done?.pop().unwrap_or(missing));
                }
            }
        }
    }

    /// Returns the outcome of the action for each of these jobs, and the writes that apply the
    /// action. Does not run these writes. [act.from]
    async fn plan(
        &self,
        tx: &mut Tx<'_>,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<(Vec<Acted>, Writes)> {
        let now = self.now(self.main()).await?;
        let mut targets = self.targets(tx, ids).await?;
        targets.retain(|_, target| from.contains(&target.state));
        let mut refused_keys = HashMap::new();
        let mut places = Places::default();
        if action == JobAction::Requeue {
            refused_keys = self.keys_taken(tx, ids, &targets).await?;
            let again = targets.iter().filter(|(id, target)| {
                target.state == JobState::Failed && !refused_keys.contains_key(id)
            });
            let wanted = again.filter_map(|(_, target)| target.lane.clone());
            places = self.find_places(tx, wanted.collect()).await?;
            let waited = |(id, target): (&JobId, &Target)| target.links.then_some(*id);
            let waited: Vec<JobId> = targets.iter().filter_map(waited).collect();
            for job in self.have_open_links(tx, &waited).await? {
                if let Some(target) = targets.get_mut(&job) {
                    target.has_open_links = true;
                }
            }
        }
        let mut write = Writes {
            now,
            statements: Vec::new(),
            removed: Gone::default(),
            ends: Vec::new(),
            left: BTreeSet::new(),
            places,
        };
        let mut acted = Vec::with_capacity(ids.len());
        for id in ids {
            let outcome = match targets.get_mut(id) {
                None => ActionOutcome::NotFound,
                Some(target) => match refused_keys.get(id) {
                    Some(holder) if target.state == JobState::Failed => {
                        ActionOutcome::KeyTaken(*holder)
                    }
                    _ => write.respond(*id, target, action),
                },
            };
            if outcome == ActionOutcome::Deleted {
                targets.remove(id);
            }
            acted.push(Acted { job: *id, outcome });
        }
        Ok((acted, write))
    }

    async fn targets(&self, tx: &mut Tx<'_>, ids: &[JobId]) -> Result<HashMap<JobId, Target>> {
        let filter = doc! { "_id": { "$in": pipelines::ids(ids) } };
        let mut wanted = doc! { "state": 1, "route": 1, "queue": 1, "unique_key": 1, "lane": 1 };
        wanted.extend(doc! { "links": 1, "signal.state": 1 });
        wanted.extend(tie_fields());
        wanted.extend(Freed::fields());
        let options = row::fields(wanted);
        let mut targets = HashMap::with_capacity(ids.len());
        self.routes().check(self.main()).await?;
        for row in tx.find(&self.main().jobs, filter, options).await? {
            let lane = match row::name(&row, "lane")? {
                None => None,
                Some(lane) => {
                    let number = row::int(&row, "route")?;
                    if number > i64::from(self.routes().seen()) {
                        self.routes().refresh(self.main()).await?;
                    }
                    let route = self.routes().get(number, row::queue(&row));
                    route.map(|route| lanes::key(&route.queue, &lane))
                }
            };
            let target = Target {
                state: JobState::from_code(row::int(&row, "state")?)?,
                key: row::text(&row, "unique_key")?.map(str::to_owned),
                lane,
                links: row::flag(&row, "links"),
                has_open_links: false,
                lacks_signal: signals::is_missing(&row),
                ties: Ties::read(&row),
                freed: Freed::of(&row),
            };
            targets.insert(row::job_id(&row, "_id")?, target);
        }
        Ok(targets)
    }

    /// Returns the dead letters that cannot be requeued because another job holds their unique key.
    /// Maps each to the job that holds the key: an unfinished job, or an earlier dead letter in
    /// `ids` that will be requeued with the same key.
    async fn keys_taken(
        &self,
        tx: &mut Tx<'_>,
        ids: &[JobId],
        targets: &HashMap<JobId, Target>,
    ) -> Result<HashMap<JobId, JobId>> {
        let mut wanted = WantedKeys::default();
        for (id, target) in ids.iter().filter_map(|id| Some((*id, targets.get(id)?))) {
            wanted.want(id, target.state, target.key.as_deref());
        }
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let held = doc! { "live_key": { "$in": wanted.keys() } };
        let only = row::fields(doc! { "live_key": 1 });
        let mut holders: HashMap<String, JobId> = HashMap::new();
        for row in tx.find(&self.main().jobs, held, only).await? {
            let key = row::text(&row, "live_key")?.unwrap_or_default().to_owned();
            holders.insert(key, row::job_id(&row, "_id")?);
        }
        Ok(wanted.refused(&holders))
    }
}

/// The writes that apply an action to the jobs of one call.
struct Writes {
    now: Now,
    statements: Vec<Statement>,
    /// Jobs to delete.
    removed: Gone,
    /// Jobs that the action ends.
    ends: Vec<End>,
    /// Keys of the lanes that jobs leave because they end.
    left: BTreeSet<String>,
    /// Positions in lanes for the requeued jobs.
    places: Places,
}

impl Writes {
    /// Adds the writes for one job, and returns the outcome of the action. Also updates the state
    /// in `target`, because the call may contain the same job again.
    fn respond(&mut self, id: JobId, target: &mut Target, action: JobAction) -> ActionOutcome {
        let from = target.state;
        let (pipeline, outcome) = match from.respond(action) {
            Response::Refuse => return ActionOutcome::Refused(from),
            Response::RequestCancel => (
                vec![doc! { "$set": { "cancel_requested": true } }],
                ActionOutcome::CancelRequested,
            ),
            Response::Change => (pipelines::given(action, self.now), ActionOutcome::Changed),
            Response::Remove => {
                let links = (target.links, target.ties.has_children());
                self.removed.add_one(id, links, target.freed.take());
                return ActionOutcome::Deleted;
            }
            Response::Become(_) if action == JobAction::Requeue => {
                let lane = target.lane.as_deref();
                let place = lane.and_then(|lane| Some((lane, self.places.take(lane)?)));
                let waits = waiting_state(target.has_open_links, target.lacks_signal);
                let to = place.as_ref().map_or(waits, |(_, place)| place.state);
                target.state = to;
                let place = place.map(|(lane, place)| (lane, place.seq));
                let mut pipeline = pipelines::requeued(to, place, self.now);
                pipeline.extend(target.lacks_signal.then(|| signals::renewed(self.now)));
                (pipeline, ActionOutcome::Became(to))
            }
            Response::Become(to) => {
                let mut pipeline = pipelines::moved(to, self.now);
                if to.is_terminal() {
                    self.left.extend(target.lane.clone());
                    self.ends.push(target.ties.end(id, to, None));
                    // If the signal has not arrived, close the signal together with the job.
                    pipeline.extend(target.lacks_signal.then(signals::closed));
                }
                target.state = to;
                (pipeline, ActionOutcome::Became(to))
            }
        };
        let unchanged = doc! { "_id": row::id(id), "state": code(from) };
        self.statements.push(Statement::new(unchanged, pipeline));
        outcome
    }
}
