//! The end of a test run: what ran, what failed and how to run it again, in few lines.

use super::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::nextest::Ended;
use super::servers::{BACKENDS, Servers};
use crate::browser;
use crate::db::required;
use crate::matrix::{self, Report};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;
/// How many failed tests are listed.
const FAILED: usize = 2;

/// Prints what ran, in at most 25 lines. Returns the backends that should have been tested and were
/// not.
pub(super) fn print(
    steps: &[Step],
    report: &Report,
    servers: &Servers,
    whole: bool,
) -> Vec<&'static str> {
    println!("\n== summary");
    phases(steps);
    let mut missing = backends(report, servers, whole);
    if whole {
        missing.extend(dashboard());
    }
    let tests = || steps.iter().flat_map(|step| &step.tests);
    slowest(tests());
    failures(tests());
    missing
}

/// One line for each phase; the runs of a repeated one share it, as do the examples.
fn phases(steps: &[Step]) {
    let width = 20;
    let mut left = steps;
    while let Some(first) = left.first() {
        let same = left.iter().take_while(|step| step.phase == first.phase);
        let (runs, rest) = left.split_at(same.count());
        left = rest;
        let seconds: f64 = runs.iter().map(|step| step.seconds).sum();
        let failed: Vec<&Step> = runs.iter().filter(|step| !step.passed).collect();
        let passed = if failed.is_empty() {
            "passed"
        } else {
            "FAILED"
        };
        let note = match (runs, failed.as_slice()) {
            ([one], _) => one.note.clone(),
            (all, []) => format!("{} runs, the last: {}", all.len(), all[all.len() - 1].note),
            (all, failed) => {
                let names: Vec<&str> = failed.iter().map(|step| step.name.as_str()).collect();
                format!(
                    "{} of {} runs: {}",
                    failed.len(),
                    all.len(),
                    names.join(", ")
                )
            }
        };
        println!("{:<width$} {passed} {seconds:>7.1} s  {note}", first.phase);
    }
}

/// One line for each backend. Returns those that should have been tested and were not.
fn backends(report: &Report, servers: &Servers, whole: bool) -> Vec<&'static str> {
    let mut missing = Vec::new();
    let stores = BACKENDS.iter().map(|backend| backend.name);
    for name in stores {
        let says = match (matrix::summary(report, name), servers.of(name)) {
            (_, Some(Err(reason))) if required(name) => {
                missing.push(name);
                format!("REQUIRED, BUT not available: {reason:#}")
            }
            (_, Some(Err(reason))) => format!("skipped, not available: {reason:#}"),
            (Some(cases), _) => cases,
            (None, _) if !whole => continue,
            (None, _) => {
                missing.push(name);
                "DID NOT RUN: no report of a conformance case".to_owned()
            }
        };
        println!("{name:<20} {says}");
    }
    let others: Vec<String> = report
        .stores()
        .into_iter()
        .filter(|other| BACKENDS.iter().all(|known| known.name != *other))
        .filter_map(|other| Some(format!("{other} {}", matrix::summary(report, other)?)))
        .collect();
    if !others.is_empty() {
        println!("other suites         {}", others.join("; "));
    }
    missing
}

/// The browser of the dashboard's tests. Returns its name if it should be there and is not.
fn dashboard() -> Option<&'static str> {
    let found = browser::find();
    println!(
        "dashboard            {}",
        browser::summary(found.as_deref())
    );
    (found.is_none() && required(browser::NAME)).then_some(browser::NAME)
}

/// Writes down how long each test took, the slowest first: seconds, binary and name, with tabs between.
pub(super) fn write_times(steps: &[Step], file: &Path) -> Result<()> {
    let tests = by_time(steps.iter().flat_map(|step| &step.tests));
    let line = |test: &&Ended| format!("{}\t{}\t{}\n", test.seconds, test.binary, test.name);
    fs::write(file, tests.iter().map(line).collect::<String>())?;
    println!("\ntimes of all tests: {}", file.display());
    Ok(())
}

/// The slowest first.
fn by_time<'a>(tests: impl IntoIterator<Item = &'a Ended>) -> Vec<&'a Ended> {
    let mut tests: Vec<&Ended> = tests.into_iter().collect();
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    tests
}

/// Lists the slowest tests, each with its longest time.
fn slowest<'a>(tests: impl Iterator<Item = &'a Ended>) {
    let mut listed = BTreeSet::new();
    for test in by_time(tests) {
        if listed.len() < SLOWEST && listed.insert((&test.binary, &test.name)) {
            println!("slow      {test}");
        }
    }
}

/// Lists the failed tests, each once, with how often it failed.
fn failures<'a>(tests: impl Iterator<Item = &'a Ended>) {
    let mut runs: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for test in tests {
        let (failed, all) = runs.entry(test.filter()).or_default();
        *failed += u32::from(!test.passed);
        *all += 1;
    }
    runs.retain(|_, (failed, _)| *failed > 0);
    for (filter, (failed, all)) in runs.iter().take(FAILED) {
        println!("FAILED {failed} of {all} times; again: cargo xtask test -- {filter}");
    }
    if runs.len() > FAILED {
        println!("FAILED: {} more, above", runs.len() - FAILED);
    }
}
