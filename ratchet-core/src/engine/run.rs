use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bulkhead::Bulkhead;
use super::claim_ledger::ClaimLedger;
use super::clock_watch::{ClockWatch, Reading, Step};
use super::courtesy::Courtesy;
use super::limits::PutOff;
use super::load::Gauge;
use super::pace::Pace;
use super::ready::Ready;
use super::reporter::Reporter;
use super::running::RunningSet;
use super::settler::{Ending, SettleBuffer};
use super::shared::Shared;
use super::suspects::Suspects;
use crate::id::{ClaimToken, NodeId};
use crate::metrics::{self, NodeMetrics};
use crate::model::{
    Claim, ClockTrust, Heartbeat, HeartbeatReply, NodeRecord, NodeStatus, Outcome, Settlement,
};
use crate::name::Name;
use crate::outage::Outage;
use crate::schedule::{self, ZoneData};
use crate::time::{self, Timestamp};

/// One run of a node, from joining to leaving: what its loops share.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) label: Name,
    identity: Mutex<(NodeId, NodeStatus)>,
    pub(super) metrics: NodeMetrics,
    pub(super) pools: Box<[Bulkhead]>,
    pub(super) suspects: Suspects,
    /// The jobs of limited keys that were put off.
    pub(super) put_off: PutOff,
    pub(super) running: RunningSet,
    /// The claims that the node holds, compared with the store's list at each heartbeat.
    pub(super) ledger: ClaimLedger,
    pub(super) reporter: Arc<Reporter>,
    pub(super) settlements: SettleBuffer,
    /// When the pollers leave freed permits to others.
    pub(super) courtesy: Courtesy,
    /// Told whenever claims were settled.
    pub(super) settled: Notify,
    /// Notified at each heartbeat that comes through.
    heard: Notify,
    /// Since when this node's heartbeats have come through without a gap.
    heard_since: Mutex<Option<Heard>>,
    /// Whether the database's clock stepped between two of them.
    clock: Mutex<ClockWatch>,
    /// Whether the executors' calls fail: one outage, however many bodies wait to begin.
    executors_outage: Mutex<Outage>,
    /// How often the node beats.
    pub(super) pace: Pace,
    pub(super) gauge: Gauge,
    /// The time-zone data in use when the run began: reading its version reads files, for which a
    /// heartbeat has no time.
    pub(super) zone_data: Option<ZoneData>,
    /// The next heartbeat is due at once.
    pub(super) beat_now: Notify,
    /// Held during a heartbeat and what it leads to: two at a time could both change who the node
    /// is.
    pub(super) beating: tokio::sync::Mutex<()>,
    /// The instances of daemons that run.
    pub(super) daemons: TaskTracker,
    /// What is better ended than dropped before the node leaves.
    pub(super) under_way: TaskTracker,
    /// No more claiming.
    pub(super) draining: CancellationToken,
    /// No more leading.
    pub(super) stepping_down: CancellationToken,
    /// Bodies are dropped.
    pub(super) abort: CancellationToken,
    /// Somebody else runs under this node's label.
    pub(super) displaced: CancellationToken,
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

