//! Ends claims.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, RawArray, RawDocument, doc};
use ratchet_core::model::{Effect, Fenced, Settlement};
use ratchet_core::time::{Timestamp, from_millis};
use ratchet_core::{BatchId, ClaimToken, JobId, JobState, NodeId, StoreErrorKind};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::connection::Tx;
use crate::ends::{Held, Ties, all_of, is_followed, require_untied};
use crate::error::{Failure, Result};
use crate::pipelines::{self, Ending};
use crate::row;
use crate::store::{MongoStore, pause};

/// Maximum number of rounds in which a call tries to apply its settlements. More rounds are needed
/// if concurrent calls change the jobs.
const ROUNDS: u32 = 20;
/// Maximum number of claims that one statement ends. It is low because, for each job, the server
/// searches the statement's list of all these claims.
const ALIKE: usize = 32;
/// Minimum number of claims for which the store uses two concurrent commands. It ends fewer claims
/// with one command.
const MANY: usize = 32;
/// Approximate size that each claim adds to a statement, in bytes.
const BYTES_EACH: usize = 128;
/// Maximum number of tries to end all jobs of a call in one transaction. After that, each job gets
/// its own transaction.
const TOGETHER: u32 = 8;

/// A settlement that is still to be written, with assumptions about its job.
#[derive(Clone, Copy)]
struct Open<'a> {
    settlement: &'a Settlement,
    /// Whether the job has a cancel request.
    cancel: bool,
    /// Whether others may depend on the end of the job: the next job of its lane, its children, or
    /// its batch.
    followed: bool,
    /// Batch that must count the job. `None` if the job is in no batch, or if its batch is not yet
    /// known.
    batch: Option<BatchId>,
}

impl<'a> Open<'a> {
    /// Creates a settlement that is still to be written. Assumes that the job has no cancel
    /// request. `followed` tells whether to assume that other jobs or a batch depend on the job's
    /// end.
    const fn new(settlement: &'a Settlement, followed: bool) -> Self {
        Self {
            settlement,
            cancel: false,
            followed,
            batch: None,
        }
    }
}

impl Open<'_> {
    fn state(&self) -> JobState {
        self.settlement.effect(self.cancel).state
    }

    fn alike(&self) -> Alike<'_> {
        let Settlement { token, ran_for, .. } = self.settlement;
        Alike {
            claim: (token.seq, token.node, token.claimed_at),
            cancel: self.cancel,
            is_timed: ran_for.is_some(),
            effect: self.settlement.effect(self.cancel),
        }
    }

    /// Returns whether the settlement ends a job on whose end other jobs or a batch may depend.
    fn is_followed(&self) -> bool {
        self.followed && self.state().is_terminal()
    }
}

/// The properties that are equal for all claims that one statement ends.
#[derive(PartialEq, Eq, Hash)]
struct Alike<'a> {
    /// The equal parts of the claim tokens: number, node and time of the claim.
    claim: (u64, Option<NodeId>, Timestamp),
    cancel: bool,
    /// Whether the settlements contain the durations of the runs.
    is_timed: bool,
    effect: Effect<'a>,
}

impl Alike<'_> {
    fn statement(
        &self,
        group: &[&Open<'_>],
        call: ObjectId,
        now: Now,
        in_transaction: bool,
    ) -> Statement {
        let claim = |one: &&Open<'_>| (one.settlement.token.job, one.settlement.ran_for);
        let claims: Vec<(JobId, Option<Duration>)> = group.iter().map(claim).collect();
        let jobs: Vec<JobId> = claims.iter().map(|(job, _)| *job).collect();
        let mut filter = pipelines::held(group[0].settlement.token);
        filter.insert("_id", doc! { "$in": pipelines::ids(&jobs) });
        let cancel = if self.cancel {
            Bson::Boolean(true)
        } else {
            Bson::Null
        };
        filter.insert("cancel_requested", cancel);
        if self.effect.state.is_terminal() && !in_transaction {
            filter.insert("lane", Bson::Null);
            require_untied(&mut filter);
        }
        let ending = Ending {
            seq: self.claim.0,
            effect: self.effect,
            ran_for: pipelines::ran_for(&claims),
            call,
        };
        let mut statement = ending.statement(filter, now);
        statement.bytes += BYTES_EACH * jobs.len();
        statement.multi = true;
        statement
    }
}

