//! A leased connection, and what happens to it when the lease is dropped.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

use crate::connector::{Connector, Lender};
use crate::failure::{Failure, Loss, Result};
use crate::generation::{Generation, Made};
use crate::pool::{Keep, Open};

/// A leased connection. Dropping the lease makes the connection available again. The connection is
/// closed instead if it was lost, or if a call or a transaction was not complete.
pub struct Leased<C: Connector> {
    connector: Arc<C>,
    generation: Generation,
    made: Made,
    origin: Origin<C>,
    /// Whether the state of the connection is unknown, because a call is still running or was not
    /// completed.
    broken: bool,
    /// Whether the connection was lost, and how.
    loss: Loss,
    /// Whether a transaction is open. The dialect sets this.
    pub in_transaction: bool,
}

/// Where a connection comes from. In the first two cases, the connection is `None` once the lease
/// was dropped.
pub(crate) enum Origin<C: Connector> {
    /// The store's own pool.
    Kept {
        open: Option<Open<C::Connection>>,
        keep: Arc<Keep<C::Connection>>,
        _permit: OwnedSemaphorePermit,
    },
    /// A pool of the application.
    Lent(Option<<C::Lender as Lender<C>>::Lent>),
    /// The connection for heartbeats and locks.
    Liveness(OwnedMutexGuard<Option<Open<C::Connection>>>),
}

impl<C: Connector> Leased<C> {
    pub(crate) const fn new(
        connector: Arc<C>,
        generation: Generation,
        made: Made,
        origin: Origin<C>,
    ) -> Self {
        Self {
            connector,
            generation,
            made,
            origin,
            broken: false,
            loss: Loss::No,
            in_transaction: false,
        }
    }

    /// Returns the connector of the store.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// Returns whether the connection belongs to a pool of the application.
    pub const fn is_lent(&self) -> bool {
        matches!(self.origin, Origin::Lent(_))
    }

    /// Returns whether this is the connection for heartbeats and locks.
    pub const fn is_liveness(&self) -> bool {
        matches!(self.origin, Origin::Liveness(_))
    }

    /// Returns the connection. Use [`begin_call`](Self::begin_call) to send a statement.
    pub fn connection(&mut self) -> Option<&mut C::Connection> {
        match &mut self.origin {
            Origin::Kept { open, .. } => open.as_mut().map(|open| &mut open.connection),
            Origin::Lent(lent) => lent.as_deref_mut(),
            Origin::Liveness(slot) => slot.as_mut().map(|open| &mut open.connection),
        }
    }

    /// Returns the connection for a call, which must end with [`end_call`](Self::end_call).
    /// Otherwise, for example if the future of the call is dropped, the connection is closed.
    ///
    /// # Errors
    /// `Unavailable` if an earlier call did not end, or lost the connection.
    pub fn begin_call(&mut self) -> Result<&mut C::Connection> {
        if self.broken {
            return Err(Failure::no_connection());
        }
        self.broken = true;
        self.connection().ok_or_else(Failure::no_connection)
    }

    /// Ends a call, and returns its result. Records whether the call lost the connection.
    ///
    /// # Errors
    /// The failure of the call.
    pub fn end_call<T>(&mut self, result: Result<T>) -> Result<T> {
        self.loss = result
            .as_ref()
            .err()
            .map_or(Loss::No, |failure| failure.loss);
        self.broken = self.loss != Loss::No;
        result
    }

    /// Returns whether the connection cannot be used any more.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Marks the connection as unusable, so that dropping the lease closes it.
    pub const fn discard(&mut self) {
        self.broken = true;
    }
}

impl<C: Connector> Drop for Leased<C> {
    fn drop(&mut self) {
        if self.loss == Loss::ReadOnly {
            self.generation.end(self.made);
        }
        let spoiled = self.broken || self.in_transaction;
        let now = self.generation.made_now();
        // Closing a connection here sends no message to the server, because the network may be the
        // reason why the call was abandoned.
        match &mut self.origin {
            Origin::Kept { open, keep, .. } => match open.take() {
                Some(open) if !spoiled => keep.put_back(open, now),
                open => {
                    drop(open);
                    if self.loss != Loss::No {
                        // The idle connections may be lost too, or be read-only.
                        keep.discard_idle();
                    }
                }
            },
            Origin::Lent(lent) => {
                if let Some(lent) = lent.take_if(|_| spoiled) {
                    C::Lender::discard(lent);
                }
            }
            Origin::Liveness(slot) => match &mut **slot {
                Some(open) if !spoiled => open.idle_since = now.at(),
                slot => *slot = None,
            },
        }
    }
}

impl<C: Connector> fmt::Debug for Leased<C> {
    /// Omits the connector, whose settings include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("broken", &self.broken)
            .field("in_transaction", &self.in_transaction)
            .finish_non_exhaustive()
    }
}
