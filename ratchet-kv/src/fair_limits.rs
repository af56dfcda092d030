//! Limits of fair keys.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ratchet_core::fair::{FIRST_PARKED, PARKED_BY_A_CLAIM, places_for};
use ratchet_core::model::{FairLimit, FairLimits, FairScope};
use ratchet_core::store::{Changed, FairStore};
use ratchet_core::{JobId, Name, Priority, Result, Route};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::fair::{parts_of, unparked};
use crate::keys::{self, Key, Table};
use crate::store::KvStore;

#[async_trait]
impl<E: Engine> FairStore for KvStore<E> {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let mut call = self.write("set_fair_limit").await?;
        let changed = call.fair_limits().await?.set(scope, max);
        if changed == Changed::Unchanged {
            return Ok(changed);
        }
        match max {
            Some(max) => {
                let limit = FairLimit::new(scope.clone(), max);
                call.write(limit_key(scope), limit.encode()).await?;
            }
            None => call.remove(limit_key(scope).bytes()).await?,
        }
        call.unpark(scope).await?;
        call.commit().await?;
        Ok(changed)
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        let limits = self.read("fair_limits").await?.fair_limits().await?;
        Ok(limits.into_list())
    }
}

fn limit_key(scope: &FairScope) -> Key {
    Key::new(Table::FairLimit)
        .name(scope.queue().as_str())
        .name(scope.key_text())
}

/// How many jobs of each queue and fair key run.
type Running = BTreeMap<(Name, Name), u64>;

/// The limits of fair keys, and how many jobs of each key run.
pub(crate) struct Limited {
    limits: FairLimits,
    running: Running,
}

impl Limited {
    /// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit.
    pub(crate) fn free(&self, queue: &Name, key: &Name) -> Option<u64> {
        let max = self.limits.of(queue, key)?;
        Some(places_for(max, self.running(queue, key), 0))
    }

    fn running(&self, queue: &Name, key: &Name) -> u64 {
        let place = (queue.clone(), key.clone());
        self.running.get(&place).copied().unwrap_or(0)
    }
}

impl<T: Transaction> Call<T> {
    async fn fair_limits(&mut self) -> Result<FairLimits> {
        let rows = self.all(Key::new(Table::FairLimit).all()).await?;
        let limits = rows
            .iter()
            .filter_map(|(_, value)| decoded(value, FairLimit::decode));
        Ok(limits.collect())
    }

    /// Returns the limits and what they are compared with. `None` if no key has a limit.
    pub(crate) async fn limited(&mut self) -> Result<Option<Limited>> {
        let limits = self.fair_limits().await?;
        if limits.is_empty() {
            return Ok(None);
        }
        let mut running = Running::new();
        let entries = self.all(Key::new(Table::Running).all()).await?;
        for job in self.jobs_of(&entries).await? {
            if let Some((queue, key)) = job.place() {
                *running.entry((queue.clone(), key.clone())).or_default() += 1;
            }
        }
        Ok(Some(Limited { limits, running }))
    }

    /// Returns the keys of the first turns of a route and a priority, as many as a claim of `limit`
    /// jobs may need if some of them have to wait for a place.
    pub(crate) async fn limited_turns(
        &mut self,
        limited: &Limited,
        route: &Route,
        priority: Priority,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut free: BTreeMap<Name, Option<u64>> = BTreeMap::new();
        let (mut found, mut takes, mut parks) = (Vec::new(), 0, 0);
        let mut turns = unparked(keys::level(Table::Turn, route, priority));
        loop {
            let page = self.page(&mut turns, Order::Ascending).await?;
            if page.is_empty() {
                return Ok(found);
            }
            for (entry, _) in page {
                let key = parts_of(&entry).map(|(.., key)| key);
                let left = key.map(|key| {
                    let left = limited.free(&route.queue, &key);
                    free.entry(key).or_insert(left)
                });
                match left {
                    Some(Some(0)) => parks += 1,
                    Some(Some(left)) => {
                        *left -= 1;
                        takes += 1;
                    }
                    _ => takes += 1,
                }
                found.push(entry);
                if takes == limit || parks > PARKED_BY_A_CLAIM {
                    return Ok(found);
                }
            }
        }
    }

