//! A stored job with everything that a store keeps about it, and the rules that change it.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::fair;
use crate::id::{BatchId, ClaimToken, JobId, NodeId};
use crate::links::{EndedJob, OpenLink, WaitingJob, waiting_state};
use crate::model::job_document::{self, Live, StoredToken};
use crate::model::{
    ActionOutcome, After, Attempt, AttemptOutcome, Claim, FairKey, Fenced, HeldClaim, HolderChange,
    JobInput, JobRecord, JobSpec, KeyHolder, LanePlace, Link, LinkState, NewJob, NextRun,
    OwnedClaim, Owner, Progress, ReclaimEffect, Reclaimed, Report, ReportKind, Reported,
    Settlement, SignalRecord, is_expired,
};
use crate::name::Name;
use crate::state::{JobAction, JobState, Response};
use crate::time::{Timestamp, duration_millis, from_millis, to_millis};

/// A stored job with everything that a store keeps about it, except its history.
///
/// A store that keeps each job as one row can read a `StoredJob`, change it with one of the methods
/// below, and write it back. Each method is one rule of the contract, so the store does not
/// implement the rule itself. The store keeps its own indexes.
///
/// All times are of the database's clock. `last_report`, and the argument `now` of the methods, are
/// milliseconds since 1970. The times of `record` are [`Timestamp`]s.
///
/// ```
/// use ratchet::{JobState, NewJob, NodeId, Outcome, Settlement};
/// use ratchet_core::model::{Fenced, StoredJob};
///
/// let mut job = StoredJob::enqueued(&NewJob::new("mail", &1), 1_000);
/// let claim = job.claim(NodeId::new(), 2_000);
/// let end = Settlement::new(claim.token, Outcome::Succeeded { result: None });
/// let (answer, attempt) = job.settle(&end, 3_000);
/// assert_eq!((answer, job.record.state), (Fenced::Applied, JobState::Succeeded));
/// assert_eq!(attempt.map(|attempt| attempt.seq), Some(1));
/// // The answer may have been lost, so a repeated call returns the same answer.
/// assert_eq!(job.settle(&end, 4_000), (Fenced::Applied, None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredJob {
    /// The job as an operator sees it.
    pub record: JobRecord,
    /// The states of the links in `record.spec.after`, in the same order.
    pub links: Vec<LinkState>,
    /// The sequence number of the job in its lane. `None` if the job is in no lane, or has ended.
    pub lane_seq: Option<i64>,
    /// The turn of a pending job with a fair key (see [`fair`](crate::fair)). `None` for other jobs,
    /// and for a job that got no turn yet. A parked job has a turn behind all others.
    pub turn: Option<i64>,
    /// Whether any job was ever enqueued with a link to this job.
    pub has_children: bool,
    /// Whether the end of the job was already counted in its batch.
    pub is_counted: bool,
    /// When the body of the current claim last reported. `None` if it has not reported yet.
    pub last_report: Option<i64>,
    /// The token of the claim that was settled last.
    pub settled: Option<ClaimToken>,
}

impl StoredJob {
    /// Creates the row of a new job that is enqueued at `now`. The state is `Blocked` if the job
    /// waits for other jobs, a batch or a signal, and `Pending` otherwise. A store then calls
    /// [`link`](Self::link) and [`enter_lane`](Self::enter_lane) if the job has links or a lane.
    /// `[enqueue.created]` `[enqueue.due]`
    #[must_use]
    pub fn enqueued(new: &NewJob, now: i64) -> Self {
        let spec = new.spec();
        let run_at = from_millis(new.due().resolve(now));
        let mut record = JobRecord::new(new.id(), spec.clone(), run_at, from_millis(now));
        if spec.waits() {
            record.state = JobState::Blocked;
        }
        record.signal = await_signal(spec, now);
        record.expires_at = new.resolve_expiry(now).map(from_millis);
        Self {
            record,
            links: vec![LinkState::Open; spec.after.len()],
            lane_seq: None,
            turn: None,
            has_children: false,
            is_counted: false,
            last_report: None,
            settled: None,
        }
    }

