//! The migrations, and the checks of the server and the role before they are applied.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{
    Failure, Lease as _, Migration, Query as _, Result, Row as _, Run as _, Step, behind, objects,
};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::config::Config;
use crate::connection::{Lease, Liveness, connections, fixed};
use crate::dialect::{Postgres, Query};
use crate::statements::{
    CREATE_MIGRATIONS, DATABASE_CLOCK, Statements, quoted, render, statements,
};

type Schema<'a> = ratchet_sql::Schema<'a, Postgres>;

/// All migrations, in order. New migrations are appended at the end. A migration that was released
/// must never change.
pub(crate) const STEPS: &[Step] = &[Step {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

/// Returns the script of a migration, which must run in one transaction. `first` is inserted at the
/// beginning of the script of the first migration.
fn script(step: &Step, schema: &str, first: &str) -> String {
    let first = format!("{first}{};\n", render(CREATE_MIGRATIONS, schema, ""));
    let fill = |text: &str| text.replace("{schema}", &quoted(schema));
    let table = fill("{schema}.migrations");
    step.script(&first, fill, &table, DATABASE_CLOCK)
}

fn create_schema(schema: &str) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(schema))
}

/// Oldest version of the server with all features that the statements use. This is the number in
/// `server_version_num`.
const OLDEST_SERVER: u32 = 130_000;

/// Returns the scripts of these migrations, for display.
pub(crate) fn scripts(schema: &str, steps: &[Step]) -> Vec<Migration> {
    let first = format!(
        "-- Leave this line out if the schema exists and you may not create schemas.\n{}",
        create_schema(schema)
    );
    let printed = |step: &Step| step.printed(script(step, schema, &first));
    steps.iter().map(printed).collect()
}

/// Checks the server and the schema, and applies missing migrations. Returns the server's version.
/// If several programs start at the same time, they wait for each other. Each of them then reads
/// again which migrations are missing.
pub(crate) async fn open(liveness: &Liveness, sql: &Statements, config: &Config) -> Result<String> {
    let mut lease = liveness.lease().await?;
    let version = server_version(&mut lease).await?;
    let schema = Schema {
        name: &config.settings.schema,
        steps: &config.settings.steps,
        sql,
    };
    let migrate = config.settings.migrate;
    check_rights(&schema, &mut lease, migrate).await?;
    if schema.applied(&mut lease).await? == schema.steps.len() {
        return Ok(version);
    }
    if !migrate {
        return Err(behind(&schema.place(), "PostgresStore").into());
    }
    loop {
        lease.begin().await?;
        let applied = apply_next(&schema, &mut lease).await;
        let applied = lease.end(applied).await?;
        if !applied {
            return Ok(version);
        }
        lease = liveness.lease().await?;
    }
}

/// Returns the migrations that are not applied yet. Changes nothing.
pub(crate) async fn pending(config: &Config) -> Result<Vec<Migration>> {
    let sql = statements(&config.settings.schema, &config.clock);
    let mut lease = connections(config).await?.liveness.lease().await?;
    server_version(&mut lease).await?;
    let schema = Schema {
        name: &config.settings.schema,
        steps: &config.settings.steps,
        sql: &sql,
    };
    check_rights(&schema, &mut lease, false).await?;
    let applied = schema.applied(&mut lease).await?;
    Ok(scripts(schema.name, schema.steps).split_off(applied))
}

async fn server_version(lease: &mut Lease) -> Result<String> {
    let rows = lease
        .rows(Query::new(fixed(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
                    current_setting('default_transaction_isolation')",
        )))
        .await?;
    let row = rows.first().ok_or_else(|| {
        Failure::from((
            SchemaProblem::Altered,
            "the server did not return its version".to_owned(),
        ))
    })?;
    let (number, text): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if number < OLDEST_SERVER.cast_signed() {
        return Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!("the server is PostgreSQL {text}; version 13 or later is required"),
        ));
    }
    check_isolation(row.try_get(2)?)?;
    Ok(text)
}

