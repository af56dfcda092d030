//! Settles claims, and stores the reports of running claims.

use ratchet_core::model::{
    AttemptOutcome, Fenced, JobFlags, NextRun, Report, ReportKind, Reported, Settlement,
};
use ratchet_core::time::{duration_micros, duration_millis, from_millis};
use ratchet_core::{ClaimToken, JobId, JobState, NodeId};
use rusqlite::{CachedStatement, OptionalExtension, params};

use crate::error::Result;
use crate::expiry;
use crate::lanes;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;

/// Applies the settlements of one call, in order. Returns one answer for each.
pub(crate) fn settle(work: &Work<'_>, settlements: &[Settlement]) -> Result<Vec<Fenced>> {
    let mut read = work.conn.prepare_cached(&SQL.read_claim)?;
    let mut update = work.conn.prepare_cached(&SQL.settle_job)?;
    settlements
        .iter()
        .map(|one| settle_one(work, &mut read, &mut update, one))
        .collect()
}

fn settle_one(
    work: &Work<'_>,
    read: &mut CachedStatement<'_>,
    update: &mut CachedStatement<'_>,
    settlement: &Settlement,
) -> Result<Fenced> {
    let token = settlement.token;
    let Some(held) = read_claim(read, token)? else {
        return Ok(Fenced::Stale);
    };
    if !held.holds(token) {
        let repeated =
            held.settled_seq == Some(token.seq) && settled(work, &held, token)? == Some(token);
        return Ok(if repeated {
            Fenced::Applied
        } else {
            Fenced::Stale
        });
    }
    let effect = settlement.effect(held.cancel_requested);
    let run_at = match effect.next_run {
        NextRun::Unchanged => None,
        NextRun::In(delay) => Some(work.now.saturating_add(duration_millis(delay))),
    };
    let (route, key) = held.place.clone();
    work.note_place(route, key);
    let terminal = effect.state.is_terminal();
    let succeeded = effect.state == JobState::Succeeded;
    let ran_for_us = settlement.ran_for.map(duration_micros);
    update.execute(params![
        token.job.as_bytes(),
        held.seq,
        effect.state.code(),
        run_at,
        effect.attempts_added,
        terminal.then_some(work.now),
        ran_for_us.filter(|_| succeeded),
    ])?;
    let ended = Ended {
        id: token.job,
        seq: held.seq,
        node: held.node,
        claimed_at: held.claimed_at.unwrap_or(work.now),
        data: held.data,
        flags: held.flags,
        terminal,
    };
    end_claim(work, &ended, effect.record, ran_for_us, effect.error)?;
    if let Some(error) = effect.error {
        work.conn
            .prepare_cached(&SQL.keep_error)?
            .execute(params![token.job.as_bytes(), error])?;
    }
    if let Some(result) = effect.result {
        work.conn
            .prepare_cached(&SQL.keep_result)?
            .execute(params![token.job.as_bytes(), result.as_str()])?;
    }
    Ok(Fenced::Applied)
}

/// A claim that is about to end, with the data of its job.
pub(crate) struct Ended {
    pub(crate) id: JobId,
    pub(crate) seq: i64,
    pub(crate) node: Option<[u8; 16]>,
    pub(crate) claimed_at: i64,
    pub(crate) data: i64,
    pub(crate) flags: JobFlags,
    /// Whether the job ends together with the claim.
    pub(crate) terminal: bool,
}

/// Makes the changes that every end of a claim needs. Adds the claim to the history, unless the
/// claim succeeded: the row of the job already records a successful claim. If the job ends too,
/// also calls [`give_up`].
pub(crate) fn end_claim(
    work: &Work<'_>,
    ended: &Ended,
    outcome: AttemptOutcome,
    ran_for_us: Option<i64>,
    error: Option<&str>,
) -> Result<()> {
    if outcome != AttemptOutcome::Succeeded {
        work.conn
            .prepare_cached(&SQL.add_attempt)?
            .execute(params![
                ended.id.as_bytes(),
                ended.seq,
                outcome.code(),
                ended.claimed_at,
                work.now,
                ran_for_us,
                ended.node,
                error,
            ])?;
    }
    if ended.terminal {
        give_up(work, ended.id, ended.data, ended.flags)?;
    }
    Ok(())
}