    /// Sets the links of a new job to the links that [`NewLinks`](crate::links::NewLinks) has
    /// resolved. All links are open.
    pub fn link(&mut self, after: Vec<After>) {
        self.links = vec![LinkState::Open; after.len()];
        self.record.spec.after = after;
    }

    /// Sets the place of the job in its lane, and the state that follows from the place.
    /// `[lane.sequence]` `[lane.head]`
    pub const fn enter_lane(&mut self, place: LanePlace) {
        self.lane_seq = Some(place.seq);
        self.record.state = place.state;
    }

    /// Returns the fair key of the job if it needs a [turn](crate::fair) and has none.
    #[must_use]
    pub fn lacks_turn(&self, now: i64) -> Option<&FairKey> {
        let job = &self.record;
        let key = job.spec.due_fair_key(job.state, to_millis(job.run_at), now);
        key.filter(|_| self.turn.is_none())
    }

    /// Returns the name of the job's fair key.
    #[must_use]
    pub fn fair_key(&self) -> Option<&Name> {
        self.record.spec.fair_key.as_ref().map(FairKey::name)
    }

    /// Returns whether the job takes up a place of its fair key, or is one of the next for it: it
    /// runs, or it is pending with a turn and not parked.
    #[must_use]
    pub fn has_place(&self) -> bool {
        let has = match self.record.state {
            JobState::Running => true,
            JobState::Pending => self.turn.is_some_and(|turn| !fair::is_parked(turn)),
            _ => false,
        };
        has && self.fair_key().is_some()
    }

    /// Returns the queue and the fair key whose place a change of this job may have freed, so that
    /// the store needs a [freed entry](crate::fair#limits). `had_place` is the value of
    /// [`has_place`](Self::has_place) before the change.
    #[must_use]
    pub fn freed(&self, had_place: bool) -> Option<(&Name, &Name)> {
        let is_parked = self.turn.is_some_and(fair::is_parked);
        let frees = had_place && !self.has_place() && !is_parked;
        let key = self.fair_key().filter(|_| frees)?;
        Some((&self.record.spec.route.queue, key))
    }

    /// Parks a pending job, because its fair key is at its limit. `[fair.limit.max]`
    pub fn park(&mut self) {
        self.turn = Some(fair::parked(to_millis(self.record.run_at)));
    }

