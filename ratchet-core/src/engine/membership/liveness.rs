//! Tracks the replies to the node's heartbeats: how long the heartbeats have succeeded without a
//! gap, and the database's times in the replies. Decides from these whether bodies may begin,
//! whether the silence of other nodes counts, and how far the node trusts the database's clock.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock_watch::{ClockStep, ClockWatch, Reading};
use super::heartbeat_interval::HeartbeatInterval;
use crate::engine::common::Common;
use crate::id::NodeId;
use crate::metrics;
use crate::model::{ClockTrust, Heartbeat, HeartbeatReply, NodeRecord};
use crate::time::{self, Timestamp};

/// Tracks the replies to the heartbeats of a run. From these, decides whether this node is surely
/// alive, and whether the silence of other nodes counts.
pub(crate) struct Liveness {
    common: Arc<Common>,
    interval: Arc<HeartbeatInterval>,
    /// Token that is cancelled when the run stops claiming jobs.
    draining: CancellationToken,
    /// Notifies waiting tasks of each heartbeat whose reply says that this node is alive.
    heard: Notify,
    /// Current period in which this node's heartbeats succeed without a gap. `None` until the first
    /// heartbeat succeeds.
    heard_since: Mutex<Option<Heard>>,
    /// Detects steps of the database's clock between two heartbeats.
    clock: Mutex<ClockWatch>,
}

/// Period in which this node's heartbeats succeed without a gap.
#[derive(Debug)]
struct Heard {
    /// Time at which the period began.
    since: Instant,
    /// Time of the last successful heartbeat.
    last: Instant,
    /// Time until which no other node can declare this node dead because of its silence.
    alive_until: Instant,
    /// Node id of the last successful heartbeat, and the `last_seen` time that the store wrote for
    /// it.
    told: (NodeId, Timestamp),
    /// Maximum time from the last successful heartbeat to the next one within the same period. If
    /// more time passes, a new period begins.
    gap: Duration,
    /// Minimum length of the period. After this time, the silence of other nodes counts.
    patience: Duration,
}

impl Heard {
    /// Returns whether the period has lasted long enough for the silence of other nodes to count.
    fn is_patient(&self) -> bool {
        self.last - self.since >= self.patience
    }
}

impl Liveness {
    pub(crate) fn new(
        common: Arc<Common>,
        interval: Arc<HeartbeatInterval>,
        draining: CancellationToken,
    ) -> Self {
        Self {
            common,
            interval,
            draining,
            heard: Notify::new(),
            heard_since: Mutex::new(None),
            clock: Mutex::new(ClockWatch::new()),
        }
    }

    /// Records the reply to `heartbeat`, which was sent at `sent`.
    ///
    /// The reply continues the current period of successful heartbeats, or starts a new period. A
    /// new period starts if the reply arrived late, or if the reply to an earlier heartbeat was
    /// lost. It also starts if the database's clock stepped, or if the database went back to an
    /// earlier state. In that state, the node's row is missing or older than the last heartbeat.
    pub(crate) fn heard(&self, heartbeat: &Heartbeat, sent: Instant, reply: &HeartbeatReply) {
        let (node, database) = (heartbeat.node, reply.database_time);
        let alive = reply.status.is_live();
        let now = time::monotonic();
        let step = self.clock().note(Reading {
            sent,
            received: now,
            database,
        });
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let written = heard.as_ref().map(|heard| heard.told);
        let written = written.filter(|(by, _)| *by == node).map(|(_, at)| at);
        let dead_after = self.common.config.dead_after;
        let rewound = written.is_some_and(|at| reply.previous < Some(at));
        let again = match rewound {
            // The rows of other nodes may contain shorter intervals than these nodes use now.
            true => dead_after.max(self.common.config.heartbeat_max.mul_f64(1.5)),
            false => dead_after,
        };
        // If `previous` is later, a heartbeat whose reply was lost wrote it. That heartbeat may
        // hide an earlier rewind of the database, so it counts as a gap.
        let goes_on = written.is_none_or(|at| reply.previous == Some(at));
        let in_time = |heard: &&Heard| {
            let late = now.saturating_duration_since(heard.last) > heard.gap;
            !late && goes_on && step.is_none()
        };
        let (since, patience) = match heard.as_ref().filter(in_time) {
            Some(heard) => (heard.since, heard.patience),
            // If a period ends before its patience has passed, the next period needs at least that
            // patience.
            None => {
                let left = heard.as_ref().filter(|heard| !heard.is_patient());
                let left = left.map_or(Duration::ZERO, |heard| heard.patience);
                (now, again.max(left))
            }
        };
        *heard = Some(Heard {
            since,
            last: now,
            patience,
            alive_until: if alive {
                sent + self.patience(heartbeat.interval)
            } else {
                sent
            },
            told: (node, database),
            // A pause between heartbeats that is too short for this node to be declared dead is not
            // a gap.
            gap: heartbeat.interval.saturating_mul(2).max(dead_after / 2),
        });
        drop(heard);
        if let Some(step) = step {
            metrics::clock_stepped(matches!(step, ClockStep::Forward(_)));
            tracing::warn!(?step, silence_counts_after = ?patience, "the database's clock \
                stepped; for a while, silent nodes are not declared dead");
        }
        if rewound {
            Self::rewound(patience);
        }
        if alive {
            self.heard.notify_waiters();
        }
    }

