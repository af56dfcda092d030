//! The conformance reports of the last test run, and their table.
//!
//! The suite's modules that read reports and `RATCHET_REQUIRE` are compiled into this program. The
//! program does not depend on the suite itself, so it still builds when the core does not.

#[path = "../../ratchet-conformance/src/report.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the module is public in another crate"
)]
mod report;

#[path = "../../ratchet-conformance/src/required.rs"]
#[allow(unreachable_pub, reason = "the module is public in another crate")]
mod required;

use anyhow::{Context, Result, ensure};

use self::report::{CaseResult, Verdict};
pub(crate) use self::report::{Report, default_dir as directory};
pub(crate) use self::required::is_required;

/// Prints the clauses by store, and the reasons why cases failed or were not run.
pub(crate) fn run() -> Result<()> {
    let report = read()?;
    ensure!(
        !report.results.is_empty(),
        "no conformance report in {}; run `cargo xtask test` first",
        directory().display()
    );
    print!("{}", report.table());
    Ok(())
}

/// Adds the report of another run. A case that failed in an earlier run stays failed.
pub(crate) fn add(report: &mut Report, run: Report) {
    let failed = |result: &&CaseResult| result.verdict == Verdict::Fail;
    let results = report.results.iter().filter(failed).cloned().collect();
    report.merge(run);
    report.merge(Report { results });
}

/// Returns every result of the last run; an empty report means that there was no run.
pub(crate) fn read() -> Result<Report> {
    let dir = directory();
    if !dir.is_dir() {
        return Ok(Report::default());
    }
    Report::read_dir(&dir).context("cannot read the conformance reports")
}

/// Returns the counts of one store's cases, or `None` if none of them ran.
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

    fn report(results: &[(&str, &str, &str)]) -> Report {
        let result = |(store, case, verdict): &(&str, &str, &str)| {
            json!({
                "store": store, "case": case, "clauses": ["claim.due"], "verdict": verdict,
                "detail": null,
            })
        };
        let results: Vec<_> = results.iter().map(result).collect();
        serde_json::from_value(json!({ "results": results })).unwrap()
    }

    #[test]
    fn cases_are_counted_by_store() {
        let report = report(&[
            ("a", "1", "pass"),
            ("a", "2", "fail"),
            ("b", "1", "pass"),
            ("b", "2", "not-applicable"),
        ]);
        assert_eq!(summary(&report, "a").unwrap(), "cases: 1 passed, 1 failed");
        assert_eq!(
            summary(&report, "b").unwrap(),
            "cases: 1 passed, 0 failed, 1 not applicable"
        );
        assert_eq!(summary(&report, "c"), None);
    }

    #[test]
    fn a_failure_in_one_of_several_runs_stays() {
        let mut all = Report::default();
        for [first, second] in [["pass", "fail"], ["fail", "pass"], ["pass", "pass"]] {
            add(&mut all, report(&[("a", "1", first), ("a", "2", second)]));
        }
        assert_eq!(summary(&all, "a").unwrap(), "cases: 0 passed, 2 failed");
    }
}
