//! The conformance reports of the last test run, and the table of them.
//!
//! The module of the suite that reads them is compiled into this program, which does not depend on
//! the suite: it still builds when the core does not.

#[path = "../../ratchet-conformance/src/report.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the public part of another crate"
)]
mod report;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub(crate) use self::report::Report;
use self::report::Verdict;
use crate::process;

/// Prints the clauses by store, and why cases failed or were not run.
pub(crate) fn run() -> Result<()> {
    let dir = directory(&process::target_dir()?);
    let report = read(&dir)?;
    ensure!(
        !report.results.is_empty(),
        "no conformance report in {}; run `cargo xtask test` first",
        dir.display()
    );
    print!("{}", report.table());
    Ok(())
}

/// Where the suite keeps its reports.
pub(crate) fn directory(target: &Path) -> PathBuf {
    env::var_os("RATCHET_REPORT_DIR")
        .map_or_else(|| target.join("ratchet-conformance"), PathBuf::from)
}

/// Every result below the directory; none if it does not exist.
pub(crate) fn read(dir: &Path) -> Result<Report> {
    if !dir.is_dir() {
        return Ok(Report::default());
    }
    Report::read_dir(dir).with_context(|| format!("cannot read the reports in {}", dir.display()))
}

/// The cases of one store, counted; none if none of them ran.
pub(crate) fn summary(report: &Report, store: &str) -> Option<String> {
    let count = |verdict| {
        let results = report.results.iter();
        results
            .filter(|result| result.store == store && result.verdict == verdict)
            .count()
    };
    let (passed, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    if passed + failed == 0 {
        return None;
    }
    let mut text = format!("cases: {passed} passed, {failed} failed");
    for (verdict, name) in [
        (Verdict::NotApplicable, "not applicable"),
        (Verdict::Missing, "missing"),
    ] {
        let counted = count(verdict);
        if counted > 0 {
            text.push_str(&format!(", {counted} {name}"));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cases_are_counted_by_store() {
        let result = |(case, store, verdict): (usize, &str, &str)| {
            json!({
                "store": store, "case": case.to_string(), "clauses": ["claim.due"],
                "verdict": verdict, "detail": null,
            })
        };
        let results: Vec<_> = [
            (1, "a", "pass"),
            (2, "a", "fail"),
            (1, "b", "pass"),
            (2, "b", "not-applicable"),
        ]
        .into_iter()
        .map(result)
        .collect();
        let report: Report = serde_json::from_value(json!({ "results": results })).unwrap();
        assert_eq!(summary(&report, "a").unwrap(), "cases: 1 passed, 1 failed");
        assert_eq!(
            summary(&report, "b").unwrap(),
            "cases: 1 passed, 0 failed, 1 not applicable"
        );
        assert_eq!(summary(&report, "c"), None);
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_results() {
        let absent = read(Path::new("no such directory")).unwrap();
        assert!(absent.results.is_empty());
    }
}
