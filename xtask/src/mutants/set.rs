//! The mutants of a store: reads `mutants.toml`, applies each mutant to its statement, and rejects
//! mutants whose edit does not apply.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::{process, statements};

/// The test whose groups run unless an entry names another one.
const CONFORMANCE: &str = "conformance";

/// The entries of one statement in `mutants.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    /// The groups of cases that use the statement, the most likely to fail first.
    groups: Vec<String>,
    mutants: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The name of the mutant: a sentence about what goes wrong.
    name: String,
    find: String,
    replace: String,
    /// The reason why no caller can tell the mutant from the original statement.
    equivalent: Option<String>,
    /// Groups to run instead of those of the statement.
    groups: Option<Vec<String>>,
    /// The test of the store that has these groups, unless it is the conformance suite.
    test: Option<String>,
}

/// One wrong statement.
pub(super) struct Mutant {
    pub(super) name: String,
    pub(super) statement: String,
    pub(super) find: String,
    pub(super) replace: String,
    pub(super) equivalent: Option<String>,
    pub(super) test: String,
    pub(super) groups: Vec<String>,
    /// The text that runs instead of the original statement.
    pub(super) replacement: String,
}

impl Mutant {
    /// Returns the groups to run, each with the name of its test.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&str, &str)> {
        self.groups.iter().map(|group| (&*self.test, &**group))
    }
}

/// Reads the mutants of a store's package, such as `ratchet-store-sqlite`.
///
/// # Errors
/// If the file cannot be read, or a mutant does not apply; the error names each such mutant.
pub(super) fn read(package: &str) -> Result<Vec<Mutant>> {
    let package = process::root().join(package);
    let path = package.join("mutants.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text, &statements::of(&package)?).with_context(|| path.display().to_string())
}

/// Parses `text`, the content of `mutants.toml`, and applies each entry to its statement.
/// `statements` has the text of each statement by its name.
fn parse(text: &str, statements: &BTreeMap<String, String>) -> Result<Vec<Mutant>> {
    let entries: BTreeMap<String, Entries> = toml::from_str(text)?;
    let mut mutants = Vec::new();
    let (mut names, mut problems) = (BTreeSet::new(), Vec::new());
    for (
        statement,
        Entries {
            groups,
            mutants: of,
        },
    ) in entries
    {
        let original = statements
            .get(&statement)
            .with_context(|| format!("the store has no statement `{statement}`"))?;
        for entry in of {
            if !names.insert(entry.name.clone()) {
                problems.push(format!("two mutants are named \"{}\"", entry.name));
            }
            match replacement(original, &entry.find, &entry.replace) {
                Ok(replacement) => mutants.push(Mutant {
                    name: entry.name,
                    statement: statement.clone(),
                    find: entry.find,
                    replace: entry.replace,
                    equivalent: entry.equivalent,
                    test: entry.test.unwrap_or_else(|| CONFORMANCE.to_owned()),
                    groups: entry.groups.unwrap_or_else(|| groups.clone()),
                    replacement,
                }),
                Err(problem) => problems.push(format!(
                    "mutant \"{}\" of {statement}: {problem}",
                    entry.name
                )),
            }
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(mutants)
}

/// Returns the statement without its comments, with the one occurrence of `find` replaced, and with
/// the mark by which `ratchet-mutant` recognizes a replacement.
fn replacement(original: &str, find: &str, replace: &str) -> Result<String> {
    let lines = original.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    ensure!(find != replace, "`find` and `replace` are equal");
    let found = text.matches(find).count();
    ensure!(
        found == 1,
        "expected `find` once in the statement, found it {found} times"
    );
    let mutant = text.replacen(find, replace, 1);
    ensure!(
        parameters(&text) == parameters(&mutant),
        "the edit changes the parameters of the statement, so the driver would fail the call"
    );
    Ok(mutant + ratchet_mutant::MARK)
}

/// Returns the parameters of a statement, such as `?1`, `$1` or `@P1`.
fn parameters(text: &str) -> BTreeSet<&str> {
    let marks = ["?", "$", "@P"];
    let of_mark = |mark: &'static str| {
        text.match_indices(mark).filter_map(move |(at, _)| {
            let digits = text[at + mark.len()..].bytes();
            let digits = digits.take_while(u8::is_ascii_digit).count();
            (digits > 0).then(|| &text[at..at + mark.len() + digits])
        })
    };
    marks.into_iter().flat_map(of_mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::sql_packages;

    #[test]
    fn a_mutant_replaces_the_one_place_it_names() {
        let statement = "-- a = 1\nSELECT a\nWHERE a = 1\n";
        let mutant = replacement(statement, "a = 1", "a = 2").unwrap();
        assert_eq!(mutant, "SELECT a\nWHERE a = 2\n/* mutant */");
        for find in ["b", "a"] {
            assert!(replacement(statement, find, "c").is_err(), "{find}");
        }
        assert!(replacement(statement, "a = 1", "a = 1").is_err());
    }

    #[test]
    fn a_mutant_keeps_the_parameters_of_its_statement() {
        assert_eq!(
            parameters("?1 $2 @P13 @Q $$ ?12"),
            ["$2", "?1", "?12", "@P13"].into()
        );
        let replaced = |replace| replacement("SELECT ?1, ?2", "?1", replace);
        assert!(replaced("nullif(?1, ?1)").is_ok());
        assert!(replaced("NULL").is_err());
        assert!(replaced("?1 + ?3").is_err());
    }

    #[test]
    fn every_mutant_of_every_store_applies_and_names_groups_that_exist() {
        let suite = process::root().join("ratchet-conformance/src/cases");
        for package in sql_packages() {
            let mutants = read(package).unwrap();
            assert!(mutants.len() >= 120, "{package} has {}", mutants.len());
            for mutant in mutants {
                let name = &mutant.name;
                let cases = match &*mutant.test {
                    CONFORMANCE => suite.clone(),
                    test => process::root().join(package).join("tests").join(test),
                };
                assert!(!mutant.groups.is_empty(), "{package}: {name}");
                for group in &mutant.groups {
                    let exists = [format!("{group}.rs"), format!("{group}/mod.rs")];
                    let exists = exists.iter().any(|file| cases.join(file).is_file());
                    assert!(
                        exists,
                        "{package}: the mutant {name} names the group {group}, which \
                         does not exist"
                    );
                }
            }
        }
    }

    #[test]
    fn mutants_with_one_name_or_an_unknown_field_are_rejected() {
        let text = "SELECT seq FROM lanes ORDER BY seq".to_owned();
        let statements = [("lane_head".to_owned(), text)].into();
        let entry = r#"{ name = "n", find = "ORDER BY seq", replace = "" }"#;
        let one = format!("[lane_head]\ngroups = [\"lane\"]\nmutants = [{entry}]");
        assert_eq!(parse(&one, &statements).unwrap().len(), 1);
        let two = one.replace(entry, &format!("{entry}, {entry}"));
        let error = parse(&two, &statements).err().unwrap();
        assert!(
            error.to_string().contains("two mutants are named"),
            "{error}"
        );
        let unknown = one.replace("name = \"n\"", "name = \"n\", why = \"\"");
        assert!(parse(&unknown, &statements).is_err());
    }
}
