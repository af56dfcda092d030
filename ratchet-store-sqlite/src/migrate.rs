//! Migrations: numbered, append-only, checksummed, applied one transaction each.

use std::collections::BTreeSet;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use crate::error::{Failure, Result};
use crate::statements::TEXTS;

/// One step of Ratchet's schema, for people who apply such things by hand or want to read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; they begin at 1 and have no gaps.
    pub version: u32,
    /// What it is called.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

impl Migration {
    /// What to run in one transaction to apply it by hand: its statements, and the note that it was
    /// applied.
    #[must_use]
    pub fn script(&self) -> String {
        let first = match self.version {
            1 => format!("{};\n", TEXTS.create_migrations.trim_end()),
            _ => String::new(),
        };
        format!(
            "{first}{}\nINSERT INTO ratchet_migrations (version, name, checksum, applied_at)\n\
             VALUES ({}, '{}', '{}', CAST(strftime('%s', 'now') AS INTEGER) * 1000);\n",
            self.sql.trim_end(),
            self.version,
            self.name,
            self.checksum(),
        )
    }

    fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// All migrations, in order. Append only: an applied one must never change.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

/// Applies what is missing. Concurrent starters wait for each other at the write lock, and each
/// looks again at what is missing once it has it.
pub(crate) fn bring_up_to_date(conn: &mut Connection, now: i64) -> Result<()> {
    migrate(conn, MIGRATIONS, now)
}

/// The migrations that are missing.
pub(crate) fn pending(conn: &Connection) -> Result<Vec<Migration>> {
    let applied = applied(conn, MIGRATIONS)?;
    if applied == MIGRATIONS.len() {
        check_objects(conn, MIGRATIONS)?;
    }
    Ok(MIGRATIONS[applied..].to_vec())
}

/// Refuses a schema that lacks anything; none: there is no file.
pub(crate) fn require_up_to_date(conn: Option<&Connection>) -> Result<()> {
    match conn {
        None => {
            return Err(mismatch(
                SchemaProblem::NoFile,
                "there is no such file, and this program is not to make it",
            ));
        }
        Some(conn) if pending(conn)?.is_empty() => return Ok(()),
        Some(_) => {}
    }
    Err(mismatch(
        SchemaProblem::Behind,
        "the schema lacks migrations, and this program is not to apply them; \
         SqliteStore::migrations says what to run",
    ))
}

fn migrate(conn: &mut Connection, migrations: &[Migration], now: i64) -> Result<()> {
    // A store that is up to date is opened without the write lock.
    if applied(conn, migrations)? < migrations.len() {
        loop {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let applied = applied(&tx, migrations)?;
            let Some(next) = migrations.get(applied) else {
                break;
            };
            if applied == 0 {
                tx.execute_batch(TEXTS.create_migrations)?;
            }
            apply(&tx, next, now)?;
            tx.commit()?;
            tracing::info!(
                version = next.version,
                name = next.name,
                "applied a migration"
            );
        }
    }
    check_objects(conn, migrations)
}

fn apply(tx: &Transaction<'_>, migration: &Migration, now: i64) -> Result<()> {
    tx.execute_batch(migration.sql)?;
    tx.execute(
        TEXTS.add_migration,
        params![migration.version, migration.name, migration.checksum(), now],
    )?;
    Ok(())
}

/// How many of the migrations are applied.
///
/// # Errors
/// `SchemaMismatch` if the database has others, or tables of ours without a record of how they came.
fn applied(conn: &Connection, migrations: &[Migration]) -> Result<usize> {
    let own = own_objects(conn)?;
    if own.is_empty() {
        return Ok(0);
    }
    if !own.contains("ratchet_migrations") {
        return Err(mismatch(
            SchemaProblem::Altered,
            "there are tables named ratchet_… but no ratchet_migrations that says how they came; \
             they are not Ratchet's, or were restored in part",
        ));
    }
    let mut statement = conn.prepare(TEXTS.applied_migrations)?;
    let stored = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String, String)>>>()?;
    let newest = stored.last().map_or(0, |(version, ..)| *version);
    let known = migrations.last().map_or(0, |last| i64::from(last.version));
    if newest > known {
        return Err(mismatch(
            SchemaProblem::Newer,
            format!(
                "the schema has version {newest}, newer than version {known} that this program knows"
            ),
        ));
    }
    if newest == 0 {
        return Err(mismatch(
            SchemaProblem::Altered,
            "ratchet_migrations is empty, although there are tables of Ratchet's",
        ));
    }
    for (expected, (version, name, checksum)) in migrations.iter().zip(&stored) {
        if *version != i64::from(expected.version) {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "migration {} was not applied, although migration {newest} was",
                    expected.version
                ),
            ));
        }
        if *checksum != expected.checksum() {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "migration {version} was applied as `{name}` with other content than this program's"
                ),
            ));
        }
    }
    Ok(stored.len())
}

/// How many migrations the database says it has, and how many this program knows.
pub(crate) fn versions(conn: &Connection) -> Result<(u64, u64)> {
    let mut statement = conn.prepare(TEXTS.applied_migrations)?;
    let applied = statement.query_map([], |_| Ok(()))?;
    // A row that cannot be had is no migration.
    let applied: Vec<()> = applied.collect::<rusqlite::Result<_>>()?;
    Ok((applied.len() as u64, MIGRATIONS.len() as u64))
}

