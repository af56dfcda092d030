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
    Partial,
    Pass,
    Fail,
}

/// One case on one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaseResult {
    pub(crate) store: String,
    pub(crate) clauses: Vec<String>,
    pub(crate) verdict: Verdict,
}

/// Prints the clauses by store.
pub(crate) fn run() -> Result<()> {
    let dir = directory(&process::target_dir()?);
    let results = read(&dir)?;
    if results.is_empty() {
        bail!(
            "no conformance report in {}; run `cargo xtask test` first",
            dir.display()
        );
    }
    print!("{}", table(&results));
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
    let clauses = json["clauses"].as_array()?.iter();
    Some(CaseResult {
        store: json["store"].as_str()?.to_owned(),
        clauses: clauses
            .filter_map(|clause| clause.as_str().map(str::to_owned))
            .collect(),
        verdict: match json["verdict"].as_str()? {
            "pass" => Verdict::Pass,
            "fail" => Verdict::Fail,
            "not-applicable" => Verdict::NotApplicable,
            _ => return None,
        },
    })
}

/// The cases of one store, counted; none if none of them ran.
pub(crate) fn summary(results: &[CaseResult], store: &str) -> Option<String> {
    let count = |verdict| {
        let counted = |result: &&CaseResult| result.store == store && result.verdict == verdict;
        results.iter().filter(counted).count()
    };
    let (passed, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    let not_applicable = count(Verdict::NotApplicable);
    if passed + failed == 0 {
        return None;
    }
    let mut text = format!("cases: {passed} passed, {failed} failed");
    if not_applicable > 0 {
        text.push_str(&format!(", {not_applicable} not applicable"));
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
            let verdict = of_clause.entry(&result.store).or_insert(result.verdict);
            *verdict = match (*verdict, result.verdict) {
                (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
                (one, other) if one == other => one,
                _ => Verdict::Partial,
            };
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
            None => "  |",
        });
        lines.push(format!("| {clause} |{}", fields.collect::<String>()));
    }
    lines.join("\n") + "\n"
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

    #[test]
    fn other_files_are_not_reports() {
        assert_eq!(parse(&json!({"store": "a"})), None);
        assert_eq!(
            parse(&json!({"store": "a", "clauses": [], "verdict": "odd"})),
            None
        );
    }
}
