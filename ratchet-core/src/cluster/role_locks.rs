use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::leaders::PREFIX;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::name::Name;
use crate::store::{HeldLock, LockInfo, SharedStore};
use crate::time;

/// Maximum number of locks that one call reads. Few clusters have more roles. The locks of an
/// application may follow those of the roles, so a larger page could contain many of them.
const PAGE: usize = 500;

/// Returns the locks of all roles in the order of their names. `list` reads the next page: it gets
/// a name and a limit, and returns up to that number of locks with greater names.
///
/// # Errors
/// A failure of `list`.
pub(crate) async fn locks_of_roles<List: Future<Output = Result<Vec<(Name, LockInfo)>>>>(
    mut list: impl FnMut(Name, usize) -> List,
) -> Result<Vec<(Name, LockInfo)>> {
    let mut roles = Vec::new();
    let mut after = Name::new("lock", PREFIX)?;
    loop {
        let mut page = list(after, PAGE).await?;
        // A page that is not full is the last. [lock.list]
        let is_full = page.len() == PAGE;
        page.retain(|(name, _)| name.as_str().starts_with(PREFIX));
        let has_more = is_full && page.len() == PAGE;
        roles.append(&mut page);
        match roles.last() {
            Some((last, _)) if has_more => after = last.clone(),
            _ => return Ok(roles),
        }
    }
}

/// Reads the locks of all roles in one call, for a node that is a candidate in many roles.
///
/// The elections of the node share the last reading. So the number of calls does not grow with the
/// number of roles.
#[derive(Debug, Default)]
pub(crate) struct RoleLocks(Mutex<Last>);

/// The last reading, and when the last failed one began.
#[derive(Debug, Default)]
struct Last {
    reading: Option<Reading>,
    failed: Option<Instant>,
}

/// The locks of all roles at one time.
#[derive(Debug)]
struct Reading {
    asked: Instant,
    received: Instant,
    locks: HashMap<Name, LockInfo>,
}

impl RoleLocks {
    /// Returns the holder of a lock from a reading that began at most `age` ago, or after this call
    /// began. Returns `None` if the lock may be free by now.
    ///
    /// # Errors
    /// A failure of the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, the reading continues, and later callers use it. So a slow
    /// database gets no additional readings because it is slow.
    pub(crate) async fn holder(
        self: Arc<Self>,
        store: SharedStore,
        lock: Name,
        age: Duration,
    ) -> Result<Option<HeldLock>> {
        let began = time::monotonic();
        let reading = tokio::spawn(async move {
            // Other callers wait for this reading, and then use it, even if it has failed.
            let mut last = self.0.lock().await;
            if last.failed.is_some_and(|failed| failed >= began) {
                let failed = StoreError::new(StoreErrorKind::Unavailable, "list_locks");
                return Err(failed.with_source("another read of the locks has just failed"));
            }
            let is_recent =
                |reading: &Reading| reading.asked >= began || reading.asked.elapsed() <= age;
            if !last.reading.as_ref().is_some_and(is_recent) {
                let asked = time::monotonic();
                last.reading = None;
                let reading = Reading::read(&store, asked).await;
                last.reading = Some(reading.inspect_err(|_| last.failed = Some(asked))?);
            }
            Ok(last
                .reading
                .as_ref()
                .and_then(|reading| reading.holder(&lock)))
        });
        match reading.await {
            Ok(holder) => holder,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down.
                Err(_) => Ok(None),
            },
        }
    }
}

impl Reading {
    async fn read(store: &SharedStore, asked: Instant) -> Result<Self> {
        let list = async |after: Name, limit| store.locks().list_locks(Some(&after), limit).await;
        let locks = locks_of_roles(list).await?;
        Ok(Self {
            asked,
            received: time::monotonic(),
            locks: locks.into_iter().collect(),
        })
    }

    fn holder(&self, lock: &Name) -> Option<HeldLock> {
        let lock = self.locks.get(lock).filter(|lock| !lock.holder_gone)?;
        let mut holder = lock.holder.clone()?;
        holder.remaining = holder.remaining.checked_sub(self.received.elapsed())?;
        Some(holder).filter(|holder| !holder.remaining.is_zero())
    }
}
