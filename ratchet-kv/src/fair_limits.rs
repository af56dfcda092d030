//! Limits of fair keys: see [`ratchet_core::fair`].

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ratchet_core::fair::{self, FIRST_PARKED, FREED_BY_A_CLAIM, PARKED_BY_A_CLAIM, places_for};
use ratchet_core::model::{ClaimRequest, FairLimit, FairLimits, FairScope, Pauses};
use ratchet_core::store::{Changed, FairStore};
use ratchet_core::{Name, Priority, Result, Route};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::fair::{parts_of, unparked};
use crate::keys::{self, Key, Parts, Table};
use crate::store::KvStore;

#[async_trait]
impl<E: Engine> FairStore for KvStore<E> {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let mut call = self.write("set_fair_limit").await?;
        let before = call.get(limit_key(scope)).await?;
        let changed = match max {
            // A limit that cannot be read can be removed too.
            None => before.is_some(),
            Some(max) => {
                let before = before.and_then(|value| decoded(&value, FairLimit::decode));
                before.is_none_or(|before| before.max != max)
            }
        };
        if !changed {
            return Ok(Changed::Unchanged);
        }
        match max {
            Some(max) => {
                let limit = FairLimit::new(scope.clone(), max);
                call.write(limit_key(scope), limit.encode()).await?;
            }
            None => call.remove(limit_key(scope).bytes()).await?,
        }
        call.free_parked(|queue| scope.has_queue(queue), scope.fair_key())
            .await?;
        call.commit().await?;
        Ok(Changed::Changed)
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        let mut call = self.read("fair_limits").await?;
        let mut limits = call.limits_of(Table::FairLimit).await?;
        limits.extend(call.limits_of(Table::FairPattern).await?);
        Ok(limits.into_iter().collect::<FairLimits>().into_list())
    }
}

pub(crate) fn limit_key(scope: &FairScope) -> Key {
    let table = match scope.prefix() {
        None => Table::FairLimit,
        Some(_) => Table::FairPattern,
    };
    Key::new(table)
        .name(scope.queue().as_str())
        .name(scope.key_text())
}

/// The limits of patterns, and the free places of the fair keys that a claim has met.
pub(crate) struct Limited {
    patterns: Vec<FairLimit>,
    /// How many more jobs of each queue and key may run. `None` if the key has no limit.
    free: BTreeMap<(Name, Name), Option<u64>>,
}

impl Limited {
    /// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit, or
    /// if the claim has not met the key.
    pub(crate) fn free(&self, queue: &Name, key: &Name) -> Option<u64> {
        let place = (queue.clone(), key.clone());
        self.free.get(&place).copied().flatten()
    }
}

impl<T: Transaction> Call<T> {
    /// Returns the limits in a table. Leaves out those that cannot be read.
    async fn limits_of(&mut self, table: Table) -> Result<Vec<FairLimit>> {
        let rows = self.all(Key::new(table).all()).await?;
        let limits = rows
            .iter()
            .filter_map(|(_, value)| decoded(value, FairLimit::decode));
        Ok(limits.collect())
    }

    /// Returns whether any fair key has a limit.
    async fn has_limits(&mut self) -> Result<bool> {
        let limits = Key::new(Table::FairLimit).bytes()..Key::new(Table::FairPattern).end();
        Ok(self.first(limits).await?.is_some())
    }

    /// Returns what a claim needs to know about limits. `None` if no key has a limit.
    pub(crate) async fn limited(&mut self) -> Result<Option<Limited>> {
        if !self.has_limits().await? {
            return Ok(None);
        }
        Ok(Some(Limited {
            patterns: self.limits_of(Table::FairPattern).await?,
            free: BTreeMap::new(),
        }))
    }

    /// Returns the limit of a key of a queue. `None` if it has none.
    async fn limit_of(
        &mut self,
        patterns: &[FairLimit],
        (queue, key): &(Name, Name),
    ) -> Result<Option<u32>> {
        let mut limits: FairLimits = patterns.iter().cloned().collect();
        let scopes = [FairScope::queues(queue), FairScope::key(queue, key)];
        for scope in scopes.into_iter().flatten() {
            if let Some(limit) = self.read(limit_key(&scope), FairLimit::decode).await? {
                limits.set(&limit.scope, Some(limit.max));
            }
        }
        Ok(limits.of(queue, key))
    }

    /// Returns the number of running jobs of a key, at most `most`.
    async fn running_of(&mut self, (queue, key): &(Name, Name), most: u32) -> Result<u64> {
        let running = keys::place(queue, key).all();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(self.range(running, Order::Ascending, most).await?.len() as u64)
    }

