//! Connections: the pool for jobs, and the connection reserved for heartbeats and locks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult, Timeouts};
use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Generation, Loss, Made, Result, Row as _, Run, Statement};
use tiberius::ToSql;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::config::Config;
use crate::connect::{Client, Connector, quietly};
use crate::dialect::SqlServer;
use crate::error::Classified;
use crate::query::Query;
use crate::row::{self, Row};
use crate::session::{self, CHARACTER, Session, lock_timeout};

/// Begins a transaction with the isolation level `READ COMMITTED`, even if an application has set
/// another level. Each statement in the transaction then sees all changes that were committed
/// before that statement.
pub(crate) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN TRANSACTION";
pub(crate) const COMMIT: &str = "COMMIT TRANSACTION";
/// Commits a transaction in which an application has run statements. Fails if these statements have
/// ended the transaction or begun another one. Returns the number of transactions that are open
/// afterwards. If the application has turned off execution (`SET NOEXEC ON`), the server reports no
/// error and returns no number.
pub(crate) const COMMIT_OWN: &str = "IF @@TRANCOUNT <> 1 THROW 50002, \
     N'statements of the application have ended the transaction, or begun another inside', 1; \
     COMMIT TRANSACTION; SELECT @@TRANCOUNT";
/// Rolls back the transaction, if an error has not already done so.
pub(crate) const ROLL_BACK: &str = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION";

/// A leased connection. Dropping the lease makes the connection available again. The connection is
/// closed instead if it was lost, or if a statement or transaction was not complete. After an
/// incomplete call, the driver does not know which part of the answer it has read.
pub(crate) struct Lease {
    held: Held,
    /// Whether the state of the connection is unknown, because a statement is still running or was
    /// not completed.
    broken: bool,
    /// Whether the connection was lost, and how.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    made: Made,
    generation: Generation,
    session: Arc<Session>,
    /// Whether the lock timeout of the session may still be shorter than the normal one.
    impatient: bool,
}

enum Held {
    /// A connection of the pool. `None` once the lease was dropped.
    Pooled(Option<Object<Maker>>),
    Liveness(OwnedMutexGuard<Option<Kept>>),
}

/// A connection, with its age and the state of its session.
pub(crate) struct Kept {
    client: Box<Client>,
    made: Made,
    /// State of the session before an application used the connection. `None` if no application has
    /// used it.
    character: Option<String>,
}

impl Connector {
    async fn open(&self, made: Made) -> Result<Kept> {
        Ok(Kept {
            client: Box::new(self.connect().await?),
            made,
            character: None,
        })
    }
}

/// Opens connections for the pool.
pub(crate) struct Maker {
    connector: Connector,
    generation: Generation,
}

impl managed::Manager for Maker {
    type Type = Kept;
    type Error = Failure;

    async fn create(&self) -> Result<Kept> {
        let made = self.generation.made_now();
        self.connector.open(made).await
    }

    /// Decides whether a connection of the pool can be used again. Checks only the age and the
    /// generation of the connection. A ping would cost each call one more round trip. Without a
    /// ping, a call may get a lost connection. The call then fails, and the store repeats it.
    async fn recycle(&self, kept: &mut Kept, _: &Metrics) -> RecycleResult<Failure> {
        if kept.made.is_good(self.generation.made_now()) {
            Ok(())
        } else {
            Err(RecycleError::message(
                "the connection is older than max_lifetime, or the server began to reject writes \
                 after it was opened",
            ))
        }
    }
}

/// The pool of connections for jobs.
pub(crate) struct Pool {
    pool: managed::Pool<Maker>,
    generation: Generation,
    max_connections: u32,
}

