//! [`FairStore`] on SQL, and how claims keep to the limits of fair keys. See
//! [`ratchet_core::fair`].
//!
//! Claims of one queue with limits exclude each other: each locks all routes of the queue for jobs
//! with a fair key, and counts afterwards. Settlements and reclaims take no such lock. They only
//! add an entry to the table `freed`, in the same transaction, for each claim that was marked with
//! the flag [`LIMITED`](ratchet_core::model::JobFlags::LIMITED). A claim reads and deletes the
//! entries first, and counts then. So if it does not see the end of another claim yet, the entry
//! remains for the next claim.
//!
//! A change of a limit waits for the claims in progress, as a pause does. So the limits do not
//! change while a claim uses them.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use ratchet_core::fair::{FREED_BY_A_CLAIM, WOKEN_BY_A_CLAIM, parked, places_for, share};
use ratchet_core::model::{ClaimedJob, FairLimit, FairLimits, FairScope};
use ratchet_core::store::{Changed, FairStore};
use ratchet_core::time::{self, to_millis};
use ratchet_core::{InvalidInput, Name, Result};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result as Inner};
use crate::fair::{Turned, cost};
use crate::held::{PATIENCE, held_too_long, unless_held};
use crate::routes::Chosen;
use crate::row;
use crate::statement::{LimitStatements, OwnStatements as _, TurnStatements};
use crate::store::SqlStore;

/// If the reply to a call is lost, the store repeats the call. The repeated call returns
/// `Unchanged`, even if the first call made the change.
#[async_trait]
impl<D: Dialect> FairStore for SqlStore<D> {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        self.call("set_fair_limit", || self.change_limit(scope, max))
            .await
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.call("fair_limits", || async {
            let list = self.limits()?.list_fair_limits.query();
            let limits = limits_in(&self.lease().await?.rows(list).await?);
            Ok(limits.into_list())
        })
        .await
    }
}

/// A queue and a fair key.
pub(crate) type Place = (Name, Name);

/// The routes that a claim has locked because limits may apply to their jobs.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    routes: Vec<i32>,
    /// Those in whose queues each key has a limit.
    pub(crate) each: Vec<i32>,
    /// Those in whose queues only some keys have a limit.
    pub(crate) some: Vec<i32>,
}

/// How many more jobs of each key may run. `None` if the key has no limit.
pub(crate) type Free = HashMap<Place, Option<u64>>;

