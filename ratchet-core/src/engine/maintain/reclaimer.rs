//! The reclaimer: marks silent nodes dead, and reclaims their claims.
//!
//! The leader of the maintenance role makes passes regularly, the first one as soon as it is
//! elected. Every other node makes a pass when it starts, to take back its own claims. After that,
//! it makes passes rarely, in case no node leads: every 50 s by default, or every 10 minutes while
//! the leader's beacons arrive. Passes that overlap reclaim each claim once. A pass sends a
//! heartbeat before it marks nodes dead, so that a node that was asleep does not declare itself
//! dead.
//!
//! After an outage of the database, or a step of its clock, the silence of other nodes counts only
//! after `dead_after`. In this time, these nodes can send a heartbeat. A job whose crash budget is
//! used up is settled as failed, by the same fenced write as every other settlement. The same
//! passes fail jobs whose signal did not arrive in time, and end jobs that have expired.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::{self, HeartbeatHandles};
use crate::client::WakeQueue;
use crate::cluster::Leadership;
use crate::engine::common::Common;
use crate::engine::execute::running::RunningSet;
use crate::engine::hooks::Hooks;
use crate::engine::lead::roles::{MAINTENANCE, Roles};
use crate::engine::membership::beacons::Beacons;
use crate::engine::membership::liveness::Liveness;
use crate::engine::settle::settler;
use crate::engine::totals::Totals;
use crate::error::{Result, StoreErrorKind};
use crate::handler::CancelReason;
use crate::id::JobId;
use crate::metrics::{self, Rows};
use crate::model::{Claim, Detail, Fenced, Guarded, NodeSweep, Outcome, Reclaimed, Settlement};
use crate::outage::Outage;
use crate::time;

/// Factor by which the interval between passes is longer on a node that does not lead. Such a node
/// still makes passes, in case no node leads or the leader cannot reclaim.
const WITHOUT_LEADING: u32 = 10;
/// Number of passes in a row that a node skips while it receives the leader's beacons.
const SKIPPED: u32 = 11;
/// After a successful reclaim call, this node's reclaim passes count as successful for this many
/// intervals between passes.
const PASSES: u32 = 3;
/// Maximum number of jobs that one call ends because their signal did not arrive in time, or
/// because they have expired.
const PASS: usize = 500;
/// Divisor that reduces the number of jobs per call after a call exceeds the store's deadline. The
/// first call of a pass ends up to [`PASS`] jobs.
const FEWER: usize = 8;
/// Time from the last heartbeat of an ended node until its record is deleted.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// Shared state that the reclaimer loop uses.
pub(crate) struct ReclaimerHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) heartbeat: Arc<HeartbeatHandles>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) running: Arc<RunningSet>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) beacons: Arc<Beacons>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) wake_queue: Arc<WakeQueue>,
}

/// Makes reclaim passes while the node runs: at each reclaim interval while this node leads the
/// maintenance role, and rarely otherwise.
pub(crate) async fn run(run: Arc<ReclaimerHandles>) {
    let interval = run.common.config.reclaim_interval;
    let leadership = run.roles.leadership(MAINTENANCE);
    let mut watch = leadership.map(Leadership::watch);
    let mut outage = Outage::of("reclaimer");
    loop {
        let began = time::monotonic();
        match tick(&run).await {
            Ok(()) => outage.ended(),
            Err(error) => outage.failed(&error),
        }
        metrics::reclaim_pass(began.elapsed());
        if leadership.is_some_and(Leadership::is_leader) {
            tokio::time::sleep(run.common.pause(interval)).await;
        }
        for _ in 0..=SKIPPED {
            let elected = async {
                match &mut watch {
                    Some(watch) => watch.elected().await,
                    None => std::future::pending().await,
                };
            };
            let elected = tokio::time::timeout(interval * WITHOUT_LEADING, elected).await;
            if elected.is_ok() || run.beacons.leader().is_none() {
                break;
            }
        }
    }
}

