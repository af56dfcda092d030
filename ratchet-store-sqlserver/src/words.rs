//! The placeholders in the texts of statements.

use std::time::Duration;

use ratchet_sql::PATIENCE;

use crate::session::{Server, lock_timeout};

/// Quotes a name for use in a statement. The name may contain any characters.
pub(crate) fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// Quotes a text as a string literal for use in a statement.
pub(crate) fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

/// SQL expression that returns the time of the database, in milliseconds since 1970. The time
/// advances within a transaction. It is rounded down, because DATEDIFF_BIG counts how many full
/// milliseconds have begun.
///
/// All statements use this bigint instead of the server's types for times. The functions on those
/// types overflow, for example DATEDIFF and DATEADD after 24 days of milliseconds. The types also
/// have time zones and formats.
pub(crate) const DATABASE_CLOCK: &str =
    "DATEDIFF_BIG(millisecond, CAST('1970-01-01T00:00:00' AS datetime2(7)), SYSUTCDATETIME())";

/// The values that replace the placeholders in the texts of statements.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    schema: String,
    now: String,
    lock_timeout: i64,
    /// Type of long texts in a list parameter.
    long: &'static str,
    /// Lock mode in which each claim acquires the application lock named `claims`.
    together: &'static str,
    /// Text after a table variable. It makes the server find the rows to write by a seek of their
    /// key, see [`seeking`].
    seek: &'static str,
    /// Condition that finds a row by its key, see [`ranging`].
    range: &'static str,
    /// Hints with which readers skip rows that another transaction is writing.
    passing: &'static str,
}

impl Words {
    /// Builds the values. `now` is the SQL expression of the clock, and may contain the placeholder
    /// `{schema}`. `deadline` is the deadline of calls.
    pub(crate) fn new(schema: &str, now: &str, deadline: Duration, server: &Server) -> Self {
        Self {
            schema: schema.to_owned(),
            now: now.to_owned(),
            lock_timeout: lock_timeout(deadline),
            // Babelfish truncates texts of type nvarchar(max) in a list to 4,000 characters.
            long: if server.is_babelfish {
                "ntext"
            } else {
                "nvarchar(max)"
            },
            // Babelfish does not skip locked rows, so concurrent claims would choose the same jobs,
            // and all but the first would wait and then get nothing. On Babelfish, claims therefore
            // run one after the other.
            together: if server.is_babelfish {
                "Exclusive"
            } else {
                "Shared"
            },
            // If a statement with OUTPUT writes a table that is also in its FROM, Babelfish treats
            // the two as different tables, and joins all rows to each wanted row.
            seek: if server.is_babelfish {
                ""
            } else {
                ", {schema}.{table} WITH (FORCESEEK, ROWLOCK)"
            },
            // With READPAST, SQL Server skips a locked row only if it reads a range of keys. For a
            // range, Babelfish would scan the whole table.
            range: if server.is_babelfish {
                "{one} = {other}"
            } else {
                "{one} >= {other} AND {one} <= {other}"
            },
            passing: "",
        }
    }

    /// Adapts the values to whether readers wait for writers in this database. If they do, claims,
    /// heartbeats and some other statements skip rows that another transaction is writing.
    pub(crate) const fn locking_reads(mut self, locking: bool) -> Self {
        self.passing = if locking {
            ", READPAST, READCOMMITTEDLOCK"
        } else {
            ""
        };
        self
    }

    /// Returns the maximum time that a statement waits for a lock, in milliseconds.
    pub(crate) const fn lock_timeout(&self) -> i64 {
        self.lock_timeout
    }

