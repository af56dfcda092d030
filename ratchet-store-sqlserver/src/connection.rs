//! Connections: of the pool for jobs, and the one of their own that heartbeats and locks have.

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

/// Begins a transaction in which each statement sees what was committed before it, whatever an
/// application has set before.
pub(crate) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN TRANSACTION";
pub(crate) const COMMIT: &str = "COMMIT TRANSACTION";
/// Commits, and refuses to end what was begun or ended by others. It says how many transactions are
/// open then: a session may be told to run nothing and to say nothing of it.
pub(crate) const COMMIT_OWN: &str = "IF @@TRANCOUNT <> 1 THROW 50002, \
     N'statements of the application have ended the transaction, or begun another inside', 1; \
     COMMIT TRANSACTION; SELECT @@TRANCOUNT";
/// An error may have rolled back already.
pub(crate) const ROLL_BACK: &str = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION";

/// A connection in use. If its use ends in the middle of a statement or of a transaction, or with
/// the loss of the connection, it is closed and never used again: the driver cannot tell where in
/// an answer a dropped call was.
pub(crate) struct Lease {
    held: Held,
    /// Whether a statement is going on or failed in a way that leaves the connection unknown.
    broken: bool,
    /// How the connection was lost, if it was.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    made: Made,
    generation: Generation,
    session: Arc<Session>,
    /// Whether the session waits for locks less long than it did when it began.
    impatient: bool,
}

enum Held {
    /// None once it is given back.
    Pooled(Option<Object<Maker>>),
    Liveness(OwnedMutexGuard<Option<Kept>>),
}

/// A connection and when it was made.
pub(crate) struct Kept {
    client: Box<Client>,
    made: Made,
    /// The state of its session before an application had it.
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

/// Makes the connections of the pool.
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

    /// A lost connection shows at the next call on it, which is then repeated: asking each for a
    /// sign of life would be one more round trip for every call.
    async fn recycle(&self, kept: &mut Kept, _: &Metrics) -> RecycleResult<Failure> {
        if kept.made.is_good(self.generation.made_now()) {
            Ok(())
        } else {
            Err(RecycleError::message("it is worn"))
        }
    }
}

/// The connections for jobs.
pub(crate) struct Pool {
    pool: managed::Pool<Maker>,
    generation: Generation,
    max_connections: u32,
}

impl Pool {
    /// The pool, and the connection beside it.
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
                // Connecting has its own.
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

    /// A connection, within the time that the settings give.
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
                return Err(Failure::new(StoreErrorKind::Other, "the pool is broken"));
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

    /// How many connections are open.
    pub(crate) fn open_connections(&self) -> u32 {
        u32::try_from(self.pool.status().size).unwrap_or(u32::MAX)
    }

    pub(crate) const fn max_connections(&self) -> u32 {
        self.max_connections
    }

    /// Closes the idle ones: they may be lost as well.
    pub(crate) fn drop_idle(&self) {
        self.pool.retain(|_, _| false);
    }

    /// Closes the idle ones, and the others when they come back.
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

    /// Runs statements without parameters, as a batch of their own.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<Vec<Row>> {
        let client = self.begin_call()?;
        let done = quietly(async { client.simple_query(sql).await?.into_results().await }).await;
        self.after(done.map(row::all))
    }

    /// Runs statements of an application's; how many rows the last of them changed.
    ///
    /// Those with parameters run inside a procedure of the server's, which takes back at its end
    /// what they have set. Those without are a batch of their own, whose counts the driver does not
    /// tell.
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

    /// As [`execute_text`](Self::execute_text), and reads the rows of the first result.
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

    /// Remembers what the session is like, before an application has it for the first time.
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

    /// Makes the session anew what the statements need, whatever an application has made of it.
    ///
    /// # Errors
    /// If that is not enough: it is another user's or another database's now, or speaks another
    /// language. Then it is to be closed.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        let session = Arc::clone(&self.session);
        let setup = format!("{}\n{CHARACTER}", session.setup);
        let now = session::character(&self.batch(&setup).await?)?;
        let before = self.kept().and_then(|kept| kept.character.as_ref());
        if before == Some(&now) {
            return Ok(());
        }
        let text = format!("the session was left as {now}");
        Err(Failure::new(StoreErrorKind::Other, text))
    }

    /// Runs a statement in a session that is first made what statements rest on, whatever an
    /// application has set in it.
    pub(crate) async fn batch_anew(&mut self, sql: &str) -> Result<()> {
        let anew = format!("{}\n{sql}", self.session.setup);
        self.batch(&anew).await.map(drop)
    }

    /// Commits a transaction in which an application has run statements of its own, unless they
    /// have ended it or begun another inside.
    pub(crate) async fn commit_own(&mut self) -> Result<()> {
        let rows = self.batch(COMMIT_OWN).await?;
        match rows.first().map(|row| row.try_get::<i32>(0)) {
            Some(Ok(0)) => {
                self.in_transaction = false;
                Ok(())
            }
            _ => Err(Failure::new(
                StoreErrorKind::Other,
                "the server has not committed: a statement of the application has turned execution off",
            )),
        }
    }

    /// Ends the transaction with this, and waits for locks as ever from then on.
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

    /// Has the connection closed.
    pub(crate) const fn discard(&mut self) {
        self.broken = true;
    }

    /// Whether nothing can be done on it any more.
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
        // A statement that waits for less long says so at its end only if it gets there.
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

    /// How many rows its last part changed that changes any.
    async fn execute(&mut self, query: Query) -> Result<u64> {
        let done = query.execute(self.begin_call()?).await;
        self.after(done)
    }
}

impl ratchet_sql::Lease<SqlServer> for Lease {
    /// The driver's count is one of several; such a statement returns its own.
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
                // An error has rolled back already, unless the server only refused to begin. If
                // this fails too, the connection is closed, which rolls back as well.
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
        // How they are made has the password.
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
                // Taken out of the pool, it is closed here.
                let pool = Object::pool(&object);
                drop(Object::take(object));
                if let (true, Some(pool)) = (self.loss != Loss::No, pool) {
                    // The others may be lost as well.
                    pool.retain(|_, _| false);
                }
            }
            Held::Liveness(slot) if spoiled => **slot = None,
            Held::Liveness(_) => {}
        }
    }
}

/// The connection of heartbeats and locks, which no job can take away: opened when first needed,
/// and again when it was lost.
pub(crate) struct Liveness {
    connector: Connector,
    generation: Generation,
    slot: Arc<Mutex<Option<Kept>>>,
    closed: AtomicBool,
}

impl Liveness {
    /// Returns the connection, once no other call uses it.
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

    /// Closes it; the next use opens another.
    pub(crate) async fn renew(&self) {
        *self.slot.lock().await = None;
    }

    /// Closes it; it is not opened again.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        *self.slot.lock().await = None;
    }
}
