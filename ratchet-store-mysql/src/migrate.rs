//! The migrations, and the checks of the server and the user before they are applied.
//!
//! The server commits after each statement that changes tables, so a migration has no transaction.
//! Instead, a named lock keeps other programs from applying migrations, each statement is
//! repeatable, and a row in the table `migrations` says which migration has begun. A program that
//! finds such a row runs the migration again.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{
    Dialect as _, Failure, Migration, Query as _, Result, Row as _, Run as _, Step, behind, objects,
};

use crate::config::Config;
use crate::connect::seconds;
use crate::connection::{Lease, Liveness, connections};
use crate::dialect::Mysql;
use crate::statements::{CREATE_MIGRATIONS, Statements, statements};
use crate::words::{DATABASE_CLOCK, TableNames, quoted};

type Schema<'a> = ratchet_sql::Schema<'a, Mysql>;

/// All migrations, in order. New migrations are appended at the end. A migration that was released
/// must never change.
pub(crate) const STEPS: &[Step] = &[Step {
    version: 1,
    name: "init",
    sql: include_str!("../migrations/0001_init.sql"),
}];

/// Oldest versions of the servers with all features that the statements use.
const OLDEST_MARIADB: (u32, u32, u32) = (10, 6, 0);
const OLDEST_MYSQL: (u32, u32, u32) = (8, 0, 22);
/// Smallest `max_allowed_packet` with which the largest job fits into a call, and with which the
/// ids and the keys of the largest batch do: each of 10,000 jobs has an id and two keys of up to
/// 128 bytes, which a transaction of the application gets in hexadecimal digits (6 MB).
const SMALLEST_PACKET: i64 = 8 << 20;

/// Returns the script of a migration. It can run again if it was interrupted.
fn script(step: &Step, prefix: &str) -> String {
    let names = TableNames {
        // The script applies to the database of the connection.
        database: String::new(),
        prefix: prefix.to_owned(),
    };
    let fill = |text: &str| {
        let text = text.replace(
            "CREATE TABLE {schema}",
            "CREATE TABLE IF NOT EXISTS {schema}",
        );
        names.fill(&text)
    };
    let create = format!("{};\n", names.render(CREATE_MIGRATIONS, ""));
    let table = names.table("migrations");
    let begin = format!(
        "INSERT IGNORE INTO {table} (version, name, checksum, applied_at)\n\
         VALUES ({}, '{}', '', 0);\n",
        step.version, step.name
    );
    let script = step.script(&create, fill, &table, DATABASE_CLOCK);
    let script = script.replace(
        &format!("\nINSERT INTO {table}"),
        &format!("\nREPLACE INTO {table}"),
    );
    match script.strip_prefix(&create) {
        Some(rest) => format!("{create}{begin}{rest}"),
        None => format!("{begin}{script}"),
    }
}

/// Returns the scripts of these migrations, for display.
pub(crate) fn scripts(prefix: &str, steps: &[Step]) -> Vec<Migration> {
    let printed = |step: &Step| step.printed(script(step, prefix));
    steps.iter().map(printed).collect()
}

/// Checks the server and the tables, and applies missing migrations. Returns the server's version.
/// If several programs start at the same time, they wait for each other. Each of them then reads
/// again which migrations are missing.
pub(crate) async fn open(liveness: &Liveness, sql: &Statements, config: &Config) -> Result<String> {
    let mut lease = liveness.lease().await?;
    let version = check_server(&mut lease).await?;
    let schema = Schema {
        name: &config.settings.schema,
        steps: &config.settings.steps,
        sql,
    };
    match readable(schema.applied(&mut lease).await, &mut lease, config).await {
        Ok(applied) if applied == schema.steps.len() => {}
        Ok(_) if !config.settings.migrate => {
            return Err(behind(&schema.place(), "MysqlStore").into());
        }
        Err(failure) if !config.settings.migrate || is_lasting(&failure) => return Err(failure),
        // Another program may apply migrations at this moment.
        _ => apply(&schema, &mut lease, config).await?,
    }
    check_engines(&schema, &mut lease).await?;
    Ok(version)
}

