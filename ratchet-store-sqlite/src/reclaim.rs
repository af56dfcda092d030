//! Reclaims lost claims.

use std::time::Duration;

use ratchet_core::model::{
    AttemptOutcome, HeldClaim, JobFlags, NodeRegistry, ReclaimEffect, ReclaimPass, ReclaimRequest,
    Reclaimed,
};
use ratchet_core::time::from_millis;
use ratchet_core::{ClaimToken, JobId, NodeId};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Result;
use crate::nodes::all_nodes;
use crate::request::Work;
use crate::row;
use crate::settle::{Ended, end_claim};
use crate::statements::{Connection, SQL};

/// Returns whether a pass would reclaim nothing. The function only reads, so it needs no write
/// lock.
pub(crate) fn is_idle(work: &Work<'_>, request: &ReclaimRequest) -> Result<bool> {
    Ok(find_lost(work, request, 1)?.is_empty())
}

/// Reclaims the lost claims that this pass chooses, in order of job id.
pub(crate) fn reclaim(work: &Work<'_>, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
    find_lost(work, request, request.limit)?
        .into_iter()
        .map(|(claim, effect)| take_back(work, &claim, effect))
        .collect()
}

/// A running job with the data that shows whether its claim is lost.
struct Running {
    id: JobId,
    seq: i64,
    crash_count: Option<u32>,
    cancel_requested: bool,
    claimed_at: Option<i64>,
    last_report: Option<i64>,
    node: Option<NodeId>,
    data: i64,
    flags: JobFlags,
    /// The route, and the fair key if any key has a limit.
    place: (i64, Option<String>),
}

impl Running {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row::job_id(row, 0)?,
            seq: row.get(1)?,
            crash_count: u32::try_from(row.get::<_, i64>(2)?).ok(),
            cancel_requested: row.get(3)?,
            claimed_at: row.get(4)?,
            last_report: row.get(5)?,
            node: row::node_id(row, 6)?,
            data: row.get(7)?,
            flags: row::flags(row, 8)?,
            place: (row.get(9)?, row.get(10).unwrap_or_default()),
        })
    }
}

/// A lost claim, and the change that reclaiming makes to the job.
type Lost = (Running, ReclaimEffect);

fn find_lost(work: &Work<'_>, request: &ReclaimRequest, limit: usize) -> Result<Vec<Lost>> {
    let nodes = all_nodes(work.conn)?;
    let nodes = NodeRegistry::new(&nodes);
    let mut pass = ReclaimPass::new(limit);
    let mut statement = work.conn.prepare_cached(&SQL.running_jobs)?;
    let mut rows = statement.query([])?;
    while !pass.is_full()
        && let Some(row) = rows.next()?
    {
        let running = Running::read(row)?;
        let (timeout, stall_timeout) = if running.flags.has_any(JobFlags::TIMEOUTS) {
            timeouts(work.conn, running.data)?
        } else {
            (None, None)
        };
        let claim = HeldClaim {
            owner: nodes.owner(running.node),
            claimed_at: running.claimed_at,
            last_report: running.last_report,
            timeout,
            stall_timeout,
            crash_count: running.crash_count,
            cancel_requested: running.cancel_requested,
        };
        if let Some(effect) = request.judge(&claim, work.now) {
            pass.add(running.id, running.node.is_some(), (running, effect));
        }
    }
    Ok(pass.chosen())
}

fn timeouts(conn: Connection<'_>, data: i64) -> Result<(Option<Duration>, Option<Duration>)> {
    let timeouts = conn
        .prepare_cached(&SQL.timeouts_of)?
        .query_row([data], |row| {
            Ok((
                row::duration(row, 0, "timeout").ok().flatten(),
                row::duration(row, 1, "stall_timeout").ok().flatten(),
            ))
        })
        .optional()?;
    Ok(timeouts.unwrap_or((None, None)))
}

fn take_back(work: &Work<'_>, claim: &Running, effect: ReclaimEffect) -> Result<Reclaimed> {
    let claimed_at = from_millis(claim.claimed_at.unwrap_or(0));
    let token = ClaimToken::new(claim.id, claim.seq.cast_unsigned(), claim.node, claimed_at);
    let reclaimed = effect.reclaimed(token);
    if effect.is_exhausted() {
        work.conn.prepare_cached(&SQL.disown_job)?.execute(params![
            claim.id.as_bytes(),
            claim.seq,
            effect.crash_count
        ])?;
        return Ok(reclaimed);
    }
    let (route, key) = claim.place.clone();
    work.note_place(route, key);
    let terminal = effect.state.is_terminal();
    work.conn
        .prepare_cached(&SQL.reclaim_job)?
        .execute(params![
            claim.id.as_bytes(),
            claim.seq,
            effect.state.code(),
            effect.crash_count,
            terminal.then_some(work.now),
        ])?;
    let ended = Ended {
        id: claim.id,
        seq: claim.seq,
        node: claim.node.map(|node| *node.as_bytes()),
        claimed_at: claim.claimed_at.unwrap_or(work.now),
        data: claim.data,
        flags: claim.flags,
        terminal,
    };
    end_claim(work, &ended, AttemptOutcome::Lost, None, None)?;
    Ok(reclaimed)
}