    /// Returns the token of the job's current claim.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        let job = &self.record;
        let claimed_at = job.claimed_at.unwrap_or(Timestamp::UNIX_EPOCH);
        ClaimToken::new(job.id, job.claim_seq, job.node, claimed_at)
    }

    /// Returns whether `token` is the token of the job's current claim.
    #[must_use]
    pub fn holds(&self, token: ClaimToken) -> bool {
        self.record.state == JobState::Running && self.token() == token
    }

    /// Returns the job's claim for the reply to a heartbeat.
    #[must_use]
    pub fn owned_claim(&self) -> OwnedClaim {
        OwnedClaim::new(self.token(), self.record.cancel_requested)
    }

    /// Claims the job, which must be pending, for this node. The job keeps its expiry until a body
    /// has run. `[claim.running]` `[expiry.claim]`
    pub fn claim(&mut self, node: NodeId, now: i64) -> Claim {
        self.enter(JobState::Running, now);
        self.record.claim_seq += 1;
        self.record.node = Some(node);
        self.record.claimed_at = Some(from_millis(now));
        let mut claim = Claim::of(&self.record);
        claim.awaited |= self.has_children;
        claim
    }

    /// Returns the payload and the last checkpoint.
    #[must_use]
    pub fn input(&self) -> JobInput {
        JobInput {
            payload: self.record.spec.payload.clone(),
            checkpoint: self.record.checkpoint.clone(),
        }
    }

    /// Settles a claim of this job. If this call ends the claim, also returns the entry for the
    /// history. If the claim has already ended, the job does not change: the answer is `Applied` if
    /// it was the claim that was settled last, and otherwise `Stale`. `[settle.fenced]`
    /// `[settle.repeat]` `[settle.effect]` `[expiry.begun]`
    pub fn settle(&mut self, settlement: &Settlement, now: i64) -> (Fenced, Option<Attempt>) {
        let token = settlement.token;
        if !self.holds(token) {
            return (Fenced::when(self.settled == Some(token)), None);
        }
        let effect = settlement.effect(self.record.cancel_requested);
        let mut attempt = self.end_claim(effect.state, effect.record, now);
        attempt.ran_for = settlement.ran_for;
        attempt.error = effect.error.map(str::to_owned);
        self.settled = Some(token);
        let job = &mut self.record;
        job.attempts += effect.attempts_added;
        job.expires_at = job.expires_at.filter(|_| !effect.begun);
        if let NextRun::In(delay) = effect.next_run {
            job.run_at = from_millis(now.saturating_add(duration_millis(delay)));
        }
        if let Some(error) = effect.error {
            job.last_error = Some(error.to_owned());
        }
        if let Some(result) = effect.result {
            job.result = Some(result.clone());
        }
        (Fenced::Applied, Some(attempt))
    }

    /// Stores a report of the body. If the node no longer holds the claim, returns `Stale` and does
    /// not change the job.
    pub fn report(&mut self, report: &Report, now: i64) -> Reported {
        if !self.holds(report.token) {
            return Reported::Stale;
        }
        self.last_report = Some(now);
        match &report.kind {
            ReportKind::Alive => {}
            ReportKind::Progress { percent, message } => {
                self.record.progress = Some(Progress {
                    percent: *percent,
                    message: message.clone(),
                });
            }
            ReportKind::Checkpoint(checkpoint) => {
                self.record.checkpoint = Some(checkpoint.clone());
            }
        }
        Reported::Applied {
            cancel_requested: self.record.cancel_requested,
        }
    }

    /// Returns the claim of a running job, for
    /// [`ReclaimRequest::judge`](crate::model::ReclaimRequest::judge).
    #[must_use]
    pub fn held_claim<'a>(&self, owner: Owner<'a>) -> HeldClaim<'a> {
        let job = &self.record;
        HeldClaim {
            owner,
            claimed_at: job.claimed_at.map(to_millis),
            last_report: self.last_report,
            timeout: job.spec.timeout,
            stall_timeout: job.spec.stall_timeout,
            crash_count: Some(job.crash_count),
            cancel_requested: job.cancel_requested,
        }
    }

    /// Reclaims the claim of a running job, with this effect. If the claim ends, also returns the
    /// entry for the history. `[expiry.begun]`
    pub fn reclaim(&mut self, effect: ReclaimEffect, now: i64) -> (Reclaimed, Option<Attempt>) {
        let reclaimed = effect.reclaimed(self.token());
        let job = &mut self.record;
        job.crash_count = effect.crash_count;
        job.expires_at = job.expires_at.filter(|_| !effect.begun);
        if effect.is_exhausted() {
            self.record.node = None;
            return (reclaimed, None);
        }
        let attempt = self.end_claim(effect.state, AttemptOutcome::Lost, now);
        (reclaimed, Some(attempt))
    }

    /// Applies an action of an operator. The answer `Deleted` means that the store must delete the
    /// row, which has not changed.
    ///
    /// `requeue` is called if the action would requeue the job. It returns the job's new place in
    /// its lane, or `None` if the job has no lane. If another unfinished job has the unique key of
    /// this job, `requeue` returns the id of that job as an error, and nothing changes.
    pub fn act(
        &mut self,
        action: JobAction,
        now: i64,
        requeue: impl FnOnce(&Self) -> Result<Option<LanePlace>, JobId>,
    ) -> ActionOutcome {
        let state = self.record.state;
        match state.respond(action) {
            Response::Refuse => ActionOutcome::Refused(state),
            Response::Remove => ActionOutcome::Deleted,
            Response::RequestCancel => {
                self.record.cancel_requested = true;
                ActionOutcome::CancelRequested
            }
            Response::Change => {
                match action {
                    JobAction::Reschedule(due) => self.move_to(due.resolve(now)),
                    JobAction::SetPriority(priority) => {
                        let same = priority == self.record.spec.priority;
                        self.turn = self.turn.filter(|_| same);
                        self.record.spec.priority = priority;
                    }
                    _ => {}
                }
                ActionOutcome::Changed
            }
            Response::Become(_) if action == JobAction::Requeue => match requeue(self) {
                Err(holder) => ActionOutcome::KeyTaken(holder),
                Ok(place) => {
                    self.requeue(place, now);
                    ActionOutcome::Became(self.record.state)
                }
            },
            Response::Become(to) => {
                self.enter(to, now);
                ActionOutcome::Became(to)
            }
        }
    }

    /// Makes the job due at this time, in milliseconds since 1970. A job that is due at another
    /// time than before loses its turn. `[fair.act]`
    fn move_to(&mut self, run_at: i64) {
        let run_at = from_millis(run_at);
        self.turn = self.turn.filter(|_| run_at == self.record.run_at);
        self.record.run_at = run_at;
    }

    fn requeue(&mut self, place: Option<LanePlace>, now: i64) {
        if !self.has_signal() {
            self.record.signal = await_signal(&self.record.spec, now);
        }
        let waits = waiting_state(self.has_open_links(), self.lacks_signal());
        self.lane_seq = place.map(|place| place.seq);
        self.enter(place.map_or(waits, |place| place.state), now);
        let job = &mut self.record;
        job.attempts = 0;
        job.crash_count = 0;
        job.last_error = None;
        job.run_at = from_millis(now);
        job.expires_at = None;
    }

    /// Changes the job, because a new job has its unique key. `[keys.replace]` `[keys.debounce]`
    /// `[keys.follow]` `[keys.restart]`
    pub fn change_as_holder(&mut self, change: &HolderChange) {
        match change {
            HolderChange::Replace {
                payload,
                payload_version,
                run_at,
                expires_at,
                ..
            } => {
                self.move_to(*run_at);
                let job = &mut self.record;
                job.expires_at = expires_at.map(from_millis);
                job.spec.payload = payload.clone();
                job.spec.payload_version = *payload_version;
                job.checkpoint = None;
                job.progress = None;
            }
            HolderChange::GiveUp { cancel, .. } => {
                self.record.spec.unique_key = None;
                self.record.cancel_requested |= cancel;
            }
        }
    }

    /// Returns the job as the holder of its unique key. `None` if it does not have one.
    #[must_use]
    pub fn key_holder(&self) -> Option<KeyHolder> {
        let job = &self.record;
        (!job.state.is_terminal() && job.spec.unique_key.is_some()).then(|| {
            let kind = job.spec.route.kind.clone();
            let (run_at, created_at) = (to_millis(job.run_at), to_millis(job.created_at));
            KeyHolder::new(job.id, job.state, kind, run_at, created_at)
                .may_have_expiry(job.expires_at.is_some())
        })
    }

    /// Returns whether any link of the job is still open.
    #[must_use]
    pub fn has_open_links(&self) -> bool {
        self.links.contains(&LinkState::Open)
    }

    /// Returns the links of the job to its parents.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        let links = self.record.spec.after.iter().zip(&self.links);
        links.map(|(after, state)| Link::new(self.record.id, after.clone(), *state))
    }

    /// Returns the job for the [`Cascade`](crate::links::Cascade) that its end starts. `None` if
    /// the job has not ended.
    #[must_use]
    pub fn ended(&self) -> Option<EndedJob> {
        let job = &self.record;
        job.state.is_terminal().then(|| EndedJob {
            job: job.id,
            state: job.state,
            result: job.result.clone(),
            has_children: self.has_children,
            in_batch: job.spec.batch.is_some(),
        })
    }

    /// Returns the job for the [`Cascade`](crate::links::Cascade) of a parent that has ended.
    #[must_use]
    pub fn waiting(&self) -> WaitingJob {
        let links = (0..).zip(self.links());
        let open = links.filter(|(_, link)| link.state == LinkState::Open);
        WaitingJob {
            job: self.record.id,
            state: self.record.state,
            awaits_signal: self.awaits_signal(),
            has_children: self.has_children,
            in_batch: self.record.spec.batch.is_some(),
            open: open
                .map(|(place, link)| OpenLink {
                    place,
                    parent: link.after.parent(),
                    after: Some(link.after),
                })
                .collect(),
        }
    }

    /// Sets the state of the link at this place in the list of links.
    pub fn decide(&mut self, place: u32, state: LinkState) {
        if let Some(link) = self.links.get_mut(place as usize) {
            *link = state;
        }
    }

    /// Marks the job as counted in its batch, and returns the batch. `None` if the job is in no
    /// batch, or was counted before. `[batch.count]`
    pub const fn count_in_batch(&mut self) -> Option<BatchId> {
        if self.is_counted {
            return None;
        }
        self.is_counted = self.record.spec.batch.is_some();
        self.record.spec.batch
    }

    /// Makes a blocked job pending, because it no longer waits for anything.
    pub fn release(&mut self, now: i64) {
        self.enter(JobState::Pending, now);
        self.record.run_at = self.record.run_at.max(from_millis(now));
    }

    /// Makes the first unfinished job of a lane pending, if it is blocked. The job keeps its due
    /// time. `[lane.head]`
    pub fn promote(&mut self) {
        if self.record.state == JobState::Blocked {
            self.record.state = JobState::Pending;
        }
    }

    /// Cancels a blocked job, because the condition of one of its links can no longer be met.
    pub fn cancel(&mut self, now: i64) {
        self.enter(JobState::Cancelled, now);
    }

    /// Returns when the job expires. `None` if it never does, or does not wait.
    #[must_use]
    pub fn expiry(&self) -> Option<i64> {
        let waiting = self.record.state.is_waiting();
        self.record.expires_at.filter(|_| waiting).map(to_millis)
    }

    /// Returns whether the job waits although its expiry has passed. `[expiry.pass]`
    #[must_use]
    pub fn is_overdue(&self, now: i64) -> bool {
        self.expiry().is_some_and(|expiry| is_expired(expiry, now))
    }

    /// Cancels a waiting job, because it has not begun before its expiry. `[expiry.pass]`
    pub fn expire(&mut self, now: i64) {
        self.enter(JobState::Cancelled, now);
    }

    /// Ends a job that has not ended and of which a part cannot be read. `problem` becomes its
    /// error. A store ends such a job instead of running it, promoting it or releasing it, because
    /// it cannot know whether the job may run, and with which input.
    pub fn fail_damaged(&mut self, problem: &InvalidInput, now: i64) {
        self.record.state = JobState::Failed;
        self.record.finished_at = Some(from_millis(now));
        self.record.last_error = Some(problem.of_stored_job());
        self.lane_seq = None;
        self.turn = None;
    }

    /// Encodes the row as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads. It has the format of
    /// [`ArchivedJob::encode`](crate::model::ArchivedJob::encode), and the fields `node`,
    /// `claimed_at`, `cancel_requested`, `links`, `lane_seq`, `turn`, `has_children`, `is_counted`,
    /// `last_report` and `settled`.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        // Lists every field, so that this code stops compiling when a field is added and not
        // handled here.
        let Self {
            record,
            links,
            lane_seq,
            turn,
            has_children,
            is_counted,
            last_report,
            settled,
        } = self;
        let live = Live {
            node: record.node.map(|node| node.to_string()),
            claimed_at: record.claimed_at.map(to_millis),
            cancel_requested: record.cancel_requested,
            links: links.iter().map(|link| link.code()).collect(),
            lane_seq: *lane_seq,
            turn: *turn,
            has_children: *has_children,
            is_counted: *is_counted,
            last_report: *last_report,
            settled: settled.map(StoredToken::of),
        };
        job_document::encode(record, &[], live)
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let (mut record, _, live) = job_document::decode(document)?;
        record.node = job_document::node(live.node)?;
        record.claimed_at = live.claimed_at.map(from_millis);
        record.cancel_requested = live.cancel_requested;
        let links = live
            .links
            .into_iter()
            .map(|code| LinkState::from_code(code.into()));
        let links: Vec<LinkState> = links.collect::<Result<_, _>>()?;
        if links.len() != record.spec.after.len() {
            return Err(InvalidInput::new(
                "document",
                "has a different number of links than of link states",
            ));
        }
        let settled = live.settled;
        let settled = settled
            .map(|settled| settled.token(record.id))
            .transpose()?;
        Ok(Self {
            record,
            links,
            lane_seq: live.lane_seq,
            turn: live.turn,
            has_children: live.has_children,
            is_counted: live.is_counted,
            last_report: live.last_report,
            settled,
        })
    }

    fn lacks_signal(&self) -> bool {
        self.record.signal.is_some() && !self.has_signal()
    }

    /// Ends the current claim: removes its node and its time, and sets the new state. Returns the
    /// entry for the history.
    fn end_claim(&mut self, state: JobState, outcome: AttemptOutcome, now: i64) -> Attempt {
        let ended_at = from_millis(now);
        let job = &mut self.record;
        let claimed_at = job.claimed_at.take().unwrap_or(ended_at);
        let attempt = Attempt::new(
            job.claim_seq,
            job.node.take(),
            claimed_at,
            ended_at,
            outcome,
        );
        job.cancel_requested = false;
        self.last_report = None;
        self.enter(state, now);
        attempt
    }

    /// Sets the state of the job, and the time of its end if the state is terminal.
    fn enter(&mut self, state: JobState, now: i64) {
        debug_assert_eq!(self.record.state.transition(state), Ok(state));
        self.record.state = state;
        self.turn = None;
        self.record.finished_at = state.is_terminal().then(|| from_millis(now));
    }
}

