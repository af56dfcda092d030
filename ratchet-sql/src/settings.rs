//! The settings that every store on a SQL server has.

use std::time::Duration;

use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};

use crate::dialect::Dialect;
use crate::failure::Result as Inner;
use crate::generation::LIFETIME;
use crate::migrations::Step;
use crate::store::too_late;

/// The settings that every store on a SQL server has; [`builder!`](crate::builder) generates their
/// setters.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the setters are documented")]
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
}

impl Settings {
    /// Builds the default settings, with these migrations.
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
        }
    }

    /// Returns how many connections the pool may have.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.max_connections.unwrap_or(10)
    }

    /// Checks the settings as far as possible without the database. Returns the SQL expression of
    /// the clock.
    ///
    /// # Errors
    /// `Misconfigured`, with the first invalid setting.
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

/// Returns an error for a name that the server would reject or change.
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

/// Builds the error of an invalid setting.
pub fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

/// Runs `work` within the deadline, for the caller of `operation`.
///
/// # Errors
/// Those of `work`, and `Timeout` after the deadline.
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

/// Adds the setters of [`Settings`] and the methods of a builder to a `Builder` that has a field
/// `settings` and a method `into_config`. The caller documents the setters that differ by server.
///
/// The calling module must have the dialect's module `migrate` in scope, with its `scripts` and
/// `pending`.
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
            /// Sets the schema of the tables; `ratchet` by default. Any name works that the server
            /// accepts unchanged and that has no NUL or brace.
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

            /// Sets whether connecting creates and upgrades the tables; `true` by default. If
            /// `false`, connecting fails with `SchemaMismatch` if the schema lacks a migration of
            #[doc = concat!("[`", stringify!($store), "::migrations`].")]
            pub fn migrate(mut self, migrate: bool) -> Self {
                self.settings.migrate = migrate;
                self
            }

            /// For tests of upgrades: adds a migration after those of this version.
            #[doc(hidden)]
            pub fn next_migration(mut self, name: &'static str, sql: &'static str) -> Self {
                let steps = &mut self.settings.steps;
                let version = steps.last().map_or(1, |step| step.version + 1);
                steps.push($crate::Step { version, name, sql });
                self
            }

            /// For tests: replaces the database's clock by the column `now_ms` of the only row of
            /// this table, which the test has created in the schema.
            pub fn clock_table(mut self, table: impl Into<String>) -> Self {
                self.settings.clock_table = Some(table.into());
                self
            }

            /// Connects, creates or upgrades Ratchet's tables, and checks that they match this
            /// version of Ratchet.
            ///
            /// # Errors
            /// - `Misconfigured` if a setting, the URL, the certificate, the credentials, the
            ///   user's rights or a setting of the database does not work. If a DBA can correct the
            ///   problem, the error contains what to run.
            /// - `SchemaMismatch` if the schema has tables that are newer, were changed, or are not
            ///   Ratchet's.
            /// - `Unavailable`, `ReadOnly` or `Timeout`, depending on the state of the database.
            ///
            /// # Cancel safety
            /// Dropping the future aborts the work; each migration is applied as a whole or not at
            /// all.
            pub async fn connect(
                self,
            ) -> ::ratchet_core::Result<::ratchet_core::store::Checked<$store>> {
                let config = self.into_config();
                let store = $store::open(config.map_err(|error| error.during("connect"))?);
                store.await.map(::ratchet_core::store::Checked::new)
            }

            /// Returns all migrations for these settings, in order, without reading the database.
            #[must_use]
            pub fn migrations(&self) -> Vec<$crate::Migration> {
                migrate::scripts(&self.settings.schema, &self.settings.steps)
            }

            /// Returns the migrations that [`connect`](Self::connect) would apply, in order.
            /// Changes nothing.
            ///
            /// # Errors
            /// As for [`connect`](Self::connect), but the right to create tables is not needed.
            ///
            /// # Cancel safety
            /// Dropping the future drops the connection.
            pub async fn pending_migrations(
                self,
            ) -> ::ratchet_core::Result<Vec<$crate::Migration>> {
                const OPERATION: &str = "pending_migrations";
                let config = self.into_config();
                let config = config.map_err(|error| error.during(OPERATION))?;
                let pending = migrate::pending(&config);
                $crate::in_time(OPERATION, config.settings.deadline, pending).await
            }

            /// Checks the settings as far as possible without the database.
            ///
            /// # Errors
            /// `Misconfigured`, with the first invalid setting.
            pub fn check(&self) -> ::ratchet_core::Result<()> {
                let config = self.clone().into_config();
                config
                    .map(drop)
                    .map_err(|error| error.during("check settings"))
            }
        }
    };
}