/// Returns the statements that end these claims. A statement changes a job only if the assumptions
/// in [`Open`] about this job are true.
fn statements<'a>(
    open: impl IntoIterator<Item = &'a Open<'a>>,
    call: ObjectId,
    now: Now,
    in_transaction: bool,
) -> Vec<Statement> {
    let mut groups: HashMap<Alike<'_>, Vec<&Open<'_>>> = HashMap::new();
    for one in open {
        groups.entry(one.alike()).or_default().push(one);
    }
    let count: usize = groups.values().map(Vec::len).sum();
    // Many claims are ended by two commands, and each command needs at least one statement. So the
    // claims are split into at least two statements.
    let most = match count < MANY || in_transaction {
        true => ALIKE,
        false => ALIKE.min(count.div_ceil(2)),
    };
    let chunks = groups.iter().flat_map(|(alike, group)| {
        let chunks = group.chunks(most);
        chunks.map(move |group| alike.statement(group, call, now, in_transaction))
    });
    chunks.collect()
}

/// The claims that a transaction ended. The value is true if other jobs or a batch depended on the
/// end of the job.
type Ended = HashMap<ClaimToken, bool>;

/// The state of a job that was read after a write.
struct Seen {
    /// Numbers of the claims of this job that the current call has ended.
    mine: HashSet<u64>,
    /// Token of the claim that was settled last.
    settled: Option<ClaimToken>,
    /// Token of the claim that runs now.
    running: Option<ClaimToken>,
    cancel: bool,
    followed: bool,
    batch: Option<BatchId>,
}

impl MongoStore {
    /// Applies each settlement whose claim still runs, and returns one answer for each. Settlements
    /// of the same job are applied in the given order.
    pub(crate) async fn settle_jobs(&self, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
        let mut answers = vec![Fenced::Stale; settlements.len()];
        for places in Settlement::turns(settlements) {
            let turn: Vec<&Settlement> = places.iter().map(|place| &settlements[*place]).collect();
            let settled = self.settle_turn(&turn).await?;
            for (place, answer) in places.into_iter().zip(settled) {
                answers[place] = answer;
            }
        }
        Ok(answers)
    }

    /// Applies settlements, each of a different job.
    ///
    /// The first write assumes that no job has a cancel request. It also assumes that no other jobs
    /// or batches depend on these jobs. If other jobs or batches depended on most jobs of the
    /// previous call, as in a large batch, it assumes that they depend on all of these jobs. After
    /// the write, the function reads each job that was not settled. It repeats the write with the
    /// actual values until each settlement is applied or stale.
    async fn settle_turn(&self, settlements: &[&Settlement]) -> Result<Vec<Fenced>> {
        let side = self.main();
        let call = ObjectId::new();
        let mut applied: HashSet<ClaimToken> = HashSet::new();
        let expects = self.expects_to_follow();
        let mut open: Vec<Open<'_>> = settlements
            .iter()
            // A token whose number does not fit the database belongs to no claim.
            .filter(|settlement| i64::try_from(settlement.token.seq).is_ok())
            .map(|settlement| Open::new(settlement, expects))
            .collect();
        for round in 0..=ROUNDS {
            if open.is_empty() {
                let answer = |settlement: &&Settlement| match applied.contains(&settlement.token) {
                    true => Fenced::Applied,
                    false => Fenced::Stale,
                };
                return Ok(settlements.iter().map(answer).collect());
            }
            if round == ROUNDS {
                break;
            }
            let now = self.now(side).await?;
            let (followed, others): (Vec<Open<'_>>, Vec<Open<'_>>) =
                open.iter().partition(|one| one.is_followed());
            if !others.is_empty() {
                let statements = statements(&others, call, now, false);
                let matched = match others.len() {
                    ..MANY => side.plain().bulk(&side.jobs, statements).await?,
                    _ => side.bulk_in_two(&side.jobs, statements).await?,
                };
                if usize::try_from(matched) == Ok(others.len()) {
                    applied.extend(others.iter().map(|one| one.settlement.token));
                    open.retain(Open::is_followed);
                }
            }
            let mut ended = Ended::new();
            if !followed.is_empty() {
                let how = (round == 0, expects);
                ended = self.settle_followed(&followed, how, call, now).await?;
                open.retain(|one| !ended.contains_key(&one.settlement.token));
                applied.extend(ended.keys());
            }
            if !open.is_empty() {
                let seen = self.look_at_settled(&open, call).await?;
                open.retain_mut(|one| still_open(one, &seen, &mut applied));
            }
            if round == 0 && !(ended.is_empty() && open.is_empty()) {
                let ended = ended.values().filter(|followed| **followed).count();
                let open = open.iter().filter(|one| one.is_followed()).count();
                self.note_follows(ended + open > settlements.len() / 2);
            }
            if round > 1 && !open.is_empty() {
                tokio::time::sleep(pause(round)).await;
            }
        }
        Err(Failure::contention("concurrent calls kept changing a job"))
    }