impl<D: Dialect> SqlStore<D> {
    fn limits(&self) -> Inner<LimitStatements<'_, D>> {
        self.sql().own.limits().ok_or_else(|| {
            Failure::refused(InvalidInput::new(
                "fair_limit",
                "is not supported by this store",
            ))
        })
    }

    /// Returns this store if it limits fair keys.
    #[must_use]
    pub fn fair(&self) -> Option<&dyn FairStore> {
        self.sql().own.limits().is_some().then_some(self)
    }

    /// Sets or removes a limit. Waits for the claims in progress, and keeps new ones waiting.
    /// Waits only briefly for running jobs that another transaction has locked, because claims
    /// wait meanwhile, and tries again.
    async fn change_limit(&self, scope: &FairScope, max: Option<u32>) -> Inner<Changed> {
        let until = time::monotonic() + self.deadline() / 2;
        loop {
            let mut lease = self.lease().await?;
            lease.begin_within(PATIENCE).await?;
            let changed = self.change_limit_inside(&mut lease, scope, max).await;
            if let Some(changed) = unless_held(lease.end(changed).await)? {
                return Ok(changed);
            }
            if time::monotonic() >= until {
                return Err(held_too_long());
            }
        }
    }

    async fn change_limit_inside(
        &self,
        lease: &mut D::Lease,
        scope: &FairScope,
        max: Option<u32>,
    ) -> Inner<Changed> {
        let sql = self.limits()?;
        if let Some(claims) = self.sql().own.await_claims() {
            lease.script(claims).await?;
        }
        let (queue, key) = (scope.queue().as_str(), scope.key_text());
        let change = match max {
            Some(max) => {
                let set = sql.set_fair_limit.query();
                set.bind(queue).bind(key).bind(i64::from(max))
            }
            None => sql.remove_fair_limit.query().bind(queue).bind(key),
        };
        if lease.changed(change).await? == 0 {
            return Ok(Changed::Unchanged);
        }
        // No claim is in progress, so this finds the route of each running and each parked job.
        self.routes().refresh(lease, self.sql()).await?;
        let routes = self.routes().fair(|queue| scope.has_queue(queue));
        let routes: Vec<i32> = routes.into_iter().map(|(id, _)| id).collect();
        if let Some(turns) = self.sql().own.turns().filter(|_| !routes.is_empty()) {
            // An enqueue may be parking jobs behind a parked one that is cancelled meanwhile.
            lease.rows(turns.lock_routes.query().bind(&routes)).await?;
            if max.is_some() {
                let flag = sql.flag_limited.query().bind(&routes).bind(key);
                lease.execute(flag).await?;
            }
            let free = sql.free_parked.query().bind(&routes).bind(key);
            lease.execute(free).await?;
        }
        Ok(Changed::Changed)
    }

    /// Locks the routes of jobs to which limits may apply, in the queues from which a claim takes
    /// jobs, until the transaction ends. Must run at the beginning of a transaction.
    pub(crate) async fn lock_limited(
        &self,
        lease: &mut D::Lease,
        chosen: &Chosen,
    ) -> Inner<Limited> {
        let routes: Vec<i32> = chosen.of_queues.iter().map(|(id, _)| *id).collect();
        let lock = self.limits()?.lock_limited.query().bind(&routes);
        let mut limited = Limited::default();
        for row in lease.rows(lock).await? {
            let id = row.try_get(0)?;
            limited.routes.push(id);
            if row.try_get(1)? {
                limited.each.push(id);
            } else if row.try_get(2)? {
                limited.some.push(id);
            }
        }
        Ok(limited)
    }

    /// Gives turns to parked jobs of the keys whose places may be free. `[fair.limit.free]`
    /// `[fair.limit.wait]` `[fair.limit.change]`
    pub(crate) async fn wake_parked(
        &self,
        lease: &mut D::Lease,
        turns: &TurnStatements<'_, D>,
        chosen: &Chosen,
        limited: &Limited,
    ) -> Inner<()> {
        if limited.routes.is_empty() {
            return Ok(());
        }
        let sql = self.limits()?;
        let most = i64::try_from(FREED_BY_A_CLAIM).unwrap_or(i64::MAX);
        let take = sql.take_freed.query().bind(&limited.routes).bind(most);
        // One of the routes that name the queue, for each place.
        let mut freed: BTreeMap<Place, i32> = BTreeMap::new();
        for row in lease.rows(take).await? {
            let route: i32 = row.try_get(0)?;
            let queue = chosen.of_queues.iter().find(|(id, _)| *id == route);
            // A damaged row may have no valid key.
            if let (Some((_, queue)), Ok(Some(key))) = (queue, row::name(&row, 1, "fair_key")) {
                freed.insert((queue.clone(), key), route);
            }
        }
        if freed.is_empty() {
            return Ok(());
        }
        let places: Vec<&Place> = freed.keys().collect();
        let limits = self.find_limits(lease, &sql, &places).await?;
        let limit_of = |(queue, key): &Place| limits.of(queue, key);
        let levels = self.parked_levels(lease, &sql, &places, limit_of).await?;
        let with_limit = levels.iter().filter(|level| level.max.is_some());
        let mut with_limit: Vec<&Place> = with_limit.map(|level| places[level.place]).collect();
        with_limit.dedup();
        let running = self.count_running(lease, &sql, &with_limit).await?;
        let share = share(levels.len());
        let (mut woken, mut again) = (Vec::new(), Vec::new());
        for level in levels {
            let place = places[level.place];
            let running = running.get(place).copied().unwrap_or_default();
            let wanted = places_for(level.max, running, level.ahead).min(level.parked);
            let now = wanted.min(share);
            if now < wanted {
                again.push(place);
            }
            if now > 0 {
                woken.push((level, now));
            }
        }
        let short = self.unpark_first(lease, &sql, turns, &places, &woken);
        again.extend(short.await?);
        again.sort_unstable();
        again.dedup();
        if again.is_empty() {
            return Ok(());
        }
        let routes: Vec<i32> = again.iter().map(|place| freed[*place]).collect();
        let keys: Vec<&str> = again.iter().map(|(_, key)| key.as_str()).collect();
        let keep = sql.keep_freed.query();
        let keep = keep.table(&[("route", &routes), ("fair_key", &keys)]);
        lease.execute(keep).await.map(drop)
    }

    /// Gives turns to the first parked jobs of these levels, as many as each is to wake. Returns
    /// the places of levels in which other transactions have locked some of the parked jobs.
    async fn unpark_first<'a>(
        &self,
        lease: &mut D::Lease,
        sql: &LimitStatements<'_, D>,
        turns: &TurnStatements<'_, D>,
        places: &[&'a Place],
        woken: &[(ParkedLevel, u64)],
    ) -> Inner<Vec<&'a Place>> {
        if woken.is_empty() {
            return Ok(Vec::new());
        }
        let routes: Vec<i32> = woken.iter().map(|(level, _)| level.route).collect();
        let priorities: Vec<i16> = woken.iter().map(|(level, _)| level.priority).collect();
        let keys = woken
            .iter()
            .map(|(level, _)| places[level.place].1.as_str());
        let keys: Vec<&str> = keys.collect();
        let counts = woken.iter().map(|(_, count)| i64::try_from(*count));
        let counts: Vec<i64> = counts.map(|count| count.unwrap_or(i64::MAX)).collect();
        let first = sql.first_parked.query().table(&[
            ("route", &routes),
            ("priority", &priorities),
            ("fair_key", &keys),
            ("most", &counts),
        ]);
        let rows = lease.rows(first).await?;
        let mut jobs = Vec::with_capacity(rows.len());
        let mut found = vec![0_u64; woken.len()];
        for row in &rows {
            let place = row::count::<usize>(row.try_get::<i64>(0)?, "place")?;
            let (Some((level, _)), Some(found)) = (woken.get(place), found.get_mut(place)) else {
                continue;
            };
            *found += 1;
            jobs.push(Turned {
                id: row.try_get(1)?,
                route: level.route,
                priority: level.priority,
                key: places[level.place].1.as_str(),
                cost: cost(row, 2)?,
                run_at: None,
            });
        }
        if !jobs.is_empty() {
            self.unpark(lease, turns, &jobs).await?;
        }
        let short = woken.iter().zip(found);
        let short = short.filter(|((_, wanted), found)| found < wanted);
        Ok(short.map(|((level, _), _)| places[level.place]).collect())
    }

    /// Returns the levels that have parked jobs of these places.
    async fn parked_levels(
        &self,
        lease: &mut D::Lease,
        sql: &LimitStatements<'_, D>,
        places: &[&Place],
        limit_of: impl Fn(&Place) -> Option<u32>,
    ) -> Inner<Vec<ParkedLevel>> {
        let (queues, keys) = columns(places);
        // How many jobs with a turn matter: no level needs more of them than the limit.
        let max: Vec<Option<u32>> = places.iter().map(|place| limit_of(place)).collect();
        let ahead: Vec<i64> = max.iter().map(|max| max.map_or(0, i64::from)).collect();
        let find = sql.parked_levels.query();
        let find = find.table(&[("queue", &queues), ("fair_key", &keys), ("ahead", &ahead)]);
        // One more than a claim wakes, to know whether more remain.
        let find = find.bind(i64::try_from(WOKEN_BY_A_CLAIM + 1).unwrap_or(i64::MAX));
        let mut levels = Vec::new();
        for row in lease.rows(find).await? {
            let place = row::count::<usize>(row.try_get::<i64>(0)?, "place")?;
            if let Some(max) = max.get(place) {
                levels.push(ParkedLevel {
                    place,
                    route: row.try_get(1)?,
                    priority: row.try_get(2)?,
                    max: *max,
                    parked: row::count(row.try_get::<i64>(3)?, "parked")?,
                    ahead: row::count(row.try_get::<i64>(4)?, "ahead")?,
                });
            }
        }
        Ok(levels)
    }

    /// Adds to `free` how many more jobs may run of each of these keys, if they are not known yet.
    /// `own` is the number of running jobs of each key that this transaction has claimed, and which
    /// do not count. The routes of the queues must be locked.
    pub(crate) async fn count_free(
        &self,
        lease: &mut D::Lease,
        own: &BTreeMap<Place, u64>,
        free: &mut Free,
    ) -> Inner<()> {
        let unknown = own.keys().filter(|place| !free.contains_key(*place));
        let unknown: Vec<&Place> = unknown.collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let sql = self.limits()?;
        let limits = self.find_limits(lease, &sql, &unknown).await?;
        let has_limit = |place: &&Place| limits.of(&place.0, &place.1).is_some();
        let with_limit: Vec<&Place> = unknown.iter().copied().filter(has_limit).collect();
        let running = self.count_running(lease, &sql, &with_limit).await?;
        for place in unknown {
            let others = |running: &u64| running.saturating_sub(own[place]);
            let running = running.get(place).map(others).unwrap_or_default();
            let max = limits.of(&place.0, &place.1);
            free.insert(place.clone(), max.map(|_| places_for(max, running, 0)));
        }
        Ok(())
    }

    /// Returns the limits that may apply to these places.
    async fn find_limits(
        &self,
        lease: &mut D::Lease,
        sql: &LimitStatements<'_, D>,
        places: &[&Place],
    ) -> Inner<FairLimits> {
        let (queues, keys) = columns(places);
        let find = sql.find_fair_limits.query();
        let find = find.table(&[("queue", &queues), ("fair_key", &keys)]);
        Ok(limits_in(&lease.rows(find).await?))
    }

    /// Returns how many jobs of each of these places run. Counts only claims that were made, or
    /// noted, while the key had a limit.
    async fn count_running<'a>(
        &self,
        lease: &mut D::Lease,
        sql: &LimitStatements<'_, D>,
        places: &[&'a Place],
    ) -> Inner<HashMap<&'a Place, u64>> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let (queues, keys) = columns(places);
        let count = sql.count_limited.query();
        let count = count.table(&[("queue", &queues), ("fair_key", &keys)]);
        let rows = lease.rows(count).await?;
        let counts = rows.iter().zip(places);
        counts
            .map(|(row, place)| Ok((*place, row::count(row.try_get::<i64>(0)?, "count")?)))
            .collect()
    }

    /// Undoes the claims of these jobs, which the current transaction has made, and parks the jobs.
    pub(crate) async fn park(&self, lease: &mut D::Lease, jobs: &[ClaimedJob]) -> Inner<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let ids = jobs.iter().map(|job| job.claim.token.job.as_uuid());
        let ids: Vec<Uuid> = ids.collect();
        let turns = jobs.iter().map(|job| parked(to_millis(job.claim.run_at)));
        let turns: Vec<i64> = turns.collect();
        let park = self.limits()?.park_jobs.query();
        let park = park.table(&[("job", &ids), ("turn", &turns)]);
        lease.execute(park).await.map(drop)
    }
}

