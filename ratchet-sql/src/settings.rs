//! The settings that every store on a SQL server has.

use std::time::Duration;

use ratchet_core::dictionary::OWN_QUEUES;
use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};

use crate::dialect::Dialect;
use crate::failure::Result as Inner;
use crate::generation::LIFETIME;
use crate::migrations::Step;
use crate::store::too_late;

/// Settings that all stores on SQL servers have in common. The macro [`builder!`](crate::builder)
/// generates their setters.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the setters document the fields")]
pub struct Settings {
    pub schema: String,
    pub max_connections: Option<u32>,
    pub acquire_timeout: Duration,
    pub deadline: Duration,
    pub application_name: Option<String>,
    pub migrate: bool,
    pub max_lifetime: Duration,
    pub clock_table: Option<String>,
    pub steps: Vec<Step>,
    pub own_queues: usize,
}

impl Settings {
    /// Builds the default settings for a schema with these migrations.
    #[must_use]
    pub fn new(steps: &[Step]) -> Self {
        Self {
            schema: "ratchet".to_owned(),
            max_connections: None,
            acquire_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(10),
            application_name: None,
            migrate: true,
            max_lifetime: LIFETIME,
            clock_table: None,
            steps: steps.to_vec(),
            own_queues: OWN_QUEUES,
        }
    }

    /// Returns the maximum number of connections in the pool for jobs.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.max_connections.unwrap_or(10)
    }

    /// Checks all settings that can be checked without the database. Returns the SQL expression for
    /// the current time.
    ///
    /// # Errors
    /// `Misconfigured` for the first invalid setting.
    pub fn check<D: Dialect>(&self) -> Result<String> {
        for (setting, is_zero) in [
            ("acquire_timeout", self.acquire_timeout.is_zero()),
            ("deadline", self.deadline.is_zero()),
            ("max_lifetime", self.max_lifetime.is_zero()),
            ("max_connections", self.max_connections() == 0),
        ] {
            if is_zero {
                return Err(misconfigured(setting, "is zero"));
            }
        }
        check_identifier::<D>("schema", &self.schema)?;
        let Some(table) = &self.clock_table else {
            return Ok(D::CLOCK.to_owned());
        };
        check_identifier::<D>("clock_table", table)?;
        Ok(format!(
            "(SELECT now_ms FROM {{schema}}.{})",
            D::quoted(table)
        ))
    }
}

/// Checks that the server would accept `name` unchanged. The error names the setting `what`.
fn check_identifier<D: Dialect>(what: &'static str, name: &str) -> Result<()> {
    let problem = match name {
        "" => "is empty",
        _ if name.contains('\0') => "contains a NUL character",
        // Braces mark placeholders in the texts of statements.
        _ if name.contains(['{', '}']) => "has a brace",
        _ => match D::identifier_problem(name) {
            Some(problem) => problem,
            None => return Ok(()),
        },
    };
    Err(misconfigured(what, problem))
}

/// Builds a `Misconfigured` error for the setting `what`. `problem` describes what is wrong, for
/// example "is zero".
pub fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

/// Runs `work` with a deadline. An error names `operation` as the failed operation.
///
/// # Errors
/// The errors of `work`, and `Timeout` if `work` does not complete within `deadline`.
pub async fn in_time<T>(
    operation: &'static str,
    deadline: Duration,
    work: impl Future<Output = Inner<T>>,
) -> Result<T> {
    // Boxed, to keep the callers' futures small.
    let done = tokio::time::timeout(deadline, Box::pin(work)).await;
    done.unwrap_or_else(|_| Err(too_late(deadline)))
        .map_err(|failure| failure.during(operation))
}