/// Returns whether a failure to read the migrations remains after another program has finished its
/// migrations.
fn is_lasting(failure: &Failure) -> bool {
    failure.kind != StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
}

/// Returns the migrations that are not applied yet. Changes nothing.
pub(crate) async fn pending(config: &Config) -> Result<Vec<Migration>> {
    let sql = statements(&config.names, &config.clock);
    let mut lease = connections(config).liveness.lease().await?;
    check_server(&mut lease).await?;
    let schema = Schema {
        name: &config.settings.schema,
        steps: &config.settings.steps,
        sql: &sql,
    };
    let applied = readable(schema.applied(&mut lease).await, &mut lease, config).await?;
    Ok(scripts(schema.name, schema.steps).split_off(applied))
}

/// Adds the statement that a DBA must run, if the user lacks privileges.
async fn readable<T>(result: Result<T>, lease: &mut Lease, config: &Config) -> Result<T> {
    let failure = match result {
        Err(failure) if failure.forbidden => failure,
        other => return other,
    };
    let rows = lease.run("SELECT CURRENT_USER()").await?;
    let user: String = rows.first().ok_or_else(Failure::unreadable)?.try_get(0)?;
    let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    Err(failure.advised(&format!(
        "a DBA must run: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX ON {}.* TO '{name}'@\
         '{host}'",
        quoted(&config.names.database)
    )))
}

/// Checks the server's version and settings. Returns the version.
async fn check_server(lease: &mut Lease) -> Result<String> {
    let rows = lease
        .run(
            "SELECT VERSION(), @@max_allowed_packet, @@log_bin, CAST(@@binlog_format AS CHAR), \
             CAST(@@default_storage_engine AS CHAR)",
        )
        .await?;
    let row = rows.first().ok_or_else(Failure::unreadable)?;
    let text: String = row.try_get(0)?;
    let refused = |text: String| Err(Failure::new(StoreErrorKind::Misconfigured, text));
    let (product, oldest) = match text.contains("MariaDB") {
        true => ("MariaDB", OLDEST_MARIADB),
        false => ("MySQL", OLDEST_MYSQL),
    };
    if version(&text) < oldest {
        let (major, minor, patch) = oldest;
        return refused(format!(
            "the server is {product} {text}; version {major}.{minor}.{patch} or later is required"
        ));
    }
    let packet: i64 = row.try_get(1)?;
    if packet < SMALLEST_PACKET {
        return refused(format!(
            "max_allowed_packet of the server is {packet} bytes; at least {SMALLEST_PACKET} are \
             required; run: SET GLOBAL max_allowed_packet = 67108864"
        ));
    }
    let (logs, format): (bool, String) = (row.try_get(2)?, row.try_get(3)?);
    if logs && format == "STATEMENT" {
        return refused(
            "binlog_format of the server is STATEMENT, with which READ COMMITTED transactions \
             cannot write; set it to ROW or MIXED"
                .to_owned(),
        );
    }
    Ok(text)
}

