//! What came out: one small file per case, and the table of clauses by store made of them.
//!
//! A test runner may give every case its own process, so no process knows the whole result. Each
//! case writes its own file, and [`Report::read_dir`] puts them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};

/// How a case or a clause came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not applicable: a power is missing, or the database is not there.
    NotApplicable,
    /// Of a clause only: some of its cases passed, and the others are not applicable.
    Partial,
    /// As the contract says.
    Pass,
    /// Not as the contract says.
    Fail,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::NotApplicable => "N-A",
            Self::Partial => "PARTIAL",
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
        }
    }

    /// How a clause came out that has a case that came out like this and another like that.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Pass, Self::Pass) => Self::Pass,
            (Self::NotApplicable, Self::NotApplicable) => Self::NotApplicable,
            _ => Self::Partial,
        }
    }
}

/// How one case came out on one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The store, as its suite was named.
    pub store: String,
    /// The full name of the case.
    pub case: String,
    /// The clauses it is about.
    pub clauses: Vec<String>,
    /// How it came out.
    pub verdict: Verdict,
    /// Why it failed or does not apply.
    pub detail: Option<String>,
}

/// The results of any number of cases on any number of stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The results, each case of a store once.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Reads every result below `dir`: one folder per store, one file per case.
    ///
    /// # Errors
    /// If the directory cannot be read or a file is not a result.
    pub fn read_dir(dir: &Path) -> io::Result<Self> {
        let mut report = Self::default();
        for store in fs::read_dir(dir)? {
            let store = store?.path();
            if !store.is_dir() {
                continue;
            }
            for file in fs::read_dir(store)? {
                let path = file?.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "json")
                {
                    report
                        .results
                        .push(serde_json::from_slice(&fs::read(path)?)?);
                }
            }
        }
        report.sort();
        Ok(report)
    }

    /// Puts another report into this one; of a case that is in both, the other's result counts.
    pub fn merge(&mut self, other: Self) {
        let replaced: BTreeSet<(&str, &str)> = other.results.iter().map(key).collect();
        self.results
            .retain(|result| !replaced.contains(&key(result)));
        self.results.extend(other.results);
        self.sort();
    }

    /// The stores in it, by name.
    #[must_use]
    pub fn stores(&self) -> BTreeSet<&str> {
        self.results.iter().map(|result| &*result.store).collect()
    }

    /// How each clause came out on each store: failed if one of its cases failed, passed if all
    /// passed, partly shown if only some could be run.
    #[must_use]
    pub fn clauses(&self) -> BTreeMap<&str, BTreeMap<&str, Verdict>> {
        let mut clauses: BTreeMap<&str, BTreeMap<&str, Verdict>> = BTreeMap::new();
        for result in &self.results {
            for clause in &result.clauses {
                let verdict = clauses
                    .entry(clause)
                    .or_default()
                    .entry(&result.store)
                    .or_insert(result.verdict);
                *verdict = result.verdict.and(*verdict);
            }
        }
        clauses
    }

    /// The clauses by store as a Markdown table; a blank field was not run.
    #[must_use]
    pub fn table(&self) -> String {
        let stores = self.stores();
        let mut out = String::from("| clause |");
        stores.iter().for_each(|store| {
            let _ = write!(out, " {store} |");
        });
        out.push_str("\n|---|");
        out.push_str(&"---|".repeat(stores.len()));
        out.push('\n');
        for (clause, verdicts) in self.clauses() {
            let _ = write!(out, "| {clause} |");
            for store in &stores {
                let verdict = verdicts.get(store).map_or("", |verdict| verdict.as_str());
                let _ = write!(out, " {verdict} |");
            }
            out.push('\n');
        }
        out
    }

    fn sort(&mut self) {
        self.results.sort_by(|a, b| key(a).cmp(&key(b)));
    }
}

fn key(result: &CaseResult) -> (&str, &str) {
    (&result.store, &result.case)
}

/// The Markdown table of all results below `dir`.
///
/// # Errors
/// As [`Report::read_dir`].
pub fn table(dir: &Path) -> io::Result<String> {
    Ok(Report::read_dir(dir)?.table())
}

/// Where results are kept: `RATCHET_REPORT_DIR`, or `ratchet-conformance` in the target directory
/// that the running program was built in.
#[must_use]
pub fn default_dir() -> PathBuf {
    if let Some(dir) = env::var_os("RATCHET_REPORT_DIR") {
        return dir.into();
    }
    let program = env::current_exe().unwrap_or_default();
    program
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
        .join("ratchet-conformance")
}

/// Writes the results of one store.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(PathBuf);

impl Recorder {
    pub(crate) fn new(store: &str) -> Self {
        Self::in_dir(&default_dir(), store)
    }

    pub(crate) fn in_dir(dir: &Path, store: &str) -> Self {
        Self(dir.join(store))
    }

    /// Forgets the results of earlier runs.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }

    /// A report that cannot be written must not turn a passed case into a failed one.
    pub(crate) fn record(&self, result: &CaseResult) {
        let file = format!("{}.json", result.case.replace("::", "."));
        let written = fs::create_dir_all(&self.0)
            .and_then(|()| Ok(serde_json::to_vec_pretty(result)?))
            .and_then(|json| fs::write(self.0.join(file), json));
        if let Err(error) = written {
            eprintln!("no report in {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(store: &str, case: &str, verdict: Verdict) -> CaseResult {
        CaseResult {
            store: store.to_owned(),
            case: case.to_owned(),
            clauses: vec!["claim.due".to_owned()],
            verdict,
            detail: None,
        }
    }

    #[test]
    fn a_clause_is_as_good_as_its_worst_case() {
        let results = vec![
            result("a", "1", Verdict::Pass),
            result("a", "2", Verdict::Fail),
            result("b", "1", Verdict::Pass),
            result("b", "2", Verdict::NotApplicable),
            result("c", "2", Verdict::NotApplicable),
            result("d", "1", Verdict::Pass),
            result("d", "2", Verdict::Pass),
        ];
        assert_eq!(
            Report { results }.table(),
            "| clause | a | b | c | d |\n|---|---|---|---|---|\n\
             | claim.due | FAIL | PARTIAL | N-A | PASS |\n"
        );
    }

    #[test]
    fn a_later_result_replaces_the_earlier_one() {
        let report = |verdict| Report {
            results: vec![result("a", "1", verdict)],
        };
        let mut merged = report(Verdict::Fail);
        merged.merge(report(Verdict::Pass));
        assert_eq!(merged, report(Verdict::Pass));
    }
}
