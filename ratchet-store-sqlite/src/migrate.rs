//! Migrations: numbered, append-only, checksummed. Each is applied in its own transaction.

use std::collections::BTreeSet;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Migration, Mismatch, Step, behind, check_versions, incomplete};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::error::{Failure, Result};
use crate::statements::TEXTS;

/// All migrations, in order. New migrations are appended at the end. A migration that was released
/// must never change.
pub(crate) const STEPS: &[Step] = &[Step {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

/// Returns the scripts of these migrations, for display. Each script contains the statements and an
/// insert that records the migration as applied.
pub(crate) fn scripts(steps: &[Step]) -> Vec<Migration> {
    const NOW: &str = "CAST(strftime('%s', 'now') AS INTEGER) * 1000";
    let first = format!("{};\n", TEXTS.create_migrations.trim_end());
    let fill = |text: &str| text.trim_end().to_owned();
    let printed = |step: &Step| step.printed(step.script(&first, fill, "ratchet_migrations", NOW));
    steps.iter().map(printed).collect()
}

/// Applies missing migrations. Processes that start at the same time wait for each other at the
/// write lock. Each process that gets the lock reads again which migrations are missing.
pub(crate) fn bring_up_to_date(conn: &mut Connection, now: i64) -> Result<()> {
    migrate(conn, STEPS, now)
}

/// Returns the migrations that are not applied yet. Changes nothing.
pub(crate) fn pending(conn: &Connection) -> Result<Vec<Migration>> {
    let applied = applied(conn, STEPS)?;
    if applied == STEPS.len() {
        check_objects(conn, STEPS)?;
    }
    Ok(scripts(STEPS).split_off(applied))
}

/// Fails if the schema lacks a migration, a table or an index. Also fails if `conn` is `None`,
/// which means that the file does not exist.
pub(crate) fn require_up_to_date(conn: Option<&Connection>) -> Result<()> {
    match conn {
        None => {
            return Err(mismatch((
                SchemaProblem::NoFile,
                "the file does not exist, and the program may not create it".to_owned(),
            )));
        }
        Some(conn) if pending(conn)?.is_empty() => return Ok(()),
        Some(_) => {}
    }
    Err(mismatch(behind(PLACE, "SqliteStore")))
}

fn migrate(conn: &mut Connection, migrations: &[Step], now: i64) -> Result<()> {
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
            next.log_applied();
        }
    }
    check_objects(conn, migrations)
}

fn apply(tx: &Transaction<'_>, step: &Step, now: i64) -> Result<()> {
    tx.execute_batch(step.sql)?;
    tx.execute(
        TEXTS.add_migration,
        params![step.version, step.name, step.checksum(), now],
    )?;
    Ok(())
}

/// Returns the number of applied migrations.
///
/// # Errors
/// `SchemaMismatch` if the database has migrations that are not in `migrations`, or if it has
/// tables named `ratchet_…` and no table `ratchet_migrations`.
fn applied(conn: &Connection, migrations: &[Step]) -> Result<usize> {
    let own = own_objects(conn)?;
    if own.is_empty() {
        return Ok(0);
    }
    if !own.contains("ratchet_migrations") {
        return Err(mismatch((
            SchemaProblem::Altered,
            "the file has tables named ratchet_… but no table `ratchet_migrations`; the tables are \
             not Ratchet's, or a restore was incomplete"
                .to_owned(),
        )));
    }
    let mut statement = conn.prepare(TEXTS.applied_migrations)?;
    let stored = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String, String)>>>()?;
    check_versions(PLACE, migrations, &stored).map_err(mismatch)?;
    Ok(stored.len())
}

/// Returns the number of migrations that the database has recorded, and the number of migrations
/// that this program knows.
pub(crate) fn versions(conn: &Connection) -> Result<(u64, u64)> {
    let mut statement = conn.prepare(TEXTS.applied_migrations)?;
    let applied = statement.query_map([], |_| Ok(()))?;
    // No column is read, so an unreadable row counts too.
    let applied: Vec<()> = applied.collect::<rusqlite::Result<_>>()?;
    Ok((applied.len() as u64, STEPS.len() as u64))
}

/// Returns the names of Ratchet's tables and indexes that the database lacks.
pub(crate) fn missing_objects(conn: &Connection) -> Result<Vec<String>> {
    missing(conn, STEPS)
}

fn missing(conn: &Connection, migrations: &[Step]) -> Result<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(TEXTS.create_migrations)?;
    for step in migrations {
        model.execute_batch(step.sql)?;
    }
    let own = own_objects(conn)?;
    Ok(own_objects(&model)?.difference(&own).cloned().collect())
}

/// Fails if the schema lacks a table or an index that one of these migrations creates.
fn check_objects(conn: &Connection, migrations: &[Step]) -> Result<()> {
    let missing = missing(conn, migrations)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(mismatch(incomplete(PLACE, &missing)))
}

fn own_objects(conn: &Connection) -> Result<BTreeSet<String>> {
    let mut statement = conn.prepare(TEXTS.own_objects)?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// Name of the schema in messages. It is fixed, because a file has only one schema.
const PLACE: &str = "the schema";

fn mismatch((problem, text): Mismatch) -> Failure {
    Failure::new(StoreErrorKind::SchemaMismatch(problem), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Step {
        STEPS[0]
    }

    fn second(sql: &'static str) -> Step {
        Step {
            version: 2,
            name: "second",
            sql,
        }
    }

    #[test]
    fn an_applied_migration_has_not_changed() {
        // Append a migration instead of changing one: databases hold this checksum.
        let sums: Vec<String> = STEPS.iter().map(Step::checksum).collect();
        assert_eq!(sums, CHECKSUMS);
    }

    const CHECKSUMS: &[&str] =
        &["6286c3dfc862de5d0caee2e3684d9ff1b479ad8e15a97b9c229a1ebcfce1d7dc"];

    #[test]
    fn versions_have_no_gaps() {
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(step.version as usize, index + 1);
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
        for (index, migration) in scripts(STEPS).iter().enumerate() {
            assert_eq!(pending(&conn).unwrap().len(), STEPS.len() - index);
            require_up_to_date(Some(&conn)).unwrap_err();
            conn.execute_batch(&migration.sql).unwrap();
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
        let changed = Step {
            sql: "CREATE TABLE ratchet_other (a)",
            ..first()
        };
        let mut migrations = STEPS.to_vec();
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