impl Pool {
    /// Creates the pool, and the object for the connection for heartbeats and locks. Opens no
    /// connection yet.
    pub(crate) fn open(config: &Config) -> Result<(Self, Liveness)> {
        let session = Session::new(config.settings.deadline);
        let connector = Connector::new(config, session);
        let generation = Generation::new(config.settings.max_lifetime);
        let maker = Maker {
            connector: connector.clone(),
            generation: generation.clone(),
        };
        let pool = managed::Pool::builder(maker)
            .max_size(usize::try_from(config.settings.max_connections()).unwrap_or(usize::MAX))
            .timeouts(Timeouts {
                wait: Some(config.settings.acquire_timeout),
                // Connecting has its own timeout.
                create: None,
                recycle: None,
            })
            .queue_mode(managed::QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Failure::new(StoreErrorKind::Misconfigured, error.to_string()))?;
        let liveness = Liveness {
            connector,
            generation: generation.clone(),
            slot: Arc::new(Mutex::new(None)),
            closed: AtomicBool::new(false),
        };
        let pool = Self {
            pool,
            generation,
            max_connections: config.settings.max_connections(),
        };
        Ok((pool, liveness))
    }

    /// Leases a connection from the pool. Fails with `Timeout` if none is free within the acquire
    /// timeout.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let object = match self.pool.get().await {
            Ok(object) => object,
            Err(PoolError::Backend(failure)) => return Err(failure),
            Err(PoolError::Closed) => return Err(Failure::closed()),
            Err(PoolError::Timeout(_)) => {
                return Err(Failure::new(
                    StoreErrorKind::Timeout,
                    "no connection was free in time",
                ));
            }
            Err(PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                return Err(Failure::new(
                    StoreErrorKind::Other,
                    "the connection pool has failed",
                ));
            }
        };
        let made = object.made;
        let held = Held::Pooled(Some(object));
        let session = self.pool.manager().connector.session();
        Ok(Lease::new(held, made, self.generation.clone(), session))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Returns the number of open connections in the pool.
    pub(crate) fn open_connections(&self) -> u32 {
        u32::try_from(self.pool.status().size).unwrap_or(u32::MAX)
    }

    pub(crate) const fn max_connections(&self) -> u32 {
        self.max_connections
    }

    /// Closes the idle connections. Called after a connection was lost, because the idle
    /// connections may be lost too.
    pub(crate) fn drop_idle(&self) {
        self.pool.retain(|_, _| false);
    }

    /// Closes the pool. Idle connections are closed at once, and leased connections when they are
    /// returned.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

impl Lease {
    const fn new(held: Held, made: Made, generation: Generation, session: Arc<Session>) -> Self {
        Self {
            held,
            broken: false,
            loss: Loss::No,
            in_transaction: false,
            made,
            generation,
            session,
            impatient: false,
        }
    }

