//! Migrations: numbered, append-only, checksummed. A dialect applies each in one transaction.

use std::collections::BTreeSet;
use std::fmt;

use ratchet_core::{SchemaProblem, StoreErrorKind};
use sha2::{Digest, Sha256};

use crate::dialect::{Dialect, Query as _, Row as _, Run as _};
use crate::failure::{Failure, Result};
use crate::statement::Statements;

/// One step of Ratchet's schema, ready to run in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The number of the step. Numbers begin at 1 and have no gaps.
    pub version: u32,
    /// The name of the step.
    pub name: &'static str,
    /// The statements, including the one that records the step as applied.
    pub sql: String,
}

/// A step in its source form.
#[derive(Clone, Copy)]
pub struct Step {
    /// The number of the step. Numbers begin at 1 and have no gaps.
    pub version: u32,
    /// The name of the step.
    pub name: &'static str,
    /// The statements, with the dialect's placeholders not yet replaced.
    pub sql: &'static str,
}

impl fmt::Debug for Step {
    /// Omits the text, which is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.name)
    }
}

/// The difference between a schema's expected and stored history: its kind, and a message.
pub type Mismatch = (SchemaProblem, String);

impl Step {
    /// Returns the checksum of the text, which reveals later changes.
    #[must_use]
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the script to run in one transaction: `first`, if this is the first step; the text,
    /// with its placeholders replaced by `fill`; and an insert into `table` that records the step
    /// as applied at `now`, an SQL expression.
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

    /// Returns the step for display, with this script.
    #[must_use]
    pub const fn printed(&self, sql: String) -> Migration {
        Migration {
            version: self.version,
            name: self.name,
            sql,
        }
    }

    /// Logs that the step was applied.
    pub fn log_applied(&self) {
        let Self { version, name, .. } = self;
        tracing::info!(version, name, "applied a migration");
    }
}

/// Compares the versions and checksums of the steps with those that a database has recorded.
/// `stored` is the version, name and checksum of each recorded step, in order. `place` names the
/// schema in messages.
///
/// # Errors
/// A mismatch, if the database has recorded different steps, newer ones, or none.
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

/// Builds the mismatch of a schema that lacks migrations which the program may not apply. `store`
/// names the type that lists them.
#[must_use]
pub fn behind(place: &str, store: &str) -> Mismatch {
    let text = format!(
        "{place} lacks migrations, and this program may not apply them; run what \
         {store}::migrations returns"
    );
    (SchemaProblem::Behind, text)
}

/// Builds the mismatch of a schema that lacks these objects.
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

/// The schema of a store, and the steps it should have.
#[derive(Debug)]
pub struct Schema<'a, D: Dialect> {
    /// The name of the schema.
    pub name: &'a str,
    /// The steps that this program knows.
    pub steps: &'a [Step],
    /// The statements for this schema.
    pub sql: &'a Statements<D>,
}

impl<D: Dialect> Schema<'_, D> {
    /// Returns the schema's name for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("the schema {}", D::quoted(self.name))
    }

    /// Returns the number of applied steps; 0 if the schema has none of Ratchet's objects.
    ///
    /// # Errors
    /// `SchemaMismatch` if the schema has other steps, has Ratchet's tables without a table
    /// `migrations`, or lacks objects of its applied steps.
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
        // Another program may have applied a migration since the objects were listed, so look for
        // missing ones again.
        if !self.missing(stored.len(), &own).is_empty() {
            let own = self.own_objects(lease).await?;
            let missing = self.missing(stored.len(), &own);
            if !missing.is_empty() {
                return Err(incomplete(&place, &missing).into());
            }
        }
        Ok(stored.len())
    }

    /// Returns the objects in the schema that have the names of Ratchet's objects. Covers the kinds
    /// of objects that the statement `own_objects` lists.
    ///
    /// # Errors
    /// Those of the statement `own_objects`.
    pub async fn own_objects(&self, lease: &mut D::Lease) -> Result<BTreeSet<String>> {
        let ours: BTreeSet<String> = objects::<D>(self.steps).collect();
        let mut found = BTreeSet::new();
        let find = self.sql.own_objects.query().bind(self.name);
        for row in lease.rows(find).await? {
            found.insert(row.try_get::<String>(0)?);
        }
        Ok(found.intersection(&ours).cloned().collect())
    }

    /// Returns the objects that the first `applied` steps create and that are not in `own`.
    #[must_use]
    pub fn missing(&self, applied: usize, own: &BTreeSet<String>) -> Vec<String> {
        let steps = &self.steps[..applied.min(self.steps.len())];
        let expected: BTreeSet<String> = objects::<D>(steps).collect();
        expected.difference(own).cloned().collect()
    }
}

/// Returns the tables that the steps create, and the table `migrations`. Includes the indexes if
/// the dialect's statement `own_objects` lists them.
pub fn objects<D: Dialect>(steps: &[Step]) -> impl Iterator<Item = String> {
    let tables = made(steps, &["CREATE TABLE {schema}."]);
    let indexes = indexes(steps).filter(|_| D::LISTS_INDEXES);
    tables.chain(indexes).chain(["migrations".to_owned()])
}

/// Returns the indexes that the steps create.
pub fn indexes(steps: &[Step]) -> impl Iterator<Item = String> {
    made(steps, &["CREATE INDEX ", "CREATE UNIQUE INDEX "])
}

/// Returns, for each line that begins with one of these prefixes, the word after the prefix.
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