    /// Records that a heartbeat with this interval is sent at `sent`. The store may record the
    /// heartbeat even if no reply arrives. So other nodes may declare this node dead as soon as
    /// this interval allows.
    pub(crate) fn beats(&self, interval: Duration, sent: Instant) {
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if let Some(heard) = &mut *heard {
            heard.alive_until = heard.alive_until.min(sent + self.patience(interval));
        }
    }

    /// Returns the time that other nodes wait after a heartbeat with this interval before they may
    /// declare this node dead.
    fn patience(&self, interval: Duration) -> Duration {
        NodeRecord::patience(interval, self.common.config.dead_after)
    }

    /// Waits until no other node can have declared this node dead because of its silence. This
    /// guarantee requires that all nodes have the same `dead_after`. Requests heartbeats while it
    /// waits. Returns `false` if the run stops claiming jobs first.
    pub(crate) async fn wait_until_alive(&self) -> bool {
        loop {
            let heard = self.heard.notified();
            let alive_until = self
                .heard_since
                .lock()
                .unwrap_or_else(|broken| broken.into_inner())
                .as_ref()
                .map(|heard| heard.alive_until);
            if alive_until.is_some_and(|until| time::monotonic() < until) {
                return true;
            }
            self.interval.beat_now();
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return false,
                () = heard => {}
            }
        }
    }

    /// Logs that the database went back to an earlier state, by a failover to a replica that lags,
    /// or by a restore from a backup. The rows of other nodes are then outdated, and the claims
    /// that this node holds may be missing. The silence of other nodes counts again after
    /// `patience`.
    fn rewound(patience: Duration) {
        metrics::database_rewound();
        tracing::warn!(
            silence_counts_after = ?patience,
            "the database went back to an earlier state: this node's row lacks its last heartbeat"
        );
    }

    /// Returns whether the silence of other nodes counts. They must have had time to send a
    /// heartbeat: the database has been reachable for `dead_after`, its clock has not stepped, and
    /// its state has not gone back. After the state has gone back, at least one and a half times
    /// `heartbeat_max` must pass.
    pub(crate) fn trusts_silence(&self) -> bool {
        let heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        heard.as_ref().is_some_and(Heard::is_patient)
    }

    /// Returns how far a store call that begins now may trust the database's clock when it judges
    /// ages.
    pub(crate) fn clock_trust(&self) -> ClockTrust {
        let deadline = time::monotonic() + self.common.config.store_deadline;
        self.clock().trust(deadline)
    }

    /// Returns the database's time in the last reply to a heartbeat. `None` before the first reply.
    pub(crate) fn database_time(&self) -> Option<Timestamp> {
        self.clock().last()
    }

    fn clock(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Calls;
    use crate::engine::settings::config::Config;
    use crate::memory::MemoryStore;
    use crate::model::NodeStatus;
    use crate::name::Name;
    use crate::time::{from_millis, to_millis};

    const BEGIN: i64 = 1_790_000_000_000;

    #[tokio::test(start_paused = true)]
    async fn after_a_rewind_the_long_patience_outlasts_a_gap() {
        let second = Duration::from_secs(1);
        let calls = Arc::new(Calls::of_client(Arc::new(MemoryStore::new())));
        let config = Config::default();
        let interval = HeartbeatInterval::new(config.heartbeat_interval, config.heartbeat_max);
        let common = Arc::new(Common::new(calls, config, Some(1)));
        let liveness = Liveness::new(common, Arc::new(interval), CancellationToken::new());
        let label = Name::new("label", "n").unwrap();
        let beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, second * 5);
        let origin = time::monotonic();
        // Sends a heartbeat `after` seconds after the last one. According to the reply, the store
        // last saw the node `lost` seconds earlier than the previous reply said.
        let mut last = None;
        let mut beat_after = async |after: u32, lost: i64| {
            tokio::time::sleep(second * after).await;
            let passed = i64::try_from(origin.elapsed().as_millis()).unwrap();
            let now = from_millis(BEGIN + passed);
            let previous = last.map(|last| from_millis(to_millis(last) - lost * 1_000));
            let reply = HeartbeatReply::new(now, NodeStatus::Active, previous, vec![], false);
            liveness.heard(&beat, time::monotonic(), &reply);
            last = Some(now);
            liveness.trusts_silence()
        };
        for _ in 0..3 {
            assert!(!beat_after(5, 0).await);
        }
        assert!(beat_after(5, 0).await);
        // The database goes back by 20 s. Then a heartbeat is late.
        assert!(!beat_after(5, 20).await);
        assert!(!beat_after(12, 0).await);
        for _ in 0..8 {
            assert!(!beat_after(5, 0).await);
        }
        assert!(beat_after(5, 0).await);
        // After an outage without a rewind, the shorter time is enough.
        assert!(!beat_after(12, 0).await);
        for _ in 0..2 {
            assert!(!beat_after(5, 0).await);
        }
        assert!(beat_after(5, 0).await);
    }
}
