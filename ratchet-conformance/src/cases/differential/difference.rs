//! Finds the differences between two values, as paths to the fields: `jobs[3].state: expected
//! Pending / found Running`.
//!
//! The only trait that all values of the contract share is `Debug`, so the fields are parsed from
//! its indented form.

use std::fmt::{self, Debug, Write as _};

/// Returns the differences between a value and the expected value, with one field per item. Returns
/// an empty list if both have the same `Debug` output.
pub(super) fn differences<T: Debug>(what: &str, expected: &T, found: &T) -> Vec<String> {
    let (expected, found) = (Tree::of(expected), Tree::of(found));
    let mut lines = Vec::new();
    compare(what, Some(&expected), Some(&found), &mut lines);
    lines
}

/// A value, parsed from its `Debug` output.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Leaf(String),
    Branch {
        /// Text before the parts, such as `Job {`, `Some(` or `[`.
        open: String,
        close: char,
        /// Parts of the value, such as its fields or items. A part has a name if it is a named
        /// field or an entry of a map.
        parts: Vec<(Option<String>, Self)>,
    },
}

impl Tree {
    fn of(value: &impl Debug) -> Self {
        let text = format!("{value:#?}");
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        Self::read(first, &mut lines)
    }

    /// Parses a value from its `Debug` output. `first` is the first line of the value, and `lines`
    /// contains the next lines.
    fn read<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> Self {
        let first = first.strip_suffix(',').unwrap_or(first);
        // An empty list is printed on one line, but compares with other lists by its items.
        if first == "[]" {
            let (open, close) = ("[".to_owned(), ']');
            let parts = Vec::new();
            return Self::Branch { open, close, parts };
        }
        let close = match first.chars().last() {
            Some('{') => '}',
            Some('(') => ')',
            Some('[') => ']',
            _ => return Self::Leaf(first.to_owned()),
        };
        let mut parts = Vec::new();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if line.trim_end_matches(',') == close.to_string() {
                break;
            }
            let named = named(line).filter(|_| close == '}');
            parts.push(match named {
                Some((name, value)) => (Some(name.to_owned()), Self::read(value, lines)),
                None => (None, Self::read(line, lines)),
            });
        }
        let open = first.to_owned();
        Self::Branch { open, close, parts }
    }
}

/// Splits a line into a name and a value, at the first `: ` after the name. The name is that of a
/// field, or the key of a map. A key in quotes may contain colons.
fn named(line: &str) -> Option<(&str, &str)> {
    if line.starts_with('"') {
        let (key, value) = line.split_at(line.find("\": ")? + 1);
        return Some((key, value.strip_prefix(": ")?));
    }
    line.split_once(": ")
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(text) => f.write_str(text),
            Self::Branch { open, close, parts } => {
                let space = if *close == '}' { " " } else { "" };
                write!(f, "{open}{space}")?;
                for (number, (name, part)) in parts.iter().enumerate() {
                    if number > 0 {
                        f.write_str(", ")?;
                    }
                    if let Some(name) = name {
                        write!(f, "{name}: ")?;
                    }
                    write!(f, "{part}")?;
                }
                write!(f, "{space}{close}")
            }
        }
    }
}

