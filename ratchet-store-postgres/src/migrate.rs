//! Migrations: numbered, append-only, checksummed, applied one transaction each.

use std::collections::BTreeSet;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Lease as _, Query as _, Result, Row as _, Run as _};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::config::Config;
use crate::connection::{Lease, Liveness, Pool, fixed};
use crate::dialect::Query;
use crate::statements::{CREATE_MIGRATIONS, Statements, quoted, render, statements};

/// One step of Ratchet's schema, ready to be run in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; they begin at 1 and have no gaps.
    pub version: u32,
    /// What it is called.
    pub name: &'static str,
    /// Its statements, the note that it was applied included.
    pub sql: String,
}

/// A step as it is in the source.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

impl Step {
    fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What is run in one transaction; for the first step `first` stands before it.
    fn script(&self, schema: &str, first: &str) -> String {
        let mut sql = String::new();
        if self.version == 1 {
            sql += first;
            sql += &render(CREATE_MIGRATIONS, schema, "");
            sql += ";\n";
        }
        sql += &self.sql.replace("{schema}", &quoted(schema));
        sql += &format!(
            "\nINSERT INTO {}.migrations (version, name, checksum, applied_at)\n\
             SELECT {}, '{}', '{}', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;\n",
            quoted(schema),
            self.version,
            self.name,
            self.checksum(),
        );
        sql
    }
}

/// All migrations, in order. Append only: an applied one must never change.
pub(crate) const STEPS: &[Step] = &[Step {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

fn create_schema(schema: &str) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(schema))
}

/// The oldest version of the server that has all that the statements use.
const OLDEST_SERVER: u32 = 130_000;

/// The steps as they are printed.
pub(crate) fn scripts(schema: &str, steps: &[Step]) -> Vec<Migration> {
    let first = format!(
        "-- Leave this line out if the schema exists and you may not create schemas.\n{}",
        create_schema(schema)
    );
    let script = |step: &Step| Migration {
        version: step.version,
        name: step.name,
        sql: step.script(schema, &first),
    };
    steps.iter().map(script).collect()
}

/// Checks the server and the schema, applies what is missing, and says the server's version.
/// Concurrent starters wait for each other, and each looks again at what is missing.
pub(crate) async fn open(liveness: &Liveness, sql: &Statements, config: &Config) -> Result<String> {
    let mut lease = liveness.lease().await?;
    let version = server_version(&mut lease).await?;
    let schema = Schema {
        name: &config.schema,
        steps: &config.steps,
        sql,
    };
    schema.check_rights(&mut lease, config.migrate).await?;
    if schema.applied(&mut lease).await? == schema.steps.len() {
        return Ok(version);
    }
    if !config.migrate {
        return Err(mismatch(
            SchemaProblem::Behind,
            format!(
                "the schema {} lacks migrations, and this program is not to apply them; \
             PostgresStore::migrations says what to run",
                quoted(&config.schema)
            ),
        ));
    }
    loop {
        lease.begin().await?;
        let applied = schema.apply_next(&mut lease).await;
        let applied = lease.end(applied).await?;
        if !applied {
            return Ok(version);
        }
        lease = liveness.lease().await?;
    }
}

/// The migrations that are missing. Looks only.
pub(crate) async fn pending(config: &Config) -> Result<Vec<Migration>> {
    let sql = statements(&config.schema, &config.clock);
    let (_pool, liveness, _beside) = Pool::open(config).await?;
    let mut lease = liveness.lease().await?;
    server_version(&mut lease).await?;
    let schema = Schema {
        name: &config.schema,
        steps: &config.steps,
        sql: &sql,
    };
    schema.check_rights(&mut lease, false).await?;
    let applied = schema.applied(&mut lease).await?;
    Ok(scripts(&config.schema, &config.steps).split_off(applied))
}

async fn server_version(lease: &mut Lease) -> Result<String> {
    let rows = lease
        .rows(Query::new(fixed(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
                    current_setting('default_transaction_isolation')",
        )))
        .await?;
    let row = rows.first().ok_or_else(|| {
        mismatch(
            SchemaProblem::Altered,
            "the server does not say its version",
        )
    })?;
    let (number, text): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < OLDEST_SERVER.cast_signed() {
        return Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!("the server is PostgreSQL {text}, and 13 is the oldest that will do"),
        ));
    }
    check_isolation(row.try_get(2)?)?;
    Ok(text)
}

/// Refuses a default under which the statements do not work.
pub(crate) fn check_isolation(isolation: &str) -> Result<()> {
    if isolation.starts_with("read ") {
        return Ok(());
    }
    Err(Failure::new(
        StoreErrorKind::Misconfigured,
        format!(
            "default_transaction_isolation is {isolation}, in which statements on queues fail \
             instead of seeing what others did; set it to 'read committed' for the role, or with \
             options=-c%20default_transaction_isolation=read%5C%20committed in the URL"
        ),
    ))
}

/// How many migrations this program knows.
pub(crate) const KNOWN: u64 = STEPS.len() as u64;

