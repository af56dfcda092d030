//! Checks the boundaries of the core. The core, the conformance suite and the HTTP API mention no
//! backend by name and depend on no driver, and the traits that they share with the stores stay
//! small. No two types of the core have the same name, and the modules of its engine form no cycle.
//! The SQL stores have the same files of statements. (The compiler checks that dialects have the
//! same statements: `ratchet-sql` lists them.)

mod cycles;
mod source;
mod types;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::backends::{sql_packages, words};
use crate::{process, statements};

/// The crates that must not mention any backend.
const NEUTRAL: [&str; 3] = ["ratchet-core", "ratchet-conformance", "ratchet-http"];
/// The crates that may mention backends, since users name backends in settings, but depend on none.
const INDEPENDENT: [&str; 1] = ["ratchet-config"];
/// The crate in which no two types have the same name.
const CORE: &str = "ratchet-core/src";
/// The modules that must form no cycle.
const ENGINE: &str = "ratchet-core/src/engine";
/// The most methods that a trait may require.
const MAX_METHODS: usize = 12;
pub(crate) fn run() -> Result<()> {
    let mut problems = Vec::new();
    for package in NEUTRAL {
        for file in rust_files(&process::root().join(package).join("src"))? {
            let source = fs::read_to_string(&file)?;
            let shown = file
                .strip_prefix(process::root())
                .unwrap_or(&file)
                .display()
                .to_string();
            problems.extend(names_in(&source).into_iter().map(|(line, name)| {
                format!(
                    "{shown}:{line}: backend-neutral code names a \
                     backend: {name}"
                )
            }));
            problems.extend(
                required_methods(&source)
                    .into_iter()
                    .filter(|(_, methods)| *methods > MAX_METHODS)
                    .map(|(name, methods)| {
                        format!(
                            "{shown}: {name} requires {methods} methods; at most {MAX_METHODS} are \
                             allowed"
                        )
                    }),
            );
        }
    }
    for package in NEUTRAL.into_iter().chain(INDEPENDENT) {
        problems.extend(
            drivers_of(package)?
                .into_iter()
                .map(|driver| format!("{package} depends on {driver}")),
        );
    }
    problems.extend(statement_problems()?);
    problems.extend(types_of_one_name()?);
    let engine = cycles::Modules::read(&process::root().join(ENGINE), "engine")?;
    for cycle in engine.cycles() {
        let (files, chain) = (cycle.files.len(), cycle.chain.join(" -> "));
        problems.push(format!("{ENGINE}: {files} files use each other: {chain}"));
    }
    if !problems.is_empty() {
        bail!("boundaries are violated:\n{}", problems.join("\n"));
    }
    println!(
        "{} name no backend, the traits are small, the SQL stores have the same files, and the \
         {} modules of the engine form no cycle.",
        NEUTRAL.join(", "),
        engine.count()
    );
    Ok(())
}

/// Returns the differences between the files of statements of the SQL stores.
fn statement_problems() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut files: Option<(&str, BTreeSet<String>)> = None;
    for package in sql_packages() {
        let own = statements::by_file(&process::root().join(package))?;
        let own: BTreeSet<String> = own.into_keys().collect();
        let (first, expected) = files.get_or_insert((package, own.clone()));
        for file in expected.symmetric_difference(&own) {
            problems.push(format!(
                "only one of {first} and {package} has the file {file}"
            ));
        }
    }
    Ok(problems)
}

/// Returns a problem for each name that more than one type of the core has.
fn types_of_one_name() -> Result<Vec<String>> {
    let mut sources = Vec::new();
    for file in rust_files(&process::root().join(CORE))? {
        let shown = file.strip_prefix(process::root()).unwrap_or(&file);
        sources.push((shown.display().to_string(), fs::read_to_string(&file)?));
    }
    let sources = sources
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()));
    let duplicates = types::duplicates(sources).into_iter();
    let problem = |(name, files): (String, Vec<&str>)| {
        format!(
            "the type {name} is declared more than once: {}",
            files.join(", ")
        )
    };
    Ok(duplicates.map(problem).collect())
}

fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns every line of code that contains a backend's name. Does not search comments, nor the
/// unit tests at the end of the file.
fn names_in(source: &str) -> Vec<(usize, &'static str)> {
    let code = source
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]");
    let mut found = Vec::new();
    for (index, line) in code.enumerate() {
        let line = line.trim().to_ascii_lowercase();
        if !line.starts_with("//") {
            let names = words().filter(|name| line.contains(name));
            found.extend(names.map(|name| (index + 1, name)));
        }
    }
    found
}

/// Returns the public traits of a formatted file, each with the number of its methods without a
/// body.
fn required_methods(source: &str) -> Vec<(&str, usize)> {
    let mut traits: Vec<(&str, usize)> = Vec::new();
    let (mut inside, mut in_head) = (false, false);
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub trait ") {
            let end = rest
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(rest.len());
            traits.push((&rest[..end], 0));
            inside = !line.ends_with('}');
        } else if line == "}" {
            inside = false;
        } else if inside {
            in_head |= line.starts_with("    fn ") || line.starts_with("    async fn ");
            if in_head && line.ends_with([';', '{', '}']) {
                in_head = false;
                let required = usize::from(line.ends_with(';'));
                traits
                    .last_mut()
                    .into_iter()
                    .for_each(|(_, methods)| *methods += required);
            }
        }
    }
    traits
}

/// Returns the drivers among the dependencies of a package, except those of its tests.
fn drivers_of(package: &str) -> Result<Vec<String>> {
    let args = [
        "tree",
        "--package",
        &process::package(package),
        "--edges",
        "normal",
        "--all-features",
    ];
    let tree = process::read(process::cargo(&args).args(["--prefix", "none", "--format", "{p}"]))?;
    let mut drivers: Vec<String> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|dependency| words().any(|name| dependency.contains(name)))
        .map(str::to_owned)
        .collect();
    drivers.sort();
    drivers.dedup();
    Ok(drivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_code_and_allowed_in_comments_and_unit_tests() {
        let source = "// SQLite does this\n/// postgres\nuse rusqlite::Row;\nlet x = \"MongoDB\";\n\
                      #[cfg(test)]\nmod tests { use sqlx; }\n";
        assert_eq!(names_in(source), [(3, "sqlite"), (4, "mongo")]);
    }

    #[test]
    fn methods_are_counted_by_trait() {
        let source = "pub trait One: Send {\n    /// fn\n    async fn a(&self);\n    fn b(\n        \
                      &self,\n    );\n    fn c(&self) {\n        f();\n    }\n}\npub trait Two {}\n\
                      impl One for X {\n    fn b() {}\n}\n";
        assert_eq!(required_methods(source), [("One", 2), ("Two", 0)]);
    }
}
