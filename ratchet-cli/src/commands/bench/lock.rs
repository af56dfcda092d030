//! The lock that prevents concurrent measurements.

use std::time::Duration;

use ratchet::store_api::store::Acquired;
use ratchet::store_api::time::wall_clock;
use ratchet::{Client, Fence, Name, NodeId};

use super::QUEUE;
use crate::exit::Failure;
use crate::output::since;

/// TTL of the lock. If a measurement is killed, its lock prevents other measurements for this time.
const LEASE: Duration = Duration::from_secs(60);
/// Interval between renewals of the lock. Several renewals may fail before the lock expires.
const RENEWAL: Duration = Duration::from_secs(15);

/// The lock of a running measurement. It prevents other measurements on the same database.
#[derive(Debug)]
pub(super) struct Lock {
    name: Name,
    owner: Name,
    /// The fencing token of the lock. `None` if another measurement has acquired the lock.
    fence: Option<Fence>,
}

impl Lock {
    /// Acquires the lock for a new measurement.
    ///
    /// # Errors
    /// Fails if another measurement holds the lock, or if the store fails.
    pub(super) async fn take(client: &Client) -> Result<Self, Failure> {
        let mut lock = Self {
            name: Name::new("lock", QUEUE)?,
            owner: Name::new("owner", format!("{} at {}", NodeId::new(), wall_clock()))?,
            fence: None,
        };
        match lock.acquire(client).await? {
            None => Ok(lock),
            Some(left) => Err(
                Failure::refused("another `ratchet bench` runs on this database").remedy(format!(
                    "If the other program was killed, its lock expires in {}.",
                    since(left)
                )),
            ),
        }
    }

    /// Acquires or renews the lock, which then expires after the time [`LEASE`]. If another
    /// measurement holds the lock, returns the time until that lock expires. Otherwise, returns
    /// `None`.
    async fn acquire(&mut self, client: &Client) -> Result<Option<Duration>, Failure> {
        let locks = client.store().locks();
        let (fence, left) = match locks.acquire(&self.name, &self.owner, LEASE).await? {
            Acquired::Acquired { fence } => (Some(fence), None),
            Acquired::Held(held) => (None, Some(held.remaining)),
        };
        self.fence = fence;
        Ok(left)
    }

    /// Runs `work`, and renews the lock until `work` has ended.
    ///
    /// # Errors
    /// Fails if `work` fails, or if another measurement acquires the lock. In the second case,
    /// drops `work` before its end.
    pub(super) async fn hold<T>(
        &mut self,
        client: &Client,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            // The lock is checked first: if it is lost already, the work does not begin.
            biased;
            () = self.keep(client) => Err(Failure::failed(
                "another `ratchet bench` has begun, because the lock expired while the database \
                 was unreachable",
            )),
            done = work => done,
        }
    }

    /// Runs `work` to its end, and renews the lock until then. Continues `work` even if another
    /// measurement acquires the lock.
    pub(super) async fn keep_during<T>(
        &mut self,
        client: &Client,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => done,
            () = self.keep(client) => work.await,
        }
    }

    /// Renews the lock at each interval [`RENEWAL`]. Returns when another measurement has acquired
    /// the lock.
    async fn keep(&mut self, client: &Client) {
        while self.fence.is_some() {
            tokio::time::sleep(RENEWAL).await;
            // If a renewal fails, the next call retries it. If the lock has expired in between,
            // that call acquires the lock again, unless another measurement has acquired it first.
            drop(self.acquire(client).await);
        }
    }

    /// Releases the lock, unless another measurement has acquired it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) async fn release(self, client: &Client) -> Result<(), Failure> {
        if let Some(fence) = self.fence {
            let locks = client.store().locks();
            locks.release(&self.name, &self.owner, fence).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratchet::{MemoryStore, Ratchet};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn client() -> Client {
        Ratchet::client(Arc::new(MemoryStore::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_held_however_long_the_work_takes() {
        let client = client();
        let mut lock = Lock::take(&client).await.unwrap();
        let long = async {
            tokio::time::sleep(HOUR).await;
            Ok(Lock::take(&client).await.map(drop))
        };
        let meanwhile = lock.hold(&client, long).await.unwrap();
        assert!(
            meanwhile.is_err(),
            "expected no other measurement to acquire the held lock"
        );
        // The lock is still held between two pieces of work.
        let refused = async { Ok(Lock::take(&client).await.is_err()) };
        assert_eq!(lock.hold(&client, refused).await, Ok(true));
        lock.release(&client).await.unwrap();
        Lock::take(&client).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_killed_keeps_others_away_for_a_lease() {
        let client = client();
        drop(Lock::take(&client).await.unwrap());
        assert!(Lock::take(&client).await.is_err());
        tokio::time::sleep(LEASE + Duration::from_millis(1)).await;
        Lock::take(&client).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_when_another_owner_has_the_lock() {
        let client = client();
        let mut lock = Lock::take(&client).await.unwrap();
        // Simulates an outage during which the lease expires.
        tokio::time::sleep(2 * LEASE).await;
        let other = Lock::take(&client).await.unwrap();
        let long = async {
            tokio::time::sleep(HOUR).await;
            Ok(())
        };
        assert!(lock.hold(&client, long).await.is_err());
        // The cleanup does not run, because the jobs in the queue belong to the other measurement.
        let clean_up = async { Ok(()) };
        assert!(lock.hold(&client, clean_up).await.is_err());
        assert_eq!(lock.keep_during(&client, async { 7 }).await, 7);
        lock.release(&client).await.unwrap();
        assert!(Lock::take(&client).await.is_err());
        other.release(&client).await.unwrap();
    }
}