    /// Replaces the placeholders in the text of a statement. Removes comments to shorten the text,
    /// because the driver hashes it at every call.
    pub(crate) fn render(&self, file: &str) -> String {
        let lines = file.lines().filter(|line| !line.starts_with("--"));
        let text = unescaping(&lines.collect::<Vec<_>>().join("\n"));
        ranging(&seeking(&text, self.seek), self.range)
            .replace("{now}", &self.now)
            .replace("{long}", self.long)
            .replace("{together}", self.together)
            .replace("{passing}", self.passing)
            .replace("{patience}", &lock_timeout(PATIENCE).to_string())
            .replace("{lock_timeout}", &self.lock_timeout.to_string())
            .replace(
                "{claims}",
                &literal(&application_lock("claims", &self.schema)),
            )
            .replace(
                "{joins}",
                &literal(&application_lock("joins", &self.schema)),
            )
            .replace("{schema}", &quoted(&self.schema))
    }
}

/// Escapes in the texts of list parameters (see `query.rs`), each with the character that it stands
/// for. The last escape stands for `~` itself. It must be undone last.
pub(crate) const ESCAPES: [(&str, char); 6] = [
    ("~q", '"'),
    ("~b", '\\'),
    ("~n", '\n'),
    ("~r", '\r'),
    ("~a", '\t'),
    ("~t", '~'),
];

/// Replaces each placeholder `{text x}` with an expression that undoes the escapes in the text `x`
/// of a list. Replaces each `{name x}` with a shorter expression, because names have no control
/// characters. The expressions use a binary collation. With the collation of the database,
/// different texts may be equal, or an escape may match a longer text.
fn unescaping(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, is_name, after)) = next_word(rest) {
        let (column, after) = after.split_once('}').unwrap_or((after, ""));
        let escapes = ESCAPES.iter();
        let escapes: Vec<_> = escapes
            .filter(|(_, character)| !is_name || !character.is_control())
            .collect();
        whole += before;
        whole += &"REPLACE(".repeat(escapes.len());
        // A name is short, so it needs no cast.
        whole += &if is_name {
            column.to_owned()
        } else {
            format!("CAST({column} AS nvarchar(max))")
        };
        whole += " COLLATE Latin1_General_BIN2";
        for (escape, character) in escapes {
            let code = u32::from(*character);
            whole += &format!(", N'{escape}', NCHAR({code}))");
        }
        rest = after;
    }
    whole + rest
}

/// Replaces each placeholder `{seek x}` with `seek`, in which `{table}` is replaced with `x`.
fn seeking(text: &str, seek: &str) -> String {
    let mut parts = text.split("{seek ");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (table, after) = part.split_once('}').unwrap_or((part, ""));
        whole += &seek.replace("{table}", table);
        whole += after;
    }
    whole
}

/// Replaces each placeholder `{range x y}` with `range`, in which `{one}` and `{other}` are
/// replaced with `x` and `y`.
fn ranging(text: &str, range: &str) -> String {
    let mut parts = text.split("{range ");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (columns, after) = part.split_once('}').unwrap_or((part, ""));
        let (one, other) = columns.split_once(' ').unwrap_or((columns, columns));
        whole += &range.replace("{one}", one).replace("{other}", other);
        whole += after;
    }
    whole
}

/// Finds the next placeholder that begins with `{text ` or `{name `. Returns the text before the
/// placeholder, whether it begins with `{name `, and the text after its first word.
fn next_word(text: &str) -> Option<(&str, bool, &str)> {
    const BEGINNINGS: [(&str, bool); 2] = [("{text ", false), ("{name ", true)];
    let found = BEGINNINGS.iter().filter_map(|(beginning, is_name)| {
        let (before, after) = text.split_once(beginning)?;
        Some((before, *is_name, after))
    });
    found.min_by_key(|(before, ..)| before.len())
}

