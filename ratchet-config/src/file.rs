//! Reads the configuration file: parses its TOML into entries, each with a key, a value and a line
//! number.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::load::Entry;
use crate::origin::Origin;
use crate::problem::Problem;
use crate::value::Raw;

/// Returns every entry of a file, and one problem for each line that is not valid TOML.
pub(crate) fn read(path: &Path, text: &str) -> (Vec<Entry<Raw>>, Vec<Problem>) {
    let (mut text, mut broken) = (text.to_owned(), BTreeMap::new());
    let mut entries = Vec::new();
    loop {
        let (table, errors) = DeTable::parse_recoverable(&text);
        let mut stopped = None;
        for error in &errors {
            let line = line_of(&text, error.span().map_or(0, |span| span.start));
            // The error's `Display` is not used, because it shows the line, which may contain a
            // password.
            let message = error.message().replace('\n', ", ");
            if message.starts_with(STOPS) && !broken.contains_key(&line) {
                stopped = Some(line);
            }
            broken.entry(line).or_insert(message);
        }
        let Some(line) = stopped else {
            flatten(&text, &mut Vec::new(), table.get_ref(), &mut entries);
            break;
        };
        text = without(&text, line);
    }
    let entries = entries.into_iter().map(|(keys, raw, line)| {
        let is_broken = broken.contains_key(&line);
        let raw = if is_broken { Raw::Broken } else { raw };
        Entry::new(keys, raw, Origin::file(path, line))
    });
    let problems = broken.iter().map(|(line, message)| Problem {
        places: Vec::new(),
        rule: format!("{}: invalid TOML: {message}", Origin::file(path, *line)),
    });
    (entries.collect(), problems.collect())
}

/// Beginning of the message of the only error that stops the parser. After this error, [`read`]
/// empties the line and parses the text again. So errors in later lines are found too.
const STOPS: &str = "key with no value";

/// Returns the text without the content of one line. The line itself stays, so line numbers do not
/// change.
fn without(text: &str, line: usize) -> String {
    let lines = text.split('\n').enumerate();
    let lines: Vec<&str> = lines
        .map(|(index, content)| if index + 1 == line { "" } else { content })
        .collect();
    lines.join("\n")
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// Collects the values of a table with their paths and line numbers, in the order of the file.
fn flatten(
    text: &str,
    above: &mut Vec<String>,
    table: &DeTable<'_>,
    entries: &mut Vec<(Vec<String>, Raw, usize)>,
) {
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in rows {
        above.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(table) if !table.is_empty() => flatten(text, above, table, entries),
            value => entries.push((above.clone(), raw(value), line_of(text, key.span().start))),
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
        DeValue::Array(items) => Raw::Array(items.iter().map(|item| raw(item.get_ref())).collect()),
        DeValue::Float(_) => Raw::Other("a floating-point number"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Table(_) => Raw::TABLE,
    }
}