/// Returns the three numbers at the beginning of a version. Before version 11, some servers of
/// MariaDB report `5.5.5-` first.
fn version(text: &str) -> (u32, u32, u32) {
    let text = text.strip_prefix("5.5.5-").unwrap_or(text);
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Returns the names of the store's tables. Tables of the application may have the same prefix.
pub(crate) fn own_tables(prefix: &str) -> Vec<String> {
    let objects = objects::<Mysql>(STEPS);
    objects.map(|name| format!("{prefix}_{name}")).collect()
}

/// Fails if a table has an engine without transactions.
async fn check_engines(schema: &Schema<'_>, lease: &mut Lease) -> Result<()> {
    let tables = own_tables(schema.name);
    let foreign = schema.sql.own.foreign_engines.query().bind(&tables);
    let Some(row) = lease.rows(foreign).await?.into_iter().next() else {
        return Ok(());
    };
    let (table, engine): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let text = format!(
        "the table `{table}` has the engine {engine}, which has no transactions; run: ALTER TABLE \
         {} ENGINE = InnoDB",
        quoted(&table)
    );
    Err((SchemaProblem::Altered, text).into())
}

/// Applies all missing migrations, while no other program does.
async fn apply(schema: &Schema<'_>, lease: &mut Lease, config: &Config) -> Result<()> {
    // The names of these locks are those of the whole server, and have at most 64 characters.
    let lock = format!(
        "MD5('ratchet migrations of {}.{}')",
        config.names.database, schema.name
    );
    let wait = seconds(config.settings.deadline);
    let rows = lease
        .run(format!("SELECT GET_LOCK({lock}, {wait})"))
        .await?;
    let got: Option<bool> = rows.first().ok_or_else(Failure::unreadable)?.try_get(0)?;
    if got != Some(true) {
        let text = "another program applies migrations, which takes too long";
        return Err(Failure::new(StoreErrorKind::Timeout, text));
    }
    let mut applied = Ok(true);
    while matches!(applied, Ok(true)) {
        applied = apply_next(schema, lease).await;
    }
    let applied = readable(applied, lease, config).await;
    // If the connection is lost, the server releases the lock.
    let _ = lease.run(format!("DO RELEASE_LOCK({lock})")).await;
    applied.map(drop)
}

/// Applies the first missing migration. Returns `false` if no migration is missing.
async fn apply_next(schema: &Schema<'_>, lease: &mut Lease) -> Result<bool> {
    let next = match begun(schema, lease).await? {
        Some(step) => Some(step),
        None => schema.steps.get(schema.applied(lease).await?),
    };
    let Some(next) = next else {
        return Ok(false);
    };
    lease.run(script(next, schema.name)).await?;
    next.log_applied();
    Ok(true)
}

/// Returns the migration that a program has begun and not finished. It is the first one if only its
/// table `migrations` exists.
async fn begun<'a>(schema: &Schema<'a>, lease: &mut Lease) -> Result<Option<&'a Step>> {
    let own = schema.own_objects(lease).await?;
    if !own.contains("migrations") {
        return Ok(None);
    }
    let table = Mysql::table(schema.name, "migrations");
    let rows = lease
        .run(format!(
            "SELECT COALESCE(MAX(version), 0), COALESCE(MAX(CASE WHEN checksum = '' THEN version \
             END), 0) FROM {table}"
        ))
        .await?;
    let row = rows.first().ok_or_else(Failure::unreadable)?;
    let (newest, begun): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let number = if newest == 0 && own.len() == 1 {
        1
    } else {
        begun
    };
    let mut steps = schema.steps.iter();
    Ok(steps.find(|step| i64::from(step.version) == number))
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
        let names: BTreeSet<String> = objects::<Mysql>(STEPS).collect();
        for name in ["jobs", "jobs_claim", "routes_names", "gates", "signals_key"] {
            assert!(names.contains(name), "{name}");
        }
        assert_eq!(names.len(), 47);
    }

    #[test]
    fn scripts_are_whole_and_can_be_repeated() {
        for script in scripts("mine", STEPS) {
            assert!(!script.sql.contains('{'), "{}", script.sql);
            assert!(script.sql.contains("REPLACE INTO `mine_migrations`"));
            let created = script.sql.matches("CREATE TABLE ").count();
            let repeatable = script
                .sql
                .matches("CREATE TABLE IF NOT EXISTS `mine_")
                .count();
            assert_eq!(created, repeatable);
            let begun = script
                .sql
                .find("INSERT IGNORE INTO `mine_migrations`")
                .unwrap();
            assert!(begun < script.sql.find("`mine_jobs`").unwrap());
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("10.11.14-MariaDB-0+deb12u2"), (10, 11, 14));
        assert_eq!(version("5.5.5-10.6.4-MariaDB"), (10, 6, 4));
        assert!(version("8.0.36") > OLDEST_MYSQL);
        assert!(version("5.7.44-log") < OLDEST_MYSQL);
        assert!(version("8.0.5") < OLDEST_MYSQL);
    }
}