/// Returns the name of an application lock. `what` is the purpose of the lock. The name contains
/// the schema, because all schemas and applications in a database share the names of such locks.
pub(crate) fn application_lock(what: &str, schema: &str) -> String {
    format!("ratchet {what} of {}", schema.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::language::SERVER;
    use crate::statements::texts;

    #[test]
    fn texts_of_lists_are_as_they_were() {
        let text = unescaping("SELECT {text a.b}, c");
        assert_eq!(
            text,
            "SELECT REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(CAST(a.b AS nvarchar(max)) COLLATE \
             Latin1_General_BIN2, N'~q', NCHAR(34)), N'~b', NCHAR(92)), N'~n', NCHAR(10)), N'~r', \
             NCHAR(13)), N'~a', NCHAR(9)), N'~t', NCHAR(126)), c"
        );
        let name = unescaping("{name a}{text b}");
        let own = "REPLACE(REPLACE(REPLACE(a COLLATE Latin1_General_BIN2, N'~q', NCHAR(34)), \
                   N'~b', NCHAR(92)), N'~t', NCHAR(126))REPLACE(";
        assert!(name.starts_with(own), "{name}");
    }

    #[test]
    fn any_name_can_be_a_schema() {
        let words = Words::new("a]'; b", "0", Duration::from_secs(1), &SERVER);
        let text = words.render("-- a comment\nSELECT {now}, {claims} FROM {schema}.t");
        assert_eq!(
            text,
            "SELECT 0, N'ratchet claims of a]''; b' FROM [a]]'; b].t"
        );
    }

    #[test]
    fn what_is_written_is_sought_where_that_can_be_said() {
        let text =
            "UPDATE {schema}.t SET a = 1 OUTPUT inserted.id FROM @x AS x{seek t} WHERE t.id = x.id";
        let render = |is_babelfish| {
            let server = Server {
                is_babelfish,
                ..SERVER
            };
            Words::new("s", "0", Duration::from_secs(1), &server).render(text)
        };
        let told = render(false);
        assert!(
            told.contains(" FROM @x AS x, [s].t WITH (FORCESEEK, ROWLOCK) WHERE"),
            "{told}"
        );
        let told = render(true);
        assert!(told.contains(" FROM @x AS x WHERE"), "{told}");
    }

    #[test]
    fn a_row_is_come_by_in_a_range_where_that_lets_it_be_passed_over() {
        let text = "ON {range locked.id due.id} AND {range a.b c.d}";
        let render = |is_babelfish| {
            let server = Server {
                is_babelfish,
                ..SERVER
            };
            Words::new("s", "0", Duration::from_secs(1), &server).render(text)
        };
        assert_eq!(
            render(false),
            "ON locked.id >= due.id AND locked.id <= due.id AND a.b >= c.d AND a.b <= c.d"
        );
        assert_eq!(render(true), "ON locked.id = due.id AND a.b = c.d");
    }

    /// Checks which statements get the hint to skip rows that another transaction is writing, and
    /// when. They get the hint only in databases where readers would wait for such rows. In other
    /// databases, readers see the old version of a row, and the hint would make them acquire locks.
    #[test]
    fn readers_pass_over_what_is_written_only_where_they_would_wait() {
        let words = |locking| {
            let words = Words::new("s", "0", Duration::from_secs(1), &SERVER);
            words.locking_reads(locking)
        };
        let mut passing = Vec::new();
        for (name, text) in texts() {
            let file = ratchet_sql::render(name, text);
            let hints = |text: &str| text.matches("READPAST").count();
            let plain = words(false).render(&file);
            let own = words(true).render(&file.replace("{passing}", ""));
            assert_eq!(plain, own, "{name}");
            let added = file.matches("{passing}").count();
            let locking = words(true).render(&file);
            assert_eq!(hints(&locking), hints(&plain) + added, "{name}");
            let with = locking.matches(", READPAST, READCOMMITTEDLOCK)").count();
            assert_eq!(with, added, "{name}");
            passing.extend((added > 0).then_some(name));
        }
        passing.sort_unstable();
        let expected = [
            "beat_node",
            "claim_jobs",
            "claim_recurring",
            "count_due",
            "due_routes",
            "forget_keys",
            "forget_rates",
            "lock_old",
            "look_at_permits",
            "overdue_expiries",
            "purge_archive",
            "purge_batches",
            "running_jobs",
        ];
        assert_eq!(passing, expected);
    }
}
