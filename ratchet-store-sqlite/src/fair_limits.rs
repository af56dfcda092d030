//! [`FairStore`] on SQLite, and the use of limits by claims: see [`ratchet_core::fair`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use ratchet_core::fair::{self, FREED_BY_A_CLAIM, places_for};
use ratchet_core::model::{ClaimRequest, FairKey, FairLimit, FairLimits, FairScope};
use ratchet_core::store::{Changed, FairStore};
use ratchet_core::{InvalidInput, JobId, Name, Result};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Result as Inner;
use crate::fair::Turned;
use crate::queue::Urgency;
use crate::request::Work;
use crate::routes::json_of;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl FairStore for SqliteStore {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        let scope = scope.clone();
        self.write("set_fair_limit", Urgency::Normal, move |work| {
            set(work, &scope, max)
        })
        .await
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        let limits = self.read("fair_limits", |work| {
            let mut statement = work.conn.prepare_cached(&SQL.list_fair_limits)?;
            let mut rows = statement.query([])?;
            read(&mut rows)
        });
        Ok(limits.await?.into_list())
    }
}

/// Sets or removes a limit, and stores freed entries for the keys of its scope that have parked
/// jobs.
fn set(work: &mut Work<'_>, scope: &FairScope, max: Option<u32>) -> Inner<Changed> {
    let (queue, key) = (scope.queue().as_str(), scope.key_text());
    let changed = match max {
        Some(max) => work
            .conn
            .prepare_cached(&SQL.set_fair_limit)?
            .execute(params![queue, key, max])?,
        None => work
            .conn
            .prepare_cached(&SQL.remove_fair_limit)?
            .execute(params![queue, key])?,
    };
    if changed == 0 {
        return Ok(Changed::Unchanged);
    }
    let mut free = work.conn.prepare_cached(&SQL.free_parked)?;
    let routes = work.routes.known(work.conn)?.fair_routes();
    for (route, _) in routes.filter(|(_, route)| scope.has_queue(&route.queue)) {
        free.execute(params![route, key])?;
    }
    Ok(Changed::Changed)
}

fn read(rows: &mut rusqlite::Rows<'_>) -> Inner<FairLimits> {
    let mut limits = Vec::new();
    while let Some(row) = rows.next()? {
        match limit(row) {
            Ok(limit) => limits.push(limit),
            Err(error) => tracing::warn!(%error, "skipped a limit that cannot be read"),
        }
    }
    Ok(limits.into_iter().collect())
}

fn limit(row: &Row<'_>) -> std::result::Result<FairLimit, InvalidInput> {
    let queue = row::text(row, 0, "queue")?.unwrap_or_default();
    let key = row::text(row, 1, "fair_key")?.unwrap_or_default();
    let max = row::number(row, 2, "max_running")?;
    Ok(FairLimit::new(FairScope::from_stored(queue, key)?, max))
}

/// Returns the limit of a fair key in a queue. `None` if it has none.
fn limit_of(work: &Work<'_>, queue: &Name, key: &Name) -> Inner<Option<u32>> {
    let names = params![queue.as_str(), key.as_str()];
    let mut find = work.conn.prepare_cached(&SQL.find_fair_limits)?;
    let limits = read(&mut find.query(names)?)?;
    Ok(limits.of(queue, key))
}

/// Returns the ids of the routes of a queue for jobs with a fair key, as a JSON array.
fn routes_of(work: &mut Work<'_>, queue: &Name) -> Inner<String> {
    let routes = work.routes.known(work.conn)?.fair_routes();
    let routes = routes.filter(|(_, route)| route.queue == *queue);
    Ok(json_of(routes.map(|(id, _)| id)))
}

/// Returns the number of running jobs of a fair key in these routes.
fn running(work: &Work<'_>, routes: &str, key: &Name) -> Inner<u64> {
    let mut count = work.conn.prepare_cached(&SQL.count_running_key)?;
    let running: i64 = count.query_row(params![routes, key.as_str()], |row| row.get(0))?;
    Ok(running.unsigned_abs())
}

/// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit.
pub(crate) fn free_places(work: &mut Work<'_>, queue: &Name, key: &Name) -> Inner<Option<u64>> {
    let Some(max) = limit_of(work, queue, key)? else {
        return Ok(None);
    };
    let routes = routes_of(work, queue)?;
    Ok(Some(places_for(Some(max), running(work, &routes, key)?, 0)))
}

/// Notes that the place of a job's fair key may be free.
pub(crate) fn note_place_of(work: &Work<'_>, job: JobId) -> Inner<()> {
    let mut find = work.conn.prepare_cached(&SQL.place_of_job)?;
    let found = find.query_row([job.as_bytes()], |row| {
        Ok((row.get(0)?, row.get(1).unwrap_or_default()))
    });
    if let Some((route, key)) = found.optional()? {
        work.note_place(route, key);
    }
    Ok(())
}

/// Stores freed entries for the keys whose places this request may have freed. Omits keys without
/// parked jobs.
pub(crate) fn store_freed(work: &mut Work<'_>) -> Inner<()> {
    for (route, key) in work.freed.take() {
        let found = work.routes.get(work.conn, route, None)?;
        let (Some(found), Ok(key)) = (found, Name::new("fair_key", key)) else {
            continue;
        };
        let routes = routes_of(work, &found.queue)?;
        if !parked_levels(work, &routes, &key)?.is_empty() {
            add_freed(work, route, &key)?;
        }
    }
    Ok(())
}

