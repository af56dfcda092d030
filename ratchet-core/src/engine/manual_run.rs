//! Runs a node one job at a time, for tests of applications. Uses the node's claims, executor and
//! settler, but not its poll loop nor the loops that maintain the cluster.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::claim::poller;
use super::execute::executor;
use super::execute::reporter;
use super::maintain::{heartbeat, reclaimer, recurring};
use super::node::{Node, OnlyRun, RunError};
use super::pools::ready::Ready;
use super::pools::run_pool::RunPool;
use super::run::Run;
use super::settle::settler;
use super::supervisor::keep;
use crate::error::Result;
use crate::id::ClaimToken;
use crate::model::{ClaimRequest, JobRecord, NodeStatus};
use crate::name::Name;
use crate::route::{Route, Selection};
use crate::time::{self, Timestamp};

/// Maximum number of jobs that one call claims while the node searches for a given job.
const MAX_CLAIM: usize = 256;

/// Run of a node that claims and runs jobs only when its caller asks. It serves tests of
/// applications.
pub(crate) struct ManualRun<'a> {
    run: Run,
    _tasks: JoinSet<()>,
    _only: OnlyRun<'a>,
}

/// A claimed job whose body has not begun.
pub(crate) struct TakenJob {
    pool: usize,
    ready: Ready,
}

impl TakenJob {
    pub(crate) fn token(&self) -> ClaimToken {
        self.ready.claim.token
    }
}

impl<'a> ManualRun<'a> {
    /// Joins the cluster and stores the declared recurring definitions.
    pub(crate) async fn begin(node: &'a Node) -> Result<Self, RunError> {
        let only = OnlyRun::begin(&node.running)?;
        let run = Run::new(Arc::clone(&node.shared));
        run.join().await.map_err(RunError::Store)?;
        let mut tasks = JoinSet::new();
        keep(&mut tasks, &run.heartbeat, "heartbeat", heartbeat::run);
        keep(&mut tasks, &run.settler, "settler", settler::run);
        keep(&mut tasks, &run.reporter, "reporter", reporter::run);
        let hooks = &run.shared.hooks;
        hooks.tell(|hook| hook.node_joined(run.identity.node(), run.identity.label()));
        // A definition whose permit has no limit yet is not stored here. The next run of the node
        // stores it.
        recurring::declare(&run.recurring).await;
        Ok(Self {
            run,
            _tasks: tasks,
            _only: only,
        })
    }

    /// Fires the due slots of recurring definitions, fails the jobs whose signal did not arrive in
    /// time, and ends the jobs that expired. Returns the time of the next slot, or `None` if no
    /// slot is planned.
    pub(crate) async fn look_after(&self) -> Result<Option<Timestamp>> {
        let next = recurring::fire_due(&self.run.recurring).await?;
        reclaimer::end_late(&self.run.reclaimer).await?;
        Ok(next)
    }

    /// Claims the next due job, except jobs that must wait for their rate limit. If `queue` is
    /// given, claims only a job of that queue. Returns `None` if no such job is due.
    pub(crate) async fn next(&self, queue: Option<&Name>) -> Result<Option<TakenJob>> {
        for pool in &self.run.claims.pools {
            let share = pool.share();
            let mut request = share.request(self.run.identity.node());
            if let Some(queue) = queue {
                if !share.queues.contains(queue) {
                    continue;
                }
                request = request.queues(Selection::Only(vec![queue.clone()]));
            }
            let throttled = pool.throttles.due(time::monotonic());
            let open = pool.throttles.open_ones(&share.kinds);
            for kinds in [open, throttled.into_iter().map(|(kind, _)| kind).collect()] {
                if kinds.is_empty() {
                    continue;
                }
                let request = request.clone().kinds(Selection::Only(kinds)).limit(1);
                let next = self.claim(pool, request).await?.pop();
                if next.is_some() {
                    return Ok(next);
                }
            }
        }
        Ok(None)
    }

    /// Claims `job`. Returns `None` if the job is not due, or if the node does not run jobs of its
    /// route. Also claims the jobs of the route that come before `job` in the claim order, and
    /// hands them back.
    pub(crate) async fn find(&self, job: &JobRecord) -> Result<Option<TakenJob>> {
        let route = &job.spec.route;
        let takes = |pool: &&RunPool| {
            let share = pool.share();
            route.matches(&share.request(self.run.identity.node()))
        };
        let Some(pool) = self.run.claims.pools.iter().find(takes) else {
            return Ok(None);
        };
        let mut request = exactly(route, ClaimRequest::new(self.run.identity.node(), 1));
        let mut others = Vec::new();
        let found = loop {
            let batch = match self.claim(pool, request.clone()).await {
                Ok(batch) => batch,
                Err(error) => break Err(error),
            };
            if batch.is_empty() {
                break Ok(None);
            }
            let (found, rest): (Vec<TakenJob>, Vec<TakenJob>) = batch
                .into_iter()
                .partition(|taken| taken.token().job == job.id);
            others.extend(rest.into_iter().map(|taken| taken.ready));
            if let Some(found) = found.into_iter().next() {
                break Ok(Some(found));
            }
            request.limit = (request.limit * 2).min(MAX_CLAIM);
        };
        self.run.claims.hand_back(pool, others);
        self.settled(usize::from(matches!(found, Ok(Some(_)))))
            .await;
        found
    }

    /// Runs a claimed job to its end, and waits until the claim is settled.
    pub(crate) async fn execute(&self, taken: TakenJob) {
        let pool = &self.run.claims.pools[taken.pool];
        executor::admit(&self.run.executor, pool, taken.ready).await;
        self.settled(0).await;
    }

    /// Hands a claimed job back without running it, and waits until the claim is settled.
    pub(crate) async fn hand_back(&self, taken: TakenJob) {
        let pool = &self.run.claims.pools[taken.pool];
        self.run.claims.hand_back(pool, vec![taken.ready]);
        self.settled(0).await;
    }

    /// Leaves the cluster.
    pub(crate) async fn end(self) -> Result<()> {
        let _beating = self.run.heartbeat.beating.lock().await;
        self.run.identity.set_status(NodeStatus::Left);
        heartbeat::beat(&self.run.heartbeat, NodeStatus::Left).await?;
        let (hooks, identity) = (&self.run.shared.hooks, &self.run.identity);
        hooks.tell(|hook| hook.node_left(identity.node(), identity.label()));
        Ok(())
    }

    async fn claim(&self, pool: &RunPool, request: ClaimRequest) -> Result<Vec<TakenJob>> {
        let config = &self.run.shared.common.config;
        let request = request.aging(config.aging).payloads(!config.lazy_payloads);
        let batch = poller::claim(&self.run.poller, pool, &request).await?;
        pool.hold(batch.len());
        let taken = |ready| TakenJob {
            pool: pool.index,
            ready,
        };
        Ok(batch.into_iter().map(taken).collect())
    }

    /// Waits until the node holds at most `held` claims.
    async fn settled(&self, held: usize) {
        while self.run.claims.held() > held {
            self.run.claims.settled.notified().await;
        }
    }
}

/// Restricts `request` to the jobs of this route.
fn exactly(route: &Route, request: ClaimRequest) -> ClaimRequest {
    request
        .queues(Selection::Only(vec![route.queue.clone()]))
        .kinds(Selection::Only(vec![route.kind.clone()]))
        .capabilities(route.capability.clone())
        .untagged(route.capability.is_none())
}