impl Run {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let id = shared.presence.next_id();
        let label = shared.label_of(id);
        let config = &shared.config;
        let pace = Pace::new(config.heartbeat_interval, config.heartbeat_max);
        Self {
            reporter: Arc::new(Reporter::new(Arc::clone(&shared.calls))),
            metrics: NodeMetrics::new(),
            pools: (shared.pools.iter().enumerate())
                .map(|(index, pool)| Bulkhead::new(index, &pool.share))
                .collect(),
            shared,
            label,
            identity: Mutex::new((id, NodeStatus::Joining)),
            suspects: Suspects::default(),
            put_off: PutOff::default(),
            running: RunningSet::default(),
            ledger: ClaimLedger::default(),
            settlements: SettleBuffer::default(),
            courtesy: Courtesy::default(),
            settled: Notify::new(),
            heard: Notify::new(),
            heard_since: Mutex::new(None),
            clock: Mutex::new(ClockWatch::new()),
            executors_outage: Mutex::new(Outage::of("executor")),
            pace,
            gauge: Gauge::new(),
            zone_data: schedule::zone_data_in_use(),
            beat_now: Notify::new(),
            beating: tokio::sync::Mutex::new(()),
            daemons: TaskTracker::new(),
            under_way: TaskTracker::new(),
            draining: CancellationToken::new(),
            stepping_down: CancellationToken::new(),
            abort: CancellationToken::new(),
            displaced: CancellationToken::new(),
        }
    }

    /// Who the node is at present: it gets another id when it was taken for dead.
    pub(super) fn node(&self) -> NodeId {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .0
    }

    pub(super) fn status(&self) -> NodeStatus {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .1
    }

    pub(super) fn set_status(&self, status: NodeStatus) {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .1 = status;
        self.metrics.status(status);
    }

    /// Becomes somebody else.
    pub(super) fn renew_identity(&self) {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .0 = NodeId::new();
    }

    pub(super) fn executors_outage(&self) -> MutexGuard<'_, Outage> {
        self.executors_outage
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// How many bodies run.
    pub(super) fn bodies(&self) -> usize {
        self.running.len()
    }

    /// Whether the node may not claim at present because another one is the active one.
    pub(super) fn stands_by(&self) -> bool {
        self.shared.gate().is_some_and(|gate| !gate.is_leader())
    }

    /// Whether nobody would wait for the death of this node to be noticed: it holds nothing, leads
    /// in nothing, and neither comes nor goes.
    pub(super) fn is_at_rest(&self) -> bool {
        let idle = self.running.len() == 0 && self.pools.iter().all(|pool| pool.ready.len() == 0);
        idle && self.status() == NodeStatus::Active && !self.shared.roles.any_leads()
    }

    /// Publishes the short interval and heartbeats now, so that the store's list of claims arrives:
    /// a claim call whose answer was lost may have claimed jobs.
    pub(super) fn doubt_claims(&self) {
        self.pace.hurry();
        self.beat_now.notify_one();
    }

    /// The node has something to lose from now on: others shall hear of it often.
    pub(super) fn at_work(&self) {
        if self.pace.is_slow() {
            self.pace.hurry();
            self.beat_now.notify_one();
        }
    }

    /// Takes note of the reply to `heartbeat`, which was sent at `sent`. A step of the database's clock
    /// is a gap, and so is a rewind: the row is older than what was written, or missing.
    pub(super) fn heard(&self, heartbeat: &Heartbeat, sent: Instant, reply: &HeartbeatReply) {
        let (node, database) = (heartbeat.node, reply.database_time);
        let alive = reply.status.is_live();
        let now = time::monotonic();
        let step = self.clock().note(Reading {
            sent,
            received: now,
            database,
        });
        if let Some(step) = step {
            metrics::clock_stepped(matches!(step, Step::Forward(_)));
            let again = self.shared.config.dead_after;
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
                .max(self.shared.config.dead_after / 2),
        });
        drop(heard);
        if alive {
            self.heard.notify_waiters();
        }
    }

    /// Notes that a heartbeat with this interval is sent: it may be stored although no reply comes.
    pub(super) fn beats(&self, interval: Duration, sent: Instant) {
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
        NodeRecord::patience(interval, self.shared.config.dead_after)
    }

    /// Waits until no other node can have taken this one for dead because of its silence, if all nodes
    /// have this one's `dead_after`. Returns `false` if the node drains before that.
    pub(super) async fn wait_until_alive(&self) -> bool {
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
            self.beat_now.notify_one();
            tokio::select! {
                biased;
                () = self.draining.cancelled() => return false,
                () = heard => {}
            }
        }
    }

    /// The database went back to an earlier state: it failed over to a copy that lags, or was restored.
    /// What the rows say of the other nodes is old, and so is what this node was told of its claims.
    fn rewound(&self) {
        metrics::database_rewound();
        let again = self.shared.config.dead_after;
        tracing::warn!(
            silence_counts_after = ?again,
            "the database went back to an earlier state: this node's row lacks its last heartbeat"
        );
    }

    /// Whether the database has been within reach, on a steady clock and without going back, for so
    /// long that the others have had their chance to be heard too.
    pub(super) fn trusts_silence(&self) -> bool {
        let heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let patience = self.shared.config.dead_after;
        heard
            .as_ref()
            .is_some_and(|heard| heard.last.saturating_duration_since(heard.since) >= patience)
    }

    /// What a call of the store that begins now may believe of the database's clock.
    pub(super) fn clock_trust(&self) -> ClockTrust {
        let deadline = time::monotonic() + self.shared.config.store_deadline;
        self.clock().trust(deadline)
    }

    fn clock(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// How many claims all pools hold.
    pub(super) fn held(&self) -> usize {
        self.pools.iter().map(Bulkhead::held).sum()
    }

    /// Forgets claims of a pool that were settled, handed back or lost.
    pub(super) fn let_go(&self, pool: &Bulkhead, claims: usize) {
        pool.let_go(claims);
        self.settled.notify_one();
    }

    /// Forgets a claim of a pool that the node lost while its body ran.
    pub(super) fn lose_running(&self, pool: &Bulkhead, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Forgets a claim of a pool whose body stalled: the cluster takes it back.
    pub(super) fn give_up_stalled(&self, pool: &Bulkhead, token: ClaimToken) {
        pool.metrics.lost_running();
        self.ledger.give_up(token);
        self.let_go(pool, 1);
    }

    /// Forgets a claim of a pool that was taken away before its body began.
    pub(super) fn lose_waiting(&self, pool: &Bulkhead, token: ClaimToken) {
        pool.metrics.lost_waiting();
        self.ledger.lost(token);
        self.let_go(pool, 1);
    }

    /// Hands claims of a pool back whose bodies have not begun.
    pub(super) fn hand_back(&self, pool: &Bulkhead, claims: Vec<Ready>) {
        pool.metrics.handed_back(claims.len());
        for ready in claims {
            let released = Settlement::new(ready.claim.token, Outcome::Released);
            self.settle(pool, &ready.claim, released);
        }
    }

    /// Hands back everything that waits for a slot.
    pub(super) fn hand_back_waiting(&self) {
        for pool in &self.pools {
            self.hand_back(pool, pool.ready.take_all());
        }
    }

    /// Ends a claim of a pool, soon; it is settled together with others while more are about to
    /// end. If others may go on with it, in its lane, waiting for it or for its permit, their next
    /// poll is not waited for.
    pub(super) fn settle(&self, pool: &Bulkhead, claim: &Claim, settlement: Settlement) {
        self.add(Ending::new(settlement, claim, pool), pool);
    }

    /// The same for a claim whose body ran, or whose job ends with it: the hooks hear of it.
    pub(super) fn settle_ended(&self, pool: &Bulkhead, claim: &Arc<Claim>, settlement: Settlement) {
        let mut ending = Ending::new(settlement, claim, pool);
        if !self.shared.hooks.is_empty() {
            ending.tell(claim);
        }
        self.add(ending, pool);
    }

    fn add(&self, ending: Ending, pool: &Bulkhead) {
        let more_coming = pool.ready.len() > 0;
        self.settlements.push(ending, more_coming);
    }
}
