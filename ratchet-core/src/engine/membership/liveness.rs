//! Tracks how long the node's heartbeats have succeeded without a gap. This decides whether bodies
//! may begin, whether the silence of other nodes counts, and how far to trust the database's clock.

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

/// Tracks the replies to a run's heartbeats.
pub(crate) struct Liveness {
    common: Arc<Common>,
    interval: Arc<HeartbeatInterval>,
    /// Cancelled when the run stops claiming.
    draining: CancellationToken,
    /// Notified at each successful heartbeat.
    heard: Notify,
    /// The period in which this node's heartbeats have succeeded without a gap.
    heard_since: Mutex<Option<Heard>>,
    /// Detects whether the database's clock stepped between two heartbeats.
    clock: Mutex<ClockWatch>,
}

/// The period in which the heartbeats have succeeded.
#[derive(Debug)]
struct Heard {
    /// When the period began. It has no gap since then.
    since: Instant,
    /// When the last heartbeat succeeded.
    last: Instant,
    /// The time until which no other node can declare this node dead because of its silence.
    alive_until: Instant,
    /// The node id of the last heartbeat, and the `last_seen` that it wrote.
    told: (NodeId, Timestamp),
    /// How long after the last heartbeat the next may succeed without a gap.
    gap: Duration,
    /// How long the period must last until the silence of other nodes counts.
    patience: Duration,
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
    /// A step of the database's clock is a gap. So is a rewind of the database: the node's row is
    /// older than the last heartbeat, or missing.
    pub(crate) fn heard(&self, heartbeat: &Heartbeat, sent: Instant, reply: &HeartbeatReply) {
        let (node, database) = (heartbeat.node, reply.database_time);
        let alive = reply.status.is_live();
        let now = time::monotonic();
        let step = self.clock().note(Reading {
            sent,
            received: now,
            database,
        });
        if let Some(step) = step {
            metrics::clock_stepped(matches!(step, ClockStep::Forward(_)));
            let again = self.common.config.dead_after;
            tracing::warn!(?step, silence_counts_after = ?again, "the database's clock stepped");
        }
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let written = heard.as_ref().map(|heard| heard.told);
        let written = written.filter(|(by, _)| *by == node).map(|(_, at)| at);
        let dead_after = self.common.config.dead_after;
        let rewound = written.is_some_and(|at| reply.previous < Some(at));
        let again = match rewound {
            // The rows of other nodes may lack the long intervals that these nodes use now.
            true => dead_after.max(self.common.config.heartbeat_max.mul_f64(1.5)),
            false => dead_after,
        };
        if rewound {
            Self::rewound(again);
        }
        // A later `previous` was written by a heartbeat whose reply was lost. It may hide a rewind
        // that came before it, so it counts as a gap.
        let goes_on = written.is_none_or(|at| reply.previous == Some(at));
        let in_time = |heard: &&Heard| {
            let late = now.saturating_duration_since(heard.last) > heard.gap;
            !late && goes_on && step.is_none()
        };
        let (since, patience) = match heard.as_ref().filter(in_time) {
            Some(heard) => (heard.since, heard.patience),
            None => (now, again),
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
            // A pause that is too short for this node to be declared dead is not a gap.
            gap: heartbeat.interval.saturating_mul(2).max(dead_after / 2),
        });
        drop(heard);
        if alive {
            self.heard.notify_waiters();
        }
    }

    /// Records that a heartbeat with this interval is sent. The store may have it even if no reply
    /// arrives.
    pub(crate) fn beats(&self, interval: Duration, sent: Instant) {
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if let Some(heard) = &mut *heard {
            heard.alive_until = heard.alive_until.min(sent + self.patience(interval));
        }
    }

    /// Returns how long after a heartbeat with this interval other nodes may declare this node
    /// dead.
    fn patience(&self, interval: Duration) -> Duration {
        NodeRecord::patience(interval, self.common.config.dead_after)
    }

    /// Waits until it is certain that no other node has declared this node dead because of its
    /// silence, provided that all nodes have the same `dead_after`. Returns `false` if the node
    /// drains before that.
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

    /// Logs that the database went back to an earlier state, because it failed over to a replica
    /// that lags, or was restored from a backup. Its rows about other nodes are outdated, and the
    /// claims that this node holds may no longer be stored.
    fn rewound(again: Duration) {
        metrics::database_rewound();
        tracing::warn!(
            silence_counts_after = ?again,
            "the database went back to an earlier state: this node's row lacks its last heartbeat"
        );
    }

    /// Returns whether the database has been reachable for `dead_after`, without a step of its
    /// clock or a rewind, so that the other nodes have had time to send a heartbeat. After a rewind
    /// this takes one and a half times `heartbeat_max`, if that is longer.
    pub(crate) fn trusts_silence(&self) -> bool {
        let heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let trusts = |heard: &Heard| heard.last - heard.since >= heard.patience;
        heard.as_ref().is_some_and(trusts)
    }

    /// Returns how far a store call that begins now may trust the database's clock.
    pub(crate) fn clock_trust(&self) -> ClockTrust {
        let deadline = time::monotonic() + self.common.config.store_deadline;
        self.clock().trust(deadline)
    }

    /// Returns the database's time in the last reply to a heartbeat.
    pub(crate) fn database_time(&self) -> Option<Timestamp> {
        self.clock().last()
    }

    fn clock(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}