/// Makes the changes that every end of a job needs. Releases the job's unique key and its position
/// in a lane, and closes its signal and its expiry. If other jobs or a batch may depend on the job,
/// records that it has ended. The request applies the consequences later.
pub(crate) fn give_up(work: &Work<'_>, id: JobId, data: i64, flags: JobFlags) -> Result<()> {
    if flags.has_any(JobFlags::UNIQUE_KEY) {
        work.conn
            .prepare_cached(&SQL.free_unique_key)?
            .execute(params![data, id.as_bytes()])?;
    }
    if flags.has_any(JobFlags::LANE) {
        lanes::leave(work.conn, id)?;
    }
    if flags.has_any(JobFlags::WAITS) {
        work.conn
            .prepare_cached(&SQL.close_signal)?
            .execute([id.as_bytes()])?;
    }
    if flags.has_any(JobFlags::EXPIRES) {
        work.conn
            .prepare_cached(&SQL.close_expiry)?
            .execute([id.as_bytes()])?;
    }
    if flags.has_any(JobFlags::FOLLOWED) {
        work.come.borrow_mut().ended(id);
    }
    Ok(())
}

/// Stores reports of running claims. Returns one answer for each.
pub(crate) fn report(work: &Work<'_>, reports: &[Report]) -> Result<Vec<Reported>> {
    let mut read = work.conn.prepare_cached(&SQL.read_claim)?;
    let mut update = work.conn.prepare_cached(&SQL.report_life)?;
    reports
        .iter()
        .map(|report| {
            let token = report.token;
            let held = read_claim(&mut read, token)?;
            let Some(held) = held.filter(|held| held.holds(token)) else {
                return Ok(Reported::Stale);
            };
            update.execute(params![token.job.as_bytes(), held.seq, work.now])?;
            expiry::remove(work.conn, token.job, held.flags)?;
            keep_report(work, token.job, &report.kind)?;
            Ok(Reported::Applied {
                cancel_requested: held.cancel_requested,
            })
        })
        .collect()
}

fn keep_report(work: &Work<'_>, job: JobId, kind: &ReportKind) -> Result<()> {
    match kind {
        ReportKind::Progress { percent, message } => {
            work.conn
                .prepare_cached(&SQL.keep_progress)?
                .execute(params![job.as_bytes(), percent, message])?;
        }
        ReportKind::Checkpoint(checkpoint) => {
            work.conn
                .prepare_cached(&SQL.keep_checkpoint)?
                .execute(params![job.as_bytes(), checkpoint.as_str()])?;
        }
        // A report of a kind that this version does not know still restarts the stall timeout.
        _ => {}
    }
    Ok(())
}

/// The columns in a job's row that describe its last claim.
struct Held {
    running: bool,
    seq: i64,
    settled_seq: Option<u64>,
    cancel_requested: bool,
    claimed_at: Option<i64>,
    node: Option<[u8; 16]>,
    data: i64,
    flags: JobFlags,
    /// The route, and the fair key if any key has a limit.
    place: (i64, Option<String>),
}

impl Held {
    fn holds(&self, token: ClaimToken) -> bool {
        self.running && self.token(token.job) == Some(token)
    }

    /// Returns the token of the current claim, or of the last claim if none runs. The row must be
    /// that of `job`.
    fn token(&self, job: JobId) -> Option<ClaimToken> {
        let seq = u64::try_from(self.seq).ok()?;
        let node = self.node.map(NodeId::from_bytes);
        let claimed_at = from_millis(self.claimed_at.unwrap_or(0));
        Some(ClaimToken::new(job, seq, node, claimed_at))
    }
}

/// Returns the token of the claim that was settled last. The caller must have checked that this
/// claim has the number of `token`. The history does not contain a successful claim, so the token
/// of such a claim is read from the job's row.
fn settled(work: &Work<'_>, held: &Held, token: ClaimToken) -> Result<Option<ClaimToken>> {
    let found = work
        .conn
        .prepare_cached(&SQL.find_settler)?
        .query_row(
            params![token.job.as_bytes(), held.settled_seq.map(u64::cast_signed)],
            |row| {
                let claimed_at = from_millis(row.get(1)?);
                let node = row::node_id(row, 0)?;
                Ok(ClaimToken::new(token.job, token.seq, node, claimed_at))
            },
        )
        .optional()?;
    Ok(found.or_else(|| held.token(token.job)))
}

fn read_claim(read: &mut CachedStatement<'_>, token: ClaimToken) -> Result<Option<Held>> {
    let held = read
        .query_row([token.job.as_bytes()], |row| {
            Ok(Held {
                running: row.get::<_, u8>(0)? == JobState::Running.code(),
                seq: row.get(1)?,
                // 0 means that no claim was settled.
                settled_seq: u64::try_from(row.get::<_, i64>(2)?)
                    .ok()
                    .filter(|seq| *seq > 0),
                cancel_requested: row.get(3)?,
                claimed_at: row.get(4)?,
                node: row.get(5)?,
                data: row.get(6)?,
                flags: row::flags(row, 7)?,
                place: (row.get(8)?, row.get(9).unwrap_or_default()),
            })
        })
        .optional()?;
    Ok(held)
}
