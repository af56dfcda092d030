//! Gives turns to jobs with a fair key, see [`ratchet_core::fair`].

use ratchet_core::JobId;
use ratchet_core::fair::{self, FIRST_PARKED, Last, WOKEN_BY_A_CLAIM};
use ratchet_core::model::FairKey;
use rusqlite::params;

use crate::error::Result;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;

/// A job that gets a turn.
pub(crate) struct Turned<'a> {
    pub(crate) route: i64,
    /// The priority.
    pub(crate) level: u8,
    pub(crate) key: &'a str,
    pub(crate) cost: u32,
}

impl Turned<'_> {
    /// Returns the turn of the job, which has become due at `run_at`.
    pub(crate) fn turn(&self, work: &Work<'_>, run_at: i64) -> Result<i64> {
        let (first, last) = self.found(work, i64::MAX)?;
        let turn = fair::turn_or_parked(first, last, self.cost, work.now, run_at);
        Ok(turn)
    }

    /// Returns the turn of the job, which was parked and is woken.
    pub(crate) fn turn_of_woken(&self, work: &Work<'_>) -> Result<i64> {
        let (first, last) = self.found(work, FIRST_PARKED)?;
        Ok(fair::turn(first, last, self.cost, work.now))
    }

    /// Returns the first turn of the level, and the last pending job of the key with a turn below
    /// `end`.
    fn found(&self, work: &Work<'_>, end: i64) -> Result<(Option<i64>, Option<Last>)> {
        let mut find = work.conn.prepare_cached(&SQL.find_turns)?;
        let names = params![self.route, self.level, self.key, end];
        let found = find.query_row(names, |row| {
            let (turn, cost) = (row.get(1)?, FairKey::cost_or_unit(row.get(2)?));
            let last = |turn: i64| Last { turn, cost };
            Ok((row.get(0)?, Option::map(turn, last)))
        })?;
        Ok(found)
    }
}

/// Gives turns to the due jobs of these routes that have none, the longest due first. `routes` is a
/// JSON array of ids.
pub(crate) fn wake(work: &Work<'_>, routes: &str) -> Result<()> {
    let mut find = work.conn.prepare_cached(&SQL.find_sleepers)?;
    let limit = i64::try_from(WOKEN_BY_A_CLAIM).unwrap_or(i64::MAX);
    let sleepers = find.query_map(params![routes, work.now, limit], |row| {
        let key: String = row.get(3)?;
        let cost = FairKey::cost_or_unit(row.get(4)?);
        let (route, level, run_at) = (row.get(1)?, row.get(2)?, row.get(5)?);
        Ok((row::job_id(row, 0)?, route, level, key, cost, run_at))
    })?;
    let sleepers: Vec<(JobId, i64, u8, String, u32, i64)> =
        sleepers.collect::<rusqlite::Result<_>>()?;
    let mut give = work.conn.prepare_cached(&SQL.give_turn)?;
    for (id, route, level, key, cost, run_at) in sleepers {
        let job = Turned {
            route,
            level,
            key: &key,
            cost,
        };
        give.execute(params![id.as_bytes(), job.turn(work, run_at)?])?;
    }
    Ok(())
}
