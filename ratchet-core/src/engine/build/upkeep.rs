//! Setters for the loops that keep the node and the cluster in order.

use std::sync::Arc;
use std::time::Duration;

use super::builder::NodeBuilder;
use crate::cluster::ClusterCoordinator;
use crate::engine::settings::retention::Retention;

impl NodeBuilder {
    /// Sets the shortest and the longest delay between polls. Default 100 ms and 1 s.
    ///
    /// The leader of the maintenance role looks for due jobs every `max`, on behalf of all nodes.
    /// An idle node that has heard of it in the last 5 s polls only every 15 times `max`. So a job
    /// whose wakeup is lost waits for up to twice `max`, and up to 5 s longer if the leader died.
    /// While the looks are slow, the leader rests after each for 20 times as long as it took, up to
    /// 2 minutes; then the job waits for a poll. A leader whose `max` is longer than 2 s does not
    /// spare the others their polls.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Self {
        self.config.poll_min = min;
        self.config.poll_max = max;
        self
    }

    /// Sets how often the node gives a sign of life while something depends on it. Default 5 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.config.heartbeat_interval = interval;
        self.config.heartbeat_max = self.config.heartbeat_max.max(interval);
        self
    }

    /// Sets how seldom at most a node gives a sign of life that holds no job and leads in nothing,
    /// while no other comes or goes. Default 30 s, at most 60 s. An order to drain reaches such a
    /// node that much later.
    pub fn heartbeat_max(mut self, interval: Duration) -> Self {
        self.config.heartbeat_max = interval;
        self
    }

    /// Sets how long nodes must be silent to count as dead; at least three heartbeat intervals.
    /// Default 15 s.
    pub fn dead_after(mut self, silence: Duration) -> Self {
        self.config.dead_after = silence;
        self
    }

    /// Sets how often the node looks for claims whose node is gone. Default 5 s.
    pub fn reclaim_interval(mut self, interval: Duration) -> Self {
        self.config.reclaim_interval = interval;
        self
    }

    /// Sets how long a drain waits for running bodies. Default 30 s.
    pub fn drain_grace(mut self, grace: Duration) -> Self {
        self.config.drain_grace = grace;
        self
    }

    /// Sets what becomes of finished jobs. Default: successes are deleted after a day, dead letters
    /// and cancelled jobs after 90 days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// Names the queues whose backlog the cluster's leader reports as the gauges
    /// `ratchet_queue_due_jobs` and `ratchet_queue_oldest_due_seconds`, for autoscalers. Default
    /// none; at most 50, because each queue is two time series. Set the same list on every node
    /// that may lead: only the leader of `maintenance` measures, about every 15 s.
    pub fn measured_queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let mut queues = self.names("measured_queues", queues);
        queues.sort();
        queues.dedup();
        self.config.measured_queues = queues;
        self
    }

    /// Sets how often old finished jobs are looked for. Default 1 min.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        self.config.maintenance_interval = interval;
        self
    }

    /// Sets how long one call of the store may take. Default 10 s.
    pub fn store_deadline(mut self, deadline: Duration) -> Self {
        self.config.store_deadline = deadline;
        self
    }

    /// Carries wakeups between nodes. The default is the store's own, or none.
    pub fn coordinator(mut self, coordinator: impl ClusterCoordinator) -> Self {
        self.coordinator = Some(Arc::new(coordinator));
        self
    }

    /// Makes all jitter a function of this seed, for tests that must repeat.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}