    /// Returns the keys of the first turns of a route and a priority, as many as a claim of `limit`
    /// jobs may need if some of them have to wait for a place.
    pub(crate) async fn limited_turns(
        &mut self,
        limited: &mut Limited,
        route: &Route,
        priority: Priority,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut left: BTreeMap<Name, Option<u64>> = BTreeMap::new();
        let (mut found, mut takes, mut parks) = (Vec::new(), 0, 0);
        let mut turns = unparked(keys::level(Table::Turn, route, priority));
        loop {
            let page = self.page(&mut turns, Order::Ascending).await?;
            if page.is_empty() {
                return Ok(found);
            }
            for (entry, _) in page {
                let key = parts_of(&entry).map(|(.., key)| key);
                if let Some(key) = key {
                    if !left.contains_key(&key) {
                        let place = (route.queue.clone(), key.clone());
                        let free = self.free_places(limited, place).await?;
                        left.insert(key.clone(), free);
                    }
                    match left.get_mut(&key) {
                        Some(Some(0)) => parks += 1,
                        Some(Some(left)) => {
                            *left -= 1;
                            takes += 1;
                        }
                        _ => takes += 1,
                    }
                } else {
                    takes += 1;
                }
                found.push(entry);
                if takes == limit || parks > PARKED_BY_A_CLAIM {
                    return Ok(found);
                }
            }
        }
    }

    /// Returns how many more jobs of a key may run. `None` if the key has no limit.
    async fn free_places(
        &mut self,
        limited: &mut Limited,
        place: (Name, Name),
    ) -> Result<Option<u64>> {
        if let Some(free) = limited.free.get(&place) {
            return Ok(*free);
        }
        let max = self.limit_of(&limited.patterns, &place).await?;
        let free = match max {
            None => None,
            Some(most) => Some(places_for(max, self.running_of(&place, most).await?, 0)),
        };
        limited.free.insert(place, free);
        Ok(free)
    }

    /// Stores freed entries for the keys whose places this call may have freed. The commit calls
    /// this method.
    pub(crate) async fn store_freed(&mut self) -> Result<()> {
        let freed = std::mem::take(&mut self.freed);
        let unknown = std::mem::take(&mut self.freed_unknown);
        if (freed.is_empty() && !unknown) || !self.has_limits().await? {
            return Ok(());
        }
        for place in freed {
            self.put(freed_key(&place, self.now), Vec::new()).await?;
        }
        match unknown {
            true => self.free_parked(|_| true, None).await,
            false => Ok(()),
        }
    }

    /// Stores freed entries for the fair keys of some queues that have parked jobs, or for one key.
    async fn free_parked(
        &mut self,
        has_queue: impl Fn(&Name) -> bool + Send,
        key: Option<&Name>,
    ) -> Result<()> {
        let mut freed = BTreeSet::new();
        for (route, _) in self.routes().await?.iter().filter(|one| is_fair(one)) {
            if !has_queue(&route.queue) {
                continue;
            }
            for priority in Priority::ALL {
                let level = keys::level(Table::Turn, route, priority);
                let parked = level.clone().number(FIRST_PARKED).bytes();
                for (entry, _) in self.all(level.from(parked)).await? {
                    let of_entry = parts_of(&entry).map(|(.., key)| key);
                    let of_entry = of_entry.filter(|of| key.is_none_or(|key| key == of));
                    freed.extend(of_entry.map(|key| (route.queue.clone(), key)));
                }
            }
        }
        for place in freed {
            self.put(freed_key(&place, self.now), Vec::new()).await?;
        }
        Ok(())
    }

    /// Takes the freed entries of a claim, and gives turns to parked jobs of their keys. `routes`
    /// are all routes that have pending jobs. `[fair.limit.free]` `[fair.limit.wait]`
    pub(crate) async fn wake_parked(
        &mut self,
        request: &ClaimRequest,
        pauses: &Pauses,
        routes: &[(Route, Table)],
    ) -> Result<()> {
        if !routes.iter().any(is_fair) {
            return Ok(());
        }
        let wanted = |queue: &Name| request.queues.contains(queue) && !pauses.has_queue(queue);
        let (mut places, mut last) = (BTreeSet::new(), i64::MIN);
        for entry in self.oldest_freed(wanted).await? {
            if let Some((time, place)) = freed_of(&entry) {
                places.insert(place);
                last = last.max(time);
            }
            self.remove(entry).await?;
        }
        let mut parked = Vec::with_capacity(places.len());
        for place in places {
            let levels = self.parked_levels(&place, routes).await?;
            if !levels.is_empty() {
                parked.push((place, levels));
            }
        }
        if parked.is_empty() {
            return Ok(());
        }
        let share = fair::share(parked.iter().map(|(_, levels)| levels.len()).sum());
        let patterns = self.limits_of(Table::FairPattern).await?;
        for (place, levels) in parked {
            let max = self.limit_of(&patterns, &place).await?;
            let running = self.running_of(&place, max.unwrap_or(0)).await?;
            let mut more = false;
            for (route, priority) in levels {
                let level = (route, priority, &place.1);
                more |= self.wake_level(level, (max, running), share).await?;
            }
            if more {
                // Behind all entries that were there.
                let time = self.now.max(last.saturating_add(1));
                self.put(freed_key(&place, time), Vec::new()).await?;
            }
        }
        Ok(())
    }

