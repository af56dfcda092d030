//! The conformance reports of the last test run, and the table of them.
//!
//! The reports are read as what they are, JSON files, one per case in a folder per store. This
//! program does not depend on the suite, so it still builds when the core does not.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// How a case or a clause came out; only a clause can do so partly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    NotApplicable,
    Missing,
    Partial,
    Pass,
    Fail,
}

impl Verdict {
    /// Returns how a clause came out that has a case that came out like this and another like that.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Pass, Self::Pass) => Self::Pass,
            (Self::NotApplicable, Self::NotApplicable) => Self::NotApplicable,
            (Self::Missing, Self::Missing | Self::NotApplicable)
            | (Self::NotApplicable, Self::Missing) => Self::Missing,
            _ => Self::Partial,
        }
    }
}

/// One case on one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaseResult {
    pub(crate) store: String,
    pub(crate) case: String,
    pub(crate) clauses: Vec<String>,
    pub(crate) verdict: Verdict,
    /// The first line of why it failed, was not run or does not apply.
    pub(crate) reason: String,
    /// Of a failed case: the clauses that its failed assertion is about. Empty: all.
    pub(crate) blamed: Vec<String>,
    /// How many calls were repeated.
    pub(crate) repeated: u64,
}

impl CaseResult {
    /// Returns how one of its clauses came out. A failed case shows only a part of those that it did
    /// not break.
    fn verdict_of(&self, clause: &str) -> Verdict {
        let broken = self.blamed.is_empty() || self.blamed.iter().any(|one| one == clause);
        match self.verdict {
            Verdict::Fail if !broken => Verdict::Partial,
            verdict => verdict,
        }
    }
}

/// Prints the clauses by store, and why cases failed or were not run.
pub(crate) fn run() -> Result<()> {
    let dir = directory(&process::target_dir()?);
    let results = read(&dir)?;
    if results.is_empty() {
        bail!(
            "no conformance report in {}; run `cargo xtask test` first",
            dir.display()
        );
    }
    print!("{}{}", table(&results), lists(&results));
    Ok(())
}

/// Where the suite keeps its reports.
pub(crate) fn directory(target: &Path) -> PathBuf {
    env::var_os("RATCHET_REPORT_DIR")
        .map_or_else(|| target.join("ratchet-conformance"), PathBuf::from)
}

/// Every result below the directory; none if it does not exist.
pub(crate) fn read(dir: &Path) -> Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    if !dir.is_dir() {
        return Ok(results);
    }
    for store in fs::read_dir(dir)? {
        let store = store?.path();
        if !store.is_dir() {
            continue;
        }
        for file in fs::read_dir(store)? {
            let file = file?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let result = serde_json::from_slice(&fs::read(&file)?).ok();
                let result = result.and_then(|json| parse(&json));
                results.push(result.with_context(|| format!("not a report: {}", file.display()))?);
            }
        }
    }
    Ok(results)
}