    /// Ends jobs on whose end other jobs or a batch depend. If `assumed` is true, these
    /// dependencies are only assumed. Returns the claims that the call ended.
    ///
    /// The function tries to end all jobs in one transaction. After repeated conflicts, it uses one
    /// transaction for each job, so that one job does not block the others. If `assumed` is true,
    /// the function ends no job after a conflict. The caller then reads the jobs and tries again.
    /// `expects` is the assumption of the call's first write.
    async fn settle_followed(
        &self,
        followed: &[Open<'_>],
        (assumed, expects): (bool, bool),
        call: ObjectId,
        now: Now,
    ) -> Result<Ended> {
        let batches: BTreeSet<BatchId> = followed.iter().filter_map(|one| one.batch).collect();
        let none = BTreeSet::new();
        let mut turn = None;
        // The first round has already run a transaction, which probably conflicted in a batch. So
        // acquire the lock `turn` before the next transaction.
        if expects && !batches.is_empty() {
            turn = Some(self.turn_in_batches().await);
        }
        for tries in 1..=TOGETHER {
            let met = if turn.is_some() { &batches } else { &none };
            match self.settle_together(followed, met, call, now).await {
                // The caller then reads the jobs, and so finds out their batches.
                Err(failure) if assumed && failure.kind == StoreErrorKind::Contention => {
                    return Ok(Ended::new());
                }
                Err(failure)
                    if failure.kind == StoreErrorKind::Contention
                        && (followed.len() > 1 || tries < TOGETHER) => {}
                done => return done,
            }
            if turn.is_none() && !batches.is_empty() {
                // Many jobs of one batch may end at the same time. From now on, run only one such
                // call of this store at a time.
                turn = Some(self.turn_in_batches().await);
            } else {
                tokio::time::sleep(pause(tries)).await;
            }
        }
        let (mut ended, mut held_up) = (Ended::new(), None);
        for one in followed {
            match self
                .settle_together(std::slice::from_ref(one), &none, call, now)
                .await
            {
                Err(failure) if failure.kind == StoreErrorKind::Contention => {
                    held_up = Some(failure);
                }
                done => ended.extend(done?),
            }
        }
        // The retry of the call finds out which claims have ended.
        held_up.map_or(Ok(ended), Err)
    }

    /// Ends jobs in one transaction. Before anything else, the transaction writes to the batches in
    /// `met`, so that a conflict about one of these batches occurs early.
    async fn settle_together(
        &self,
        followed: &[Open<'_>],
        met: &BTreeSet<BatchId>,
        call: ObjectId,
        now: Now,
    ) -> Result<Ended> {
        let mut tx = self.begin(self.main()).await?;
        let settled = async {
            if !met.is_empty() {
                self.meet_batches(&mut tx, met).await?;
            }
            self.settle_inside(&mut tx, followed, call, now).await
        }
        .await;
        tx.finish(settled).await
    }

    async fn settle_inside(
        &self,
        tx: &mut Tx<'_>,
        followed: &[Open<'_>],
        call: ObjectId,
        now: Now,
    ) -> Result<Ended> {
        let side = self.main();
        let jobs: Vec<JobId> = followed
            .iter()
            .map(|one| one.settlement.token.job)
            .collect();
        let mut held = self.held(tx, &jobs).await?;
        let mut lanes = BTreeSet::new();
        let (mut written, mut ends) = (Vec::new(), Vec::new());
        let mut ended = Ended::new();
        for one in followed {
            let token = one.settlement.token;
            let as_it_is = |held: &Held| {
                held.state == JobState::Running && held.claim == token && held.cancel == one.cancel
            };
            if !held.get(&token.job).is_some_and(as_it_is) {
                continue;
            }
            // Remove the job from `held`, so that it ends only once.
            let Some(job) = held.remove(&token.job) else {
                continue;
            };
            let effect = one.settlement.effect(one.cancel);
            let end = job
                .ties
                .end(token.job, effect.state, effect.result.cloned());
            ended.insert(token, job.followed);
            ends.push(end);
            lanes.extend(job.lane);
            written.push(one);
        }
        let statements = statements(written, call, now, true);
        let matched = tx.bulk(&side.jobs, statements).await?;
        all_of(matched, ends.len())?;
        self.leave_lanes(tx, lanes.into_iter().collect()).await?;
        self.follow(tx, ends, Vec::new()).await?;
        Ok(ended)
    }

    async fn look_at_settled(
        &self,
        open: &[Open<'_>],
        call: ObjectId,
    ) -> Result<HashMap<JobId, Seen>> {
        let side = self.main();
        let jobs: BTreeSet<JobId> = open.iter().map(|one| one.settlement.token.job).collect();
        let jobs: Vec<JobId> = jobs.into_iter().collect();
        let options = row::fields(pipelines::settled_projection(call));
        let filter = doc! { "_id": { "$in": pipelines::ids(&jobs) } };
        let rows = side.plain().find(&side.jobs, filter, options).await?;
        let mut seen = HashMap::with_capacity(rows.len());
        for row in rows {
            match Seen::read(&row) {
                Ok((id, job)) => drop(seen.insert(id, job)),
                // No claim of this job can be verified, so its settlement is stale. [errors.poison]
                Err(error) => tracing::warn!(%error, "could not read a job that is to be settled, \
                    so its settlement is stale"),
            }
        }
        Ok(seen)
    }
}

impl Seen {
    fn read(row: &RawDocument) -> Result<(JobId, Self)> {
        let state = JobState::from_code(row::int(row, "state")?)?;
        let claim = row::token(row)?;
        let settled = row::count(row, "settled_seq").ok();
        let settler = row::node_id(row, "settled_node")?;
        let settled_at = row::optional_int(row, "settled_claimed_at")?.unwrap_or(0);
        let settled =
            settled.map(|seq| ClaimToken::new(claim.job, seq, settler, from_millis(settled_at)));
        let job = Self {
            mine: row.get_array("mine").map(numbers).unwrap_or_default(),
            settled,
            running: (state == JobState::Running).then_some(claim),
            cancel: row::flag(row, "cancel_requested"),
            followed: is_followed(row),
            batch: Ties::read(row).batch(),
        };
        Ok((claim.job, job))
    }
}

/// Replaces the assumptions of a settlement by the values that were read. Returns whether the
/// settlement must be written again. If the settlement was applied, adds its token to `applied`.
fn still_open(
    one: &mut Open<'_>,
    seen: &HashMap<JobId, Seen>,
    applied: &mut HashSet<ClaimToken>,
) -> bool {
    let token = one.settlement.token;
    let Some(job) = seen.get(&token.job) else {
        return false;
    };
    if job.mine.contains(&token.seq) || job.settled == Some(token) {
        applied.insert(token);
        return false;
    }
    one.cancel = job.cancel;
    one.followed = job.followed;
    one.batch = job.batch;
    job.running == Some(token)
}

fn numbers(array: &RawArray) -> HashSet<u64> {
    let number = |value| u64::try_from(row::whole(value)?).ok();
    array
        .into_iter()
        .filter_map(|value| number(value.ok()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::Document;
    use ratchet_core::model::Outcome;

    use super::*;

    fn stages(open: &Open<'_>, in_transaction: bool) -> (Document, Vec<Document>) {
        let now = Now::Server;
        let mut statements = statements([open], ObjectId::new(), now, in_transaction);
        let statement = statements.pop().unwrap();
        (statement.filter, statement.pipeline)
    }

    #[test]
    fn texts_that_look_like_expressions_stay_texts() {
        let error = "$$NOW".to_owned();
        let token = ClaimToken::new(JobId::new(), 3, None, Timestamp::UNIX_EPOCH);
        let settlement = Settlement::new(token, Outcome::Failed { error });
        let open = Open::new(&settlement, false);
        let (filter, pipeline) = stages(&open, false);
        let set = pipeline[0].get_document("$set").unwrap();
        let error = set.get_document("last_error").unwrap();
        assert_eq!(error.get_str("$literal").unwrap(), "$$NOW");
        for field in ["lane", "children", "batch"] {
            assert!(
                filter.get(field).is_some(),
                "expected a condition on {field}, which needs a \
                 transaction"
            );
        }
        let (filter, _) = stages(&open, true);
        for field in ["lane", "children", "batch"] {
            assert_eq!(filter.get(field), None);
        }
    }

    #[test]
    fn claims_that_end_alike_are_ended_by_one_statement() {
        let claimed_at = Timestamp::UNIX_EPOCH;
        let token = |seq| ClaimToken::new(JobId::new(), seq, None, claimed_at);
        let end = |seq, error: &str| {
            let error = error.to_owned();
            Settlement::new(token(seq), Outcome::Failed { error })
        };
        let timed = |millis| end(1, "a").ran_for(Duration::from_millis(millis));
        let node = NodeId::new();
        let of_node = |node, millis| {
            let token = ClaimToken::new(JobId::new(), 1, node, from_millis(millis));
            Settlement::new(token, Outcome::Released)
        };
        let table = [
            (vec![timed(1), timed(2)], 1),
            (vec![timed(1), end(1, "a")], 2),
            (vec![end(1, "a"), end(1, "b")], 2),
            (vec![end(1, "a"), end(2, "a")], 2),
            (vec![of_node(None, 0), of_node(Some(node), 0)], 2),
            (vec![of_node(Some(node), 0), of_node(Some(node), 1)], 2),
            (vec![of_node(Some(node), 0); 2], 1),
            ((1..MANY as u64).map(timed).collect(), 1),
            ((0..MANY as u64).map(timed).collect(), 2),
            ((0..=2 * ALIKE as u64).map(timed).collect(), 3),
        ];
        for (settlements, expected) in table {
            let open: Vec<Open<'_>> = settlements
                .iter()
                .map(|one| Open::new(one, false))
                .collect();
            let written = statements(&open, ObjectId::new(), Now::Server, false);
            assert_eq!(written.len(), expected, "{settlements:?}");
        }
    }

    #[test]
    fn a_job_with_a_cancel_request_ends_apart() {
        let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
        let settlement = Settlement::new(token, Outcome::Cancelled);
        let mut open = [Open::new(&settlement, false), Open::new(&settlement, false)];
        open[0].cancel = true;
        let written = statements(&open, ObjectId::new(), Now::Server, false);
        assert_eq!(written.len(), 2);
    }

    #[test]
    fn only_an_end_takes_a_job_out_of_its_lane() {
        let token = ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH);
        let settlement = Settlement::new(token, Outcome::Released);
        let mut open = Open::new(&settlement, false);
        open.followed = true;
        assert!(!open.is_followed());
        let (filter, pipeline) = stages(&open, false);
        assert_eq!(filter.get("lane"), None);
        assert!(!pipeline[1].to_string().contains("lane_seq"));
        open.cancel = true;
        assert!(open.is_followed());
        let (_, pipeline) = stages(&open, true);
        assert!(pipeline[1].to_string().contains("lane_seq"));
    }
}
