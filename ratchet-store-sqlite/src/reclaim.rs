//! Taking back claims that nobody works on any more.

use std::collections::HashMap;
use std::time::Duration;

use ratchet_core::model::{
    AttemptOutcome, HeldClaim, JobFlags, NodeRecord, Owner, ReclaimEffect, ReclaimPass,
    ReclaimReason, ReclaimRequest, Reclaimed,
};
use ratchet_core::time::{from_millis, to_millis};
use ratchet_core::{ClaimToken, JobId, NodeId};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Result;
use crate::nodes::all_nodes;
use crate::request::Work;
use crate::row;
use crate::settle::{Ended, end_claim};
use crate::statements::{Connection, SQL};

/// Whether a pass would take nothing back: reads only, and needs no lock.
pub(crate) fn is_idle(work: &Work<'_>, request: &ReclaimRequest) -> Result<bool> {
    Ok(find_lost(work, request, 1)?.is_empty())
}

/// Takes back the claims of one pass, in order of id.
pub(crate) fn reclaim(work: &Work<'_>, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
    find_lost(work, request, request.limit)?
        .into_iter()
        .map(|(claim, reason, effect)| take_back(work, &claim, reason, effect))
        .collect()
}

/// A running job.
struct Running {
    id: JobId,
    seq: i64,
    crash_count: u32,
    cancel_requested: bool,
    claimed_at: Option<i64>,
    last_report: Option<i64>,
    node: Option<NodeId>,
    data: i64,
    flags: JobFlags,
}

impl Running {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row::job_id(row, 0)?,
            seq: row.get(1)?,
            // A count that makes no sense is above every budget: the job ends as a dead letter.
            crash_count: u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX),
            cancel_requested: row.get(3)?,
            claimed_at: row.get(4)?,
            last_report: row.get(5)?,
            node: row::node_id(row, 6)?,
            data: row.get(7)?,
            flags: row::flags(row, 8)?,
        })
    }
}

/// The nodes that have a row.
struct Registry {
    nodes: HashMap<NodeId, NodeRecord>,
    /// When the first of them began.
    since: Option<i64>,
}

impl Registry {
    fn read(conn: Connection<'_>) -> Result<Self> {
        let nodes = all_nodes(conn)?;
        let since = nodes.iter().map(|node| node.started_at).min();
        Ok(Self {
            nodes: nodes.into_iter().map(|node| (node.node, node)).collect(),
            since: since.map(to_millis),
        })
    }

    fn owner(&self, id: NodeId) -> Owner<'_> {
        let unknown = Owner::Unknown {
            registry_since: self.since,
        };
        self.nodes.get(&id).map_or(unknown, Owner::Known)
    }
}

/// A claim that is to be taken back, why, and what that does to its job.
type Lost = (Running, ReclaimReason, ReclaimEffect);

fn find_lost(work: &Work<'_>, request: &ReclaimRequest, limit: usize) -> Result<Vec<Lost>> {
    let nodes = Registry::read(work.conn)?;
    let mut pass = ReclaimPass::new(limit);
    let mut statement = work.conn.prepare_cached(&SQL.running_jobs)?;
    let mut rows = statement.query([])?;
    while !pass.is_full()
        && let Some(row) = rows.next()?
    {
        let running = Running::read(row)?;
        if let Some((reason, effect)) = lost(work, &nodes, &running, request)? {
            let has_owner = running.node.is_some();
            pass.add(running.id, has_owner, (running, reason, effect));
        }
    }
    Ok(pass.chosen())
}

/// Why the claim is to be taken back, if it is, and what that does to its job.
fn lost(
    work: &Work<'_>,
    nodes: &Registry,
    running: &Running,
    request: &ReclaimRequest,
) -> Result<Option<(ReclaimReason, ReclaimEffect)>> {
    let owner = running.node.map_or(Owner::Nobody, |node| nodes.owner(node));
    let (timeout, stall_timeout) = if running.flags.has_any(JobFlags::TIMEOUTS) {
        timeouts(work.conn, running.data)?
    } else {
        (None, None)
    };
    let claim = HeldClaim {
        owner,
        claimed_at: running.claimed_at.unwrap_or(work.now),
        last_report: running.last_report,
        timeout,
        stall_timeout,
    };
    let effect = |reason| {
        request.effect(
            &claim,
            reason,
            running.crash_count,
            running.cancel_requested,
        )
    };
    let reason = request.lost(&claim, work.now);
    Ok(reason.map(|reason| (reason, effect(reason))))
}

fn timeouts(conn: Connection<'_>, data: i64) -> Result<(Option<Duration>, Option<Duration>)> {
    let timeouts = conn
        .prepare_cached(&SQL.timeouts_of)?
        .query_row([data], |row| {
            // One that cannot be read does not hold the pass up: the job has none then.
            Ok((
                row::duration(row, 0, "timeout").ok().flatten(),
                row::duration(row, 1, "stall_timeout").ok().flatten(),
            ))
        })
        .optional()?;
    Ok(timeouts.unwrap_or((None, None)))
}

fn take_back(
    work: &Work<'_>,
    claim: &Running,
    reason: ReclaimReason,
    effect: ReclaimEffect,
) -> Result<Reclaimed> {
    let claimed_at = from_millis(claim.claimed_at.unwrap_or(0));
    let token = ClaimToken::new(claim.id, claim.seq.cast_unsigned(), claim.node, claimed_at);
    let reclaimed = Reclaimed::new(token, reason, effect.crash_count, effect.is_exhausted());
    if effect.is_exhausted() {
        work.conn.prepare_cached(&SQL.disown_job)?.execute(params![
            claim.id.as_bytes(),
            claim.seq,
            effect.crash_count
        ])?;
        return Ok(reclaimed);
    }
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
