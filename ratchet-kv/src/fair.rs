//! The turns of jobs with a fair key.

use std::ops::Range;

use ratchet_core::fair::{self, FIRST_PARKED, Last, WOKEN_BY_A_CLAIM};
use ratchet_core::model::StoredJob;
use ratchet_core::permit::Budget;
use ratchet_core::time::to_millis;
use ratchet_core::{Name, Priority, Result, Route};

use crate::call::Call;
use crate::engine::{Order, Transaction};
use crate::keys::{self, Key, Parts, Table};

impl<T: Transaction> Call<T> {
    /// Returns the turn of a job if the job sleeps and is due.
    pub(crate) async fn turn(&mut self, job: &StoredJob) -> Result<Option<i64>> {
        let Some(key) = job.lacks_turn(self.now) else {
            return Ok(None);
        };
        let of_key = keys::turns_of(&job.record.spec.route, job.record.spec.priority, key.name());
        let (first, last) = self.first_and_last(job, of_key.all()).await?;
        let run_at = to_millis(job.record.run_at);
        let turn = fair::turn_or_parked(first, last, key.cost(), self.now, run_at);
        Ok(Some(turn))
    }

    /// Returns the turn of a job that was parked and is woken.
    pub(crate) async fn turn_of_woken(&mut self, job: &StoredJob) -> Result<Option<i64>> {
        let Some(key) = &job.record.spec.fair_key else {
            return Ok(None);
        };
        let of_key = keys::turns_of(&job.record.spec.route, job.record.spec.priority, key.name());
        let (first, last) = self.first_and_last(job, unparked(of_key)).await?;
        Ok(Some(fair::turn(first, last, key.cost(), self.now)))
    }

    /// Returns the first turn of the level of a job, and the last job in a range of the index of
    /// the turns of each key.
    async fn first_and_last(
        &mut self,
        job: &StoredJob,
        of_key: Range<Vec<u8>>,
    ) -> Result<(Option<i64>, Option<Last>)> {
        let spec = &job.record.spec;
        let turns = unparked(keys::level(Table::Turn, &spec.route, spec.priority));
        let first = self.first(turns).await?;
        let first = first.and_then(|(key, _)| turn_of(&key));
        let last = self.range(of_key, Order::Descending, 1).await?;
        Ok((first, last.first().and_then(|(key, _)| last_of(key))))
    }

    /// Gives turns to the due jobs of these routes that sleep, the longest due first. Skips routes
    /// whose resource has no free permit. `[fair.turn]`
    pub(crate) async fn wake(&mut self, routes: &[(Route, Table)]) -> Result<()> {
        let is_fair = |(_, table): &&(Route, Table)| matches!(table, Table::PendingFair);
        let fair: Vec<&Route> = routes
            .iter()
            .filter(is_fair)
            .map(|(route, _)| route)
            .collect();
        if fair.is_empty() {
            return Ok(());
        }
        let budget = Budget::new(self.held_permits().await?);
        let mut asleep = Vec::new();
        for route in fair
            .into_iter()
            .filter(|route| budget.rest(route) != Some(0))
        {
            let of_route = Key::new(Table::Asleep).route(route);
            let end = of_route.clone().number(self.now).end();
            let due = self.range(of_route.before(end), Order::Ascending, WOKEN_BY_A_CLAIM);
            let due = due.await?.into_iter();
            asleep.extend(due.map(|(key, _)| (keys::due_of(&key), keys::job_of(&key), route, key)));
        }
        asleep.sort_unstable_by_key(|(run_at, id, ..)| (*run_at, *id));
        asleep.truncate(WOKEN_BY_A_CLAIM);
        for (run_at, id, route, key) in asleep {
            let found = match id {
                Some(id) => self.find(id).await?,
                None => None,
            };
            if let Some(found) = found {
                let turn = self.turn(&found.job).await?;
                // If the job is damaged, this change ends it.
                self.change_found(found, |job, _| job.turn = turn.or(job.turn))
                    .await?;
                continue;
            }
            // The row may lack the list of its keys.
            if let Some((run_at, id)) = run_at.zip(id) {
                self.set_aside(id).await?;
                for priority in Priority::ALL {
                    let pending = keys::level(Table::PendingFair, route, priority);
                    self.remove(pending.number(run_at).job(id).bytes()).await?;
                }
            }
            self.remove(key).await?;
        }
        Ok(())
    }

    /// Returns the keys of the first turns of a route and a priority, in claim order, without the
    /// parked jobs.
    pub(crate) async fn turns(
        &mut self,
        route: &Route,
        priority: Priority,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let turns = unparked(keys::level(Table::Turn, route, priority));
        let entries = self.range(turns, Order::Ascending, limit).await?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }

    /// Removes the entries that a job with this key in the index of turns has in the other indexes
    /// of jobs with a fair key. Changes nothing if the key belongs to another index.
    pub(crate) async fn forget_turn(&mut self, key: &[u8]) -> Result<()> {
        let Some((route, priority, turn, fair_key)) = parts_of(key) else {
            return Ok(());
        };
        let of_key = keys::turns_of(&route, priority, &fair_key).number(turn);
        for (entry, _) in self.all(of_key.all()).await? {
            if keys::job_of(&entry) == keys::job_of(key) {
                self.remove(entry).await?;
            }
        }
        if let Some((run_at, id)) = keys::due_of(key).zip(keys::job_of(key)) {
            let pending = keys::level(Table::PendingFair, &route, priority);
            self.remove(pending.number(run_at).job(id).bytes()).await?;
        }
        Ok(())
    }
}

/// Returns the range of the keys that begin with this one, followed by a turn, without parked jobs.
pub(crate) fn unparked(level: Key) -> Range<Vec<u8>> {
    let end = level.clone().number(FIRST_PARKED).bytes();
    level.before(end)
}

/// Returns route, priority, turn and fair key of a key in the index of turns.
pub(crate) fn parts_of(key: &[u8]) -> Option<(Route, Priority, i64, Name)> {
    if key.first() != Some(&(Table::Turn as u8)) {
        return None;
    }
    let mut parts = Parts::of(key);
    let route = parts.route()?;
    let priority = Priority::from_level(parts.byte()?.into()).ok()?;
    let turn = parts.number()?;
    let fair_key = Name::new("fair_key", parts.name()?).ok()?;
    Some((route, priority, turn, fair_key))
}

/// Returns the turn in a key of the index of turns.
fn turn_of(key: &[u8]) -> Option<i64> {
    parts_of(key).map(|(_, _, turn, _)| turn)
}

/// Returns the turn and the cost of a job from its key in the index of the turns of each fair key.
fn last_of(key: &[u8]) -> Option<Last> {
    let mut parts = Parts::of(key);
    parts.route()?;
    parts.byte()?;
    parts.name()?;
    let (turn, cost) = parts.number().zip(parts.cost())?;
    Some(Last { turn, cost })
}
