//! [`FairStore`] on SQLite, and the use of limits by claims and by ends of claims.

use async_trait::async_trait;
use ratchet_core::fair::places_for;
use ratchet_core::model::{FairKey, FairLimit, FairLimits, FairScope};
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

/// Sets or removes a limit, and puts the parked jobs of its scope to sleep.
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
    let mut unpark = work.conn.prepare_cached(&SQL.unpark_route)?;
    let routes = work.routes.known(work.conn)?.routes();
    for (route, _) in routes.filter(|(_, route)| scope.has_queue(&route.queue)) {
        unpark.execute(params![route, key])?;
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

/// The limit of a fair key in a queue, and the number of its running jobs.
struct Place {
    max: u32,
    running: u64,
    /// The ids of the queue's routes, as a JSON array.
    routes: String,
}

impl Place {
    /// Returns the place of a key. `None` if the key has no limit.
    fn of(work: &mut Work<'_>, queue: &Name, key: &Name) -> Inner<Option<Self>> {
        let names = params![queue.as_str(), key.as_str()];
        let mut find = work.conn.prepare_cached(&SQL.find_fair_limits)?;
        let limits = read(&mut find.query(names)?)?;
        let Some(max) = limits.of(queue, key) else {
            return Ok(None);
        };
        let routes = work.routes.known(work.conn)?.routes();
        let routes = routes.filter(|(_, route)| route.queue == *queue);
        let routes = json_of(routes.map(|(id, _)| id));
        let mut count = work.conn.prepare_cached(&SQL.count_running_key)?;
        let running = count.query_row(params![routes, key.as_str()], |row| row.get::<_, i64>(0))?;
        Ok(Some(Self {
            max,
            running: running.unsigned_abs(),
            routes,
        }))
    }
}

/// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit.
pub(crate) fn free_places(work: &mut Work<'_>, queue: &Name, key: &Name) -> Inner<Option<u64>> {
    let place = Place::of(work, queue, key)?;
    Ok(place.map(|place| places_for(place.max, place.running, 0)))
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

/// Gives turns to parked jobs of the keys whose places may be free. `[fair.limit.free]`
/// `[fair.limit.wait]`
pub(crate) fn fill_places(work: &mut Work<'_>) -> Inner<()> {
    for (route, key) in work.freed.take() {
        let queue = work.routes.get(work.conn, route, None)?;
        let queue = queue.map(|route| route.queue);
        let (Some(queue), Ok(key)) = (queue, Name::new("fair_key", key)) else {
            continue;
        };
        let Some(place) = Place::of(work, &queue, &key)? else {
            continue;
        };
        fill(work, &place, &key)?;
    }
    Ok(())
}

fn fill(work: &Work<'_>, place: &Place, key: &Name) -> Inner<()> {
    let free = places_for(place.max, place.running, 0);
    if free == 0 {
        return Ok(());
    }
    let most = i64::try_from(free).unwrap_or(i64::MAX);
    let mut levels = work.conn.prepare_cached(&SQL.parked_levels)?;
    let levels = levels.query_map(params![place.routes, key.as_str(), most], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?))
    })?;
    let levels: Vec<(i64, u8, i64)> = levels.collect::<rusqlite::Result<_>>()?;
    let mut first = work.conn.prepare_cached(&SQL.first_parked)?;
    let mut give = work.conn.prepare_cached(&SQL.give_turn)?;
    for (route, level, ahead) in levels {
        let woken = places_for(place.max, place.running, ahead.unsigned_abs());
        let woken = i64::try_from(woken).unwrap_or(i64::MAX);
        let parked = first.query_map(params![route, level, key.as_str(), woken], |row| {
            // A cost that cannot be read must not keep the job from being claimed.
            let cost = FairKey::cost_or_unit(row.get(1).unwrap_or_default());
            Ok((row::job_id(row, 0)?, cost))
        })?;
        let parked: Vec<(JobId, u32)> = parked.collect::<rusqlite::Result<_>>()?;
        for (id, cost) in parked {
            let job = Turned {
                route,
                level,
                key: key.as_str(),
                cost,
            };
            give.execute(params![id.as_bytes(), job.turn_of_woken(work)?])?;
        }
    }
    Ok(())
}