/// The tables and indexes that the database should have and has not.
pub(crate) fn missing_objects(conn: &Connection) -> Result<Vec<String>> {
    missing(conn, MIGRATIONS)
}

fn missing(conn: &Connection, migrations: &[Migration]) -> Result<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(TEXTS.create_migrations)?;
    for migration in migrations {
        model.execute_batch(migration.sql)?;
    }
    let own = own_objects(conn)?;
    Ok(own_objects(&model)?.difference(&own).cloned().collect())
}

/// Refuses a schema that lacks tables or indexes its migrations made.
fn check_objects(conn: &Connection, migrations: &[Migration]) -> Result<()> {
    let missing = missing(conn, migrations)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(mismatch(
        SchemaProblem::Altered,
        format!("the schema is incomplete, it lacks {}", missing.join(", ")),
    ))
}

fn own_objects(conn: &Connection) -> Result<BTreeSet<String>> {
    let mut statement = conn.prepare(TEXTS.own_objects)?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

fn mismatch(problem: SchemaProblem, text: impl Into<String>) -> Failure {
    Failure::new(StoreErrorKind::SchemaMismatch(problem), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Migration {
        MIGRATIONS[0]
    }

    fn second(sql: &'static str) -> Migration {
        Migration {
            version: 2,
            name: "second",
            sql,
        }
    }

    #[test]
    fn an_applied_migration_has_not_changed() {
        // Append a migration instead of changing one: databases hold this checksum.
        let sums: Vec<String> = MIGRATIONS.iter().map(Migration::checksum).collect();
        assert_eq!(sums, CHECKSUMS);
    }

    const CHECKSUMS: &[&str] =
        &["c29b10c019de55c4feb97d1ea9ef5916bf799e40eb0107354b686eeeded6a0ce"];

    #[test]
    fn versions_have_no_gaps() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, index + 1);
        }
    }

    #[test]
    fn a_second_run_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        bring_up_to_date(&mut conn, 1).unwrap();
        let changes = conn.total_changes();
        bring_up_to_date(&mut conn, 2).unwrap();
        assert_eq!(conn.total_changes(), changes);
    }

    #[test]
    fn an_upgrade_applies_only_what_is_missing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &[first()], 1).unwrap();
        let both = [first(), second("CREATE TABLE ratchet_more (a)")];
        migrate(&mut conn, &both, 2).unwrap();
        migrate(&mut conn, &both, 3).unwrap();
        let failure = migrate(&mut conn, &[first()], 4).unwrap_err();
        assert_eq!(
            failure.kind,
            StoreErrorKind::SchemaMismatch(SchemaProblem::Newer)
        );
        assert!(failure.to_string().contains("version 2"), "{failure}");
        assert!(failure.to_string().contains("version 1"), "{failure}");
    }

    #[test]
    fn scripts_bring_an_empty_database_there() {
        let mut conn = Connection::open_in_memory().unwrap();
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(pending(&conn).unwrap().len(), MIGRATIONS.len() - index);
            require_up_to_date(Some(&conn)).unwrap_err();
            conn.execute_batch(&migration.script()).unwrap();
        }
        require_up_to_date(Some(&conn)).unwrap();
        let changes = conn.total_changes();
        bring_up_to_date(&mut conn, 1).unwrap();
        assert_eq!(conn.total_changes(), changes);
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        let broken = [first(), second("CREATE TABLE ratchet_half (a); nonsense")];
        migrate(&mut conn, &broken, 1).unwrap_err();
        assert!(!own_objects(&conn).unwrap().contains("ratchet_half"));
        migrate(&mut conn, &[first()], 1).unwrap();
    }

    #[test]
    fn a_changed_migration_is_refused() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &[first()], 1).unwrap();
        let changed = Migration {
            sql: "CREATE TABLE ratchet_other (a)",
            ..first()
        };
        let mut migrations = MIGRATIONS.to_vec();
        migrations[0] = changed;
        let failure = migrate(&mut conn, &migrations, 2).unwrap_err();
        assert!(failure.to_string().contains("other content"), "{failure}");
    }

    #[test]
    fn an_upgrade_of_a_database_in_use_keeps_what_is_stored() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &[first()], 1).unwrap();
        conn.execute_batch("INSERT INTO ratchet_job_data (id, payload) VALUES (7, '1')")
            .unwrap();
        let more = "ALTER TABLE ratchet_job_data ADD COLUMN more INTEGER";
        migrate(&mut conn, &[first(), second(more)], 2).unwrap();
        let read = "SELECT payload, more FROM ratchet_job_data WHERE id = 7";
        let kept: (String, Option<i64>) = conn
            .query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(kept, ("1".to_owned(), None));
    }

    #[test]
    fn a_gap_is_refused() {
        let mut conn = Connection::open_in_memory().unwrap();
        let both = [first(), second("CREATE TABLE ratchet_more (a)")];
        migrate(&mut conn, &both, 1).unwrap();
        conn.execute("DELETE FROM ratchet_migrations WHERE version = 1", [])
            .unwrap();
        let failure = migrate(&mut conn, &both, 2).unwrap_err();
        assert!(failure.to_string().contains("not applied"), "{failure}");
    }
}
