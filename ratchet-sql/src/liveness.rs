//! The connection that is reserved for heartbeats and locks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use crate::connector::{Connector, Purpose};
use crate::failure::{Failure, Result};
use crate::generation::{Generation, Made};
use crate::leased::{Leased, Origin};
use crate::pool::Open;

/// The connection that is reserved for heartbeats and locks. It is opened when it is first needed,
/// and opened again after a loss. It is replaced at the same age and after the same idle time as a
/// connection of the pool.
pub struct Liveness<C: Connector> {
    connector: Arc<C>,
    generation: Generation,
    slot: Arc<Mutex<Option<Open<C::Connection>>>>,
    closed: AtomicBool,
}

impl<C: Connector> Liveness<C> {
    /// `first` is a connection that is open already.
    pub(crate) fn new(
        connector: Arc<C>,
        generation: Generation,
        first: Option<C::Connection>,
    ) -> Self {
        let made = generation.made_now();
        let first = first.map(|connection| Open::new(connection, made, Arc::default()));
        Self {
            connector,
            generation,
            slot: Arc::new(Mutex::new(first)),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the connector of the store.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// Waits until no other call uses the connection, and then leases it.
    ///
    /// # Errors
    /// `Unavailable` if the connection was closed or a new one cannot be opened.
    pub async fn lease(&self) -> Result<C::Lease> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::closed());
        }
        let now = self.generation.made_now();
        let made = match &*slot {
            Some(open) if open.is_fresh(now) => open.made,
            _ => {
                self.replace(&mut slot, now).await?;
                now
            }
        };
        let (connector, generation) = (Arc::clone(&self.connector), self.generation.clone());
        Ok(Leased::new(connector, generation, made, Origin::Liveness(slot)).into())
    }

    /// Replaces the connection by a new one, and keeps the old one in no case.
    ///
    /// # Errors
    /// The same as for [`lease`](Self::lease).
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::closed());
        }
        *slot = None;
        self.replace(&mut slot, self.generation.made_now()).await
    }

    /// Opens a new connection in place of an old or lost one.
    ///
    /// The old connection stays open until the new one is. So locks that are bound to a session
    /// never name an ended one. If no new connection can be opened, an old one that still works is
    /// kept for another lifetime.
    async fn replace(&self, slot: &mut Option<Open<C::Connection>>, now: Made) -> Result<()> {
        let failure = match self.connector.connect(Purpose::Liveness).await {
            Ok(connection) => {
                *slot = Some(Open::new(connection, now, Arc::default()));
                return Ok(());
            }
            Err(failure) => failure,
        };
        match slot {
            Some(old) if old.made.is_same_generation(now) && now.is_fresh(old.idle_since, now) => {
                tracing::debug!(%failure, "could not replace the old connection for heartbeats and locks; keeping it");
                old.made = now;
                Ok(())
            }
            worn => {
                *worn = None;
                Err(failure)
            }
        }
    }

    /// Closes the connection. The next lease opens a new one.
    pub async fn hang_up(&self) {
        if let Some(open) = self.slot.lock().await.take() {
            C::close(open.connection).await;
        }
    }

    /// Closes the connection. Later leases fail.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.hang_up().await;
    }
}

impl<C: Connector> fmt::Debug for Liveness<C> {
    /// Omits the connector, whose settings include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness").finish_non_exhaustive()
    }
}