    /// Runs one or more statements without parameters, in a separate batch.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<Vec<Row>> {
        let client = self.begin_call()?;
        let done = quietly(async { client.simple_query(sql).await?.into_results().await }).await;
        self.after(done.map(row::all))
    }

    /// Runs statements of an application. Returns the number of rows that the last statement
    /// changed.
    ///
    /// With parameters, the driver runs the statements inside a stored procedure. At the end of the
    /// procedure, the server undoes changes of the session's settings. Without parameters, the
    /// statements run in a batch of their own. The driver returns no row counts for such a batch,
    /// so the count is read with a second query.
    pub(crate) async fn execute_text(
        &mut self,
        sql: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<u64> {
        let client = self.begin_call()?;
        let done = async {
            if !parameters.is_empty() {
                let done = client.execute(sql, parameters).await?;
                return Ok(done.rows_affected().last().copied().unwrap_or_default());
            }
            client.simple_query(sql).await?.into_results().await?;
            let count = client.simple_query("SELECT ROWCOUNT_BIG()").await?;
            let row = count.into_row().await?;
            let count: Option<i64> = row.and_then(|row| row.get(0));
            Ok(count
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or_default())
        };
        let done = quietly(done).await;
        self.after(done)
    }

    /// Runs statements of an application in the same way as [`execute_text`](Self::execute_text).
    /// Returns the rows of the first result.
    pub(crate) async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<Vec<tiberius::Row>> {
        let client = self.begin_call()?;
        let done = async {
            let results = if parameters.is_empty() {
                client.simple_query(sql).await?.into_results().await?
            } else {
                client.query(sql, parameters).await?.into_results().await?
            };
            Ok(results.into_iter().next().unwrap_or_default())
        };
        let done = quietly(done).await;
        self.after(done)
    }

    /// Records the state of the session, if it is not recorded yet. Called before an application
    /// uses the connection.
    pub(crate) async fn remember(&mut self) -> Result<()> {
        if self.kept().is_some_and(|kept| kept.character.is_some()) {
            return Ok(());
        }
        let character = session::character(&self.batch(CHARACTER).await?)?;
        if let Some(kept) = self.kept() {
            kept.character = Some(character);
        }
        Ok(())
    }

    /// Resets the session after an application has used it, so that the store's statements work
    /// again.
    ///
    /// # Errors
    /// Fails if the state of the session differs from the recorded state, for example in user,
    /// database or language. The caller must then close the connection.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        let session = Arc::clone(&self.session);
        let setup = format!("{}\n{CHARACTER}", session.setup);
        let now = session::character(&self.batch(&setup).await?)?;
        let before = self.kept().and_then(|kept| kept.character.as_ref());
        if before == Some(&now) {
            return Ok(());
        }
        let text = format!(
            "the application left the session in a state that differs from the \
             state at its begin: {now}"
        );
        Err(Failure::new(StoreErrorKind::Other, text))
    }

    /// Resets the settings of the session, because an application may have changed them. Then runs
    /// `sql` in the same batch.
    pub(crate) async fn batch_anew(&mut self, sql: &str) -> Result<()> {
        let anew = format!("{}\n{sql}", self.session.setup);
        self.batch(&anew).await.map(drop)
    }

    /// Commits a transaction in which an application has run statements. Fails if these statements
    /// have ended the transaction or begun another one.
    pub(crate) async fn commit_own(&mut self) -> Result<()> {
        let rows = self.batch(COMMIT_OWN).await?;
        match rows.first().map(|row| row.try_get::<i32>(0)) {
            Some(Ok(0)) => {
                self.in_transaction = false;
                Ok(())
            }
            _ => Err(Failure::new(
                StoreErrorKind::Other,
                "the server did not run the commit: the application turned on NOEXEC in this session",
            )),
        }
    }

    /// Ends the transaction with the statement `end`. Also resets the lock timeout, if it was
    /// shortened.
    async fn end_with(&mut self, end: &str) -> Result<()> {
        let end = if self.impatient {
            format!("{end}; SET LOCK_TIMEOUT {}", self.session.lock_timeout)
        } else {
            end.to_owned()
        };
        self.batch(&end).await?;
        self.in_transaction = false;
        self.impatient = false;
        Ok(())
    }

    /// Marks the connection as unusable, so that dropping the lease closes it.
    pub(crate) const fn discard(&mut self) {
        self.broken = true;
    }

    /// Returns whether the connection cannot be used any more.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
    }

    fn begin_call(&mut self) -> Result<&mut Client> {
        if self.broken {
            return Err(Failure::no_connection());
        }
        self.broken = true;
        match self.kept() {
            Some(kept) => Ok(&mut kept.client),
            None => Err(Failure::no_connection()),
        }
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        match &mut self.held {
            Held::Pooled(object) => object.as_mut().map(|object| &mut **object),
            Held::Liveness(slot) => slot.as_mut(),
        }
    }

    fn after<T>(&mut self, result: tiberius::Result<T>) -> Result<T> {
        let result = result.classified();
        self.loss = result
            .as_ref()
            .err()
            .map_or(Loss::No, |failure| failure.loss);
        self.broken = self.loss != Loss::No;
        // A statement that shortens the lock timeout restores it at its end. If the statement fails
        // before that end, the lock timeout may still be short.
        let given_up = |failure: &Failure| failure.held || failure.raced();
        self.impatient |= result.as_ref().is_err_and(given_up);
        result
    }
}

impl Run<SqlServer> for Lease {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        let rows = query.rows(self.begin_call()?).await;
        self.after(rows)
    }

    /// Runs a statement, which may have several parts. Returns the number of rows that the last
    /// writing part changed.
    async fn execute(&mut self, query: Query) -> Result<u64> {
        let done = query.execute(self.begin_call()?).await;
        self.after(done)
    }
}

