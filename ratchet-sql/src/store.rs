//! The store shared by all dialects: its connections, and the repetition of calls after a lost
//! connection.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratchet_core::claiming::Lookahead;
use ratchet_core::store::{CallPolicy, LossRepeats, StoreFeature, StoreInfo};
use ratchet_core::{Result, StoreErrorKind};
use tokio::sync::Semaphore;

use crate::connections::Connections;
use crate::dialect::{Dialect, Run};
use crate::expiry::HeldExpiries;
use crate::failure::{Failure, Loss, Result as Inner};
use crate::order;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::statement::{OwnStatements as _, Statements};

/// A store on an SQL server. It contains the connections, the statements and the cached routes for
/// one schema. Each dialect's crate wraps it in its own store type.
///
/// Clones share the connections.
pub struct SqlStore<D: Dialect>(Arc<Inside<D>>);

struct Inside<D: Dialect> {
    connections: Connections<D::Connector>,
    sql: Statements<D>,
    routes: Routes,
    lookahead: Lookahead,
    /// Semaphore with one permit. A call that is not for a lock holds the permit while it waits for
    /// the connection for heartbeats and locks. So a call for a lock waits for at most one such
    /// call.
    lobby: Semaphore,
    held_expiries: Mutex<HeldExpiries>,
    schema: String,
    version: String,
    deadline: Duration,
}

/// Maximum time that a call for a lock waits for the connection for heartbeats and locks. After
/// this time, the call uses a connection for jobs. So a heartbeat that hangs cannot delay the
/// renewal of the leader's lock until the lock has expired.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

impl<D: Dialect> SqlStore<D> {
    /// Opens a store whose tables already exist, and reads the stored routes. `version` is the
    /// version of the server.
    ///
    /// # Errors
    /// Fails if the routes cannot be read.
    pub fn open(
        connections: Connections<D::Connector>,
        sql: Statements<D>,
        version: String,
        settings: &Settings,
    ) -> impl Future<Output = Inner<Self>> + Send {
        let (schema, deadline) = (settings.schema.clone(), settings.deadline);
        let own_queues = match sql.own.queues() {
            Some(_) => settings.own_queues,
            None => usize::MAX,
        };
        // Boxed, to keep the callers' futures small.
        Box::pin(async move {
            let routes = Routes::new(own_queues);
            routes
                .refresh(&mut connections.liveness.lease().await?, &sql)
                .await?;
            Ok(Self(Arc::new(Inside {
                connections,
                sql,
                routes,
                lookahead: Lookahead::default(),
                lobby: Semaphore::new(1),
                held_expiries: Mutex::default(),
                schema,
                version,
                deadline,
            })))
        })
    }

    pub(crate) fn held_expiries(&self) -> MutexGuard<'_, HeldExpiries> {
        let held = self.0.held_expiries.lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the SQL statements of this store.
    #[must_use]
    pub fn sql(&self) -> &Statements<D> {
        &self.0.sql
    }

    /// Returns the connections of this store.
    #[must_use]
    pub fn pools(&self) -> &Connections<D::Connector> {
        &self.0.connections
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.0.routes
    }

    pub(crate) fn lookahead(&self) -> &Lookahead {
        &self.0.lookahead
    }