fn parse(json: &Value) -> Option<CaseResult> {
    let texts = |list: &Value| -> Vec<String> {
        let texts = list.as_array().into_iter().flatten();
        texts
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    json["clauses"].as_array()?;
    let detail = json["detail"].as_str().unwrap_or_default();
    Some(CaseResult {
        store: json["store"].as_str()?.to_owned(),
        case: json["case"].as_str()?.to_owned(),
        clauses: texts(&json["clauses"]),
        verdict: match json["verdict"].as_str()? {
            "pass" => Verdict::Pass,
            "fail" => Verdict::Fail,
            "not-applicable" => Verdict::NotApplicable,
            "missing" => Verdict::Missing,
            _ => return None,
        },
        reason: detail.lines().next().unwrap_or_default().to_owned(),
        blamed: texts(&json["blamed"]),
        repeated: json["repeated"].as_u64().unwrap_or_default(),
    })
}

/// The cases of one store, counted; none if none of them ran.
pub(crate) fn summary(results: &[CaseResult], store: &str) -> Option<String> {
    let count = |verdict| {
        let counted = |result: &&CaseResult| result.store == store && result.verdict == verdict;
        results.iter().filter(counted).count()
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

/// The stores that have results, by name.
pub(crate) fn stores(results: &[CaseResult]) -> BTreeSet<&str> {
    results.iter().map(|result| &*result.store).collect()
}

/// The clauses by store as a markdown table; a blank field was not run.
fn table(results: &[CaseResult]) -> String {
    let stores = stores(results);
    let mut clauses: BTreeMap<&str, BTreeMap<&str, Verdict>> = BTreeMap::new();
    for result in results {
        for clause in &result.clauses {
            let of_clause = clauses.entry(clause).or_default();
            let verdict = result.verdict_of(clause);
            let known = of_clause.entry(&result.store).or_insert(verdict);
            *known = known.and(verdict);
        }
    }
    let mut lines = vec!["| clause |".to_owned(), "|---|".to_owned()];
    for store in &stores {
        lines[0].push_str(&format!(" {store} |"));
        lines[1].push_str("---|");
    }
    for (clause, verdicts) in clauses {
        let fields = stores.iter().map(|store| match verdicts.get(store) {
            Some(Verdict::Pass) => " PASS |",
            Some(Verdict::Partial) => " PARTIAL |",
            Some(Verdict::Fail) => " FAIL |",
            Some(Verdict::NotApplicable) => " N-A |",
            Some(Verdict::Missing) => " MISSING |",
            None => "  |",
        });
        lines.push(format!("| {clause} |{}", fields.collect::<String>()));
    }
    lines.join("\n") + "\n"
}

/// The cases that failed, why others were not run, and how many calls were repeated.
fn lists(results: &[CaseResult]) -> String {
    let of = |verdict| {
        results
            .iter()
            .filter(move |result| result.verdict == verdict)
    };
    let failed = of(Verdict::Fail)
        .map(|one| format!("{} {}: {}", one.store, one.case, one.reason))
        .collect();
    let reasons = |verdict| -> Vec<String> {
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for one in of(verdict) {
            *counts.entry((&one.store, &one.reason)).or_default() += 1;
        }
        let line =
            |((store, reason), count)| format!("{store}: {reason} ({})", counted(count, "case"));
        counts.into_iter().map(line).collect()
    };
    let mut repeats: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in results.iter().filter(|one| one.repeated > 0) {
        let (calls, cases) = repeats.entry(&one.store).or_default();
        *calls += one.repeated;
        *cases += 1;
    }
    let repeats = repeats.into_iter().map(|(store, (calls, cases))| {
        let (calls, cases) = (counted(calls, "call"), counted(cases, "case"));
        format!("{store}: {calls} repeated in {cases}")
    });
    [
        ("FAIL", failed),
        ("N-A", reasons(Verdict::NotApplicable)),
        ("MISSING", reasons(Verdict::Missing)),
        ("Repeated after contention or a timeout", repeats.collect()),
    ]
    .into_iter()
    .filter(|(_, lines)| !lines.is_empty())
    .map(|(title, lines)| format!("\n{title}:\n\n- {}\n", lines.join("\n- ")))
    .collect()
}

/// A number of things: "1 case", "2 cases".
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> Vec<CaseResult> {
        [
            ("a", "pass"),
            ("a", "fail"),
            ("b", "pass"),
            ("b", "not-applicable"),
        ]
        .iter()
        .map(|(store, verdict)| {
            let report = json!({
                "store": store, "case": "claim::x", "clauses": ["claim.due"],
                "verdict": verdict, "detail": null,
            });
            parse(&report).unwrap()
        })
        .collect()
    }

    #[test]
    fn a_clause_is_as_good_as_its_worst_case() {
        let expected = "| clause | a | b |\n|---|---|---|\n| claim.due | FAIL | PARTIAL |\n";
        assert_eq!(table(&results()), expected);
    }

    #[test]
    fn cases_are_counted_by_store() {
        let results = results();
        assert_eq!(summary(&results, "a").unwrap(), "cases: 1 passed, 1 failed");
        assert_eq!(
            summary(&results, "b").unwrap(),
            "cases: 1 passed, 0 failed, 1 not applicable"
        );
        assert_eq!(summary(&results, "c"), None);
    }

    fn report(store: &str, case: &str, verdict: &str, detail: &str) -> CaseResult {
        let report = json!({
            "store": store, "case": case, "clauses": ["claim.due", "claim.order"],
            "verdict": verdict, "detail": detail, "blamed": ["claim.order"], "repeated": 3,
        });
        parse(&report).unwrap()
    }

    #[test]
    fn a_failed_case_breaks_only_the_clauses_of_its_assertion() {
        let expected =
            "| clause | a |\n|---|---|\n| claim.due | PARTIAL |\n| claim.order | FAIL |\n";
        assert_eq!(table(&[report("a", "1", "fail", "")]), expected);
    }

    #[test]
    fn failures_reasons_and_repeats_are_listed() {
        let results = [
            report("a", "1", "fail", "left is not right\n  at x.rs"),
            report("a", "2", "not-applicable", "needs Vandal"),
            report("a", "3", "not-applicable", "needs Vandal"),
            report("b", "1", "missing", "URL is not set"),
        ];
        let expected = "\nFAIL:\n\n- a 1: left is not right\n\
            \nN-A:\n\n- a: needs Vandal (2 cases)\n\
            \nMISSING:\n\n- b: URL is not set (1 case)\n\
            \nRepeated after contention or a timeout:\n\n\
            - a: 9 calls repeated in 3 cases\n- b: 3 calls repeated in 1 case\n";
        assert_eq!(lists(&results), expected);
    }

    #[test]
    fn other_files_are_not_reports() {
        assert_eq!(parse(&json!({"store": "a"})), None);
        assert_eq!(
            parse(&json!({"store": "a", "case": "1", "clauses": [], "verdict": "odd"})),
            None
        );
    }
}