/// How many migrations a schema says it has.
pub(crate) async fn applied(lease: &mut Lease, sql: &Statements) -> Result<u64> {
    Ok(lease.rows(sql.applied_migrations.query()).await?.len() as u64)
}

/// The tables and indexes that a schema with so many migrations should have and has not.
pub(crate) async fn missing(
    lease: &mut Lease,
    sql: &Statements,
    name: &str,
    applied: u64,
) -> Result<Vec<String>> {
    let schema = Schema {
        name,
        steps: STEPS,
        sql,
    };
    let own = schema.own_objects(lease).await?;
    let steps = usize::try_from(applied).unwrap_or(usize::MAX);
    let expected = objects(&STEPS[..steps.min(STEPS.len())]);
    Ok(expected.filter(|name| !own.contains(name)).collect())
}

struct Schema<'a> {
    name: &'a str,
    steps: &'a [Step],
    sql: &'a Statements,
}

impl Schema<'_> {
    /// Refuses a role that cannot do its work, and says what a DBA must run.
    async fn check_rights(&self, lease: &mut Lease, migrate: bool) -> Result<()> {
        let find = self.sql.own.find_schema.query().bind(self.name);
        let rows = lease.rows(find).await?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        let (exists, usage, in_schema, in_database): (bool, bool, bool, bool) = (
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
        );
        let (role, database): (String, String) = (row.try_get(4)?, row.try_get(5)?);
        let (schema, role) = (quoted(self.name), quoted(&role));
        let refused = |text: String| Err(Failure::new(StoreErrorKind::Misconfigured, text));
        if exists && !usage {
            return refused(format!(
                "the role may not use the schema; a DBA must run: \
                 GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};"
            ));
        }
        if !exists && migrate && !in_database {
            return refused(format!(
                "the role may not create the schema in the database {}; a DBA must run: \
                 CREATE SCHEMA {schema} AUTHORIZATION {role};",
                quoted(&database)
            ));
        }
        if exists && !self.own_objects(lease).await?.is_empty() {
            let readable = lease.rows(self.sql.applied_migrations.query()).await;
            if let Err(failure) = readable
                && failure.forbidden
            {
                return refused(format!(
                    "the tables belong to somebody else ({failure}); a DBA must run: GRANT SELECT, \
                     INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
                ));
            }
        }
        if exists && migrate && !in_schema && self.applied(lease).await? < self.steps.len() {
            return refused(format!(
                "the role may not make tables in the schema; a DBA must run: \
                 GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};"
            ));
        }
        Ok(())
    }

    /// Applies the first missing migration; false if there is none.
    async fn apply_next(&self, lease: &mut Lease) -> Result<bool> {
        let lock = Query::new(fixed(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        ));
        lease
            .rows(lock.bind(&format!("ratchet migrations of {}", self.name)))
            .await?;
        let applied = self.applied(lease).await?;
        let Some(next) = self.steps.get(applied) else {
            return Ok(false);
        };
        // Even where it changes nothing, this needs the right to create schemas in the database.
        let exists: bool = match lease
            .rows(self.sql.own.find_schema.query().bind(self.name))
            .await?
            .first()
        {
            Some(row) => row.try_get(0)?,
            None => false,
        };
        let first = if exists {
            String::new()
        } else {
            create_schema(self.name)
        };
        let script = AssertSqlSafe(next.script(self.name, &first)).into_sql_str();
        lease.run(script).await?;
        tracing::info!(
            version = next.version,
            name = next.name,
            "applied a migration"
        );
        Ok(true)
    }

    /// How many of the migrations are applied.
    ///
    /// # Errors
    /// `SchemaMismatch` if the schema has others, tables of ours without a record of how they came,
    /// or not all that its migrations made.
    async fn applied(&self, lease: &mut Lease) -> Result<usize> {
        let own = self.own_objects(lease).await?;
        if own.is_empty() {
            return Ok(0);
        }
        let schema = quoted(self.name);
        if !own.contains("migrations") {
            let names: Vec<&str> = own.iter().map(String::as_str).collect();
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "the schema {schema} has {} but no table migrations that says how they came; \
                 they are not Ratchet's, or were restored in part",
                    names.join(", ")
                ),
            ));
        }
        let mut stored: Vec<(i32, String, String)> = Vec::new();
        for row in lease.rows(self.sql.applied_migrations.query()).await? {
            stored.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        }
        check_versions(&schema, self.steps, &stored)?;
        let expected: BTreeSet<String> = objects(&self.steps[..stored.len()]).collect();
        if expected.is_subset(&own) {
            return Ok(stored.len());
        }
        // A starter beside this one may have applied a migration since the objects were listed.
        let own = self.own_objects(lease).await?;
        let missing: Vec<&str> = expected.difference(&own).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(stored.len());
        }
        Err(mismatch(
            SchemaProblem::Altered,
            format!(
                "the schema {schema} is incomplete, it lacks {}",
                missing.join(", ")
            ),
        ))
    }

    /// Which of the tables and indexes that have names of ours are there.
    async fn own_objects(&self, lease: &mut Lease) -> Result<BTreeSet<String>> {
        let ours: BTreeSet<String> = objects(self.steps).collect();
        let mut found = BTreeSet::new();
        let find = self.sql.own_objects.query().bind(self.name);
        for row in lease.rows(find).await? {
            found.insert(row.try_get::<String>(0)?);
        }
        Ok(found.intersection(&ours).cloned().collect())
    }
}

