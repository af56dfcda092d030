//! Gives turns to jobs with a fair key, see [`ratchet_core::fair`].

use std::collections::HashMap;

use ratchet_core::fair::{FIRST_PARKED, Last, Level, WOKEN_BY_A_CLAIM};
use ratchet_core::model::FairKey;
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result;
use crate::statement::{OwnStatements as _, TurnStatements};
use crate::store::SqlStore;

/// Whether an enqueue gives the jobs with a fair key their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// Due jobs get their turns. Locks their routes until the transaction ends.
    Given,
    /// The jobs sleep until a claim finds them: a transaction of the application must not keep the
    /// routes locked.
    Later,
}

/// A pending job that gets a turn if it is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turned<'a> {
    pub(crate) id: Uuid,
    pub(crate) route: i32,
    pub(crate) priority: i16,
    pub(crate) key: &'a str,
    pub(crate) cost: u32,
    /// When the job is due. `None` if it is due now.
    pub(crate) run_at: Option<i64>,
}

/// The turns of a transaction that has locked the routes of its jobs.
pub(crate) struct Levels {
    levels: HashMap<(i32, i16), Level>,
    /// The time of the database, in milliseconds since 1970.
    now: i64,
}

impl Levels {
    /// Returns the turn of the next job. The job must be one for which the levels were read. `None`
    /// if the job is not due yet.
    pub(crate) fn give(&mut self, job: &Turned<'_>) -> Option<i64> {
        let run_at = job.run_at.unwrap_or(self.now);
        let level = self.levels.get_mut(&(job.route, job.priority));
        level
            .filter(|_| run_at <= self.now)
            .map(|level| level.give_due(job.key, job.cost, run_at))
    }