/// Makes one pass: reads the nodes, sends a heartbeat, marks silent nodes dead, reclaims lost
/// claims, fails jobs whose signal did not arrive in time, and ends jobs that have expired.
async fn tick(run: &ReclaimerHandles) -> Result<()> {
    let (calls, config) = (&run.common.calls, &run.common.config);
    // Most sweeps would change nothing, and a guarded write costs several statements. To skip such
    // sweeps, the node records are read first. The heartbeat then shows whether the database went
    // back to an earlier state. The records are read before the heartbeat, because the sweep must
    // follow the heartbeat immediately.
    let nodes = calls.call("nodes", |store| store.nodes().nodes()).await?;
    heartbeat::tick(&run.heartbeat).await?;
    let silence_counts = run.liveness.trusts_silence();
    if silence_counts {
        let sweep = NodeSweep::new(config.dead_after, FORGET_AFTER);
        let sweep = sweep.clock(run.liveness.clock_trust());
        let now = run.liveness.database_time();
        if now.is_none_or(|now| nodes.iter().any(|node| sweep.changes(node, now))) {
            self::sweep(run, sweep).await?;
        }
    }
    let request = config.reclaim_request().silence_counts(silence_counts);
    loop {
        let request = request.clone().clock(run.liveness.clock_trust());
        let reclaimed = calls
            .call("reclaim", |store| store.jobs().reclaim(&request))
            .await?;
        let next = config
            .reclaim_interval
            .max(config.idle_interval.unwrap_or_default());
        run.beacons.reclaims_for(next * PASSES);
        metrics::claims_reclaimed(&reclaimed);
        for lost in &reclaimed {
            run.running.cancel(lost.token, CancelReason::ClaimLost);
        }
        let failed = fail_exhausted(run, &reclaimed).await;
        if !reclaimed.is_empty() {
            tracing::warn!(
                jobs = reclaimed.len(),
                "reclaimed jobs whose claims were lost"
            );
            run.wake_queue.wake(None);
        }
        // A claim that could not be settled is returned by every further call. Such claims are left
        // to the next pass, because this loop would otherwise not end.
        let moved = reclaimed.iter().any(|lost| !lost.exhausted);
        let more = reclaimed.len() == request.limit && (moved || matches!(failed, Ok(1..)));
        if failed.is_err() || !more {
            return failed.and(end_late(run).await);
        }
    }
}

/// Marks silent nodes dead, and deletes nodes that ended long ago.
async fn sweep(run: &ReclaimerHandles, sweep: NodeSweep) -> Result<()> {
    let calls = &run.common.calls;
    let sweep = sweep.guarded(run.roles.maintenance_guard(&**calls.store()));
    let swept = calls.call("sweep_nodes", |store| store.nodes().sweep_nodes(&sweep));
    let swept = swept.await?;
    if swept == Guarded::Stale {
        metrics::stale_guarded_write("sweep");
    }
    let swept = swept.done().unwrap_or_default();
    metrics::nodes_died(swept.died.len());
    metrics::maintenance_rows(Rows::NodesForgotten, swept.forgotten);
    for node in swept.died {
        tracing::warn!(%node, "node fell silent");
    }
    Ok(())
}

/// Fails the jobs whose signal did not arrive in time, and ends the jobs that have expired.
pub(crate) async fn end_late(run: &ReclaimerHandles) -> Result<()> {
    let calls = &run.common.calls;
    let signals = async {
        if calls.store().signals().is_none() {
            return Ok(());
        }
        let pass = |limit| {
            calls.call("expire", move |store| async move {
                match store.signals() {
                    Some(signals) => signals.expire(limit).await,
                    None => Ok(Vec::new()),
                }
            })
        };
        let ended = |jobs| {
            metrics::signals_expired(jobs);
            tracing::warn!(jobs, "failed jobs whose signal did not arrive in time");
        };
        in_passes(run, pass, ended).await
    };
    let signals = signals.await;
    let pass = |limit| {
        calls.call("expire_jobs", move |store| async move {
            store.jobs().expire_jobs(limit).await
        })
    };
    let ended = |jobs| {
        metrics::jobs_expired(jobs);
        tracing::info!(
            jobs,
            "cancelled jobs that had not begun before their expiry"
        );
    };
    signals.and(in_passes(run, pass, ended).await)
}

