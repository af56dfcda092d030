//! Checks how the statements acquire locks, by their texts. Tests on Babelfish cannot check this,
//! because Babelfish ignores hints.
#![expect(
    clippy::unwrap_used,
    reason = "a file that cannot be read fails the test"
)]

use std::fs;
use std::path::Path;

/// One part of a statement. A statement may have several.
struct Part {
    statement: String,
    /// The whole statement in one line, without comments.
    whole: String,
    /// The text of the part, with one space between its words.
    text: String,
}

/// A table in a statement.
#[derive(Clone, Debug)]
struct Source {
    table: String,
    alias: String,
    /// The hints in parentheses after the table.
    hints: String,
    /// Whether a loop join connects the table to the tables before it.
    is_looped: bool,
    /// Whether the statement writes the table.
    is_target: bool,
}

impl Source {
    fn locks(&self) -> bool {
        self.is_target || self.hints.contains("UPDLOCK")
    }
}

fn folder(name: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Returns every statement with its name.
fn statements() -> Vec<(String, String)> {
    let mut statements = Vec::new();
    for (_, text) in folder("src/sql") {
        let named = ratchet_sql::split(&text);
        statements
            .extend(named.map(|(name, text)| (name.to_owned(), ratchet_sql::render(name, text))));
    }
    statements
}

fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for (statement, text) in statements() {
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let whole = words.join(" ");
        for text in whole.split(';') {
            let mut text = text.trim();
            for before in ["BEGIN ", "IF @looked > 0 BEGIN ", "IF @P11 = 0 "] {
                text = text.strip_prefix(before).unwrap_or(text);
            }
            let text = ranged(&sought(text));
            parts.push(Part {
                statement: statement.clone(),
                whole: whole.clone(),
                text,
            });
        }
    }
    assert!(parts.len() > 300, "{}", parts.len());
    parts
}

/// Replaces the placeholder `{seek …}` in the text.
fn sought(text: &str) -> String {
    let Some((before, after)) = text.split_once("{seek ") else {
        return text.to_owned();
    };
    let (table, after) = after.split_once('}').unwrap();
    format!("{before}, {{schema}}.{table} AS {table} WITH (FORCESEEK, ROWLOCK){after}")
}

/// Replaces the placeholder `{range …}` in the text.
fn ranged(text: &str) -> String {
    let Some((before, after)) = text.split_once("{range ") else {
        return text.to_owned();
    };
    let (columns, after) = after.split_once('}').unwrap();
    let (one, other) = columns.split_once(' ').unwrap();
    ranged(&format!(
        "{before}{one} >= {other} AND {one} <= {other}{after}"
    ))
}

fn word_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(before)?;
    after.split([' ', '(', ')', ',']).next()
}

