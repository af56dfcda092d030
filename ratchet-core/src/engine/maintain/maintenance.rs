//! Maintenance: deletes or archives finished jobs that are older than their retention, and deletes
//! old batches and unused rates, in passes of limited size.
//!
//! Only the leader of the maintenance role runs maintenance. On a store with guards, a pass takes
//! effect only in the leader's term.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::client::archive;
use crate::cluster::Leadership;
use crate::engine::common::Common;
use crate::engine::lead::roles::{MAINTENANCE, Roles};
use crate::engine::pools::counters::Counters;
use crate::engine::settings::retention::Retain;
use crate::engine::totals::Totals;
use crate::error::Result;
use crate::metrics::{self, Rows};
use crate::model::{ArchivePurge, BatchPurge, Guarded, PurgeRequest};
use crate::store::StoreFeature;
use crate::time;

/// Maximum number of jobs, batches or rates that one pass deletes. The limit ensures that no pass
/// blocks the database for long.
const PASS: usize = 1_000;
/// Maximum number of jobs that one pass archives. It is smaller than [`PASS`], because archiving
/// reads and writes whole jobs.
const ARCHIVE_PASS: usize = 200;

/// Shared state that the maintenance loop uses.
pub(crate) struct MaintenanceHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) totals: Arc<Totals>,
}

/// Runs maintenance after each maintenance interval, if this node then leads the maintenance role.
/// Continues as long as the node runs.
pub(crate) async fn run(run: Arc<MaintenanceHandles>) {
    loop {
        let wait = run.common.config.maintenance_interval;
        tokio::time::sleep(run.common.pause(wait)).await;
        let leads = run.roles.leadership(MAINTENANCE);
        if !leads.is_some_and(Leadership::is_leader) {
            continue;
        }
        let began = time::monotonic();
        tick(&run).await;
        metrics::maintained(began.elapsed());
    }
}

/// Deletes or archives the jobs and batches that are older than their retention, and deletes unused
/// rates. If the store fails for one kind of row, logs the error and continues with the other
/// kinds.
async fn tick(run: &MaintenanceHandles) {
    let guard = run.roles.maintenance_guard(&**run.common.calls.store());
    if guard.is_none()
        && run
            .common
            .calls
            .store()
            .lacks(StoreFeature::Guards)
            .is_none()
    {
        // On a store with guards, a missing guard means that this node no longer leads.
        return;
    }
    // Before the passes that may take long: until then, claims skip the jobs of these queues.
    if let Err(error) = separate_queues(run).await {
        tracing::warn!(%error, "could not move the jobs of paused queues to routes of their own");
    }
    let retention = &run.common.config.retention;
    let maintained = &run.totals.maintained;
    for (state, retain) in retention.states() {
        let done = match retain {
            Retain::Forever => continue,
            Retain::Delete(age) => {
                let request = PurgeRequest::new(state, age, PASS).guarded(guard.clone());
                repeat(PASS, (&maintained.deleted, Rows::JobsDeleted), || {
                    purge(run, &request)
                })
                .await
            }
            Retain::Archive(age) => {
                let request = PurgeRequest::new(state, age, ARCHIVE_PASS).guarded(guard.clone());
                let pass = || put_away(run, &request);
                repeat(
                    ARCHIVE_PASS,
                    (&maintained.archived, Rows::JobsArchived),
                    pass,
                )
                .await
            }
        };
        if let Err(error) = done {
            tracing::warn!(%error, %state, "could not delete or archive old jobs");
        }
    }
    if let Err(error) = forget_rates(run).await {
        tracing::warn!(%error, "could not delete unused rates");
    }
    if let Some(age) = retention.batches() {
        let request = BatchPurge::new(age, PASS).guarded(guard.clone());
        let pass = || purge_batches(run, &request);
        if let Err(error) = repeat(PASS, (&maintained.batches, Rows::BatchesDeleted), pass).await {
            tracing::warn!(%error, "could not delete old batches");
        }
    }
    if let Some(age) = retention.archived() {
        let request = ArchivePurge::new(age, PASS).guarded(guard);
        let pass = || purge_archive(run, &request);
        if let Err(error) = repeat(
            PASS,
            (&maintained.deleted_from_archive, Rows::ArchiveDeleted),
            pass,
        )
        .await
        {
            tracing::warn!(%error, "could not delete old archived jobs");
        }
    }
}

/// Calls `pass` until it processes fewer than `limit` rows, or until the store reports that this
/// node no longer leads. Adds the number of processed rows to `counter` and to the metrics.
async fn repeat<F>(
    limit: usize,
    (counter, rows): (&AtomicU64, Rows),
    pass: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<Guarded<u64>>>,
{
    loop {
        let Guarded::Done(done) = pass().await? else {
            metrics::stale_guarded_write("maintenance");
            return Ok(());
        };
        metrics::maintenance_rows(rows, done);
        let done = usize::try_from(done).unwrap_or(usize::MAX);
        Counters::add(counter, done);
        if done < limit {
            return Ok(());
        }
    }
}

async fn purge(run: &MaintenanceHandles, request: &PurgeRequest) -> Result<Guarded<u64>> {
    let calls = &run.common.calls;
    calls
        .call("purge", |store| store.jobs().purge(request))
        .await
}

async fn put_away(run: &MaintenanceHandles, request: &PurgeRequest) -> Result<Guarded<u64>> {
    let calls = &run.common.calls;
    let put_away = calls.call("archive", |store| async {
        archive(store)?.archive(request).await
    });
    put_away.await
}

async fn purge_archive(run: &MaintenanceHandles, request: &ArchivePurge) -> Result<Guarded<u64>> {
    let calls = &run.common.calls;
    let purge = calls.call("purge_archive", |store| async {
        archive(store)?.purge_archive(request).await
    });
    purge.await
}

async fn purge_batches(run: &MaintenanceHandles, request: &BatchPurge) -> Result<Guarded<u64>> {
    let calls = &run.common.calls;
    let purge = calls.call("purge_batches", |store| async move {
        match store.workflows() {
            Some(workflows) => workflows.purge_batches(request).await,
            None => Ok(Guarded::Done(0)),
        }
    });
    purge.await
}

/// Moves the jobs of paused and excluded queues to routes of their own. This changes no answer of
/// the store, so the call needs no guard.
async fn separate_queues(run: &MaintenanceHandles) -> Result<()> {
    let calls = &run.common.calls;
    loop {
        let moved = calls.call("separate_queues", |store| {
            store.queues().separate_queues(PASS)
        });
        // A store may move fewer jobs than the limit because claims take some of them meanwhile.
        if moved.await? == 0 {
            return Ok(());
        }
    }
}

/// Deletes unused rates. The state of an unused rate equals the state of a rate that no job has
/// ever used. Deleting it changes nothing, so the call needs no guard.
async fn forget_rates(run: &MaintenanceHandles) -> Result<()> {
    let calls = &run.common.calls;
    loop {
        let forgotten = calls.call("forget_idle", |store| async move {
            match store.rates() {
                None => Ok(0),
                Some(rates) => rates.forget_idle(PASS).await,
            }
        });
        let forgotten = forgotten.await?;
        metrics::maintenance_rows(Rows::RatesForgotten, forgotten);
        if forgotten < PASS as u64 {
            return Ok(());
        }
    }
}