/// A level that has parked jobs of a key.
struct ParkedLevel {
    /// Index of the key's place in the list of places.
    place: usize,
    route: i32,
    priority: i16,
    max: Option<u32>,
    parked: u64,
    /// Number of the key's jobs that have turns and are not parked, at most the limit.
    ahead: u64,
}

fn columns<'a>(places: &[&'a Place]) -> (Vec<&'a str>, Vec<&'a str>) {
    let texts = places
        .iter()
        .map(|(queue, key)| (queue.as_str(), key.as_str()));
    texts.unzip()
}

fn limits_in(rows: &[impl Row]) -> FairLimits {
    let limits = rows.iter().filter_map(|row| match limit(row) {
        Ok(limit) => Some(limit),
        Err(error) => {
            tracing::warn!(%error, "skipped a limit that cannot be read");
            None
        }
    });
    limits.collect()
}

fn limit(row: &impl Row) -> std::result::Result<FairLimit, InvalidInput> {
    let queue = row::text(row, 0, "queue")?.unwrap_or_default();
    let key = row::text(row, 1, "fair_key")?.unwrap_or_default();
    let unreadable = |_: Failure| InvalidInput::new("max_running", "is not a number");
    let max: i64 = row.try_get(2).map_err(unreadable)?;
    let max = row::count(max, "max_running")?;
    Ok(FairLimit::new(FairScope::from_stored(queue, key)?, max))
}
