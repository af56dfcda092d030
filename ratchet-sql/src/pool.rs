//! The pool of connections for jobs: the store's own, or one of the application.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::connector::{Connector, Lender, Purpose};
use crate::failure::{Failure, Result};
use crate::generation::{Generation, Made};
use crate::leased::{Leased, Origin};

/// The pool of connections for jobs.
pub struct Pool<C: Connector> {
    connector: Arc<C>,
    generation: Generation,
    source: Source<C>,
}

enum Source<C: Connector> {
    Own(Arc<Keep<C::Connection>>),
    /// The application's pool.
    Theirs(C::Lender),
}

/// The connections that the store opens for jobs. A driver's pool would ping each connection, which
/// costs one more round trip per call. Without the ping, a call may get a lost connection. The call
/// then fails, and the store repeats it.
pub(crate) struct Keep<T> {
    /// The idle connections. The last of them was used last. `None` once the pool was closed.
    idle: Mutex<Option<Vec<Open<T>>>>,
    /// One permit for each connection that may be open.
    permits: Arc<Semaphore>,
    /// Maximum time that a call waits for a permit.
    patience: Duration,
    max: u32,
    /// Each open connection has a clone, which counts the connection.
    count: Arc<()>,
}

/// An open connection, with its age.
pub(crate) struct Open<T> {
    pub(crate) connection: T,
    pub(crate) made: Made,
    /// End of the last lease.
    pub(crate) idle_since: Instant,
    _count: Arc<()>,
}

impl<T> Open<T> {
    /// Wraps a connection that was opened at `made`.
    pub(crate) const fn new(connection: T, made: Made, count: Arc<()>) -> Self {
        Self {
            connection,
            made,
            idle_since: made.at(),
            _count: count,
        }
    }

    /// Returns whether an idle connection may be used again: it is not too old, and was not idle
    /// for too long.
    pub(crate) fn is_fresh(&self, now: Made) -> bool {
        self.made.is_fresh(self.idle_since, now)
    }
}

impl<C: Connector> Pool<C> {
    /// Creates a pool of at most `max` connections. Opens no connection.
    pub(crate) fn own(
        connector: Arc<C>,
        generation: Generation,
        max: u32,
        patience: Duration,
    ) -> Self {
        let keep = Keep {
            idle: Mutex::new(Some(Vec::new())),
            permits: Arc::new(Semaphore::new(usize::try_from(max).unwrap_or(1))),
            patience,
            max,
            count: Arc::default(),
        };
        Self {
            connector,
            generation,
            source: Source::Own(Arc::new(keep)),
        }
    }

    /// Wraps a pool of the application.
    pub(crate) const fn theirs(
        connector: Arc<C>,
        generation: Generation,
        lender: C::Lender,
    ) -> Self {
        Self {
            connector,
            generation,
            source: Source::Theirs(lender),
        }
    }

    /// Leases a connection.
    ///
    /// # Errors
    /// `Timeout` if no connection was free within the acquire timeout. `Unavailable` if the pool is
    /// closed or a new connection cannot be opened.
    pub async fn lease(&self) -> Result<C::Lease> {
        let (made, origin) = match &self.source {
            Source::Own(keep) => {
                let permit = keep.permit().await?;
                let now = self.generation.made_now();
                let open = match keep.take(now)? {
                    Some(open) => open,
                    None => {
                        let connection = self.connector.connect(Purpose::Jobs).await?;
                        Open::new(connection, now, Arc::clone(&keep.count))
                    }
                };
                let made = open.made;
                let origin = Origin::Kept {
                    open: Some(open),
                    keep: Arc::clone(keep),
                    _permit: permit,
                };
                (made, origin)
            }
            Source::Theirs(lender) => {
                let now = self.generation.made_now();
                (now, Origin::Lent(Some(lender.lend().await?)))
            }
        };
        let (connector, generation) = (Arc::clone(&self.connector), self.generation.clone());
        Ok(Leased::new(connector, generation, made, origin).into())
    }

    /// Returns whether the pool was closed.
    pub fn is_closed(&self) -> bool {
        match &self.source {
            Source::Own(keep) => keep.idle().is_none(),
            Source::Theirs(lender) => lender.is_closed(),
        }
    }

    /// Closes the idle connections without sending a message to the server. On a network that is
    /// down, sending could take long.
    pub fn drop_idle(&self) {
        match &self.source {
            Source::Own(keep) => keep.discard_idle(),
            Source::Theirs(lender) => lender.discard_idle(),
        }
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> u32 {
        match &self.source {
            Source::Own(keep) => {
                u32::try_from(Arc::strong_count(&keep.count) - 1).unwrap_or(u32::MAX)
            }
            Source::Theirs(lender) => lender.open_connections(),
        }
    }

    /// Returns the maximum number of connections.
    pub fn max_connections(&self) -> u32 {
        match &self.source {
            Source::Own(keep) => keep.max,
            Source::Theirs(lender) => lender.max_connections(),
        }
    }

    /// Closes the pool. Leased connections are closed when they are returned. A pool of the
    /// application also waits until they were returned.
    pub(crate) async fn close(&self) {
        match &self.source {
            Source::Own(keep) => {
                let idle = keep.idle().take();
                for open in idle.into_iter().flatten() {
                    C::close(open.connection).await;
                }
            }
            Source::Theirs(lender) => lender.close().await,
        }
    }

    /// Waits until all leased connections of the store's own pool were returned.
    pub async fn returned(&self) {
        if let Source::Own(keep) = &self.source {
            // The semaphore is never closed. The permits are returned at once.
            let _ = keep.permits.acquire_many(keep.max).await;
        }
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    /// Omits the connector, whose settings include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("open", &self.open_connections())
            .field("max", &self.max_connections())
            .finish_non_exhaustive()
    }
}

impl<T> Keep<T> {
    fn idle(&self) -> MutexGuard<'_, Option<Vec<Open<T>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to have a connection.
    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        if self.idle().is_none() {
            return Err(Failure::closed());
        }
        let permit = Arc::clone(&self.permits).acquire_owned();
        match tokio::time::timeout(self.patience, permit).await {
            Ok(permit) => permit.map_err(|_| Failure::closed()),
            Err(_) => {
                let text = "no connection was free in time";
                Err(Failure::new(StoreErrorKind::Timeout, text))
            }
        }
    }

    /// Takes the idle connection that was used last, if there is one.
    fn take(&self, now: Made) -> Result<Option<Open<T>>> {
        let mut idle = self.idle();
        let idle = idle.as_mut().ok_or_else(Failure::closed)?;
        idle.retain(|open| open.is_fresh(now));
        Ok(idle.pop())
    }

    /// Makes a connection available again. Also closes connections that are too old or were idle
    /// for too long.
    pub(crate) fn put_back(&self, mut open: Open<T>, now: Made) {
        open.idle_since = now.at();
        // A closed pool has no list. So no connection is put back after the pool was closed.
        if let Some(idle) = &mut *self.idle() {
            idle.push(open);
            idle.retain(|open| open.is_fresh(now));
        }
    }

    /// Closes the idle connections without sending a message to the server.
    pub(crate) fn discard_idle(&self) {
        if let Some(idle) = &mut *self.idle() {
            idle.clear();
        }
    }
}