    /// Returns the keys of the oldest freed entries of the queues that are `wanted`.
    async fn oldest_freed(
        &mut self,
        wanted: impl Fn(&Name) -> bool + Send,
    ) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        let mut keys = Key::new(Table::Freed).all();
        while let Some((first, _)) = self.first(keys.clone()).await? {
            let Some(queue) = Parts::of(&first).name() else {
                keys.start = keys::after(first);
                continue;
            };
            let of_queue = Key::new(Table::Freed).name(queue);
            keys.start = of_queue.clone().end();
            if Name::new("queue", queue).is_ok_and(|queue| wanted(&queue)) {
                let entries = self.range(of_queue.all(), Order::Ascending, FREED_BY_A_CLAIM);
                let entries = entries.await?.into_iter();
                found.extend(entries.map(|(key, _)| (freed_of(&key).map(|(time, _)| time), key)));
            }
        }
        found.sort_unstable();
        found.truncate(FREED_BY_A_CLAIM);
        Ok(found.into_iter().map(|(_, key)| key).collect())
    }

    /// Returns the levels of a queue that have parked jobs of a fair key.
    async fn parked_levels<'r>(
        &mut self,
        (queue, key): &(Name, Name),
        routes: &'r [(Route, Table)],
    ) -> Result<Vec<(&'r Route, Priority)>> {
        let mut levels = Vec::new();
        for (route, _) in routes
            .iter()
            .filter(|one| is_fair(one) && one.0.queue == *queue)
        {
            for priority in Priority::ALL {
                let of_key = keys::turns_of(route, priority, key);
                let parked = of_key.clone().number(FIRST_PARKED).bytes();
                if self.first(of_key.from(parked)).await?.is_some() {
                    levels.push((route, priority));
                }
            }
        }
        Ok(levels)
    }

    /// Gives turns to the first parked jobs of a key in a level, at most `share`. Returns whether
    /// more of them may get turns. `max` and `running` are the limit and the number of running jobs
    /// of the key.
    async fn wake_level(
        &mut self,
        (route, priority, key): (&Route, Priority, &Name),
        (max, running): (Option<u32>, u64),
        share: u64,
    ) -> Result<bool> {
        let of_key = || keys::turns_of(route, priority, key);
        let ahead = match max {
            None => 0,
            Some(_) => {
                let most = usize::try_from(places_for(max, running, 0)).unwrap_or(usize::MAX);
                let ahead = self.range(unparked(of_key()), Order::Ascending, most);
                ahead.await?.len() as u64
            }
        };
        let places = places_for(max, running, ahead);
        let parked = of_key().number(FIRST_PARKED).bytes();
        let mut parked = of_key().from(parked);
        let mut woken = 0;
        while woken < places {
            let page = self.page(&mut parked, Order::Ascending).await?;
            if page.is_empty() {
                break;
            }
            for (entry, _) in page {
                if woken == places {
                    break;
                }
                if woken == share {
                    return Ok(true);
                }
                woken += u64::from(self.wake_job(entry).await?);
            }
        }
        Ok(false)
    }

    /// Gives a turn to the parked job with this key in the index of the turns of each fair key.
    /// Returns false for a damaged job, which never runs: this ends it, or removes the key if
    /// nothing can be read of the job.
    async fn wake_job(&mut self, entry: Vec<u8>) -> Result<bool> {
        let id = keys::job_of(&entry);
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

/// Returns the key of a freed entry.
fn freed_key((queue, key): &(Name, Name), time: i64) -> Key {
    Key::new(Table::Freed)
        .name(queue.as_str())
        .number(time)
        .name(key.as_str())
}

/// Returns the time of a freed entry, its queue and its fair key.
fn freed_of(key: &[u8]) -> Option<(i64, (Name, Name))> {
    let mut parts = Parts::of(key);
    let queue = Name::new("queue", parts.name()?).ok()?;
    let time = parts.number()?;
    let key = Name::new("fair_key", parts.name()?).ok()?;
    Some((time, (queue, key)))
}

/// Returns whether a route has jobs with a fair key.
fn is_fair((_, table): &(Route, Table)) -> bool {
    matches!(table, Table::PendingFair)
}