/// Fails if the store's statements do not work with the default isolation level `isolation`.
pub(crate) fn check_isolation(isolation: &str) -> Result<()> {
    if isolation.starts_with("read ") {
        return Ok(());
    }
    Err(Failure::new(
        StoreErrorKind::Misconfigured,
        format!(
            "default_transaction_isolation is {isolation}, under which statements on queues fail \
             instead of seeing concurrent changes; set it to 'read committed' for the role, or \
             with options=-c%20default_transaction_isolation=read%5C%20committed in the URL"
        ),
    ))
}

/// Fails if the role lacks privileges. The error contains the statements that a DBA must run.
async fn check_rights(schema: &Schema<'_>, lease: &mut Lease, migrate: bool) -> Result<()> {
    let find = schema.sql.own.find_schema.query().bind(schema.name);
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
    let (place, role) = (quoted(schema.name), quoted(&role));
    let refused = |text: String| Err(Failure::new(StoreErrorKind::Misconfigured, text));
    if exists && !usage {
        return refused(format!(
            "the role may not use the schema; a DBA must run: \
             GRANT USAGE, CREATE ON SCHEMA {place} TO {role};"
        ));
    }
    if !exists && migrate && !in_database {
        return refused(format!(
            "the role may not create the schema in the database {}; a DBA must run: \
             CREATE SCHEMA {place} AUTHORIZATION {role};",
            quoted(&database)
        ));
    }
    if exists && !schema.own_objects(lease).await?.is_empty() {
        let readable = lease.rows(schema.sql.applied_migrations.query()).await;
        if let Err(failure) = readable
            && failure.forbidden
        {
            return refused(format!(
                "the tables belong to another role ({failure}); a DBA must run: GRANT SELECT, \
                 INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place} TO {role};"
            ));
        }
    }
    if exists && migrate && !in_schema && schema.applied(lease).await? < schema.steps.len() {
        return refused(format!(
            "the role may not create tables in the schema; a DBA must run: \
             GRANT USAGE, CREATE ON SCHEMA {place} TO {role};"
        ));
    }
    Ok(())
}

/// Applies the first missing migration. Returns `false` if no migration is missing.
async fn apply_next(schema: &Schema<'_>, lease: &mut Lease) -> Result<bool> {
    let lock = Query::new(fixed(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
    ));
    lease
        .rows(lock.bind(&format!("ratchet migrations of {}", schema.name)))
        .await?;
    let applied = schema.applied(lease).await?;
    let Some(next) = schema.steps.get(applied) else {
        return Ok(false);
    };
    // Leaves `CREATE SCHEMA` out if the schema exists. Even then, this statement would need the
    // right to create schemas in the database.
    let exists: bool = match lease
        .rows(schema.sql.own.find_schema.query().bind(schema.name))
        .await?
        .first()
    {
        Some(row) => row.try_get(0)?,
        None => false,
    };
    let first = if exists {
        String::new()
    } else {
        create_schema(schema.name)
    };
    let script = AssertSqlSafe(script(next, schema.name, &first)).into_sql_str();
    lease.run(script).await?;
    next.log_applied();
    Ok(true)
}

/// Returns the names of the tables and indexes that the connections for jobs use.
pub(crate) fn tables() -> Vec<String> {
    objects::<Postgres>(STEPS)
        .filter(|name| name != "migrations")
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn versions_have_no_gaps() {
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(step.version as usize, index + 1);
        }
    }

    #[test]
    fn every_table_and_index_is_looked_for() {
        let names: BTreeSet<String> = objects::<Postgres>(STEPS).collect();
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
        assert_eq!(names.len(), 50);
    }

    #[test]
    fn scripts_are_whole() {
        for script in scripts("my \"schema\"", STEPS) {
            assert!(!script.sql.contains("{schema}"));
            assert!(script.sql.contains("\"my \"\"schema\"\"\".migrations"));
        }
    }
}