/// Calls `pass`, which ends up to the given number of jobs, until it ends fewer. If a store call
/// exceeds its deadline, the next call ends fewer jobs: the store also updates all jobs that wait
/// for an ended job, and these may be many. Passes the number of jobs that a call ended to `ended`.
async fn in_passes<F>(
    run: &ReclaimerHandles,
    pass: impl Fn(usize) -> F,
    ended: impl Fn(usize),
) -> Result<()>
where
    F: Future<Output = Result<Vec<JobId>>>,
{
    let mut limit = PASS;
    loop {
        let late = match pass(limit).await {
            Err(error) if error.kind() == StoreErrorKind::Timeout && limit > 1 => {
                tracing::warn!(%error, limit, "ending jobs whose time is over timed out; retrying \
                    with fewer jobs at once");
                limit = (limit / FEWER).max(1);
                continue;
            }
            late => late?,
        };
        if !late.is_empty() {
            ended(late.len());
            run.wake_queue.wake(None);
        }
        if late.len() < limit {
            return Ok(());
        }
    }
}

/// Fails the reclaimed jobs whose crash budget is used up. Returns the number of jobs that this
/// call failed.
async fn fail_exhausted(run: &ReclaimerHandles, reclaimed: &[Reclaimed]) -> Result<usize> {
    let fail = |lost: &Reclaimed| {
        let error = match lost.crash_count {
            // The value `u32::MAX` means that the crash count cannot be read.
            u32::MAX => {
                "its node crashed or stopped while running the job; the stored crash count \
                 cannot be read"
                    .to_owned()
            }
            count => format!("its node crashed or stopped {count} times while running the job"),
        };
        Settlement::new(lost.token, Outcome::Failed { error }).without_attempt()
    };
    let failed: Vec<Settlement> = reclaimed
        .iter()
        .filter(|lost| lost.exhausted)
        .map(fail)
        .collect();
    if failed.is_empty() {
        return Ok(0);
    }
    let (mut applied, mut failure) = (Vec::new(), None);
    for (end, answer) in failed
        .iter()
        .zip(settler::settle_each(&run.common, &failed).await)
    {
        match answer {
            Ok(Fenced::Applied) => applied.push(end),
            Ok(Fenced::Stale) => {}
            Err(error) => failure = Some(error),
        }
    }
    metrics::exhausted(applied.len());
    for settlement in &applied {
        run.totals.ended(&settlement.outcome);
    }
    tell(run, &applied).await;
    failure.map_or(Ok(applied.len()), Err)
}

/// Reads the failed jobs from the store, and notifies the hooks that these jobs have ended.
async fn tell(run: &ReclaimerHandles, failed: &[&Settlement]) {
    let ids: Vec<JobId> = failed.iter().map(|end| end.token.job).collect();
    let calls = &run.common.calls;
    let read = calls.call("get", |store| store.jobs().get(&ids, Detail::Whole));
    let jobs = match read.await {
        Ok(jobs) => jobs,
        Err(error) => {
            tracing::error!(%error, jobs = ?ids, "jobs became dead letters, but the hooks were not notified: the jobs could not be read");
            return;
        }
    };
    for (end, job) in failed.iter().zip(jobs) {
        if let Some(job) = job {
            let mut claim = Claim::of(&job);
            claim.token = end.token;
            run.hooks.tell(|hook| hook.job_ended(&claim, end));
        }
    }
}
