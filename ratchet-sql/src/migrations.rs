//! Migrations of Ratchet's schema. They are numbered, have checksums, and are never changed or
//! removed. A dialect applies each migration in one transaction.

use std::collections::BTreeSet;
use std::fmt;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use sha2::{Digest, Sha256};

use crate::dialect::{Dialect, Query as _, Row as _, Run as _};
use crate::failure::{Failure, Result};
use crate::statement::Statements;

/// A migration of Ratchet's schema, as a script that runs in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Number of the migration. Numbers begin at 1 and have no gaps.
    pub version: u32,
    /// Name of the migration.
    pub name: &'static str,
    /// SQL statements of the migration, including the insert that records it as applied.
    pub sql: String,
}

/// A migration in its source form, with placeholders such as `{schema}` in its SQL text.
#[derive(Clone, Copy)]
pub struct Step {
    /// Number of the migration. Numbers begin at 1 and have no gaps.
    pub version: u32,
    /// Name of the migration.
    pub name: &'static str,
    /// SQL statements of the migration. Their placeholders, such as `{schema}`, are not yet
    /// replaced.
    pub sql: &'static str,
}

impl fmt::Debug for Step {
    /// Writes only the number and the name, because the SQL text is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.name)
    }
}

/// A difference between a schema in the database and the schema that this program needs: the kind
/// of the difference, and a message for the operator.
pub type Mismatch = (SchemaProblem, String);

impl Step {
    /// Returns the SHA-256 checksum of the SQL text, in hexadecimal. The checksum reveals whether
    /// the text was changed after the migration was applied.
    #[must_use]
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the script that applies this migration in one transaction.
    ///
    /// Only the script of migration 1 begins with `first`. Next comes the SQL text, in which `fill`
    /// has replaced the placeholders. The last part is an insert into `table` that records the
    /// migration as applied. `now` is the SQL expression for the current time.
    #[must_use]
    pub fn script(
        &self,
        first: &str,
        fill: impl FnOnce(&str) -> String,
        table: &str,
        now: &str,
    ) -> String {
        let first = if self.version == 1 { first } else { "" };
        format!(
            "{first}{}\nINSERT INTO {table} (version, name, checksum, applied_at)\n\
             SELECT {}, '{}', '{}', {now};\n",
            fill(self.sql),
            self.version,
            self.name,
            self.checksum(),
        )
    }

    /// Returns this migration for display, with `sql` as its script.
    #[must_use]
    pub const fn printed(&self, sql: String) -> Migration {
        Migration {
            version: self.version,
            name: self.name,
            sql,
        }
    }

    /// Logs that this migration was applied.
    pub fn log_applied(&self) {
        let Self { version, name, .. } = self;
        tracing::info!(version, name, "applied a migration");
    }
}

/// Checks that the migrations recorded in a database are the first ones of `steps`, or all of them.
///
/// Compares versions and checksums. `stored` contains the version, name and checksum of each
/// recorded migration, in order of version. `place` is the text that names the schema in messages.
///
/// # Errors
/// A [`Mismatch`] if no migration is recorded, if a version is missing between the recorded ones,
/// or if a recorded migration is newer than `steps` or has another checksum.
pub fn check_versions(
    place: &str,
    steps: &[Step],
    stored: &[(i64, String, String)],
) -> Result<(), Mismatch> {
    let newest = stored.last().map_or(0, |(version, ..)| *version);
    let known = steps.last().map_or(0, |step| i64::from(step.version));
    if newest > known {
        return Err((
            SchemaProblem::Newer,
            format!(
                "{place} has version {newest}, newer than version {known} that this program knows"
            ),
        ));
    }
    let altered = |text: String| Err((SchemaProblem::Altered, text));
    if newest == 0 {
        return altered(format!(
            "the table `migrations` of {place} is empty, although other tables exist"
        ));
    }
    for (expected, (version, name, checksum)) in steps.iter().zip(stored) {
        if *version != i64::from(expected.version) {
            return altered(format!(
                "migration {} was not applied to {place}, although migration {newest} was",
                expected.version
            ));
        }
        if *checksum != expected.checksum() {
            return altered(format!(
                "migration {version} was applied to {place} as `{name}` with other content than \
                 this program's"
            ));
        }
    }
    Ok(())
}

