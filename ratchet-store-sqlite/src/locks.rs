//! [`LockStore`] on SQLite.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{Fenced, Guard};
use ratchet_core::store::{Acquired, LockInfo, LockPage, LockStore, StoredLock};
use ratchet_core::time::duration_millis;
use ratchet_core::{Fence, InvalidInput, Name, Result};
use rusqlite::{Row, params};

use crate::error::{Failure, Result as Inner};
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl LockStore for SqliteStore {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = duration_millis(ttl);
        let (name, owner) = (name.clone(), owner.clone());
        self.write("acquire", Urgency::Urgent, move |work| {
            acquire(work, &name, &owner, ttl)
        })
        .await
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let ttl = duration_millis(ttl);
        let (name, owner) = (name.clone(), owner.clone());
        self.write_volatile("renew", move |work| {
            let soonest = work.now.saturating_add(ttl);
            let latest = soonest.saturating_add(ttl);
            move_expiry(work, &name, &owner, fence, soonest..=latest)
        })
        .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        let (name, owner) = (name.clone(), owner.clone());
        self.write("release", Urgency::Urgent, move |work| {
            move_expiry(work, &name, &owner, fence, FREE..=FREE)
        })
        .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        let name = name.clone();
        self.read("inspect", move |work| {
            Ok(find(work, &name)?.map(|lock| lock.info(work.now)))
        })
        .await
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        let after = after.cloned();
        self.read("list_locks", move |work| list(work, after.as_ref(), limit))
            .await
    }
}

/// Value of the expiry of a released lock.
const FREE: i64 = i64::MIN;

fn find(work: &Work<'_>, name: &Name) -> Inner<Option<StoredLock>> {
    let mut statement = work.conn.prepare_cached(&SQL.find_lock)?;
    let mut rows = statement.query([name.as_str()])?;
    rows.next()?.map(|row| lock(row, 0)).transpose()
}

/// Reads a lock from a row. `first` is the number of the lock's first column.
fn lock(row: &Row<'_>, first: usize) -> Inner<StoredLock> {
    let owner = row::name(row, first, "owner")?;
    Ok(StoredLock {
        owner: owner.ok_or_else(|| InvalidInput::new("owner", "is missing"))?,
        fence: Fence(row::seq(row, first + 1)?),
        expires_at: Some(row.get(first + 2)?).filter(|end| *end != FREE),
    })
}

fn list(work: &Work<'_>, after: Option<&Name>, limit: usize) -> Inner<Vec<(Name, LockInfo)>> {
    let listed = |row: &Row<'_>| {
        let name = row::name(row, 0, "name")?;
        let name = name.ok_or_else(|| InvalidInput::new("name", "is missing"))?;
        Ok::<_, Failure>((name, lock(row, 1)?.info(work.now)))
    };
    let mut statement = work.conn.prepare_cached(&SQL.list_locks)?;
    let mut page = LockPage::new(after, limit);
    while let Some((behind, count)) = page.wants() {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![behind, count], |row| {
            Ok((row.get(0).ok(), listed(row)))
        })?;
        page.take(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    Ok(page.into_locks())
}

/// Returns whether the guard's tenure still lasts, or true if there is no guard. [guard.write]
pub(crate) fn is_tenure(work: &Work<'_>, guard: Option<&Guard>) -> Inner<bool> {
    let Some(guard) = guard else {
        return Ok(true);
    };
    let lock = find(work, &guard.lock)?;
    Ok(lock.is_some_and(|lock| lock.is_held_by(&guard.owner, guard.fence, work.now)))
}

fn acquire(work: &Work<'_>, name: &Name, owner: &Name, ttl: i64) -> Inner<Acquired> {
    let lock = find(work, name)?;
    let mut lock = lock.unwrap_or_else(|| StoredLock::unused(owner.clone()));
    let acquired = lock.acquire(owner, ttl, work.now);
    if matches!(acquired, Acquired::Acquired { .. }) {
        work.conn.prepare_cached(&SQL.put_lock)?.execute(params![
            name.as_str(),
            lock.owner.as_str(),
            lock.fence.0.cast_signed(),
            lock.expires_at
        ])?;
    }
    Ok(acquired)
}

/// Moves the expiry of a held lock into the range `end` if the expiry is outside this range.
/// Returns `Stale` if the tenure has ended.
fn move_expiry(
    work: &Work<'_>,
    name: &Name,
    owner: &Name,
    fence: Fence,
    end: RangeInclusive<i64>,
) -> Inner<Fenced> {
    let Ok(fence) = i64::try_from(fence.0) else {
        return Ok(Fenced::Stale);
    };
    let moved = work
        .conn
        .prepare_cached(&SQL.move_expiry)?
        .execute(params![
            name.as_str(),
            owner.as_str(),
            fence,
            end.start(),
            work.now,
            end.end(),
        ])?;
    Ok(Fenced::when(moved > 0))
}
