use std::time::Duration;

use super::{Client, RetryDelays};
use crate::cluster::{Wakeup, WakeupStream};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::model::{Guard, Guarded};
use crate::name::Name;

/// The interval at which a watch reads its version if no wakeup arrives.
const INTERVAL: Duration = Duration::from_secs(1);

impl Client {
    /// Raises the version of a namespace, and returns the new version.
    ///
    /// Call this method after the data that the namespace represents has changed. Every
    /// [`watch`](Self::watch) of the namespace then sees the new version.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store. After a failure the version may or may
    /// not have been raised; the call can be repeated.
    pub async fn bump(&self, namespace: &str) -> Result<u64> {
        match self.bump_guarded(namespace, None).await? {
            Guarded::Done(version) => Ok(version),
            Guarded::Stale => Err(StoreError::new(StoreErrorKind::Other, "bump")
                .with_source("the store rejected a write as stale although it had no guard")),
        }
    }

    /// Raises the version as [`bump`](Self::bump) does, but only while the leader's term that
    /// `guard` names lasts. After the term, returns `Stale`.
    ///
    /// # Errors
    /// As for [`bump`](Self::bump).
    pub async fn bump_guarded(
        &self,
        namespace: &str,
        guard: Option<&Guard>,
    ) -> Result<Guarded<u64>> {
        let namespace = Name::new("namespace", namespace)?;
        let calls = &self.0.calls;
        let bump = calls.call("bump", |store| store.versions().bump(&namespace, guard));
        let bumped = bump.await?;
        if matches!(bumped, Guarded::Done(_)) {
            self.wake(Wakeup::any()).await;
        }
        Ok(bumped)
    }

    /// Watches the version of a namespace.
    ///
    /// ```no_run
    /// # async fn load() {}
    /// # async fn reload(client: ratchet::Client) -> ratchet::Result<()> {
    /// let mut watch = client.watch("config")?;
    /// loop {
    ///     // At once the first time, then after each bump.
    ///     let version = watch.changed().await;
    ///     load().await;
    ///     println!("configuration {version} is in use");
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn watch(&self, namespace: &str) -> Result<VersionWatch> {
        Ok(VersionWatch {
            namespace: Name::new("namespace", namespace)?,
            wakeups: self.0.coordinator.subscribe(),
            client: self.clone(),
            seen: None,
        })
    }
}

/// The successive versions of a namespace. See [`Client::watch`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::Ratchet;
///
/// let client = Ratchet::client(ratchet::connect("memory:").await?);
/// let mut prices = client.watch("prices")?;
/// assert_eq!(prices.changed().await, 0);
/// client.bump("prices").await?;
/// assert!(prices.changed().await > 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct VersionWatch {
    client: Client,
    namespace: Name,
    wakeups: WakeupStream,
    seen: Option<u64>,
}

impl VersionWatch {
    /// Waits for a version that this watch has not returned yet, and returns it.
    ///
    /// The first call returns the present version, or 0 if there was no bump yet. Several bumps in
    /// quick succession may be reported as one. A bump is reported at once if its wakeup arrives,
    /// and otherwise within one second. While the database is unavailable, the watch waits.
    ///
    /// Read the data that the namespace represents after this method has returned, not before. Then
    /// no change is missed.
    ///
    /// # Cancel safety
    /// Dropping the future loses no version.
    pub async fn changed(&mut self) -> u64 {
        let mut backoff = RetryDelays::of("version").about(&self.namespace);
        loop {
            self.wakeups.clear();
            let wait = match self.read().await {
                Ok(version) if self.seen != Some(version) => {
                    self.seen = Some(version);
                    return version;
                }
                Ok(_) => {
                    backoff.reset();
                    INTERVAL
                }
                Err(error) => backoff.failed(&error, fastrand::f64()).min(INTERVAL),
            };
            // A wakeup for one queue is about jobs, not about versions.
            let woken = async { while !self.wakeups.next().await.is_for_all() {} };
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn read(&self) -> Result<u64> {
        let namespaces = std::slice::from_ref(&self.namespace);
        let calls = &self.client.0.calls;
        let read = calls.call("versions", |store| store.versions().versions(namespaces));
        Ok(read.await?.first().copied().unwrap_or(0))
    }
}
