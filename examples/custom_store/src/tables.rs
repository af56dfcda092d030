//! The stored data, and the changes that several calls make.
//!
//! Every query reads all rows. A store for a real load has indexes for pending jobs by route,
//! priority and time, for running jobs, for keys and for lanes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ratchet_core::model::{Attempt, AttemptOutcome, Guard, JobRecord, NodeRecord};
use ratchet_core::store::StoredLock;
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{ClaimToken, JobId, JobState, Name, NodeId};

#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) jobs: BTreeMap<JobId, Row>,
    /// Id of the first job with each idempotency key. An entry remains after its job is purged.
    pub(crate) idempotency_keys: HashMap<Name, JobId>,
    pub(crate) paused_queues: BTreeSet<Name>,
    pub(crate) nodes: BTreeMap<NodeId, NodeRecord>,
    /// All locks, by name. A released lock remains in the map, because its next fence must be
    /// greater than its last fence.
    pub(crate) locks: BTreeMap<Name, StoredLock>,
    pub(crate) versions: HashMap<Name, u64>,
    /// Position that was assigned last, counted across all lanes.
    last_place: u64,
}

/// A stored job: its record, and the data that only the store uses.
pub(crate) struct Row {
    pub(crate) job: JobRecord,
    /// Time of the current claim's last report, in milliseconds since 1970. `None` if the body of
    /// the claim has not reported anything yet.
    pub(crate) last_report: Option<i64>,
    /// Token of the claim that was settled last. If a node settles that claim again, the call
    /// returns `Applied`.
    pub(crate) settled: Option<ClaimToken>,
    pub(crate) history: Vec<Attempt>,
    /// Position of the job in its lane. The unfinished job with the smallest position is the head
    /// of the lane.
    place: u64,
}

impl Row {
    pub(crate) fn token(&self) -> ClaimToken {
        let job = &self.job;
        let claimed_at = job.claimed_at.unwrap_or(Timestamp::UNIX_EPOCH);
        ClaimToken::new(job.id, job.claim_seq, job.node, claimed_at)
    }

    /// Returns whether `token` identifies the job's current claim. Every write for a claim checks
    /// this first.
    pub(crate) fn holds(&self, token: ClaimToken) -> bool {
        self.job.state == JobState::Running && self.token() == token
    }

    fn is_unfinished(&self) -> bool {
        !self.job.state.is_terminal()
    }

    fn shares_lane(&self, job: &JobRecord) -> bool {
        self.job.spec.lane == job.spec.lane && self.job.spec.route.queue == job.spec.route.queue
    }
}

impl Tables {
    /// Returns whether a write is allowed. A write without a guard is always allowed. A write with
    /// a guard is allowed only while the guard's owner holds the lock.
    pub(crate) fn allows(&self, guard: Option<&Guard>, now: i64) -> bool {
        guard.is_none_or(|guard| {
            let lock = self.locks.get(&guard.lock);
            lock.is_some_and(|lock| lock.is_held_by(&guard.owner, guard.fence, now))
        })
    }

    pub(crate) fn insert(&mut self, job: JobRecord) {
        let row = Row {
            job,
            last_report: None,
            settled: None,
            history: Vec::new(),
            place: 0,
        };
        let id = row.job.id;
        self.jobs.insert(id, row);
        self.enter_lane(id);
    }

    /// Assigns the last position in its lane to a job, and sets the job's state. The state is
    /// `Blocked` if the lane has another unfinished job, and `Pending` otherwise. Returns the
    /// state, or `None` if there is no such job.
    pub(crate) fn enter_lane(&mut self, id: JobId) -> Option<JobState> {
        let job = &self.jobs.get(&id)?.job;
        let others = self.jobs.values().filter(|other| other.job.id != id);
        let mut before = others.filter(|other| other.is_unfinished() && other.shares_lane(job));
        let blocked = job.spec.lane.is_some() && before.next().is_some();
        let state = match blocked {
            true => JobState::Blocked,
            false => JobState::Pending,
        };
        self.last_place += 1;
        let row = self.jobs.get_mut(&id)?;
        (row.place, row.job.state) = (self.last_place, state);
        Some(state)
    }

    /// Sets the state of a job. If the job ends, the next job of its lane becomes pending.
    pub(crate) fn enter(&mut self, id: JobId, state: JobState, now: i64) {
        let Some(row) = self.jobs.get_mut(&id) else {
            return;
        };
        row.job.state = state;
        row.job.finished_at = state.is_terminal().then(|| time::from_millis(now));
        if !state.is_terminal() || row.job.spec.lane.is_none() {
            return;
        }
        let ended = row.job.clone();
        let members = self.jobs.values_mut();
        let members = members.filter(|other| other.is_unfinished() && other.shares_lane(&ended));
        if let Some(head) = members.min_by_key(|other| other.place)
            && head.job.state == JobState::Blocked
        {
            head.job.state = JobState::Pending;
        }
    }

    /// Ends the current claim of a job: adds the attempt to the history, removes the node from the
    /// job, and sets the job's state.
    pub(crate) fn end_claim(
        &mut self,
        id: JobId,
        state: JobState,
        outcome: AttemptOutcome,
        now: i64,
    ) -> Option<&mut Row> {
        let row = self.jobs.get_mut(&id)?;
        let ended_at = time::from_millis(now);
        let claimed_at = row.job.claimed_at.take().unwrap_or(ended_at);
        let (seq, node) = (row.job.claim_seq, row.job.node.take());
        let attempt = Attempt::new(seq, node, claimed_at, ended_at, outcome);
        row.history.push(attempt);
        row.job.cancel_requested = false;
        row.last_report = None;
        self.enter(id, state, now);
        self.jobs.get_mut(&id)
    }

    /// Returns the id of the unfinished job with this unique key.
    pub(crate) fn unique_key(&self, key: &Name) -> Option<JobId> {
        let mut rows = self.jobs.values().filter(|row| row.is_unfinished());
        let holder = rows.find(|row| row.job.spec.unique_key.as_ref() == Some(key));
        holder.map(|row| row.job.id)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Row> {
        let rows = self.jobs.values();
        rows.filter(|row| row.job.state == JobState::Running)
    }

    /// Returns the pending jobs that are due at the time `now`.
    pub(crate) fn due(&self, now: i64) -> impl Iterator<Item = &JobRecord> {
        let jobs = self.jobs.values().map(|row| &row.job);
        jobs.filter(move |job| job.state == JobState::Pending && time::to_millis(job.run_at) <= now)
    }
}