    /// Returns the name of the schema that contains the tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.0.schema
    }

    /// Returns the version of the database server.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the maximum duration of a call.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// Returns whether `other` is this store or a clone of it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Leases a connection from the pool for jobs.
    ///
    /// # Errors
    /// `Timeout` if no connection became free in time. `Unavailable` if the store is closed or a
    /// new connection cannot be opened.
    pub async fn lease(&self) -> Inner<D::Lease> {
        self.0.connections.pool.lease().await
    }

    /// Leases the connection for heartbeats and locks. Calls that read or change a lock use
    /// [`live_for_lock`](Self::live_for_lock) instead.
    ///
    /// # Errors
    /// `Unavailable` if the store is closed or a new connection cannot be opened.
    pub async fn live(&self) -> Inner<D::Lease> {
        if self.0.connections.pool.is_closed() {
            return Err(Failure::closed());
        }
        let store = self.clone();
        uninterrupted(async move {
            let _lobby = store.0.lobby.acquire().await;
            store.0.connections.liveness.lease().await
        })
        .await
    }

    /// Leases the connection for heartbeats and locks, for a call that reads or changes a lock. At
    /// most one call that is not for a lock can get the connection first. If the connection is in
    /// use for more than 500 ms, leases a connection for jobs instead.
    ///
    /// # Errors
    /// `Unavailable` if the store is closed or a new connection cannot be opened; `Timeout` if no
    /// connection was free in time.
    pub async fn live_for_lock(&self) -> Inner<D::Lease> {
        if self.0.connections.pool.is_closed() {
            return Err(Failure::closed());
        }
        let store = self.clone();
        let live = uninterrupted(async move { store.0.connections.liveness.lease().await });
        match tokio::time::timeout(LOCK_PATIENCE, live).await {
            Ok(lease) => lease,
            Err(_) => self.lease().await,
        }
    }

    /// Runs `work`, which must be safe to repeat. If the connection is lost, runs `work` again. The
    /// maximum number of repetitions is the maximum number of connections in the pool. An error
    /// names `operation` as the failed operation.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn call<T: Send, Work: Future<Output = Inner<T>> + Send>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work + Send + Sync,
    ) -> Result<T> {
        self.repeat_lost(work)
            .await
            .map_err(|failure| failure.during(operation))
    }

    /// Runs `work` as [`call`](Self::call) does, but repeats `work` only if the server reported
    /// that it rolled back the first run. Use it for work whose repetition could give another
    /// answer.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn call_once<T: Send, Work: Future<Output = Inner<T>> + Send>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work + Send + Sync,
    ) -> Result<T> {
        self.repeat_after(|loss| loss == Loss::Told, work)
            .await
            .map_err(|failure| failure.during(operation))
    }

    /// Runs `work` as [`call`](Self::call) does, but the error names no operation. Use it for
    /// operations that are not methods of a store trait.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn repeat_lost<T: Send, Work: Future<Output = Inner<T>> + Send>(
        &self,
        work: impl Fn() -> Work + Send + Sync,
    ) -> Inner<T> {
        self.repeat_after(|loss| loss != Loss::No, work).await
    }

    async fn repeat_after<T: Send, Work: Future<Output = Inner<T>> + Send>(
        &self,
        repeat: impl Fn(Loss) -> bool + Send + Sync,
        work: impl Fn() -> Work + Send + Sync,
    ) -> Inner<T> {
        // Each idle connection of the pool may have been lost too, so one repetition may not be
        // enough.
        let mut repeats = LossRepeats::at_most(self.0.connections.pool.max_connections());
        loop {
            let mut failure = match work().await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            // A server that rejects all writes would reject a second try too.
            let repeatable = failure.loss != Loss::ReadOnly && repeat(failure.loss);
            if let Err(kind) = repeats.failed(failure.kind, repeatable) {
                failure.kind = kind;
                return Err(failure);
            }
        }
    }

    /// Runs `work` once, within the store's deadline. Use it for calls that do not pass through the
    /// core's `Checked`, such as a statement in a transaction of the application.
    ///
    /// # Errors
    /// The errors of `work`, and `Timeout` if `work` does not complete within the deadline.
    pub async fn within<T>(&self, work: impl Future<Output = Inner<T>> + Send) -> Inner<T> {
        match tokio::time::timeout(self.0.deadline, work).await {
            Ok(done) => done,
            Err(_) => Err(self.too_late()),
        }
    }

    /// Returns the deadline and the number of repetitions with which the core calls this store.
    #[must_use]
    pub fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(self.0.deadline).gathers(true)
    }

    /// Returns why the store lacks a feature. `None` means that it supports the feature.
    #[must_use]
    pub fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
        let lacks = feature == StoreFeature::FairKeys && self.sql().own.turns().is_none();
        lacks.then_some("this version does not store turns in this database")
    }

    /// Closes the idle connections, and returns the `Timeout` failure of a call that got no reply
    /// within the deadline.
    #[must_use]
    pub fn too_late(&self) -> Failure {
        self.drop_idle();
        too_late(self.0.deadline)
    }

    /// Closes the idle connections. The network may have interrupted them without notice. Each call
    /// on such a connection would fail only after its whole deadline.
    pub fn drop_idle(&self) {
        self.0.connections.pool.drop_idle();
    }

    /// Returns up to `limit` rows whose names come after `after` in byte order. `column` is the
    /// index of the column with the name. `list` builds the statement for a name and a maximum
    /// number of rows.
    pub(crate) async fn named(
        &self,
        lease: &mut D::Lease,
        list: impl Fn(&str, i64) -> D::Query + Send,
        column: usize,
        after: &str,
        limit: usize,
    ) -> Inner<Vec<D::Row>> {
        if D::NAMES_BY_BYTES {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            return lease.rows(list(after, limit)).await;
        }
        order::by_bytes::<D>(lease, list, column, after, limit).await
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Returns the name of this backend and the version of the server.
    #[must_use]
    pub fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: D::BACKEND,
            version: self.0.version.clone(),
        }
    }

    /// Returns the number of open connections in the pool for jobs.
    #[must_use]
    pub fn open_connections(&self) -> u32 {
        self.0.connections.pool.open_connections()
    }
}

