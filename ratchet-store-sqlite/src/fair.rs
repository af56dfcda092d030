//! Gives turns to jobs with a fair key, see [`ratchet_core::fair`].

use ratchet_core::JobId;
use ratchet_core::fair::{self, Last, WOKEN_BY_A_CLAIM};
use ratchet_core::model::FairKey;
use rusqlite::params;

use crate::error::Result;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;

/// Returns the turn of a job that is due now. `level` is its priority; `key` and `cost` are its
/// fair key.
pub(crate) fn turn(work: &Work<'_>, route: i64, level: u8, key: &str, cost: u32) -> Result<i64> {
    let mut find = work.conn.prepare_cached(&SQL.find_turns)?;
    let (first, last) = find.query_row(params![route, level, key], |row| {
        let (turn, cost) = (row.get(1)?, FairKey::cost_or_unit(row.get(2)?));
        let last = |turn: i64| Last { turn, cost };
        Ok((row.get(0)?, Option::map(turn, last)))
    })?;
    Ok(fair::turn(first, last, cost, work.now))
}

/// Gives turns to the due jobs of these routes that have none, the longest due first. `routes` is a
/// JSON array of ids.
pub(crate) fn wake(work: &Work<'_>, routes: &str) -> Result<()> {
    let mut find = work.conn.prepare_cached(&SQL.find_sleepers)?;
    let limit = i64::try_from(WOKEN_BY_A_CLAIM).unwrap_or(i64::MAX);
    let sleepers = find.query_map(params![routes, work.now, limit], |row| {
        let key: String = row.get(3)?;
        let cost = FairKey::cost_or_unit(row.get(4)?);
        Ok((row::job_id(row, 0)?, row.get(1)?, row.get(2)?, key, cost))
    })?;
    let sleepers: Vec<(JobId, i64, u8, String, u32)> = sleepers.collect::<rusqlite::Result<_>>()?;
    let mut give = work.conn.prepare_cached(&SQL.give_turn)?;
    for (id, route, level, key, cost) in sleepers {
        let turn = turn(work, route, level, &key, cost)?;
        give.execute(params![id.as_bytes(), turn])?;
    }
    Ok(())
}