/// Builds the mismatch for a schema that lacks migrations, if this program is not allowed to apply
/// migrations. The message names the type `store`, whose method `migrations` returns the scripts.
#[must_use]
pub fn behind(place: &str, store: &str) -> Mismatch {
    let text = format!(
        "{place} lacks migrations, and this program is not allowed to apply them; run the scripts \
         that {store}::migrations returns"
    );
    (SchemaProblem::Behind, text)
}

/// Builds the mismatch for a schema that lacks the database objects in `missing`.
#[must_use]
pub fn incomplete(place: &str, missing: &[String]) -> Mismatch {
    let text = format!("{place} is incomplete: it lacks {}", missing.join(", "));
    (SchemaProblem::Altered, text)
}

impl From<Mismatch> for Failure {
    fn from((problem, text): Mismatch) -> Self {
        Self::new(StoreErrorKind::SchemaMismatch(problem), text)
    }
}

/// A store's schema in the database, with the migrations that this program knows.
#[derive(Debug)]
pub struct Schema<'a, D: Dialect> {
    /// Name of the schema.
    pub name: &'a str,
    /// All migrations that this program knows, in order of version.
    pub steps: &'a [Step],
    /// SQL statements for this schema.
    pub sql: &'a Statements<D>,
}

impl<D: Dialect> Schema<'_, D> {
    /// Returns the text that names this schema in messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("the schema {}", D::quoted(self.name))
    }

    /// Returns the number of migrations that were applied to this schema. Returns 0 if the schema
    /// contains none of Ratchet's tables and indexes.
    ///
    /// # Errors
    /// `SchemaMismatch` if the recorded migrations differ from this program's migrations. Also if
    /// the schema has some of Ratchet's tables but no table `migrations`, or if it lacks a table or
    /// index that an applied migration creates.
    pub async fn applied(&self, lease: &mut D::Lease) -> Result<usize> {
        let own = self.own_objects(lease).await?;
        if own.is_empty() {
            return Ok(0);
        }
        let place = self.place();
        if !own.contains("migrations") {
            let names: Vec<&str> = own.iter().map(String::as_str).collect();
            let text = format!(
                "{place} has {} but no table `migrations`; the tables are not Ratchet's, or a \
                 restore was incomplete",
                names.join(", ")
            );
            return Err((SchemaProblem::Altered, text).into());
        }
        let mut stored: Vec<(i64, String, String)> = Vec::new();
        for row in lease.rows(self.sql.applied_migrations.query()).await? {
            let version: i32 = row.try_get(0)?;
            stored.push((version.into(), row.try_get(1)?, row.try_get(2)?));
        }
        check_versions(&place, self.steps, &stored)?;
        // Another program may have applied a migration after this call listed the objects. So list
        // them again before reporting missing objects.
        if !self.missing(stored.len(), &own).is_empty() {
            let own = self.own_objects(lease).await?;
            let missing = self.missing(stored.len(), &own);
            if !missing.is_empty() {
                return Err(incomplete(&place, &missing).into());
            }
        }
        Ok(stored.len())
    }

    /// Returns the names of Ratchet's tables that exist in this schema. If the dialect's statement
    /// `own_objects` also lists indexes, returns the names of Ratchet's existing indexes too.
    ///
    /// # Errors
    /// The errors of the statement `own_objects`.
    pub async fn own_objects(&self, lease: &mut D::Lease) -> Result<BTreeSet<String>> {
        let ours: BTreeSet<String> = objects::<D>(self.steps).collect();
        let mut found = BTreeSet::new();
        let find = self.sql.own_objects.query().bind(self.name);
        for row in lease.rows(find).await? {
            found.insert(row.try_get::<String>(0)?);
        }
        Ok(found.intersection(&ours).cloned().collect())
    }

    /// Returns the names of the tables and indexes that the first `applied` migrations create, but
    /// that are missing in `own`.
    #[must_use]
    pub fn missing(&self, applied: usize, own: &BTreeSet<String>) -> Vec<String> {
        let steps = &self.steps[..applied.min(self.steps.len())];
        let expected: BTreeSet<String> = objects::<D>(steps).collect();
        expected.difference(own).cloned().collect()
    }
}

