//! Setters for the loops that maintain the node and the cluster.

use std::sync::Arc;
use std::time::Duration;

use super::builder::NodeBuilder;
use crate::cluster::{ClusterCoordinator, InProcessCoordinator, LeaderTimings};
use crate::engine::settings::retention::Retention;

impl NodeBuilder {
    /// Sets the shortest and the longest delay between polls. The defaults are 100 ms and 1 s.
    ///
    /// The leader of the maintenance role looks for due jobs every `max`, on behalf of all nodes.
    /// An idle node that has received a beacon from that leader in the last 5 s polls only every 15
    /// times `max`. So a job whose wakeup is lost waits for up to twice `max`, and up to 5 s longer
    /// if the leader died. If it takes the leader long to look for due jobs, it pauses for 20 times
    /// that duration, up to 2 minutes. In the meantime, only polls find such a job. A leader whose
    /// `max` is longer than 2 s sends no beacons, so the other nodes poll as usual.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Self {
        self.config.poll_min = min;
        self.config.poll_max = max;
        self
    }

    /// Sets the interval between heartbeats of a node that is not idle. The default is 5 s. For
    /// idle nodes see [`heartbeat_max`](Self::heartbeat_max).
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.config.heartbeat_interval = interval;
        self.config.heartbeat_max = self.config.heartbeat_max.max(interval);
        self
    }

    /// Sets the longest interval between heartbeats of a node that holds no job and leads no other
    /// node. The default is 30 s, the maximum 1 h. An order to drain can take that long to reach
    /// such a node. The node sends a heartbeat as soon as it claims a job. If it dies before that
    /// heartbeat, its claim is reclaimed only after three of these intervals.
    pub fn heartbeat_max(mut self, interval: Duration) -> Self {
        self.config.heartbeat_max = interval;
        self
    }

    /// Lets an idle node call the database only about every `interval`, from one minute to one
    /// hour. This is for databases that suspend while they get no queries, and for a single
    /// process.
    ///
    /// Sets [`poll_interval`](Self::poll_interval), [`heartbeat_max`](Self::heartbeat_max),
    /// [`reclaim_interval`](Self::reclaim_interval),
    /// [`maintenance_interval`](Self::maintenance_interval),
    /// [`recurring_interval`](Self::recurring_interval) and
    /// [`leader_timings`](Self::leader_timings), and uses an [in-process
    /// coordinator](InProcessCoordinator). A later call of such a setter replaces that part.
    ///
    /// Jobs that this node's client enqueues start at once, and delayed and recurring jobs start
    /// when they are due. A job that the client enqueues in a transaction of the application starts
    /// after the commit. The delay is at most about the time from the enqueue to the commit, if
    /// that time is less than a minute. Enqueues and other calls of another client or process take
    /// effect up to `interval` later, and so do the timeouts of signals. To wake this node from
    /// another client of the process, create an [`InProcessCoordinator`], and pass a clone of it to
    /// this builder and to [`Client::with_coordinator`](crate::Client::with_coordinator).
    ///
    /// While no node leads, delayed jobs and retries start up to `interval` late. After a crash of
    /// the leader, no node leads for `interval` and another minute. If a new process starts before
    /// the old one has ended, as in a rolling deployment, no node leads for up to `interval`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use ratchet::{MemoryStore, Ratchet};
    /// # let store = Arc::new(MemoryStore::new());
    /// let ten_minutes = Duration::from_secs(600);
    /// let builder = Ratchet::builder(store).idle_interval(ten_minutes);
    /// # drop(builder);
    /// ```
    pub fn idle_interval(mut self, interval: Duration) -> Self {
        let config = &mut self.config;
        config.idle_interval = Some(interval);
        config.poll_max = interval;
        config.heartbeat_max = interval;
        config.reclaim_interval = interval;
        config.maintenance_interval = interval;
        config.recurring_interval = interval;
        config.leadership = LeaderTimings::of_heartbeat(interval);
        self.coordinator(InProcessCoordinator::new())
    }

    /// Sets how long a node must be silent to count as dead. It must be at least three heartbeat
    /// intervals. The default is 15 s.
    pub fn dead_after(mut self, silence: Duration) -> Self {
        self.config.dead_after = silence;
        self
    }

    /// Sets how often the node looks for claims whose node is gone. The default is 5 s.
    pub fn reclaim_interval(mut self, interval: Duration) -> Self {
        self.config.reclaim_interval = interval;
        self
    }

    /// Sets how long a drain waits for running bodies. The default is 30 s.
    pub fn drain_grace(mut self, grace: Duration) -> Self {
        self.config.drain_grace = grace;
        self
    }

    /// Sets the retention of finished jobs. By default successes are deleted after a day, and dead
    /// letters and cancelled jobs after 90 days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// Sets the queues whose backlog the cluster's leader reports, for autoscalers, as the gauges
    /// `ratchet_queue_due_jobs` and `ratchet_queue_oldest_due_seconds`. The default is none, the
    /// maximum 50, because each queue adds two time series. Set the same list on every node that
    /// may lead: only the leader of `maintenance` measures, about every 15 s.
    pub fn measured_queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let mut queues = self.names("measured_queues", queues);
        queues.sort();
        queues.dedup();
        self.config.measured_queues = queues;
        self
    }

    /// Sets how often the node looks for old finished jobs. The default is 1 min.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        self.config.maintenance_interval = interval;
        self
    }

    /// Sets how long one call of the store may take. The default is 10 s.
    pub fn store_deadline(mut self, deadline: Duration) -> Self {
        self.config.store_deadline = deadline;
        self
    }

    /// Sets the coordinator, which carries wakeups between nodes. The default is the store's own,
    /// or none.
    pub fn coordinator(mut self, coordinator: impl ClusterCoordinator) -> Self {
        self.coordinator = Some(Arc::new(coordinator));
        self
    }

    /// Sets the seed of all jitter, for tests that must be repeatable.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}