/// Generates the public methods of a dialect's type `Builder`: the setters of [`Settings`], and
/// methods such as `connect`. `Builder` must have a field `settings` and a method `into_config`.
///
/// The arguments include the documentation of those setters whose behavior depends on the server.
///
/// The calling module must import the dialect's module `migrate`, which contains the functions
/// `scripts` and `pending`.
#[macro_export]
macro_rules! builder {
    (
        $store:ident;
        $(#[$max_connections:meta])* max_connections;
        $(#[$acquire_timeout:meta])* acquire_timeout;
        $(#[$deadline:meta])* deadline;
        $(#[$application_name:meta])* application_name;
        $(#[$max_lifetime:meta])* max_lifetime;
    ) => {
        impl Builder {
            /// Sets the name of the database schema for Ratchet's tables. The default is `ratchet`.
            /// The name must not contain NUL or braces, and the server must accept it unchanged.
            pub fn schema(mut self, schema: impl Into<String>) -> Self {
                self.settings.schema = schema.into();
                self
            }

            $(#[$max_connections])*
            pub fn max_connections(mut self, connections: u32) -> Self {
                self.settings.max_connections = Some(connections);
                self
            }

            $(#[$acquire_timeout])*
            pub fn acquire_timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.settings.acquire_timeout = timeout;
                self
            }

            $(#[$deadline])*
            pub fn deadline(mut self, deadline: ::std::time::Duration) -> Self {
                self.settings.deadline = deadline;
                self
            }

            $(#[$application_name])*
            pub fn application_name(mut self, name: impl Into<String>) -> Self {
                self.settings.application_name = Some(name.into());
                self
            }

            $(#[$max_lifetime])*
            pub fn max_lifetime(mut self, lifetime: ::std::time::Duration) -> Self {
                self.settings.max_lifetime = lifetime;
                self
            }

            /// Sets whether connecting creates and upgrades the tables. The default is `true`. With
            /// `false`, connecting fails with `SchemaMismatch` if a migration is missing. All
            /// migrations are returned by
            #[doc = concat!("[`", stringify!($store), "::migrations`].")]
            pub fn migrate(mut self, migrate: bool) -> Self {
                self.settings.migrate = migrate;
                self
            }

            /// Adds a migration after those of this version of Ratchet. For tests of upgrades.
            #[doc(hidden)]
            pub fn next_migration(mut self, name: &'static str, sql: &'static str) -> Self {
                let steps = &mut self.settings.steps;
                let version = steps.last().map_or(1, |step| step.version + 1);
                steps.push($crate::Step { version, name, sql });
                self
            }

            /// Sets the number of queues that get routes of their own because they were used first,
            /// instead of [`OWN_QUEUES`](::ratchet_core::dictionary::OWN_QUEUES). For tests.
            #[doc(hidden)]
            pub fn own_queues(mut self, queues: usize) -> Self {
                self.settings.own_queues = queues;
                self
            }

            /// Sets a table from which the store reads the time, instead of the database's clock.
            /// For tests only.
            ///
            /// The test must create this table in the schema. The table has one row, and a column
            /// `now_ms` with the time in milliseconds since 1970.
            pub fn clock_table(mut self, table: impl Into<String>) -> Self {
                self.settings.clock_table = Some(table.into());
                self
            }

            /// Connects to the database, creates or upgrades Ratchet's tables, and checks that they
            /// match this version of Ratchet.
            ///
            /// # Errors
            /// - `Misconfigured` if a setting, the URL, the certificate, the credentials, the
            ///   user's rights or a setting of the database is wrong. If a database administrator
            ///   can correct the problem, the error contains the commands to run.
            /// - `SchemaMismatch` if the tables in the schema have a newer version, were changed,
            ///   or are not Ratchet's.
            /// - `Unavailable` if the database cannot be reached, `ReadOnly` if it accepts no
            ///   writes, or `Timeout` if it does not respond in time.
            ///
            /// # Cancel safety
            /// Dropping the future stops the call. Each migration is applied either completely or
            /// not at all.
            pub async fn connect(
                self,
            ) -> ::ratchet_core::Result<::ratchet_core::store::Checked<$store>> {
                let config = self.into_config();
                let store = $store::open(config.map_err(|error| error.during("connect"))?);
                store.await.map(::ratchet_core::store::Checked::new)
            }

            /// Returns all migrations for these settings, in order of version. Does not access the
            /// database.
            #[must_use]
            pub fn migrations(&self) -> Vec<$crate::Migration> {
                migrate::scripts(&self.settings.schema, &self.settings.steps)
            }

            /// Returns the migrations that [`connect`](Self::connect) would apply, in order of
            /// version. Changes nothing in the database.
            ///
            /// # Errors
            /// The same as for [`connect`](Self::connect), but the user does not need the right to
            /// create tables.
            ///
            /// # Cancel safety
            /// Dropping the future closes the connection.
            pub async fn pending_migrations(
                self,
            ) -> ::ratchet_core::Result<Vec<$crate::Migration>> {
                const OPERATION: &str = "pending_migrations";
                let config = self.into_config();
                let config = config.map_err(|error| error.during(OPERATION))?;
                let pending = migrate::pending(&config);
                $crate::in_time(OPERATION, config.settings.deadline, pending).await
            }

            /// Checks all settings that can be checked without the database.
            ///
            /// # Errors
            /// `Misconfigured` for the first invalid setting.
            pub fn check(&self) -> ::ratchet_core::Result<()> {
                let config = self.clone().into_config();
                config
                    .map(drop)
                    .map_err(|error| error.during("check settings"))
            }
        }
    };
}