    /// Puts the parked jobs of a scope to sleep.
    async fn unpark(&mut self, scope: &FairScope) -> Result<()> {
        for (route, _) in self.fair_routes().await? {
            if !scope.has_queue(&route.queue) {
                continue;
            }
            for priority in Priority::ALL {
                let level = keys::level(Table::Turn, &route, priority);
                let parked = level.clone().number(FIRST_PARKED).bytes();
                for (entry, _) in self.all(level.from(parked)).await? {
                    let key = parts_of(&entry).map(|(.., key)| key);
                    let is_of_scope = scope.fair_key().is_none_or(|of| key.as_ref() == Some(of));
                    if let Some(id) = keys::job_of(&entry).filter(|_| is_of_scope) {
                        self.change(id, |job| job.turn = None).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the routes with pending jobs that have fair keys.
    async fn fair_routes(&mut self) -> Result<Vec<(Route, Table)>> {
        let mut routes = self.routes().await?;
        routes.retain(|(_, table)| matches!(table, Table::PendingFair));
        Ok(routes)
    }

    /// Gives turns to parked jobs of the keys that may have free places. The commit calls this
    /// method. `[fair.limit.free]` `[fair.limit.wait]`
    pub(crate) async fn fill_places(&mut self) -> Result<()> {
        let (freed, unclear_queues) = (
            std::mem::take(&mut self.freed),
            std::mem::take(&mut self.unclear_queues),
        );
        if freed.is_empty() && unclear_queues.is_empty() {
            return Ok(());
        }
        let Some(limited) = self.limited().await? else {
            return Ok(());
        };
        for queue in &unclear_queues {
            // Claims park the jobs again that have no place.
            if let Ok(scope) = FairScope::queues(queue) {
                self.unpark(&scope).await?;
            }
        }
        let routes = self.fair_routes().await?;
        for (queue, key) in freed {
            let Some(max) = limited.limits.of(&queue, &key) else {
                continue;
            };
            let running = limited.running(&queue, &key);
            for (route, _) in routes.iter().filter(|(route, _)| route.queue == queue) {
                for priority in Priority::ALL {
                    self.fill(route, priority, &key, |ahead| {
                        places_for(max, running, ahead)
                    })
                    .await?;
                }
            }
        }
        Ok(())
    }

    /// Gives turns to the first parked jobs of a key in a level. `places` returns how many, from
    /// the number of the key's jobs there that have turns and are not parked.
    async fn fill(
        &mut self,
        route: &Route,
        priority: Priority,
        key: &Name,
        places: impl Fn(u64) -> u64 + Send,
    ) -> Result<()> {
        let most = usize::try_from(places(0)).unwrap_or(usize::MAX);
        let of_key = || keys::turns_of(route, priority, key);
        let ahead = self.range(unparked(of_key()), Order::Ascending, most);
        let ahead = ahead.await?.len() as u64;
        let mut left = usize::try_from(places(ahead)).unwrap_or(usize::MAX);
        let parked = of_key().number(FIRST_PARKED).bytes();
        let mut parked = of_key().from(parked);
        while left > 0 {
            let page = self.page(&mut parked, Order::Ascending).await?;
            if page.is_empty() {
                break;
            }
            for (entry, _) in page {
                if left > 0 && self.wake_parked(entry).await? {
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    /// Gives a turn to the parked job with this key in the index of the turns of each fair key.
    /// Returns false for a damaged job, which never runs: this ends it, or removes the key if
    /// nothing can be read of the job.
    async fn wake_parked(&mut self, entry: Vec<u8>) -> Result<bool> {
        let id: Option<JobId> = keys::job_of(&entry);
        let found = match id {
            Some(id) => self.find(id).await?,
            None => None,
        };
        let Some(found) = found else {
            if let Some(id) = id {
                self.set_aside(id).await?;
            }
            self.remove(entry).await?;
            return Ok(false);
        };
        let whole = found.problem.is_none();
        let turn = self.turn_of_woken(&found.job).await?;
        self.change_found(found, |job, _| job.turn = turn).await?;
        Ok(whole)
    }
}