fn add_freed(work: &Work<'_>, route: i64, key: &Name) -> Inner<()> {
    let mut add = work.conn.prepare_cached(&SQL.add_freed)?;
    add.execute(params![route, key.as_str()])?;
    Ok(())
}

/// Returns the routes and priorities that have parked jobs of a fair key.
fn parked_levels(work: &Work<'_>, routes: &str, key: &Name) -> Inner<Vec<(i64, u8)>> {
    let mut levels = work.conn.prepare_cached(&SQL.parked_levels)?;
    let levels = levels.query_map(params![routes, key.as_str()], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(levels.collect::<rusqlite::Result<_>>()?)
}

/// Id, route and fair key of a freed entry.
type Freed = (i64, i64, String);

/// Returns the oldest freed entries that a claim takes, at most `limit`.
fn find_freed(work: &mut Work<'_>, request: &ClaimRequest, limit: usize) -> Inner<Vec<Freed>> {
    let routes = work.routes.known(work.conn)?.fair_routes();
    let mut wanted = routes
        .filter(|(_, route)| request.queues.contains(&route.queue))
        .peekable();
    if wanted.peek().is_none() {
        return Ok(Vec::new());
    }
    let wanted = json_of(wanted.map(|(id, _)| id));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut find = work.conn.prepare_cached(&SQL.find_freed)?;
    let found = find.query_map(params![wanted, request.node.as_bytes(), limit], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Returns whether a claim takes any freed entry.
pub(crate) fn has_freed(work: &mut Work<'_>, request: &ClaimRequest) -> Inner<bool> {
    Ok(!find_freed(work, request, 1)?.is_empty())
}

/// Takes the freed entries of a claim, and gives turns to parked jobs of their keys.
/// `[fair.limit.free]` `[fair.limit.wait]`
pub(crate) fn wake_parked(work: &mut Work<'_>, request: &ClaimRequest) -> Inner<()> {
    let mut remove = work.conn.prepare_cached(&SQL.remove_freed)?;
    let mut keys = BTreeMap::new();
    for (id, route, key) in find_freed(work, request, FREED_BY_A_CLAIM)? {
        remove.execute([id])?;
        let found = work.routes.get(work.conn, route, None)?;
        if let (Some(found), Ok(key)) = (found, Name::new("fair_key", key)) {
            keys.insert((found.queue, key), route);
        }
    }
    let mut parked = Vec::with_capacity(keys.len());
    let mut routes = (None, String::new());
    for ((queue, key), route) in keys {
        if routes.0.as_ref() != Some(&queue) {
            routes = (Some(queue.clone()), routes_of(work, &queue)?);
        }
        let levels = parked_levels(work, &routes.1, &key)?;
        if !levels.is_empty() {
            parked.push((queue, key, route, routes.1.clone(), levels));
        }
    }
    let share = fair::share(parked.iter().map(|(.., levels)| levels.len()).sum());
    for (queue, key, route, routes, levels) in parked {
        let max = limit_of(work, &queue, &key)?;
        let running = match max {
            None => 0,
            Some(_) => running(work, &routes, &key)?,
        };
        let mut more = false;
        for level in levels {
            more |= wake_level(work, level, &key, (max, running), share)?;
        }
        if more {
            add_freed(work, route, &key)?;
        }
    }
    Ok(())
}

/// Gives turns to the first parked jobs of a key in a route and priority, at most `share`. Returns
/// whether more of them may get turns. `max` and `running` are the limit and the number of running
/// jobs of the key.
fn wake_level(
    work: &Work<'_>,
    (route, level): (i64, u8),
    key: &Name,
    (max, running): (Option<u32>, u64),
    share: u64,
) -> Inner<bool> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let of_key = key.as_str();
    let ahead: i64 = match max {
        None => 0,
        Some(_) => {
            let free = number(places_for(max, running, 0));
            let mut count = work.conn.prepare_cached(&SQL.count_ahead)?;
            count.query_row(params![route, level, of_key, free], |row| row.get(0))?
        }
    };
    let places = places_for(max, running, ahead.unsigned_abs());
    // One more tells whether this is the last.
    let limit = number(places.min(share.saturating_add(1)));
    let mut first = work.conn.prepare_cached(&SQL.first_parked)?;
    let parked = first.query_map(params![route, level, of_key, limit], |row| {
        // A cost that cannot be read must not keep the job from being claimed.
        let cost = FairKey::cost_or_unit(row.get(1).unwrap_or_default());
        Ok((row::job_id(row, 0)?, cost))
    })?;
    let mut parked: Vec<(JobId, u32)> = parked.collect::<rusqlite::Result<_>>()?;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    let more = parked.len() > share;
    parked.truncate(share);
    let mut give = work.conn.prepare_cached(&SQL.give_turn)?;
    for (id, cost) in parked {
        let job = Turned {
            route,
            level,
            key: of_key,
            cost,
        };
        give.execute(params![id.as_bytes(), job.turn_of_woken(work)?])?;
    }
    Ok(more)
}
