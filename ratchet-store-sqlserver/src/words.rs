//! The words in the texts of statements.

use std::time::Duration;

use ratchet_sql::PATIENCE;

use crate::session::{Server, lock_timeout};

/// A name as it is written in a statement, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// A text as it is written in a statement.
pub(crate) fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

/// The database's clock in milliseconds since 1970. It goes on inside a transaction, and is rounded
/// down as everywhere, since this counts the boundaries of milliseconds that were crossed. It is a
/// bigint from here on: nothing else is done with the types of the server for times, which overflow
/// (DATEDIFF after 24 days of milliseconds, DATEADD after as many) and have zones and formats.
pub(crate) const DATABASE_CLOCK: &str =
    "DATEDIFF_BIG(millisecond, CAST('1970-01-01T00:00:00' AS datetime2(7)), SYSUTCDATETIME())";

/// What the braces in the text of a file stand for.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    schema: String,
    now: String,
    lock_timeout: i64,
    /// What long texts in a list are declared as.
    long: &'static str,
    /// How claims take the lock that all of them take.
    together: &'static str,
    /// What is added to a table variable from which a table is written by seeks of its key.
    seek: &'static str,
    /// How a row is come by whose key is known; see [`ranging`].
    range: &'static str,
    /// What those who read add to their hints so that they pass over what another transaction is
    /// writing.
    passing: &'static str,
}

impl Words {
    /// `now` is the expression of the clock, in which `{schema}` may be; `deadline` that of calls.
    pub(crate) fn new(schema: &str, now: &str, deadline: Duration, server: &Server) -> Self {
        Self {
            schema: schema.to_owned(),
            now: now.to_owned(),
            lock_timeout: lock_timeout(deadline),
            // Babelfish cuts texts of the right type off at 4,000 characters there.
            long: if server.is_babelfish {
                "ntext"
            } else {
                "nvarchar(max)"
            },
            // Where claims do not pass over locked rows, all claims choose the same ones, and all
            // but the first wait for nothing and come back with nothing. There they go one after
            // the other.
            together: if server.is_babelfish {
                "Exclusive"
            } else {
                "Shared"
            },
            // On Babelfish a table that is written with OUTPUT and stands in FROM too is another
            // one there: all of its rows are joined to each that is meant.
            seek: if server.is_babelfish {
                ""
            } else {
                ", {schema}.{table} WITH (FORCESEEK, ROWLOCK)"
            },
            // Only there are locked rows passed over; elsewhere it is a scan.
            range: if server.is_babelfish {
                "{one} = {other}"
            } else {
                "{one} >= {other} AND {one} <= {other}"
            },
            passing: "",
        }
    }

    /// The same for a database where readers may wait for writers: claims, heartbeats and sweeps
    /// pass over what another transaction is writing.
    pub(crate) const fn locking_reads(mut self, locking: bool) -> Self {
        self.passing = if locking {
            ", READPAST, READCOMMITTEDLOCK"
        } else {
            ""
        };
        self
    }

    /// How long a statement waits for a lock, in milliseconds.
    pub(crate) const fn lock_timeout(&self) -> i64 {
        self.lock_timeout
    }

    /// Puts the words into the text of a file, without its comments: they are for readers of the
    /// file, and the server hashes the text of every call.
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

/// What stands for a character in the texts of lists (query.rs), and the character. The last is
/// the sign itself, and must be undone last.
pub(crate) const ESCAPES: [(&str, char); 6] = [
    ("~q", '"'),
    ("~b", '\\'),
    ("~n", '\n'),
    ("~r", '\r'),
    ("~a", '\t'),
    ("~t", '~'),
];

/// Puts in the place of each `{text x}` the text `x` of a list as it was before it was escaped, and
/// of each `{name x}` the name, which has no control characters; in a binary collation: that of the
/// database may take what differs for the same, or for longer.
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
        // A name is no long text.
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

/// Puts this in the place of each `{seek x}`, with the table `x` in it.
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

/// Puts this in the place of each `{range x y}`, with the columns `x` and `y` in it.
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

/// Returns what precedes the next of these words, whether it is a name, and what follows its
/// beginning.
fn next_word(text: &str) -> Option<(&str, bool, &str)> {
    const BEGINNINGS: [(&str, bool); 2] = [("{text ", false), ("{name ", true)];
    let found = BEGINNINGS.iter().filter_map(|(beginning, is_name)| {
        let (before, after) = text.split_once(beginning)?;
        Some((before, *is_name, after))
    });
    found.min_by_key(|(before, ..)| before.len())
}

/// The name of a lock of the server's that stands for something in this schema. They belong to the
/// database, and other applications have theirs.
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

    /// What readers must not wait for is passed over where they would, and only there: elsewhere
    /// they see the row as it was, and no hint may make them take locks.
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
            "forget_rates",
            "lock_old",
            "look_at_permits",
            "purge_archive",
            "purge_batches",
            "running_jobs",
        ];
        assert_eq!(passing, expected);
    }
}
