//! The end of a test run: in a few lines, which tests ran, which failed, and how to run the failed
//! tests again.

use super::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::nextest::Ended;
use super::servers::Servers;
use crate::backends::BACKENDS;
use crate::browser;
use crate::matrix::{self, Report, is_required};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 6;
/// How many failed tests are listed.
const FAILED: usize = 2;

/// What ran, in at most 25 lines, and the backends that should have been tested but were not.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) lines: Vec<String>,
    pub(super) missing: Vec<&'static str>,
}

/// Summarizes the steps. `whole` is true if the steps should have tested every backend.
pub(super) fn of(steps: &[Step], report: &Report, servers: &Servers, whole: bool) -> Summary {
    let mut summary = Summary {
        lines: phases(steps),
        missing: Vec::new(),
    };
    backends(&mut summary, report, servers, whole);
    if whole {
        dashboard(&mut summary);
    }
    let tests = || steps.iter().flat_map(|step| &step.tests);
    summary.lines.extend(slowest(tests()));
    summary.lines.extend(failures(tests()));
    summary
}

/// Returns one line for each phase. The repeated runs share a line, and so do the examples.
fn phases(steps: &[Step]) -> Vec<String> {
    let width = 20;
    let mut lines = Vec::new();
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
        lines.push(format!(
            "{:<width$} {passed} {seconds:>7.1} s  {note}",
            first.phase
        ));
    }
    lines
}

/// Adds one line for each backend.
fn backends(summary: &mut Summary, report: &Report, servers: &Servers, whole: bool) {
    let Summary { lines, missing } = summary;
    let stores = BACKENDS.iter().map(|backend| backend.name);
    for name in stores {
        let says = match (matrix::summary(report, name), servers.of(name)) {
            (_, Some(Err(reason))) if is_required(name) => {
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
        // A reason may have several lines, one for each attempt that failed.
        let words: Vec<&str> = says.split_whitespace().collect();
        lines.push(format!("{name:<20} {}", words.join(" ")));
    }
    let others: Vec<String> = report
        .stores()
        .into_iter()
        .filter(|other| BACKENDS.iter().all(|known| known.name != *other))
        .filter_map(|other| Some(format!("{other} {}", matrix::summary(report, other)?)))
        .collect();
    if !others.is_empty() {
        lines.push(format!("other suites         {}", others.join("; ")));
    }
}

/// Adds the line of the browser for the dashboard's tests.
fn dashboard(summary: &mut Summary) {
    let found = browser::find();
    let says = browser::summary(found.as_deref());
    summary.lines.push(format!("dashboard            {says}"));
    if found.is_none() && is_required(browser::NAME) {
        summary.missing.push(browser::NAME);
    }
}

/// Writes how long each test took to a file, the slowest first: seconds, binary and name, separated
/// by tabs.
pub(super) fn write_times(steps: &[Step], file: &Path) -> Result<()> {
    let tests = by_time(steps.iter().flat_map(|step| &step.tests));
    let line = |test: &&Ended| format!("{}\t{}\t{}\n", test.seconds, test.binary, test.name);
    fs::write(file, tests.iter().map(line).collect::<String>())?;
    println!("\ntimes of all tests: {}", file.display());
    Ok(())
}

/// Returns the tests, the slowest first.
fn by_time<'a>(tests: impl IntoIterator<Item = &'a Ended>) -> Vec<&'a Ended> {
    let mut tests: Vec<&Ended> = tests.into_iter().collect();
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    tests
}

/// Returns the slowest tests, each once with its longest time.
fn slowest<'a>(tests: impl Iterator<Item = &'a Ended>) -> Vec<String> {
    let mut listed = BTreeSet::new();
    by_time(tests)
        .into_iter()
        .filter(|test| listed.insert((&test.binary, &test.name)))
        .take(SLOWEST)
        .map(|test| format!("slow      {test}"))
        .collect()
}

/// Returns the failed tests, each once with the number of failures.
fn failures<'a>(tests: impl Iterator<Item = &'a Ended>) -> Vec<String> {
    let mut runs: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for test in tests {
        let (failed, all) = runs.entry(test.filter()).or_default();
        *failed += u32::from(!test.passed);
        *all += 1;
    }
    runs.retain(|_, (failed, _)| *failed > 0);
    let line = |(filter, (failed, all)): (&String, &(u32, u32))| {
        format!("FAILED {failed} of {all} times; again: cargo xtask test -- {filter}")
    };
    let mut lines: Vec<String> = runs.iter().take(FAILED).map(line).collect();
    if runs.len() > FAILED {
        lines.push(format!("FAILED: {} more, above", runs.len() - FAILED));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(phase: &'static str, name: &str, tests: Vec<Ended>) -> Step {
        Step {
            phase,
            name: name.to_owned(),
            passed: tests.iter().all(|test| test.passed),
            seconds: 1.0,
            note: "1 passed".to_owned(),
            tests,
        }
    }

    fn ended(name: &str, seconds: f64, passed: bool) -> Ended {
        Ended {
            binary: "crate::tests".to_owned(),
            name: name.to_owned(),
            seconds,
            passed,
        }
    }

    /// Checks the longest possible summary: every phase, every server missing, and more failures
    /// than are listed.
    #[test]
    fn a_summary_has_at_most_25_lines() {
        let tests: Vec<Ended> = (0..40_u8)
            .map(|number| ended(&number.to_string(), number.into(), number % 2 == 0))
            .collect();
        let steps = [
            step("compile", "", Vec::new()),
            step("tests", "run 1 of 2", tests.clone()),
            step("tests", "run 2 of 2", tests),
            step("documentation tests", "", Vec::new()),
            step("examples", "one", Vec::new()),
            step("examples", "two", Vec::new()),
        ];
        let servers = Servers::absent("no server\nfound");
        let other = json!({
            "store": "other", "case": "1", "clauses": [], "verdict": "pass", "detail": null,
        });
        let report = serde_json::from_value(json!({ "results": [other] })).unwrap();
        let summary = of(&steps, &report, &servers, true);
        assert!(summary.lines.len() <= 25, "{:#?}", summary.lines);
        for line in [
            "tests                FAILED     2.0 s  2 of 2 runs: run 1 of 2, run 2 of 2",
            "postgres             skipped, not available: no server found",
            "slow        39.0 s  crate::tests 39",
            "FAILED: 18 more, above",
        ] {
            assert!(
                summary.lines.iter().any(|one| one == line),
                "{line}: {:#?}",
                summary.lines
            );
        }
        assert_eq!(summary.missing, ["memory", "sqlite", "object"]);
    }
}
