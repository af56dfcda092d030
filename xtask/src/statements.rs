//! Reads the statements of a SQL store from its sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The marker before the names of a statement, as in `ratchet-sql`.
const MARK: &str = "-- name:";

/// Returns the text of each statement of a store by its name; `package` is the store's folder.
pub(crate) fn of(package: &Path) -> Result<BTreeMap<String, String>> {
    let files = by_file(package)?.into_values();
    Ok(files.flatten().collect())
}

/// Returns the files of a store by name, each with its statements in order.
pub(crate) fn by_file(package: &Path) -> Result<BTreeMap<String, Vec<(String, String)>>> {
    let folder = package.join("src").join("sql");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let statements = split(&text);
        ensure!(!statements.is_empty(), "the file {name} has no statement");
        files.insert(name.into_owned(), statements);
    }
    Ok(files)
}

fn split(text: &str) -> Vec<(String, String)> {
    let mut statements: Vec<(Vec<String>, String)> = Vec::new();
    for line in text.lines() {
        if let Some(names) = line.strip_prefix(MARK) {
            let names = names.split_whitespace().map(str::to_owned).collect();
            statements.push((names, String::new()));
        } else if let Some((_, text)) = statements.last_mut() {
            *text += line;
            *text += "\n";
        }
    }
    let named = statements.into_iter().flat_map(|(names, text)| {
        let names = names.into_iter();
        names.map(move |name| (name, text.trim_ascii().to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::sql_packages;
    use crate::process;

    #[test]
    fn statements_are_read_as_the_stores_load_them() {
        for package in sql_packages() {
            let package = process::root().join(package);
            for (file, statements) in by_file(&package).unwrap() {
                let text = fs::read_to_string(package.join("src/sql").join(&file)).unwrap();
                let loaded = ratchet_sql::split(&text);
                let loaded = loaded.map(|(name, text)| (name.to_owned(), text.to_owned()));
                assert_eq!(loaded.collect::<Vec<_>>(), statements, "{file}");
            }
        }
    }
}
