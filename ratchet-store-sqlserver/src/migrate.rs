//! The migrations, the lock under which they are applied, and the privileges that they need.

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Lease as _, Loss, Migration, Result, Row as _, Run as _, Step, behind};

use crate::config::Config;
use crate::connection::{Lease, Liveness, connections};
use crate::dialect::SqlServer;
use crate::session::{self, INDEXABLE};
use crate::statements::{CREATE_MIGRATIONS, Statements, statements};
use crate::words::{DATABASE_CLOCK, Words, application_lock, literal, quoted};

/// All migrations, in order. New migrations are appended at the end. A migration that was released
/// must never change.
pub(crate) const STEPS: &[Step] = &[Step {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

/// Returns the script of a migration, which must run in one transaction.
fn script(step: &Step, schema: &str) -> String {
    let fill = |text: &str| {
        text.replace("{schema_in_text}", &quoted(schema).replace('\'', "''"))
            .replace("{schema}", &quoted(schema))
    };
    let create = format!("CREATE SCHEMA {}", quoted(schema));
    // Uses EXEC, because CREATE SCHEMA must be the only statement of its batch.
    let first = format!(
        "IF SCHEMA_ID({}) IS NULL EXEC({});\n{};\n",
        literal(schema),
        literal(&create),
        fill(CREATE_MIGRATIONS)
    );
    step.script(&first, fill, &fill("{schema}.migrations"), DATABASE_CLOCK)
}

/// Returns the scripts of these migrations, for display.
pub(crate) fn scripts(schema: &str, steps: &[Step]) -> Vec<Migration> {
    // The script includes the session settings that the indexes need, because a DBA's tools may use
    // other settings.
    let printed = |step: &Step| step.printed(format!("{INDEXABLE}{}", script(step, schema)));
    steps.iter().map(printed).collect()
}

/// Checks the schema and applies missing migrations. If several programs start at the same time,
/// they wait for each other. Each of them then reads again which migrations are missing.
pub(crate) async fn open(
    liveness: &Liveness,
    sql: &Statements,
    words: &Words,
    user: &str,
    config: &Config,
) -> Result<()> {
    let mut lease = liveness.lease().await?;
    let schema = Schema::new(config, sql, user);
    if schema.applied(&mut lease).await? == schema.schema.steps.len() {
        return Ok(());
    }
    if !config.settings.migrate {
        return Err(behind(&schema.schema.place(), "SqlServerStore").into());
    }
    let lock = literal(&application_lock("migrations", schema.schema.name));
    // The session owns the lock, so that it is held across the transactions of all steps. After a
    // failure the connection is closed, which releases the lock.
    let take = take_lock(&lock, words.lock_timeout());
    let got = lease.batch(&take).await?;
    let got: i32 = got.first().map_or(Ok(-1), |row| row.try_get(0))?;
    if got < 0 {
        return Err(Failure::new(
            StoreErrorKind::Timeout,
            "timed out waiting for another process to create the tables",
        ));
    }
    let applied = schema.apply_all(&mut lease).await;
    match applied {
        Ok(()) => lease.batch(&release_lock(&lock)).await.map(drop),
        Err(failure) => {
            let failure = schema.advise(&mut lease, failure).await;
            lease.discard();
            Err(failure)
        }
    }
}

/// Returns the migrations that are not applied yet. Changes nothing.
pub(crate) async fn pending(config: &Config) -> Result<Vec<Migration>> {
    let mut lease = connections(config).liveness.lease().await?;
    let server = session::check(&mut lease, config.locking_reads).await?;
    let words = config.words(&server);
    let sql = statements(&words);
    let schema = Schema::new(config, &sql, &server.user);
    let applied = schema.applied(&mut lease).await?;
    Ok(scripts(schema.schema.name, schema.schema.steps).split_off(applied))
}

/// Returns the batch that acquires an application lock for the session. `name` is the name of the
/// lock as a quoted text. The batch waits for at most `patience` milliseconds, and selects a
/// negative number if it does not get the lock.
pub(crate) fn take_lock(name: &str, patience: i64) -> String {
    format!(
        "DECLARE @got int; EXEC @got = sp_getapplock @Resource = {name}, \
         @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = {patience}; SELECT @got"
    )
}

pub(crate) fn release_lock(name: &str) -> String {
    format!("EXEC sp_releaseapplock @Resource = {name}, @LockOwner = 'Session'")
}

struct Schema<'a> {
    schema: ratchet_sql::Schema<'a, SqlServer>,
    /// Name of the store's user in the database.
    user: &'a str,
}

impl<'a> Schema<'a> {
    fn new(config: &'a Config, sql: &'a Statements, user: &'a str) -> Self {
        let schema = ratchet_sql::Schema {
            name: &config.settings.schema,
            steps: &config.settings.steps,
            sql,
        };
        Self { schema, user }
    }

    /// If the user lacks the privileges to create the tables, adds to the failure the statements
    /// that a DBA must run. Returns other failures unchanged.
    async fn advise(&self, lease: &mut Lease, failure: Failure) -> Failure {
        if !failure.forbidden {
            return failure;
        }
        let find = format!(
            "SELECT 1 WHERE SCHEMA_ID({}) IS NOT NULL",
            literal(self.schema.name)
        );
        let is_there = lease.batch(&find).await.is_ok_and(|rows| !rows.is_empty());
        let (schema, user) = (quoted(self.schema.name), quoted(self.user));
        let get_schema = if is_there {
            format!("GRANT ALTER, SELECT, INSERT, UPDATE, DELETE ON SCHEMA::{schema} TO {user}")
        } else {
            // Uses EXEC, because CREATE SCHEMA must be the only statement of its batch.
            let create = format!("CREATE SCHEMA {schema} AUTHORIZATION {user}");
            format!("EXEC({})", literal(&create))
        };
        failure.advised(&format!(
            "to create the tables, a DBA must run: GRANT CREATE TABLE TO {user}; {get_schema}"
        ))
    }

    /// Fails if the tables exist and the user has no privileges on them. For such a user, the
    /// server hides the tables as if they did not exist.
    async fn check_rights(&self, lease: &mut Lease) -> Result<()> {
        match lease.rows(self.schema.sql.applied_migrations.query()).await {
            Err(failure) if failure.forbidden => {
                let (schema, user) = (quoted(self.schema.name), quoted(self.user));
                Err(failure.advised(&format!(
                    "a DBA must run: GRANT SELECT, INSERT, UPDATE, DELETE ON SCHEMA::{schema} TO \
                     {user}"
                )))
            }
            Err(failure) if failure.loss != Loss::No => Err(failure),
            // The table does not exist.
            _ => Ok(()),
        }
    }

    /// Applies the missing migrations, each in its own transaction.
    async fn apply_all(&self, lease: &mut Lease) -> Result<()> {
        let applied = self.applied(lease).await?;
        for next in &self.schema.steps[applied..] {
            lease.begin().await?;
            let made = lease.batch(&script(next, self.schema.name)).await;
            lease.finish(made).await?;
            next.log_applied();
        }
        Ok(())
    }

    /// Returns the number of applied migrations. The number is also 0 if the tables exist but the
    /// server hides them, because the user has no privileges on them. In that case, fails.
    async fn applied(&self, lease: &mut Lease) -> Result<usize> {
        let applied = self.schema.applied(lease).await?;
        if applied == 0 {
            self.check_rights(lease).await?;
        }
        Ok(applied)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ratchet_sql::{indexes, objects};

    use super::*;

    #[test]
    fn versions_have_no_gaps() {
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(step.version as usize, index + 1);
        }
    }

    #[test]
    fn every_table_is_looked_for() {
        let names: BTreeSet<String> = objects::<SqlServer>(STEPS).collect();
        for name in ["jobs", "attempts", "locks", "links", "archive", "rates"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert_eq!(names.len(), 24);
        let indexes: BTreeSet<String> = indexes(STEPS).collect();
        assert!(indexes.contains("jobs_claim") && indexes.contains("routes_key"));
        assert_eq!(indexes.len(), 19);
    }

    #[test]
    fn scripts_are_whole() {
        for script in scripts("my [schema]", STEPS) {
            assert!(!script.sql.contains("{schema"));
            assert!(script.sql.contains("[my [schema]]].migrations"));
            assert!(script.sql.starts_with(INDEXABLE));
        }
    }
}