/// The tables and indexes that the steps make, and the table that says so.
fn objects(steps: &[Step]) -> impl Iterator<Item = String> {
    let made = steps
        .iter()
        .flat_map(|step| step.sql.lines())
        .filter_map(|line| {
            let name = line
                .strip_prefix("CREATE TABLE {schema}.")
                .or_else(|| line.strip_prefix("CREATE INDEX "))
                .or_else(|| line.strip_prefix("CREATE UNIQUE INDEX "))?;
            name.split_whitespace().next().map(str::to_owned)
        });
    made.chain(["migrations".to_owned()])
}

/// The tables and indexes that the connections for jobs work on.
pub(crate) fn tables() -> Vec<String> {
    objects(STEPS).filter(|name| name != "migrations").collect()
}

fn check_versions(schema: &str, steps: &[Step], stored: &[(i32, String, String)]) -> Result<()> {
    let newest = stored.last().map_or(0, |(version, ..)| *version);
    let known = steps.last().map_or(0, |step| step.version.cast_signed());
    if newest > known {
        return Err(mismatch(
            SchemaProblem::Newer,
            format!(
                "the schema {schema} has version {newest}, newer than version {known} that this \
             program knows"
            ),
        ));
    }
    if newest == 0 {
        return Err(mismatch(
            SchemaProblem::Altered,
            format!(
                "the table migrations of the schema {schema} is empty, although there are tables"
            ),
        ));
    }
    for (expected, (version, name, checksum)) in steps.iter().zip(stored) {
        if *version != expected.version.cast_signed() {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "migration {} was not applied to the schema {schema}, although migration {newest} \
                 was",
                    expected.version
                ),
            ));
        }
        if *checksum != expected.checksum() {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "migration {version} was applied to the schema {schema} as `{name}` with other \
                 content than this program's"
                ),
            ));
        }
    }
    Ok(())
}

fn mismatch(problem: SchemaProblem, text: impl Into<String>) -> Failure {
    Failure::new(StoreErrorKind::SchemaMismatch(problem), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Step = Step {
        version: STEPS[STEPS.len() - 1].version + 1,
        name: "next",
        sql: "CREATE TABLE {schema}.more (a integer)",
    };

    fn noted(steps: &[Step]) -> Vec<(i32, String, String)> {
        let note = |step: &Step| {
            (
                step.version.cast_signed(),
                step.name.to_owned(),
                step.checksum(),
            )
        };
        steps.iter().map(note).collect()
    }

    fn refusal(steps: &[Step], stored: &[(i32, String, String)]) -> String {
        let failure = check_versions("s", steps, stored).unwrap_err();
        let StoreErrorKind::SchemaMismatch(problem) = failure.kind else {
            panic!("{failure:?}");
        };
        format!("{problem:?}: {failure}")
    }

    #[test]
    fn versions_have_no_gaps() {
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(step.version as usize, index + 1);
        }
    }

    #[test]
    fn other_histories_are_refused() {
        let more = [STEPS, &[NEXT]].concat();
        check_versions("s", &more, &noted(&more)).unwrap();
        check_versions("s", &more, &noted(STEPS)).unwrap();
        let newer = refusal(STEPS, &noted(&more));
        assert!(newer.starts_with("Newer: "), "{newer}");
        let version = format!("version {}, newer", NEXT.version);
        assert!(newer.contains(&version), "{newer}");
        assert!(refusal(&more, &noted(&[NEXT])).contains("not applied"));
        assert!(refusal(STEPS, &[]).contains("empty"));
        let changed = Step {
            sql: "CREATE TABLE {schema}.other (a integer)",
            ..STEPS[0]
        };
        let altered = refusal(STEPS, &noted(&[changed]));
        assert!(altered.starts_with("Altered: "), "{altered}");
        assert!(altered.contains("other content"), "{altered}");
    }

    #[test]
    fn every_table_and_index_is_looked_for() {
        let names: BTreeSet<String> = objects(STEPS).collect();
        for name in [
            "jobs",
            "attempts",
            "jobs_claim",
            "jobs_finished",
            "locks",
            "links",
            "signals_key",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert_eq!(names.len(), 39);
    }

    #[test]
    fn scripts_are_whole() {
        for script in scripts("my \"schema\"", STEPS) {
            assert!(!script.sql.contains("{schema}"));
            assert!(script.sql.contains("\"my \"\"schema\"\"\".migrations"));
        }
    }
}
