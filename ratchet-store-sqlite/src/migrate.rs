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
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "init",
        sql: include_str!("../migrations/0001_init.sql"),
    },
    Migration {
        version: 2,
        name: "recurring",
        sql: include_str!("../migrations/0002_recurring.sql"),
    },
    Migration {
        version: 3,
        name: "tags_and_archive",
        sql: include_str!("../migrations/0003_tags_and_archive.sql"),
    },
    Migration {
        version: 4,
        name: "payload_version",
        sql: include_str!("../migrations/0004_payload_version.sql"),
    },
    Migration {
        version: 5,
        name: "permits",
        sql: include_str!("../migrations/0005_permits.sql"),
    },
    Migration {
        version: 6,
        name: "workflows",
        sql: include_str!("../migrations/0006_workflows.sql"),
    },
    Migration {
        version: 7,
        name: "indexes",
        sql: include_str!("../migrations/0007_indexes.sql"),
    },
    Migration {
        version: 8,
        name: "operators",
        sql: include_str!("../migrations/0008_operators.sql"),
    },
    Migration {
        version: 9,
        name: "claims_by_node",
        sql: include_str!("../migrations/0009_claims_by_node.sql"),
    },
    Migration {
        version: 10,
        name: "route_stamps",
        sql: include_str!("../migrations/0010_route_stamps.sql"),
    },
];

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

    const CHECKSUMS: &[&str] = &[
        "26198dd9f75611708021b5648e55d78b606242da37f1fbcc5a9086e0a7953f30",
        "0f1c1f3ec37e02141b57c8c92aa395ed10f7b96a7f4194e40e33b8b63b9b3063",
        "14098e5b6d3db6fb5ab216eece98e5dfbbf9ec41bc08dff997551d639647af09",
        "82a396a076133ff31d1024672aca858814931a90d1580daa4b9e01b06460c486",
        "52545daffbe8c5d206b754a8d637d95524110ba8fd61b21a986cea818fd99266",
        "710e12522d5614b132889b4ac58f013162b923e6cb8c9d70f17a5944c4265073",
        "a9112f4262622c542b7d48316cf74f202e738123cd095c00a0edb95a14bce31f",
        "1fa8c275b3c5b0bf8e2160da889d1dc4c71e317da52ceeda400542a961b045e3",
        "29c9296660a4a208569b06e63f3bc3f10c1b220e4dd69ad1a6aa57309d101692",
        "f132a92ed63630d940a744ab146e4e3ddf378b8f40ac0dfa7fdbfee4e1074e52",
    ];

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
    fn payloads_from_before_there_were_versions_have_the_first() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &MIGRATIONS[..1], 1).unwrap();
        let store = "INSERT INTO ratchet_job_data (id, payload) VALUES (1, '{}')";
        conn.execute(store, []).unwrap();
        bring_up_to_date(&mut conn, 2).unwrap();
        let read = "SELECT payload_version FROM ratchet_job_data";
        let version = conn.query_row(read, [], |row| Ok(crate::row::payload_version(row, 0)));
        assert_eq!(version.unwrap(), Ok(1));
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
        migrate(&mut conn, &MIGRATIONS[..1], 1).unwrap();
        conn.execute_batch("INSERT INTO ratchet_job_data (id, payload) VALUES (7, '1')")
            .unwrap();
        bring_up_to_date(&mut conn, 2).unwrap();
        let kept: (String, Option<String>, Option<i64>) = conn
            .query_row(
                "SELECT payload, recurring, slot FROM ratchet_job_data WHERE id = 7",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        assert_eq!(kept, ("1".to_owned(), None, None));
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