    /// Returns the turn of the next job, which was parked and is woken.
    fn give_woken(&mut self, job: &Turned<'_>) -> Option<i64> {
        let level = self.levels.get_mut(&(job.route, job.priority))?;
        Some(level.give(job.key, job.cost))
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Locks the routes of these jobs until the transaction ends, and reads what their turns depend
    /// on. Must run in a transaction.
    pub(crate) async fn lock_and_read_levels(
        &self,
        on: &mut impl Run<D>,
        jobs: &[Turned<'_>],
    ) -> Result<Option<Levels>> {
        let Some(sql) = self.sql().own.turns() else {
            return Ok(None);
        };
        let mut routes: Vec<i32> = jobs.iter().map(|job| job.route).collect();
        routes.sort_unstable();
        routes.dedup();
        if routes.is_empty() {
            return Ok(None);
        }
        on.rows(sql.lock_routes.query().bind(&routes)).await?;
        self.read_levels(on, &sql, jobs, i64::MAX).await.map(Some)
    }

    /// Reads what the turns of these jobs depend on. Their routes must be locked. The last pending
    /// job of each key is the last one with a turn below `end`.
    async fn read_levels(
        &self,
        on: &mut impl Run<D>,
        sql: &TurnStatements<'_, D>,
        jobs: &[Turned<'_>],
        end: i64,
    ) -> Result<Levels> {
        let wanted = jobs.iter().map(|job| (job.route, job.priority, job.key));
        let mut wanted: Vec<(i32, i16, &str)> = wanted.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let routes: Vec<i32> = wanted.iter().map(|(route, ..)| *route).collect();
        let priorities: Vec<i16> = wanted.iter().map(|(_, priority, _)| *priority).collect();
        let keys: Vec<&str> = wanted.iter().map(|(.., key)| *key).collect();
        let find = sql.find_turns.query().table(&[
            ("route", &routes),
            ("priority", &priorities),
            ("fair_key", &keys),
        ]);
        let find = find.bind(end);
        let rows = on.rows(find).await?;
        let mut levels = Levels {
            levels: HashMap::new(),
            now: 0,
        };
        for (row, (route, priority, key)) in rows.iter().zip(wanted) {
            levels.now = row.try_get(0)?;
            let level = levels.levels.entry((route, priority));
            let first: Option<i64> = row.try_get(1)?;
            let level = level.or_insert_with(|| Level::new(first, levels.now));
            if let Some(turn) = row.try_get::<Option<i64>>(2)? {
                let cost = cost(row, 3)?;
                level.last(key, Last { turn, cost });
            }
        }
        Ok(levels)
    }

    /// Gives turns to due jobs that this transaction has stored without them. [fair.turn]
    pub(crate) async fn wake_own(&self, on: &mut impl Run<D>, jobs: &[Turned<'_>]) -> Result<()> {
        match (
            self.lock_and_read_levels(on, jobs).await?,
            self.sql().own.turns(),
        ) {
            (Some(mut levels), Some(sql)) => {
                Self::store_turns(on, &sql, jobs, |job| levels.give(job)).await
            }
            _ => Ok(()),
        }
    }

    /// Gives parked jobs turns among those of the other jobs. Their routes must be locked.
    pub(crate) async fn unpark(
        &self,
        on: &mut impl Run<D>,
        sql: &TurnStatements<'_, D>,
        jobs: &[Turned<'_>],
    ) -> Result<()> {
        let mut levels = self.read_levels(on, sql, jobs, FIRST_PARKED).await?;
        Self::store_turns(on, sql, jobs, |job| levels.give_woken(job)).await
    }

    /// Stores the turns of these jobs, which have none or others until now.
    async fn store_turns(
        on: &mut impl Run<D>,
        sql: &TurnStatements<'_, D>,
        jobs: &[Turned<'_>],
        mut give: impl FnMut(&Turned<'_>) -> Option<i64>,
    ) -> Result<()> {
        let turns = jobs.iter().map(|job| Some((job.id, give(job)?)));
        let (ids, turns): (Vec<Uuid>, Vec<i64>) = turns.flatten().unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let give = sql.give_turns.query();
        let give = give.table(&[("job", &ids), ("turn", &turns)]);
        on.execute(give).await.map(|_| ())
    }

    /// Gives turns to the due jobs of these routes that have none, the longest due first. Leaves
    /// out the routes in which another call gives turns at the moment.
    pub(crate) async fn wake(&self, routes: &[i32]) -> Result<()> {
        let Some(sql) = self.sql().own.turns() else {
            return Ok(());
        };
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let woken = self.wake_inside(&mut lease, &sql, routes).await;
        lease.end(woken).await
    }

    /// Does what [`wake`](Self::wake) does. Must run in a transaction.
    pub(crate) async fn wake_inside(
        &self,
        lease: &mut D::Lease,
        sql: &TurnStatements<'_, D>,
        routes: &[i32],
    ) -> Result<()> {
        let mut locked: Vec<i32> = Vec::with_capacity(routes.len());
        for row in lease.rows(sql.try_lock_routes.query().bind(routes)).await? {
            locked.push(row.try_get(0)?);
        }
        if locked.is_empty() {
            return Ok(());
        }
        let limit = i64::try_from(WOKEN_BY_A_CLAIM).unwrap_or(i64::MAX);
        let find = sql.find_sleepers.query().bind(&locked).bind(limit);
        let rows = lease.rows(find).await?;
        let mut keys: Vec<String> = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push(row.try_get(3)?);
        }
        let mut sleepers = Vec::with_capacity(rows.len());
        for (row, key) in rows.iter().zip(&keys) {
            sleepers.push(Turned {
                id: row.try_get(0)?,
                route: row.try_get(1)?,
                priority: row.try_get(2)?,
                key,
                cost: cost(row, 4)?,
                run_at: Some(row.try_get(5)?),
            });
        }
        if sleepers.is_empty() {
            return Ok(());
        }
        let mut levels = self.read_levels(lease, sql, &sleepers, i64::MAX).await?;
        Self::store_turns(lease, sql, &sleepers, |job| levels.give(job)).await
    }
}

/// Reads the cost of a job, see [`FairKey::cost_or_unit`].
pub(crate) fn cost(row: &impl Row, column: usize) -> Result<u32> {
    let stored: Option<i32> = row.try_get(column)?;
    Ok(FairKey::cost_or_unit(stored.map(i64::from)))
}
