//! `ratchet migrate`: migrates, checks or prints the schema of the database.

use ratchet::{ConnectError, Migration, SchemaProblem, StoreErrorKind};
use ratchet_config::StoreConfig;
use serde::Serialize;

use crate::app::{App, open};
use crate::args::Migrate;
use crate::exit::{Failure, Verdict};
use crate::output::{GOOD, Table, WARN, paint};

#[derive(Serialize)]
struct Report<'a> {
    /// The kind of migrations in the list: `applied`, `pending` or `all`.
    listed: &'static str,
    up_to_date: bool,
    /// The commands that the database's command-line tool must run before the scripts. Absent if
    /// the report contains no scripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    prelude: Option<&'static str>,
    migrations: Vec<Step<'a>>,
}

#[derive(Serialize)]
struct Step<'a> {
    version: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<&'a str>,
}

pub(super) async fn run(app: &mut App, how: Migrate) -> Result<(), Failure> {
    let store = app.database()?;
    if how.print {
        let all = ratchet::migrations(&store)?;
        return print(app, &all, "all", false);
    }
    let pending = Box::pin(ratchet::pending_migrations(&store)).await?;
    let up_to_date = pending.is_empty();
    if how.dry_run {
        return print(app, &pending, "pending", up_to_date);
    }
    if how.check {
        let verdict = match up_to_date {
            true => Ok(()),
            false => Err(Failure::found()),
        };
        if lacks_file(&store).await && !app.out.is_json() {
            let line = "The database file does not exist; `ratchet migrate` would create it.";
            app.out.line(paint(WARN, line))?;
        }
        return verdict.told(tell(app, &pending, "pending", up_to_date));
    }
    let created = lacks_file(&store).await;
    let mut store = store;
    store.migrate = true;
    Box::pin(ratchet::connect_configured(&store)).await?;
    if created && !app.out.is_json() {
        app.out.line("Created the database file.")?;
    }
    tell(app, &pending, "applied", true)
}

/// Returns whether the database file does not exist yet, so that a migration would create it.
async fn lacks_file(store: &StoreConfig) -> bool {
    let no_file = StoreErrorKind::SchemaMismatch(SchemaProblem::NoFile);
    matches!(open(store).await, Err(ConnectError::Store(error)) if error.kind() == no_file)
}

/// Prints the scripts of the migrations.
fn print(
    app: &mut App,
    migrations: &[Migration],
    listed: &'static str,
    up_to_date: bool,
) -> Result<(), Failure> {
    if app.out.is_json() {
        return report(app, migrations, listed, up_to_date, true);
    }
    if let Some(first) = migrations.first() {
        app.out.raw(first.prelude.as_bytes())?;
    }
    for migration in migrations {
        app.out.raw(migration.script.as_bytes())?;
    }
    Ok(())
}

/// Prints the versions and the names of the migrations.
fn tell(
    app: &mut App,
    migrations: &[Migration],
    listed: &'static str,
    up_to_date: bool,
) -> Result<(), Failure> {
    if app.out.is_json() {
        return report(app, migrations, listed, up_to_date, false);
    }
    let count = migrations.len();
    match (up_to_date, count) {
        (true, 0) => return app.out.line(paint(GOOD, "The schema is up to date.")),
        (true, _) => app
            .out
            .line(paint(GOOD, format_args!("Applied {count} migrations:")))?,
        (false, _) => app.out.line(paint(
            WARN,
            format_args!("The schema lacks {count} migrations:"),
        ))?,
    }
    let mut table = Table::new([">VERSION", "NAME"]);
    for migration in migrations {
        table.row([migration.version.into(), migration.name.as_str().into()]);
    }
    app.out.table(&table, "")
}

fn report(
    app: &mut App,
    migrations: &[Migration],
    listed: &'static str,
    up_to_date: bool,
    scripts: bool,
) -> Result<(), Failure> {
    let prelude = migrations.first().map(|migration| migration.prelude);
    let migrations = migrations
        .iter()
        .map(|migration| Step {
            version: migration.version,
            name: &migration.name,
            script: scripts.then_some(migration.script.as_str()),
        })
        .collect();
    app.out.document(&Report {
        listed,
        up_to_date,
        prelude: prelude.filter(|_| scripts),
        migrations,
    })
}
