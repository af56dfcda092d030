//! Checks that the tests in the list of races exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use walkdir::{DirEntry, WalkDir};

use crate::root;

/// Returns the rows of the table in `docs/races.md`: the id of each race, with the names of the
/// tests that cover it.
fn rows() -> BTreeMap<String, Vec<String>> {
    let list = fs::read_to_string(root().join("docs/races.md"));
    let list = list.unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = list.lines().filter(|line| line.starts_with("| I"));
    rows.map(|line| {
        let cells = cells(line);
        assert_eq!(cells.len(), 6, "{line}");
        let tests = cells[4].split(", ");
        let tests = tests.map(|test| {
            let name = test
                .strip_prefix('`')
                .and_then(|test| test.strip_suffix('`'));
            name.unwrap_or_else(|| {
                panic!("expected the name of a test in backquotes, found {test}")
            })
            .to_owned()
        });
        (cells[1].clone(), tests.collect())
    })
    .collect()
}

/// Returns all tests in the sources, as `group::name`. The group is the file, its folder, or the
/// group that a conformance file declares. The name is a function, or a string where tests are
/// listed by name.
fn sources() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_hidden = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() > 0 && (name.starts_with('.') || name == "target")
    };
    let all = WalkDir::new(root()).into_iter();
    for entry in all.filter_entry(|entry| !is_hidden(entry)) {
        let entry = entry.unwrap();
        let path = entry.path();
        let of_tests = ["tests", "cases", "coordinator"];
        let is_test = path
            .iter()
            .any(|part| of_tests.iter().any(|of| part == *of));
        if !is_test || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap().to_string_lossy().into_owned();
        let mut groups = vec![
            text(path.file_stem()),
            text(path.parent().unwrap().file_name()),
        ];
        let declared = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"'));
        let declared = declared.filter_map(|line| line.split_once("\" on "));
        groups.extend(declared.map(|(group, _)| group.to_owned()));
        for group in groups {
            found.extend(names(&source).map(|name| format!("{group}::{name}")));
        }
    }
    found
}

fn names(source: &str) -> impl Iterator<Item = &str> {
    let functions = source.split("fn ").skip(1);
    let functions = functions.filter_map(|rest| rest.split_once('(').map(|(name, _)| name));
    let listed = source.split("name: \"").skip(1);
    let listed = listed.filter_map(|rest| rest.split_once('"').map(|(name, _)| name));
    functions.chain(listed)
}

#[test]
fn every_race_names_tests_that_exist() {
    let sources = sources();
    let rows = rows();
    let all = rows.values().flatten();
    let missing: Vec<&String> = all.filter(|test| !sources.contains(*test)).collect();
    assert!(
        missing.is_empty(),
        "expected every named test in the sources, missing: {missing:#?}"
    );
}

#[test]
fn every_race_is_listed() {
    let rows = rows();
    let expected = 1..=29;
    let expected: BTreeSet<String> = expected.map(|number| format!("I{number}")).collect();
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), expected);
}