/// Returns the names of the tables that the migrations create, and of the table `migrations`. Also
/// returns the names of their indexes if `D::LISTS_INDEXES` is `true`.
pub fn objects<D: Dialect>(steps: &[Step]) -> impl Iterator<Item = String> {
    let tables = made(steps, &["CREATE TABLE {schema}."]);
    let indexes = indexes(steps).filter(|_| D::LISTS_INDEXES);
    tables.chain(indexes).chain(["migrations".to_owned()])
}

/// Returns the names of the indexes that the migrations create.
pub fn indexes(steps: &[Step]) -> impl Iterator<Item = String> {
    made(
        steps,
        &[
            "CREATE INDEX ",
            "CREATE UNIQUE INDEX ",
            "    INDEX ",
            "    UNIQUE INDEX ",
        ],
    )
}

/// Returns the names of the objects that the migrations create. A name is the word after one of the
/// prefixes in `beginnings`, such as `CREATE TABLE {schema}.`, at the beginning of a line.
fn made(steps: &[Step], beginnings: &'static [&'static str]) -> impl Iterator<Item = String> {
    let lines = steps.iter().flat_map(|step| step.sql.lines());
    lines.filter_map(|line| {
        let mut names = beginnings
            .iter()
            .filter_map(|begin| line.strip_prefix(begin));
        names.next()?.split_whitespace().next().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Step = Step {
        version: 1,
        name: "init",
        sql: "CREATE TABLE {schema}.jobs (id integer);\nCREATE UNIQUE INDEX jobs_id ON jobs (id);",
    };
    const NEXT: Step = Step {
        version: 2,
        name: "next",
        sql: "CREATE TABLE {schema}.more (a integer)",
    };

    fn noted(steps: &[Step]) -> Vec<(i64, String, String)> {
        let note = |step: &Step| (step.version.into(), step.name.to_owned(), step.checksum());
        steps.iter().map(note).collect()
    }

    fn refusal(steps: &[Step], stored: &[(i64, String, String)]) -> String {
        let (problem, text) = check_versions("the schema", steps, stored).unwrap_err();
        format!("{problem:?}: {text}")
    }

    #[test]
    fn other_histories_are_refused() {
        let both = [FIRST, NEXT];
        check_versions("s", &both, &noted(&both)).unwrap();
        check_versions("s", &both, &noted(&[FIRST])).unwrap();
        let newer = refusal(&[FIRST], &noted(&both));
        assert!(
            newer.starts_with("Newer: the schema has version 2, newer"),
            "{newer}"
        );
        assert!(refusal(&both, &noted(&[NEXT])).contains("not applied"));
        assert!(refusal(&both, &[]).contains("empty"));
        let changed = Step {
            sql: NEXT.sql,
            ..FIRST
        };
        let altered = refusal(&both, &noted(&[changed]));
        assert!(altered.starts_with("Altered: "), "{altered}");
        assert!(altered.contains("other content"), "{altered}");
    }

    #[test]
    fn a_script_ends_with_the_note_that_it_was_applied() {
        let fill = |text: &str| text.replace("{schema}", "s");
        let script = NEXT.script("CREATE SCHEMA s;\n", fill, "s.migrations", "0");
        let note = format!(
            "\nINSERT INTO s.migrations (version, name, checksum, applied_at)\n\
             SELECT 2, 'next', '{}', 0;\n",
            NEXT.checksum()
        );
        assert_eq!(script, format!("CREATE TABLE s.more (a integer){note}"));
        let first = FIRST.script("CREATE SCHEMA s;\n", fill, "s.migrations", "0");
        assert!(
            first.starts_with("CREATE SCHEMA s;\nCREATE TABLE s.jobs"),
            "{first}"
        );
    }

    #[test]
    fn what_the_steps_make_is_read_from_their_text() {
        let steps = [FIRST, NEXT];
        let tables: Vec<String> = made(&steps, &["CREATE TABLE {schema}."]).collect();
        assert_eq!(tables, ["jobs", "more"]);
        assert_eq!(indexes(&steps).collect::<Vec<_>>(), ["jobs_id"]);
    }
}
