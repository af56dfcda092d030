//! Operator actions on jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use ratchet_core::links::waiting_state;
use ratchet_core::model::{Acted, ActionOutcome, JobFlags, WantedKeys};
use ratchet_core::state::Response;
use ratchet_core::{JobAction, JobId, JobState, StoreErrorKind};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result};
use crate::row;
use crate::store::SqlStore;

/// A job to which an action is applied: its state, its flags and its unique key.
struct Target {
    state: JobState,
    flags: JobFlags,
    key: Option<String>,
}

/// Changes that one call writes to the database. Each field contains the changes that one statement
/// writes.
#[derive(Default)]
struct Changes {
    moved: HashMap<JobId, JobState>,
    cancelling: Vec<Uuid>,
    requeued: Vec<(Uuid, JobState)>,
    /// Jobs whose due time or priority the action changes.
    given: Vec<Uuid>,
    deleted: Vec<Uuid>,
    /// Requeued or deleted jobs that may have an expiry.
    without_expiry: Vec<Uuid>,
}

impl<D: Dialect> SqlStore<D> {
    /// Applies an action, in one transaction, to the given jobs whose state is in `from`. Skips the
    /// other jobs.
    pub(crate) async fn act_on_jobs(
        &self,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let acted = self.act_inside(&mut lease, ids, from, action).await;
        lease.end(acted).await
    }

    /// Locks the given jobs, and applies the action to the jobs whose state is in `from`. Must run
    /// in a transaction.
    async fn act_inside(
        &self,
        lease: &mut D::Lease,
        ids: &[JobId],
        from: &[JobState],
        action: JobAction,
    ) -> Result<Vec<Acted>> {
        let wanted: Vec<Uuid> = ids.iter().map(JobId::as_uuid).collect();
        // All calls lock lanes before jobs. So the lanes of these jobs are read first. This needs
        // no lock on the jobs, because a job's lane never changes.
        let lanes = match action {
            JobAction::Cancel | JobAction::Requeue => self.lanes_of(lease, &wanted).await?,
            _ => BTreeMap::new(),
        };
        let mut places = self.enter_lanes(lease, lanes.values().cloned()).await?;
        let read = self.sql().read_state.query().bind(&wanted);
        let mut targets = HashMap::with_capacity(ids.len());
        for row in lease.rows(read).await? {
            let state = JobState::from_code(row.try_get::<i16>(1)?.into())?;
            let (flags, key) = (row.try_get(2)?, row.try_get(3)?);
            if from.contains(&state) {
                let target = Target { state, flags, key };
                targets.insert(row::job_id(&row, 0)?, target);
            }
        }
        let refused_keys = if action == JobAction::Requeue {
            self.take_keys(lease, ids, &targets).await?
        } else {
            HashMap::new()
        };
        let blocked = if action == JobAction::Requeue {
            self.wait_again(lease, &targets, &refused_keys).await?
        } else {
            HashSet::new()
        };
        let mut changes = Changes::default();
        let mut acted = Vec::with_capacity(ids.len());
        for id in ids {
            let outcome = respond(
                *id,
                action,
                &mut targets,
                &refused_keys,
                &mut changes,
                |id| {
                    let lane = lanes.get(&id).cloned();
                    let waits = waiting_state(blocked.contains(&id), false);
                    lane.map_or(waits, |lane| places.take(id, lane))
                },
            );
            acted.push(Acted { job: *id, outcome });
        }
        let ended = changes
            .moved
            .iter()
            .filter(|(_, state)| state.is_terminal());
        let ended: Vec<(Uuid, JobFlags)> = ended
            .map(|(id, _)| {
                (
                    id.as_uuid(),
                    targets.get(id).map(|job| job.flags).unwrap_or_default(),
                )
            })
            .collect();
        let of_lanes = ended
            .iter()
            .filter(|(_, flags)| flags.has_any(JobFlags::LANE));
        let of_lanes: Vec<Uuid> = of_lanes.map(|(id, _)| *id).collect();
        self.drop_expiries(lease, &changes.without_expiry).await?;
        self.write_changes(lease, changes, action).await?;
        self.leave_lanes(lease, places, &of_lanes).await?;
        self.follow_ends(lease, &ended).await?;
        Ok(acted)
    }

    /// Acquires the unique keys of the jobs to requeue. Returns each job whose unique key another
    /// job holds, with the id of that other job.
    async fn take_keys(
        &self,
        lease: &mut D::Lease,
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
        let keys = wanted.keys();
        let jobs: Vec<Uuid> = wanted.jobs().map(|id| id.as_uuid()).collect();
        let places: Vec<i32> = (0..).take(keys.len()).collect();
        let take = self.sql().take_unique_keys.query().table(&[
            ("name", &keys),
            ("job", &jobs),
            ("place", &places),
        ]);
        lease.execute(take).await?;
        let find = self.sql().find_unique_keys.query().bind(&keys);
        let mut holders: HashMap<String, JobId> = HashMap::new();
        for row in lease.rows(find).await? {
            holders.insert(row.try_get(0)?, row::job_id(&row, 1)?);
        }
        if keys.iter().any(|key| !holders.contains_key(*key)) {
            // The job that held the key released it between the two statements. The caller repeats
            // the call.
            let text = "the job that held a unique key released it during the call";
            return Err(Failure::new(StoreErrorKind::Contention, text));
        }
        Ok(wanted.refused(&holders))
    }