impl<D: Dialect> Clone for SqlStore<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Dialect> fmt::Debug for SqlStore<D> {
    /// Does not write the connections, because their settings include the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("backend", &D::BACKEND)
            .field("schema", &self.0.schema)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

/// Runs `work` to its end in a separate task, even if the caller stops waiting for the result.
///
/// So a connection that opens slowly is still opened, and a later call can use it. Also, a caller
/// that stops waiting cannot interrupt the opening between two of its statements. However, the
/// reply of the statement that binds locks to the new session may be lost after the statement has
/// taken effect. The leader then binds its lock to the current session when it renews the lock.
async fn uninterrupted<T: Send + 'static>(
    work: impl Future<Output = Inner<T>> + Send + 'static,
) -> Inner<T> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => Err(Failure::closed()),
        },
    }
}

/// Builds the `Timeout` failure of a call that got no reply within `deadline`.
#[must_use]
pub fn too_late(deadline: Duration) -> Failure {
    Failure::new(
        StoreErrorKind::Timeout,
        format!("the store did not answer within {deadline:?}"),
    )
}

/// Implements [`Store`](ratchet_core::store::Store) for the store type of a dialect. The type must
/// implement `DiagnosticStore` and `TransactionStore` itself.
///
/// The other arguments are names of the type's methods: `$shared` returns its [`SqlStore`],
/// `$coordinator` returns its coordinator, and `$close` closes the store.
#[macro_export]
macro_rules! store {
    ($store:ty, $shared:ident, $coordinator:ident, $close:ident) => {
        impl ::ratchet_core::store::Store for $store {
            fn info(&self) -> ::ratchet_core::store::StoreInfo {
                self.$shared().info()
            }

            fn jobs(&self) -> &dyn ::ratchet_core::store::JobStore {
                self.$shared()
            }

            fn queues(&self) -> &dyn ::ratchet_core::store::QueueStore {
                self.$shared()
            }

            fn nodes(&self) -> &dyn ::ratchet_core::store::NodeStore {
                self.$shared()
            }

            fn locks(&self) -> &dyn ::ratchet_core::store::LockStore {
                self.$shared()
            }

            fn versions(&self) -> &dyn ::ratchet_core::store::VersionStore {
                self.$shared()
            }

            fn call_policy(&self) -> ::ratchet_core::store::CallPolicy {
                self.$shared().call_policy()
            }

            fn lacks(&self, feature: ::ratchet_core::store::StoreFeature) -> Option<&'static str> {
                self.$shared().lacks(feature)
            }

            fn call_timed_out(&self) {
                self.$shared().drop_idle();
            }

            fn recurring(&self) -> Option<&dyn ::ratchet_core::store::RecurringStore> {
                Some(self.$shared())
            }

            fn archive(&self) -> Option<&dyn ::ratchet_core::store::ArchiveStore> {
                Some(self.$shared())
            }

            fn permits(&self) -> Option<&dyn ::ratchet_core::store::PermitStore> {
                Some(self.$shared())
            }

            fn fair(&self) -> Option<&dyn ::ratchet_core::store::FairStore> {
                self.$shared().fair()
            }

            fn rates(&self) -> Option<&dyn ::ratchet_core::store::RateStore> {
                Some(self.$shared())
            }

            fn workflows(&self) -> Option<&dyn ::ratchet_core::store::WorkflowStore> {
                Some(self.$shared())
            }

            fn signals(&self) -> Option<&dyn ::ratchet_core::store::SignalStore> {
                Some(self.$shared())
            }

            fn transactions(&self) -> Option<&dyn ::ratchet_core::store::TransactionStore> {
                Some(self)
            }

            fn diagnostics(&self) -> Option<&dyn ::ratchet_core::store::DiagnosticStore> {
                Some(self)
            }

            fn connections(&self) -> Option<u32> {
                Some(self.$shared().open_connections())
            }

            fn coordinator(
                &self,
            ) -> Option<::std::sync::Arc<dyn ::ratchet_core::cluster::ClusterCoordinator>> {
                self.$coordinator()
            }

            fn close(
                &self,
            ) -> ::std::pin::Pin<Box<dyn ::std::future::Future<Output = ()> + Send + '_>> {
                Box::pin(self.$close())
            }
        }
    };
}
