use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::leaders::PREFIX;
use crate::error::Result;
use crate::name::Name;
use crate::store::{HeldLock, LockInfo, SharedStore};
use crate::time;

/// The most locks that one call reads.
const PAGE: usize = 1_000;

/// Reads the locks of all roles in one call, for a node that is a candidate in many roles.
///
/// The elections of the node share the last reading. So the number of calls does not grow with the
/// number of roles.
#[derive(Debug, Default)]
pub(crate) struct RoleLocks(Mutex<Option<Reading>>);

/// The locks of all roles at one time.
#[derive(Debug)]
struct Reading {
    asked: Instant,
    received: Instant,
    locks: HashMap<Name, LockInfo>,
}

impl RoleLocks {
    /// Returns the holder of a lock from a reading that began at most `age` ago. Returns `None` if
    /// the lock may be free by now.
    ///
    /// # Errors
    /// A failure of the store.
    pub(crate) async fn holder(
        &self,
        store: &SharedStore,
        lock: &Name,
        age: Duration,
    ) -> Result<Option<HeldLock>> {
        // Other callers wait for this reading, and then use it.
        let mut last = self.0.lock().await;
        let reading = match last.take() {
            Some(reading) if reading.asked.elapsed() <= age => reading,
            _ => Reading::read(store).await?,
        };
        let holder = reading.holder(lock);
        *last = Some(reading);
        Ok(holder)
    }
}

impl Reading {
    async fn read(store: &SharedStore) -> Result<Self> {
        let asked = time::monotonic();
        let mut locks = HashMap::new();
        let mut after = Name::new("lock", PREFIX)?;
        loop {
            let page = store.locks().list_locks(Some(&after), PAGE).await?;
            let last = page.last().map(|(name, _)| name.clone());
            let is_full = page.len() == PAGE;
            locks.extend(page);
            match last {
                Some(last) if is_full && last.as_str().starts_with(PREFIX) => after = last,
                _ => break,
            }
        }
        let received = time::monotonic();
        Ok(Self {
            asked,
            received,
            locks,
        })
    }

    fn holder(&self, lock: &Name) -> Option<HeldLock> {
        let lock = self.locks.get(lock).filter(|lock| !lock.holder_gone)?;
        let mut holder = lock.holder.clone()?;
        holder.remaining = holder.remaining.checked_sub(self.received.elapsed())?;
        Some(holder).filter(|holder| !holder.remaining.is_zero())
    }
}