impl ratchet_sql::Lease<SqlServer> for Lease {
    /// Runs a statement that selects the number of changed rows, and returns this number. Such a
    /// statement has several parts, and the driver would return one count for each part.
    async fn changed(&mut self, query: Query) -> Result<u64> {
        let rows = self.rows(query).await?;
        let row = rows.first().ok_or_else(Failure::unreadable)?;
        Ok(row.try_get::<i64>(0)?.unsigned_abs())
    }

    async fn script(&mut self, statement: &Statement<SqlServer>) -> Result<()> {
        self.batch(statement.text()).await.map(drop)
    }

    async fn begin(&mut self) -> Result<()> {
        self.in_transaction = true;
        self.batch(BEGIN).await.map(drop)
    }

    async fn begin_within(&mut self, patience: Duration) -> Result<()> {
        self.begin().await?;
        self.impatient = true;
        let limit = format!("SET LOCK_TIMEOUT {}", lock_timeout(patience));
        self.batch(&limit).await.map(drop)
    }

    async fn finish<T: Send>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => {
                self.end_with(COMMIT).await?;
                Ok(value)
            }
            Err(failure) => {
                // If the server reported the error, it has already rolled back the transaction.
                // After another failure, the transaction is still open. If the rollback fails too,
                // the connection is closed, which also rolls back.
                if !self.broken {
                    // The caller gets the earlier error.
                    let _ = self.end_with(ROLL_BACK).await;
                }
                Err(failure)
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("broken", &self.broken)
            .field("in_transaction", &self.in_transaction)
            .finish_non_exhaustive()
    }
}

/// All connections of a store.
pub(crate) struct Connections {
    pub(crate) pool: Pool,
    pub(crate) liveness: Liveness,
}

impl ratchet_sql::Connections<SqlServer> for Connections {
    async fn lease(&self) -> Result<Lease> {
        self.pool.lease().await
    }

    async fn live(&self) -> Result<Lease> {
        self.liveness.lease().await
    }

    async fn renew_live(&self) -> Result<()> {
        self.liveness.renew().await;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    fn open_connections(&self) -> u32 {
        self.pool.open_connections()
    }

    fn max_connections(&self) -> u32 {
        self.pool.max_connections()
    }

    fn drop_idle(&self) {
        self.pool.drop_idle();
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the fields, whose settings include the password.
        f.write_str("Connections")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let spoiled = self.broken || self.in_transaction || self.impatient;
        if self.loss == Loss::ReadOnly {
            self.generation.end(self.made);
        }
        match &mut self.held {
            Held::Pooled(object) => {
                let Some(object) = object.take() else {
                    return;
                };
                if !spoiled {
                    return;
                }
                // Takes the connection out of the pool, which closes it.
                let pool = Object::pool(&object);
                drop(Object::take(object));
                if let (true, Some(pool)) = (self.loss != Loss::No, pool) {
                    // The other connections may be lost too.
                    pool.retain(|_, _| false);
                }
            }
            Held::Liveness(slot) if spoiled => **slot = None,
            Held::Liveness(_) => {}
        }
    }
}

/// The connection that is reserved for heartbeats and locks. It is opened when it is first needed,
/// and opened again after a loss.
pub(crate) struct Liveness {
    connector: Connector,
    generation: Generation,
    slot: Arc<Mutex<Option<Kept>>>,
    closed: AtomicBool,
}

impl Liveness {
    /// Waits until no other call uses the connection, and then leases it.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::closed());
        }
        let now = self.generation.made_now();
        let made = match &*slot {
            Some(kept) if kept.made.is_good(now) => kept.made,
            _ => {
                *slot = None;
                *slot = Some(self.connector.open(now).await?);
                now
            }
        };
        let session = self.connector.session();
        Ok(Lease::new(
            Held::Liveness(slot),
            made,
            self.generation.clone(),
            session,
        ))
    }

    /// Closes the connection. The next lease opens a new one.
    pub(crate) async fn renew(&self) {
        *self.slot.lock().await = None;
    }

    /// Closes the connection. Later leases fail.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        *self.slot.lock().await = None;
    }
}
