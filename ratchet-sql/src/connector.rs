//! What the connections of a store need from a driver: opening and closing a connection, and
//! leasing one from a pool of the application.

use std::convert::Infallible;
use std::ops::DerefMut;
use std::time::Duration;

use ratchet_core::StoreErrorKind;

use crate::failure::{Failure, Result};
use crate::leased::Leased;

/// Opens and closes the connections of one driver.
pub trait Connector: Sized + Send + Sync + 'static {
    /// Type of a connection.
    type Connection: Send + 'static;
    /// Type of a leased connection.
    type Lease: From<Leased<Self>> + Send;
    /// Type of the driver's pools. [`Infallible`] if a store on this driver uses no pool of the
    /// application.
    type Lender: Lender<Self>;

    /// Opens a connection, and sets up its session. Limits the time that this takes.
    fn connect(&self, purpose: Purpose) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// Closes a connection, and tells the server. Ignores failures, because the server notices
    /// anyway that the connection was closed.
    fn close(connection: Self::Connection) -> impl Future<Output = ()> + Send;
}

/// What a connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A connection of the pool for jobs.
    Jobs,
    /// The connection for heartbeats and locks.
    Liveness,
}

/// A pool of the application.
pub trait Lender<C: Connector>: Send + Sync + 'static {
    /// Type of a connection of this pool. Dropping it makes the connection available again.
    type Lent: DerefMut<Target = C::Connection> + Send + 'static;

    /// Takes a connection of the pool. The pool limits how long the call waits.
    fn lend(&self) -> impl Future<Output = Result<Self::Lent>> + Send;

    /// Closes a connection without sending a message to the server.
    fn discard(lent: Self::Lent);

    /// Closes the idle connections without sending a message to the server.
    fn discard_idle(&self);

    /// Returns the number of open connections.
    fn open_connections(&self) -> u32;

    /// Returns the maximum number of connections.
    fn max_connections(&self) -> u32;

    /// Returns whether the pool was closed.
    fn is_closed(&self) -> bool;

    /// Closes the pool, and waits until all its connections were returned.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

impl<C: Connector> Lender<C> for Infallible {
    type Lent = Box<C::Connection>;

    async fn lend(&self) -> Result<Self::Lent> {
        match *self {}
    }

    fn discard(_: Self::Lent) {}

    fn discard_idle(&self) {
        match *self {}
    }

    fn open_connections(&self) -> u32 {
        match *self {}
    }

    fn max_connections(&self) -> u32 {
        match *self {}
    }

    fn is_closed(&self) -> bool {
        match *self {}
    }

    async fn close(&self) {
        match *self {}
    }
}

/// Implements [`Lender`] for the pool of a database of `sqlx`. A macro, so that this crate does not
/// depend on `sqlx`. `$classify` converts an error of the driver to a [`Failure`].
#[macro_export]
macro_rules! lender {
    ($connector:ty, $database:ty, $classify:path) => {
        impl $crate::Lender<$connector> for ::sqlx::Pool<$database> {
            type Lent = ::sqlx::pool::PoolConnection<$database>;

            async fn lend(&self) -> $crate::Result<Self::Lent> {
                self.acquire().await.map_err(|error| $classify(&error))
            }

            fn discard(lent: Self::Lent) {
                drop(lent.detach());
            }

            fn discard_idle(&self) {
                while let Some(idle) = self.try_acquire() {
                    drop(idle.detach());
                }
            }

            fn open_connections(&self) -> u32 {
                self.size()
            }

            fn max_connections(&self) -> u32 {
                self.options().get_max_connections()
            }

            fn is_closed(&self) -> bool {
                ::sqlx::Pool::is_closed(self)
            }

            async fn close(&self) {
                ::sqlx::Pool::close(self).await;
            }
        }
    };
}

/// Maximum time that a transaction may stay idle before the server ends its session, if the server
/// has such a limit. If a client vanishes between two statements, its transaction keeps its row
/// locks, for example on the row of a leader's lock ([guard.write]) or of a node. This limit is
/// well below the TTL of a lock.
pub const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// Waits for a step of opening a connection.
///
/// # Errors
/// `Unavailable` after `patience`.
pub async fn connect_within<T>(
    patience: Duration,
    connecting: impl Future<Output = T>,
) -> Result<T> {
    let connected = tokio::time::timeout(patience, connecting).await;
    connected.map_err(|_| {
        let text = format!("could not connect within {patience:?}");
        Failure::new(StoreErrorKind::Unavailable, text)
    })
}
