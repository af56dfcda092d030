//! [`LockStore`] on SQLite.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{Fenced, Guard};
use ratchet_core::store::{Acquired, HeldLock, LockInfo, LockPage, LockStore, renewed_end};
use ratchet_core::time::{duration_millis, millis_between};
use ratchet_core::{Fence, InvalidInput, Name, Result, next_in_time};
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
        self.write("renew", Urgency::Urgent, move |work| {
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

/// The expiry of a lock that was released.
const FREE: i64 = i64::MIN;

struct Lock {
    owner: Name,
    fence: i64,
    expires_at: i64,
}

impl Lock {
    fn fence(&self) -> Fence {
        Fence(self.fence.cast_unsigned())
    }

    fn is_held(&self, now: i64) -> bool {
        self.expires_at > now
    }

    fn expired_for(&self, now: i64) -> Option<Duration> {
        let expired = !self.is_held(now) && self.expires_at != FREE;
        expired.then(|| millis_between(self.expires_at, now))
    }

    fn holder(&self, now: i64) -> HeldLock {
        HeldLock {
            owner: self.owner.clone(),
            fence: self.fence(),
            remaining: millis_between(now, self.expires_at),
        }
    }

    fn info(&self, now: i64) -> LockInfo {
        LockInfo {
            fence: self.fence(),
            holder: self.is_held(now).then(|| self.holder(now)),
            holder_gone: false,
            expired_for: self.expired_for(now),
        }
    }
}

fn find(work: &Work<'_>, name: &Name) -> Inner<Option<Lock>> {
    let mut statement = work.conn.prepare_cached(&SQL.find_lock)?;
    let mut rows = statement.query([name.as_str()])?;
    rows.next()?.map(|row| lock(row, 0)).transpose()
}

/// The lock whose columns begin at this one.
fn lock(row: &Row<'_>, first: usize) -> Inner<Lock> {
    let owner = row::name(row, first, "owner")?;
    Ok(Lock {
        owner: owner.ok_or_else(|| InvalidInput::new("owner", "is missing"))?,
        fence: row.get(first + 1)?,
        expires_at: row.get(first + 2)?,
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

/// Whether the tenure lasts that a write is made in; without a guard, always. [guard.write]
pub(crate) fn is_tenure(work: &Work<'_>, guard: Option<&Guard>) -> Inner<bool> {
    let Some(guard) = guard else {
        return Ok(true);
    };
    Ok(find(work, &guard.lock)?.is_some_and(|lock| {
        lock.is_held(work.now) && lock.owner == guard.owner && lock.fence() == guard.fence
    }))
}

fn acquire(work: &Work<'_>, name: &Name, owner: &Name, ttl: i64) -> Inner<Acquired> {
    let lock = find(work, name)?;
    let stored = lock.as_ref().map_or(i64::MIN, |lock| lock.expires_at);
    let fence = match &lock {
        Some(lock) if lock.is_held(work.now) && lock.owner != *owner => {
            return Ok(Acquired::Held(lock.holder(work.now)));
        }
        Some(lock) if lock.is_held(work.now) => lock.fence(),
        last => {
            let last = last.as_ref().map_or(Fence(0), Lock::fence);
            Fence(next_in_time(last.0, work.now))
        }
    };
    work.conn.prepare_cached(&SQL.put_lock)?.execute(params![
        name.as_str(),
        owner.as_str(),
        fence.0.cast_signed(),
        renewed_end(stored, work.now, ttl)
    ])?;
    Ok(Acquired::Acquired { fence })
}

/// Brings the end of an unexpired tenure into this range.
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
    Ok(if moved > 0 {
        Fenced::Applied
    } else {
        Fenced::Stale
    })
}