fn compare(path: &str, expected: Option<&Tree>, found: Option<&Tree>, lines: &mut Vec<String>) {
    if expected == found {
        return;
    }
    if let (
        Some(Tree::Branch { open, close, parts }),
        Some(Tree::Branch {
            open: other_open,
            parts: others,
            ..
        }),
    ) = (expected, found)
        && open == other_open
    {
        // A missing or additional item shifts all later items. So equal items at the beginning and
        // at the end of the lists are skipped.
        let (expected, found) = (&parts[..], &others[..]);
        let (head, tail) = match expected.len() == found.len() {
            true => (0, 0),
            false => ends_in_common(expected, found),
        };
        let inner = |parts: &[(Option<String>, Tree)], number: usize| {
            (number + tail < parts.len()).then(|| parts[number].clone())
        };
        for number in head..(expected.len().max(found.len()) - tail) {
            let (mine, theirs) = (inner(expected, number), inner(found, number));
            let name = mine
                .as_ref()
                .or(theirs.as_ref())
                .and_then(|(name, _)| name.as_ref());
            let mut path = path.to_owned();
            let _ = match (name, close) {
                (Some(name), _) => write!(path, ".{name}"),
                (None, ')') if open != "(" && number == 0 => Ok(()),
                (None, ')') => write!(path, ".{number}"),
                (None, _) => write!(path, "[{number}]"),
            };
            let (mine, theirs) = (mine.map(|(_, tree)| tree), theirs.map(|(_, tree)| tree));
            compare(&path, mine.as_ref(), theirs.as_ref(), lines);
        }
        return;
    }
    let shown = |tree: Option<&Tree>| tree.map_or_else(|| "nothing".to_owned(), Tree::to_string);
    let (expected, found) = (shown(expected), shown(found));
    lines.push(format!("{path}: expected {expected} / found {found}"));
}

/// Returns the number of equal items at the beginning of both lists, and then the number of equal
/// items at the end.
fn ends_in_common<T: PartialEq>(expected: &[T], found: &[T]) -> (usize, usize) {
    let same = |(one, other): &(&T, &T)| one == other;
    let head = expected.iter().zip(found).take_while(same).count();
    let (expected, found) = (&expected[head..], &found[head..]);
    let tail = expected.iter().rev().zip(found.iter().rev());
    (head, tail.take_while(same).count())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Debug)]
    #[expect(dead_code, reason = "the test reads the fields from the Debug form")]
    struct Job {
        id: u8,
        state: Option<&'static str>,
        tags: Vec<&'static str>,
    }

    fn job(id: u8) -> Job {
        Job {
            id,
            state: Some("Pending: soon"),
            tags: vec!["a: b", "c"],
        }
    }

    #[test]
    fn only_the_fields_that_differ_are_listed() {
        let expected: Vec<Job> = (0..3).map(job).collect();
        let mut found = expected.clone();
        found[1].state = Some("Running");
        found[2].state = None;
        found[2].tags[1] = "d";
        assert_eq!(
            differences("jobs", &expected, &found),
            [
                r#"jobs[1].state: expected "Pending: soon" / found "Running""#,
                r#"jobs[2].state: expected Some("Pending: soon") / found None"#,
                r#"jobs[2].tags[1]: expected "c" / found "d""#,
            ]
        );
        assert_eq!(differences("jobs", &expected, &expected), [""; 0]);
    }

    #[test]
    fn one_that_is_missing_does_not_make_the_others_differ() {
        let expected: Vec<u8> = vec![1, 2, 3, 4];
        let missing = differences("ids", &expected, &vec![1, 3, 4]);
        assert_eq!(missing, ["ids[1]: expected 2 / found nothing"]);
        let added = differences("ids", &expected, &vec![1, 2, 3, 9, 4]);
        assert_eq!(added, ["ids[3]: expected nothing / found 9"]);
        let whole = differences("jobs", &vec![job(1)], &vec![]);
        let shown = r#"jobs[0]: expected Job { id: 1, state: Some("Pending: soon"), tags: ["a: b", "c"] } / found nothing"#;
        assert_eq!(whole, [shown]);
    }

    #[test]
    fn maps_and_tuples_have_paths_too() {
        let expected = BTreeMap::from([("x", (1, 2)), ("y", (3, 4))]);
        let found = BTreeMap::from([("x", (1, 2)), ("y", (3, 5))]);
        let lines = differences("counts", &expected, &found);
        assert_eq!(lines, [r#"counts."y".1: expected 4 / found 5"#]);
        assert_eq!(
            differences("answer", &Ok::<_, u8>(1), &Err(2)),
            ["answer: expected Ok(1) / found Err(2)"]
        );
    }
}
