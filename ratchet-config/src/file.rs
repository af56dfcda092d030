//! The file: TOML, taken apart into keys with their lines.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::origin::Origin;
use crate::problem::{Place, Problem};
use crate::value::Raw;

/// A value with its path, as `["cluster", "ttl"]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) path: Vec<String>,
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}

/// Everything in a file, and what of it is no TOML.
pub(crate) fn read(path: &Path, text: &str) -> (Vec<Entry>, Vec<Problem>) {
    let (mut text, mut broken) = (text.to_owned(), BTreeMap::new());
    let entries = loop {
        let (table, errors) = DeTable::parse_recoverable(&text);
        let mut stopped = None;
        for error in &errors {
            let line = line_of(&text, error.span().map_or(0, |span| span.start));
            // Not its `Display`, which shows the line, and with it perhaps a password.
            let message = error.message().replace('\n', ", ");
            if message.starts_with(STOPS) && !broken.contains_key(&line) {
                stopped = Some(line);
            }
            broken.entry(line).or_insert(message);
        }
        match stopped {
            Some(line) => text = without(&text, line),
            None => {
                let mut entries = Vec::new();
                flatten(path, &text, &mut Vec::new(), table.get_ref(), &mut entries);
                break entries;
            }
        }
    };
    let entries = entries.into_iter().map(|entry| match &entry.origin {
        Origin::File { line, .. } if broken.contains_key(line) => Entry {
            raw: Raw::Broken,
            ..entry
        },
        _ => entry,
    });
    let entries = entries.collect();
    let problems = broken.iter().map(|(line, message)| Problem {
        places: Vec::new(),
        rule: format!("{}: this is no TOML: {message}", Origin::file(path, *line)),
    });
    (entries, problems.collect())
}

/// The one mistake at which the parser stops, so that nothing behind it would be seen.
const STOPS: &str = "key with no value";

/// The text with nothing in this line.
fn without(text: &str, line: usize) -> String {
    let lines = text.split('\n').enumerate();
    let lines: Vec<&str> = lines
        .map(|(index, content)| if index + 1 == line { "" } else { content })
        .collect();
    lines.join("\n")
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

fn flatten(
    file: &Path,
    text: &str,
    above: &mut Vec<String>,
    table: &DeTable<'_>,
    entries: &mut Vec<Entry>,
) {
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in rows {
        above.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(table) if !table.is_empty() => {
                flatten(file, text, above, table, entries);
            }
            value => entries.push(Entry {
                path: above.clone(),
                raw: raw(value),
                origin: Origin::file(file, line_of(text, key.span().start)),
            }),
        }
        above.pop();
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::String(text.to_string()),
        DeValue::Integer(number) => Raw::Integer(match number.radix() {
            10 => number.as_str().to_owned(),
            radix => u64::from_str_radix(number.as_str(), radix)
                .map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()),
        }),
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Array(items) => Raw::Array(
            items
                .iter()
                .map(|item: &Spanned<_>| raw(item.get_ref()))
                .collect(),
        ),
        DeValue::Float(_) => Raw::Other("a number with a point"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

/// A place whose value nobody is shown.
pub(crate) fn unseen(key: String, origin: Origin) -> Place {
    Place {
        key,
        value: None,
        origin,
    }
}
