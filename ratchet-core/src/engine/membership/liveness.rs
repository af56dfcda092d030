//! How long the node's heartbeats have come through, and what that says about it, about the other
//! nodes and about the database's clock.

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

/// The conclusions from the replies to a run's heartbeats.
pub(crate) struct Liveness {
    common: Arc<Common>,
    interval: Arc<HeartbeatInterval>,
    /// Cancelled when the run stops claiming.
    draining: CancellationToken,
    /// Notified at each heartbeat that comes through.
    heard: Notify,
    /// Since when this node's heartbeats have come through without a gap.
    heard_since: Mutex<Option<Heard>>,
    /// Whether the database's clock stepped between two of them.
    clock: Mutex<ClockWatch>,
}

/// How long the heartbeats have come through.
#[derive(Debug)]
struct Heard {
    /// Since when, without a gap.
    since: Instant,
    /// When the last did.
    last: Instant,
    /// Until when no other node can take this one for dead because of its silence.
    alive_until: Instant,
    /// The node of the last heartbeat, and the `last_seen` that it wrote.
    told: (NodeId, Timestamp),
    /// How long after it the next may come without there being a gap.
    gap: Duration,
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

    /// Takes note of the reply to `heartbeat`, which was sent at `sent`. A step of the database's
    /// clock is a gap, and so is a rewind: the row is older than what was written, or missing.
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
        if written.is_some_and(|at| reply.previous < Some(at)) {
            self.rewound();
        }
        // A later time is of a heartbeat whose reply was lost: a rewind before that does not show.
        let goes_on = written.is_none_or(|at| reply.previous == Some(at));
        let in_time = |heard: &&Heard| {
            let late = now.saturating_duration_since(heard.last) > heard.gap;
            !late && goes_on && step.is_none()
        };
        *heard = Some(Heard {
            since: heard
                .as_ref()
                .filter(in_time)
                .map_or(now, |heard| heard.since),
            last: now,
            alive_until: if alive {
                sent + self.patience(heartbeat.interval)
            } else {
                sent
            },
            told: (node, database),
            // A gap in which this node could not have been taken for dead is none.
            gap: heartbeat
                .interval
                .saturating_mul(2)
                .max(self.common.config.dead_after / 2),
        });
        drop(heard);
        if alive {
            self.heard.notify_waiters();
        }
    }

    /// Notes that a heartbeat with this interval is sent: it may be stored although no reply comes.
    pub(crate) fn beats(&self, interval: Duration, sent: Instant) {
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if let Some(heard) = &mut *heard {
            heard.alive_until = heard.alive_until.min(sent + self.patience(interval));
        }
    }

    /// How long the other nodes wait for this one after a heartbeat with this interval.
    fn patience(&self, interval: Duration) -> Duration {
        NodeRecord::patience(interval, self.common.config.dead_after)
    }

    /// Waits until no other node can have taken this one for dead because of its silence, if all
    /// nodes have this one's `dead_after`. Returns `false` if the node drains before that.
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

    /// The database went back to an earlier state: it failed over to a copy that lags, or was
    /// restored. What the rows say of the other nodes is old, and so is what this node was told of
    /// its claims.
    fn rewound(&self) {
        metrics::database_rewound();
        let again = self.common.config.dead_after;
        tracing::warn!(
            silence_counts_after = ?again,
            "the database went back to an earlier state: this node's row lacks its last heartbeat"
        );
    }

    /// Whether the database has been within reach, on a steady clock and without going back, for so
    /// long that the others have had their chance to be heard too.
    pub(crate) fn trusts_silence(&self) -> bool {
        let heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let patience = self.common.config.dead_after;
        heard
            .as_ref()
            .is_some_and(|heard| heard.last.saturating_duration_since(heard.since) >= patience)
    }

    /// What a call of the store that begins now may believe of the database's clock.
    pub(crate) fn clock_trust(&self) -> ClockTrust {
        let deadline = time::monotonic() + self.common.config.store_deadline;
        self.clock().trust(deadline)
    }

    fn clock(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}