/// Returns the record of a job's wait for its signal. The wait begins at `now`. `None` if the job
/// waits for no signal.
fn await_signal(spec: &JobSpec, now: i64) -> Option<SignalRecord> {
    let timeout = duration_millis(spec.signal.as_ref()?.timeout);
    Some(SignalRecord::new(from_millis(now.saturating_add(timeout))))
}

mod signal;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job_document::tests::full;

    fn whole() -> StoredJob {
        let mut record = full().0;
        record.node = Some(NodeId::new());
        record.claimed_at = Some(from_millis(12));
        record.cancel_requested = true;
        let settled = ClaimToken::new(record.id, 2, Some(NodeId::new()), from_millis(10));
        StoredJob {
            record,
            links: vec![LinkState::Met, LinkState::Open],
            lane_seq: Some(7),
            turn: Some(8),
            has_children: true,
            is_counted: true,
            last_report: Some(13),
            settled: Some(settled),
        }
    }

    #[test]
    fn a_whole_row_round_trips() {
        let row = whole();
        assert_eq!(StoredJob::decode(&row.encode().unwrap()), Ok(row));
    }

    #[test]
    fn a_damaged_job_that_ends_leaves_its_place() {
        let mut row = whole();
        row.fail_damaged(&InvalidInput::new("payload", "is missing"), 20);
        assert_eq!(row.record.state, JobState::Failed);
        assert_eq!((row.lane_seq, row.turn), (None, None));
    }

    #[test]
    fn a_row_that_the_contract_rules_out_is_refused() {
        let text = whole().encode().unwrap();
        for (good, bad) in [
            ("\"links\":[1,0]", "\"links\":[1]"),
            ("\"links\":[1,0]", "\"links\":[1,3]"),
            ("\"node\":\"", "\"node\":\"x"),
            ("\"v\":1", "\"v\":2"),
        ] {
            assert!(text.contains(good), "{good}");
            assert!(
                StoredJob::decode(&text.replace(good, bad)).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_row_without_the_fields_of_a_store_is_read_as_that_of_a_new_job() {
        let new = StoredJob::enqueued(&NewJob::new("kind", &1), 5);
        let text = new.encode().unwrap();
        for field in ["links", "lane_seq", "has_children", "is_counted", "settled"] {
            assert!(!text.contains(field), "{field}");
        }
        assert_eq!(StoredJob::decode(&text), Ok(new));
    }
}
