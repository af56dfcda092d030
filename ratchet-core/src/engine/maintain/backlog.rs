//! Measures the backlog of the queues named by `measured_queues`, for autoscalers.
//!
//! Only the leader of the maintenance role measures the backlog. Each pass makes one call for all
//! queues, and then one call for each queue with due jobs, which counts up to [`COUNTED`] jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::rest;
use crate::cluster::Leadership;
use crate::engine::common::Common;
use crate::engine::lead::roles::{MAINTENANCE, Roles};
use crate::error::Result;
use crate::metrics::QueueMetrics;
use crate::name::Name;
use crate::outage::Outage;
use crate::time;

/// The largest number of due jobs that a call counts per queue. Autoscalers need no larger number.
const COUNTED: u64 = 10_000;
/// How often the backlog is measured, which is as often as autoscalers poll by default.
const INTERVAL: Duration = Duration::from_secs(15);
/// How many passes in a row may fail before the gauges are set to 0. After a single failure the
/// last figures stay; if they stayed for a whole outage, autoscalers would act on an outdated
/// backlog.
const FAILED_PASSES: u32 = 2;

/// The handles that the measurement of the backlog uses.
pub(crate) struct BacklogHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) roles: Arc<Roles>,
}

/// Measures the backlog, as long as the node runs.
pub(crate) async fn run(run: Arc<BacklogHandles>) {
    let leadership = run.roles.leadership(MAINTENANCE);
    let Some(leadership) = leadership.filter(|_| !run.common.config.measured_queues.is_empty())
    else {
        return std::future::pending().await;
    };
    let mut watch = leadership.watch();
    loop {
        let term = watch.elected().await;
        // Once this node no longer leads, it stops measuring, because the next leader reports the
        // backlog.
        tokio::select! {
            biased;
            () = watch.lost(term) => {}
            () = measure(&run, leadership) => {}
        }
    }
}

/// Measures the backlog repeatedly. Dropping the future removes the gauges.
async fn measure(run: &BacklogHandles, leadership: &Leadership) {
    let queues = &run.common.config.measured_queues;
    let queues: BTreeMap<&Name, QueueMetrics> = queues
        .iter()
        .map(|queue| (queue, QueueMetrics::new(queue)))
        .collect();
    let (mut failed, mut outage) = (0, Outage::of("backlog"));
    loop {
        let began = time::monotonic();
        if leadership.is_leader() {
            match pass(run, queues.keys().copied()).await {
                Ok(figures) => {
                    failed = 0;
                    outage.ended();
                    for (metrics, (due, oldest)) in queues.values().zip(figures) {
                        metrics.set(due, oldest);
                    }
                }
                Err(error) => {
                    failed += 1;
                    outage.failed(&error);
                    if failed == FAILED_PASSES {
                        for metrics in queues.values() {
                            metrics.set(0, Duration::ZERO);
                        }
                    }
                }
            }
        }
        tokio::time::sleep(INTERVAL.max(rest(began.elapsed()))).await;
    }
}

/// Reads how many jobs of each queue are due, and for how long the oldest has been due. Changes no
/// gauge, so a pass that fails midway leaves all gauges as they were.
async fn pass(
    run: &BacklogHandles,
    queues: impl Iterator<Item = &Name>,
) -> Result<Vec<(u64, Duration)>> {
    let calls = &run.common.calls;
    let due = calls.call("due_routes", |store| {
        store.queues().due_routes(Duration::ZERO)
    });
    let mut oldest: BTreeMap<Name, Duration> = BTreeMap::new();
    for due in due.await?.into_iter().filter(|due| !due.is_paused()) {
        let longest = oldest.entry(due.route.queue).or_default();
        *longest = due.overdue.max(*longest);
    }
    let mut figures = Vec::new();
    for queue in queues {
        let Some(oldest) = oldest.get(queue) else {
            figures.push((0, Duration::ZERO));
            continue;
        };
        let count = calls.call("count_due", |store| {
            store.queues().count_due(queue, COUNTED)
        });
        figures.push((count.await?, *oldest));
    }
    Ok(figures)
}