    /// Returns the jobs to requeue that must wait again, because they have open links or their
    /// signal was not delivered. Restarts the timeouts of the signals that were not delivered.
    async fn wait_again(
        &self,
        lease: &mut D::Lease,
        targets: &HashMap<JobId, Target>,
        refused_keys: &HashMap<JobId, JobId>,
    ) -> Result<HashSet<JobId>> {
        let requeued = targets.iter().filter(|(id, target)| {
            target.flags.has_any(JobFlags::WAITS)
                && target.state.respond(JobAction::Requeue) != Response::Refuse
                && !refused_keys.contains_key(id)
        });
        let requeued: Vec<Uuid> = requeued.map(|(id, _)| id.as_uuid()).collect();
        let mut blocked = HashSet::new();
        if !requeued.is_empty() {
            let sql = self.sql();
            for statement in [&sql.renew_signals, &sql.open_links] {
                for row in lease.rows(statement.query().bind(&requeued)).await? {
                    blocked.insert(row::job_id(&row, 0)?);
                }
            }
        }
        Ok(blocked)
    }

    async fn write_changes(
        &self,
        lease: &mut D::Lease,
        changes: Changes,
        action: JobAction,
    ) -> Result<()> {
        let sql = self.sql();
        if !changes.moved.is_empty() {
            let ids: Vec<Uuid> = changes.moved.keys().map(JobId::as_uuid).collect();
            let states = changes.moved.values();
            let states: Vec<i16> = states.map(|state| state.code().into()).collect();
            lease
                .execute(
                    sql.change_state
                        .query()
                        .table(&[("job", &ids), ("state", &states)]),
                )
                .await?;
        }
        if !changes.cancelling.is_empty() {
            lease
                .execute(sql.request_cancel.query().bind(&changes.cancelling))
                .await?;
        }
        if !changes.requeued.is_empty() {
            let (ids, states): (Vec<Uuid>, Vec<i16>) = changes
                .requeued
                .into_iter()
                .map(|(id, state)| (id, i16::from(state.code())))
                .unzip();
            lease
                .execute(
                    sql.requeue_jobs
                        .query()
                        .table(&[("job", &ids), ("state", &states)]),
                )
                .await?;
        }
        if !changes.given.is_empty() {
            self.give(lease, changes.given, action).await?;
        }
        if !changes.deleted.is_empty() {
            for some in changes.deleted.chunks(D::DELETES_AT_ONCE) {
                lease.rows(sql.delete_jobs.query().bind(some)).await?;
            }
        }
        Ok(())
    }

    /// Sets the due time or the priority of these jobs to the value in `action`.
    async fn give(&self, lease: &mut D::Lease, ids: Vec<Uuid>, action: JobAction) -> Result<()> {
        let sql = self.sql();
        let give = match action {
            JobAction::Reschedule(due) => {
                let (at, delay) = row::due(due);
                sql.reschedule_jobs.query().bind(&ids).bind(at).bind(delay)
            }
            JobAction::SetPriority(priority) => {
                let level = i16::from(priority.level());
                sql.set_priority.query().bind(&ids).bind(level)
            }
            _ => return Ok(()),
        };
        lease.execute(give).await.map(drop)
    }
}

/// Determines the outcome of the action for one job. Records in `changes` which changes must be
/// written.
///
/// Updates the state of the job in `targets`, because one call may contain the same id twice.
/// `enter` adds a requeued job to its lane and returns the state in which the job waits.
fn respond(
    id: JobId,
    action: JobAction,
    targets: &mut HashMap<JobId, Target>,
    refused_keys: &HashMap<JobId, JobId>,
    changes: &mut Changes,
    enter: impl FnOnce(JobId) -> JobState,
) -> ActionOutcome {
    let Some(target) = targets.get_mut(&id) else {
        return ActionOutcome::NotFound;
    };
    let expires = target.flags.has_any(JobFlags::EXPIRES);
    let expiring = expires.then_some(id.as_uuid());
    match target.state.respond(action) {
        Response::Refuse => ActionOutcome::Refused(target.state),
        Response::RequestCancel => {
            changes.cancelling.push(id.as_uuid());
            ActionOutcome::CancelRequested
        }
        Response::Change => {
            changes.given.push(id.as_uuid());
            ActionOutcome::Changed
        }
        Response::Remove => {
            changes.deleted.push(id.as_uuid());
            changes.without_expiry.extend(expiring);
            targets.remove(&id);
            ActionOutcome::Deleted
        }
        Response::Become(mut to) => {
            if let Some(holder) = refused_keys.get(&id) {
                return ActionOutcome::KeyTaken(*holder);
            }
            if action == JobAction::Requeue {
                to = enter(id);
                changes.requeued.push((id.as_uuid(), to));
                changes.without_expiry.extend(expiring);
            } else {
                changes.moved.insert(id, to);
            }
            target.state = to;
            ActionOutcome::Became(to)
        }
    }
}
