//! Migrations: numbered, append-only, checksummed, applied one transaction each.

use std::collections::BTreeSet;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Lease as _, Loss, Query as _, Result, Row as _, Run as _};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::connection::{Lease, Liveness, Pool};
use crate::session::{self, INDEXABLE};
use crate::statements::{CREATE_MIGRATIONS, Statements, statements};
use crate::words::{DATABASE_CLOCK, Words, application_lock, literal, quoted};

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

    /// What is run in one transaction.
    fn script(&self, schema: &str) -> String {
        let mut sql = String::new();
        if self.version == 1 {
            // Alone in its batch, as it must be.
            sql += &format!(
                "IF SCHEMA_ID({}) IS NULL EXEC({});\n",
                literal(schema),
                literal(&format!("CREATE SCHEMA {}", quoted(schema)))
            );
            sql += &CREATE_MIGRATIONS.replace("{schema}", &quoted(schema));
            sql += ";\n";
        }
        sql += &self
            .sql
            .replace("{schema_in_text}", &quoted(schema).replace('\'', "''"))
            .replace("{schema}", &quoted(schema));
        sql += &format!(
            "\nINSERT INTO {}.migrations (version, name, checksum, applied_at)\n\
             SELECT {}, N'{}', N'{}', {DATABASE_CLOCK};\n",
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

/// The steps as they are printed.
pub(crate) fn scripts(schema: &str, steps: &[Step]) -> Vec<Migration> {
    let script = |step: &Step| Migration {
        version: step.version,
        name: step.name,
        // Tools of DBAs begin their sessions otherwise than the store does.
        sql: format!("{INDEXABLE}{}", step.script(schema)),
    };
    steps.iter().map(script).collect()
}

/// Checks the schema and applies what is missing. Concurrent starters wait for each other, and each
/// looks again at what is missing.
pub(crate) async fn open(
    liveness: &Liveness,
    sql: &Statements,
    words: &Words,
    user: &str,
    config: &Config,
) -> Result<()> {
    let mut lease = liveness.lease().await?;
    let schema = Schema {
        name: &config.schema,
        steps: &config.steps,
        sql,
        user,
    };
    if schema.applied(&mut lease).await? == schema.steps.len() {
        return Ok(());
    }
    if !config.migrate {
        return Err(mismatch(
            SchemaProblem::Behind,
            format!(
                "the schema {} lacks migrations, and this program is not to apply them; \
             SqlServerStore::migrations says what to run",
                quoted(&config.schema)
            ),
        ));
    }
    let lock = literal(&application_lock("migrations", &config.schema));
    // The session's, so that it is held over the transactions of all steps. If anything goes wrong,
    // the connection is closed, and the lock with it.
    let take = take_lock(&lock, words.lock_timeout());
    let got = lease.batch(&take).await?;
    let got: i32 = got.first().map_or(Ok(-1), |row| row.try_get(0))?;
    if got < 0 {
        return Err(Failure::new(
            StoreErrorKind::Timeout,
            "somebody else makes the tables, and takes too long",
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

/// The migrations that are missing. Looks only.
pub(crate) async fn pending(config: &Config) -> Result<Vec<Migration>> {
    let (_pool, liveness) = Pool::open(config)?;
    let mut lease = liveness.lease().await?;
    let server = session::check(&mut lease, config.locking_reads).await?;
    let words = Words::new(&config.schema, &config.clock, config.deadline, &server)
        .locking_reads(config.locking_reads);
    let sql = statements(&words);
    let schema = Schema {
        name: &config.schema,
        steps: &config.steps,
        sql: &sql,
        user: &server.user,
    };
    let applied = schema.applied(&mut lease).await?;
    Ok(scripts(&config.schema, &config.steps).split_off(applied))
}

/// Takes the lock of this name, for the session; the answer is negative if it is not to be had.
pub(crate) fn take_lock(name: &str, patience: i64) -> String {
    format!(
        "DECLARE @got int; EXEC @got = sp_getapplock @Resource = {name}, \
         @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = {patience}; SELECT @got"
    )
}

pub(crate) fn release_lock(name: &str) -> String {
    format!("EXEC sp_releaseapplock @Resource = {name}, @LockOwner = 'Session'")
}

/// How many migrations this program knows.
pub(crate) const KNOWN: u64 = STEPS.len() as u64;

/// How many migrations a schema says it has.
pub(crate) async fn applied(lease: &mut Lease, sql: &Statements) -> Result<u64> {
    Ok(lease.rows(sql.applied_migrations.query()).await?.len() as u64)
}

/// The tables, and the indexes if they are looked for, that a schema with so many migrations should
/// have and has not.
pub(crate) async fn missing(
    lease: &mut Lease,
    sql: &Statements,
    name: &str,
    applied: u64,
    indexes: bool,
) -> Result<Vec<String>> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let tables = sql.own_objects.query().bind(name);
    let mut rows = lease.rows(tables).await?;
    if indexes {
        let indexes = sql.own.own_indexes.query().bind(name);
        rows.extend(lease.rows(indexes).await?);
    }
    for row in rows {
        found.insert(row.try_get(0)?);
    }
    let steps = usize::try_from(applied).unwrap_or(usize::MAX);
    let steps = &STEPS[..steps.min(STEPS.len())];
    let indexes = index_names(steps).filter(|_| indexes);
    let expected = objects(steps).chain(indexes);
    Ok(expected.filter(|name| !found.contains(name)).collect())
}

struct Schema<'a> {
    name: &'a str,
    steps: &'a [Step],
    sql: &'a Statements,
    /// As whom the store is in the database.
    user: &'a str,
}

impl Schema<'_> {
    /// Says what a DBA must run, where rights were what was missing to make the tables.
    async fn advise(&self, lease: &mut Lease, failure: Failure) -> Failure {
        if !failure.forbidden {
            return failure;
        }
        let find = format!(
            "SELECT 1 WHERE SCHEMA_ID({}) IS NOT NULL",
            literal(self.name)
        );
        let is_there = lease.batch(&find).await.is_ok_and(|rows| !rows.is_empty());
        let (schema, user) = (quoted(self.name), quoted(self.user));
        let get_schema = if is_there {
            format!("GRANT ALTER, SELECT, INSERT, UPDATE, DELETE ON SCHEMA::{schema} TO {user}")
        } else {
            // Alone in its batch, as it must be.
            let create = format!("CREATE SCHEMA {schema} AUTHORIZATION {user}");
            format!("EXEC({})", literal(&create))
        };
        failure.advised(&format!(
            "to make the tables, a DBA must run: GRANT CREATE TABLE TO {user}; {get_schema}"
        ))
    }

    /// Refuses tables that are there for others only: whoever has no right to them does not even see
    /// them.
    async fn check_rights(&self, lease: &mut Lease) -> Result<()> {
        match lease.rows(self.sql.applied_migrations.query()).await {
            Err(failure) if failure.forbidden => {
                let (schema, user) = (quoted(self.name), quoted(self.user));
                Err(failure.advised(&format!(
                    "a DBA must run: GRANT SELECT, INSERT, UPDATE, DELETE ON SCHEMA::{schema} TO \
                     {user}"
                )))
            }
            Err(failure) if failure.loss != Loss::No => Err(failure),
            // There is no such table.
            _ => Ok(()),
        }
    }

    /// Applies the missing migrations, each in its transaction.
    async fn apply_all(&self, lease: &mut Lease) -> Result<()> {
        let applied = self.applied(lease).await?;
        for next in &self.steps[applied..] {
            lease.begin().await?;
            let made = lease.batch(&next.script(self.name)).await;
            lease.finish(made).await?;
            tracing::info!(
                version = next.version,
                name = next.name,
                "applied a migration"
            );
        }
        Ok(())
    }

    /// How many of the migrations are applied.
    ///
    /// # Errors
    /// `SchemaMismatch` if the schema has others, tables of ours without a record of how they came,
    /// or not all that its migrations made.
    async fn applied(&self, lease: &mut Lease) -> Result<usize> {
        let mut own = self.own_objects(lease).await?;
        if own.is_empty() {
            self.check_rights(lease).await?;
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
        if !expected.is_subset(&own) {
            // Somebody may have made the next tables between the two looks.
            own = self.own_objects(lease).await?;
        }
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

    /// Which of the tables that have names of ours are there. Indexes are not looked for: not every
    /// server that can run the statements calls them as they were called.
    async fn own_objects(&self, lease: &mut Lease) -> Result<BTreeSet<String>> {
        let ours: BTreeSet<String> = objects(self.steps).collect();
        let mut found = BTreeSet::new();
        let find = self.sql.own_objects.query().bind(self.name);
        for row in lease.rows(find).await? {
            found.insert(row.try_get(0)?);
        }
        Ok(found.intersection(&ours).cloned().collect())
    }
}

/// The tables that the steps make, and the table that says so.
fn objects(steps: &[Step]) -> impl Iterator<Item = String> {
    let made = steps
        .iter()
        .flat_map(|step| step.sql.lines())
        .filter_map(|line| {
            let name = line.strip_prefix("CREATE TABLE {schema}.")?;
            name.split_whitespace().next().map(str::to_owned)
        });
    made.chain(["migrations".to_owned()])
}

/// The indexes that the steps make.
fn index_names(steps: &[Step]) -> impl Iterator<Item = String> {
    let lines = steps.iter().flat_map(|step| step.sql.lines());
    lines.filter_map(|line| {
        let name = line
            .strip_prefix("CREATE INDEX ")
            .or_else(|| line.strip_prefix("CREATE UNIQUE INDEX "))?;
        name.split_whitespace().next().map(str::to_owned)
    })
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
    fn every_table_is_looked_for() {
        let names: BTreeSet<String> = objects(STEPS).collect();
        for name in ["jobs", "attempts", "locks", "links", "archive", "rates"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert_eq!(names.len(), 23);
        let indexes: BTreeSet<String> = index_names(STEPS).collect();
        assert!(indexes.contains("jobs_claim") && indexes.contains("routes_key"));
        assert_eq!(indexes.len(), 17);
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