/// Returns the content of a pair of parentheses. `text` begins after the opening parenthesis.
fn bracketed(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|character| {
        open += i32::from(character == '(') - i32::from(character == ')');
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}

impl Part {
    /// Returns the table that the part writes: its name or alias.
    fn target(&self) -> Option<&str> {
        ["UPDATE ", "DELETE FROM ", "DELETE "]
            .into_iter()
            .find_map(|verb| self.text.strip_prefix(verb))?
            .split(' ')
            .next()
    }

    /// Returns the tables of the schema that have an alias in this part.
    fn sources(&self) -> Vec<Source> {
        const SCHEMA: &str = "{schema}.";
        let mut found = Vec::new();
        for (place, _) in self.text.match_indices(SCHEMA) {
            let (before, from) = self.text.split_at(place);
            let (table, rest) = from[SCHEMA.len()..].split_once(' ').unwrap_or_default();
            let Some(rest) = rest.strip_prefix("AS ") else {
                continue;
            };
            let (alias, rest) = rest.split_once([' ', ')']).unwrap_or((rest, ""));
            let alias = alias.trim_end_matches(',');
            let hints = rest.strip_prefix("WITH (").map(bracketed);
            found.push(Source {
                table: table.to_owned(),
                alias: alias.to_owned(),
                hints: hints.unwrap_or_default().to_owned(),
                is_looped: before.ends_with("INNER LOOP JOIN "),
                is_target: self.target() == Some(alias)
                    || self.target() == Some(&format!("{SCHEMA}{alias}")),
            });
        }
        found
    }

    /// Returns the first table after the FROM of the part.
    fn first(&self) -> Option<&str> {
        word_after(&self.text, " FROM ")
    }

    /// Returns whether the rows of a table variable are read in the order of a key.
    fn is_ordered(&self, variable: &str) -> bool {
        let declared = self.whole.split("DECLARE ").find(|declared| {
            let name = declared.strip_prefix(variable);
            name.is_some_and(|rest| rest.starts_with(" TABLE ("))
        });
        declared.is_some_and(|declared| declared.contains("PRIMARY KEY"))
    }
}

/// Statements lock a job only by its primary key. Otherwise two transactions could deadlock: one
/// has locked the row and waits for the index, and the other has locked the index and waits for the
/// row.
#[test]
fn a_job_has_one_key_to_lock() {
    let mut clustered = 0;
    for (name, script) in folder("migrations") {
        clustered += script.matches("PRIMARY KEY CLUSTERED (id)").count();
        assert!(!script.contains("NONCLUSTERED"), "{name}");
        assert!(!script.contains("CLUSTERED INDEX"), "{name}");
    }
    assert_eq!(clustered, 1, "jobs");
}

/// For a statement that names a state, the server may choose the filtered index on this state,
/// because a small index looks cheap. The statement then locks through this index. So it also locks
/// other jobs, and in another order than a statement that changes the state.
#[test]
fn what_locks_jobs_names_no_state_that_a_filtered_index_has() {
    let mut seen = 0;
    for part in parts() {
        let locked: Vec<Source> = part.sources().into_iter().filter(Source::locks).collect();
        for job in locked.iter().filter(|source| source.table == "jobs") {
            let state = format!("{}.state ", job.alias);
            for (place, _) in part.text.match_indices(&state) {
                let word = part.text[place + state.len()..].split(' ').next();
                let is_compared = word.is_some_and(|word| {
                    word.starts_with(['=', '<', '>', '!']) || ["IN", "BETWEEN"].contains(&word)
                });
                assert!(!is_compared, "{}: {}", part.statement, part.text);
                seen += usize::from(word == Some("+"));
            }
            for before in ["WHERE", "AND", "OR", "ON"] {
                let bare = format!(" {before} state ");
                assert!(
                    !part.text.contains(&bare),
                    "{}: {}",
                    part.statement,
                    part.text
                );
            }
        }
    }
    assert!(seen > 12, "{seen}");
}

/// With row versioning, the server rejects READPAST unless the statement requests locks.
#[test]
fn what_is_passed_over_is_read_with_locks() {
    let mut seen = 0;
    for part in parts().iter().filter(|part| part.text.contains("READPAST")) {
        let passing = part.sources().into_iter();
        let passing: Vec<Source> = passing
            .filter(|source| source.hints.contains("READPAST"))
            .collect();
        assert_eq!(passing.len(), 1, "{}: {}", part.statement, part.text);
        for source in passing {
            for hint in ["READCOMMITTEDLOCK", "ROWLOCK,", "FORCESEEK"] {
                assert!(
                    source.hints.contains(hint),
                    "{}: {source:?}",
                    part.statement
                );
            }
            // The server does not skip a locked row that it seeks by the whole key.
            let alias = &source.alias;
            let key = word_after(&part.text, &format!(" {alias}.id >= "))
                .or_else(|| word_after(&part.text, &format!(" {alias}.name >= ")))
                .or_else(|| word_after(&part.text, &format!(" {alias}.lane >= ")))
                .or_else(|| word_after(&part.text, &format!(" {alias}.[key] >= ")));
            let key = key.unwrap_or_else(|| panic!("expected {} to seek a range", part.statement));
            assert!(
                part.text.contains(&format!(" <= {key}")),
                "{}",
                part.statement
            );
            seen += 1;
        }
    }
    assert!(seen > 7, "{seen}");
}

/// Statements lock the rows that a table variable names, in the order of its key, and no other
/// rows. The statements loop over the variable and seek each row. Otherwise the server may begin
/// with the table if it is small, and wait for rows that the statement does not need.
#[test]
fn locks_are_taken_by_seeks_in_the_order_of_a_key() {
    let mut seen = 0;
    for part in parts() {
        let text = format!("{}: {}", part.statement, part.text);
        if let Some(target) = part.target().filter(|name| name.starts_with("{schema}.")) {
            // A part without the hint must write only one row or a small table, so it must not
            // contain a join.
            let is_joined = part.text.contains(" FROM @") || part.text.contains("IN (SELECT");
            let is_sought = part.sources().iter().any(|source| source.is_target);
            assert!(!is_joined || is_sought, "{target} in {text}");
        }
        for source in part.sources().iter().filter(|source| source.locks()) {
            let first = part.first().unwrap();
            let order = part.text.ends_with("OPTION (FORCE ORDER, LOOP JOIN)");
            assert!(source.is_looped || order, "{source:?} in {text}");
            assert!(source.hints.contains("FORCESEEK"), "{source:?} in {text}");
            assert!(source.hints.contains("ROWLOCK"), "{source:?} in {text}");
            let by_index = part.sources().first().unwrap().hints.contains("INDEX");
            let by_key = first.starts_with('@') && part.is_ordered(first);
            assert!(
                by_key || by_index,
                "expected an order or an index for {first} in {text}"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

/// A statement that locks rows by writing them unchanged also reads them with a lock, because a
/// write that changes nothing does not lock the row on every server.
#[test]
fn what_is_written_as_it_was_is_read_with_a_lock() {
    let mut seen = 0;
    for part in parts() {
        let Some((_, set)) = part.text.split_once(" SET ") else {
            continue;
        };
        let words: Vec<&str> = set.splitn(4, ' ').collect();
        let [column, "=", value, ..] = words[..] else {
            continue;
        };
        // The alias of the written table, and the unchanged value.
        let target = part.target().unwrap_or_default();
        let is_same = value == column || value == format!("{target}.{column}");
        let is_all = words
            .get(3)
            .is_none_or(|rest| !rest.starts_with(['+', '-', '|']));
        if part.target().is_some() && is_same && is_all {
            assert!(part.whole.contains("UPDLOCK"), "{}", part.statement);
            seen += 1;
        }
    }
    assert!(seen > 9, "{seen}");
}

/// An index that a hint names must exist. If it is filtered, the statement must contain its
/// condition literally; otherwise the server finds no plan (error 8622).
#[test]
fn every_index_that_is_named_can_be_used() {
    let scripts: String = folder("migrations")
        .into_iter()
        .map(|(_, script)| script)
        .collect();
    let mut seen = 0;
    for part in parts() {
        for (place, _) in part.text.match_indices("INDEX(") {
            let name = part.text[place + 6..].split(')').next().unwrap();
            seen += 1;
            if scripts.contains(&format!("CONSTRAINT {name} PRIMARY KEY")) {
                continue;
            }
            let made = scripts
                .lines()
                .find(|line| line.starts_with(&format!("CREATE INDEX {name} ON ")));
            let made = made.unwrap_or_else(|| panic!("{} names {name}", part.statement));
            let (_, filter) = made.split_once(" WHERE ").unwrap();
            let filter = format!(" job.{} ", filter.trim_end_matches(';'));
            assert!(part.text.contains(&filter), "{}: {filter}", part.statement);
        }
    }
    assert!(seen > 6, "{seen}");
}

/// A statement with several writes must be atomic: it runs in its own transaction, or in the
/// caller's, which its comment then mentions.
#[test]
fn what_writes_twice_is_in_a_transaction() {
    let mut seen = 0;
    for (statement, text) in statements() {
        let writes = parts().into_iter().filter(|part| {
            let inserts = part.text.starts_with("INSERT INTO {schema}.");
            part.statement == statement && (inserts || part.target().is_some())
        });
        if writes.count() < 2 {
            continue;
        }
        seen += 1;
        let comment: String = text.lines().filter(|line| line.starts_with("--")).collect();
        let said = ["transaction", "locked", "begins again"];
        let said = said.iter().any(|word| comment.contains(word));
        assert!(text.contains("BEGIN TRANSACTION") || said, "{statement}");
    }
    assert!(seen > 10, "{seen}");
}
