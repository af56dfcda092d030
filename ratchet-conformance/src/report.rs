//! Results: one small file per case, and the table of clauses by store that is made from the files.
//! This module does not depend on the rest of the suite, so that a program can read reports without
//! the suite.
//!
//! A test runner may run every case in a separate process, so no process knows the whole result.
//! Each case writes its own file, and [`Report::read_dir`] combines them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};

/// The result of a test case, or of a clause of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The case does not apply: it needs a power that the suite lacks, or the store is exempted.
    NotApplicable,
    /// The result is unknown, because the database was not available.
    Missing,
    /// Used for clauses only: some checks of the clause did not run, and no check failed.
    Partial,
    /// The store fulfills the contract.
    Pass,
    /// The store violates the contract, or the case could not run to its end.
    Fail,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::NotApplicable => "N-A",
            Self::Missing => "MISSING",
            Self::Partial => "PARTIAL",
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
        }
    }

    /// Combines the results of two cases that prove the same clause.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Pass, Self::Pass) => Self::Pass,
            (Self::NotApplicable, Self::NotApplicable) => Self::NotApplicable,
            // A case that does not apply shows nothing, so the result stays unknown.
            (Self::Missing, Self::Missing | Self::NotApplicable)
            | (Self::NotApplicable, Self::Missing) => Self::Missing,
            _ => Self::Partial,
        }
    }
}

/// The result of one case on one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the store or coordinator, as given to its suite.
    pub store: String,
    /// Full name of the case, such as `claim::an_empty_store_yields_nothing`.
    pub case: String,
    /// Ids of the clauses that the case proves, such as `claim.order`.
    pub clauses: Vec<String>,
    /// Result of the case.
    pub verdict: Verdict,
    /// Reason why the case failed, did not run or does not apply. `None` if the case passed.
    pub detail: Option<String>,
    /// For a failed case, the ids of the clauses that its failed assertion checks. If the list is
    /// empty, all clauses of the case count as broken.
    #[serde(default)]
    pub blamed: Vec<String>,
    /// Number of store calls that were repeated after contention or a timeout.
    #[serde(default)]
    pub repeated: u64,
}

impl CaseResult {
    /// Returns the result for one of the case's clauses. A failed case breaks the clauses in
    /// [`blamed`](Self::blamed). Its other clauses are [`Partial`](Verdict::Partial), because not
    /// all checks of the case ran.
    fn verdict_of(&self, clause: &str) -> Verdict {
        let broken = self.blamed.is_empty() || self.blamed.iter().any(|one| one == clause);
        match self.verdict {
            Verdict::Fail if !broken => Verdict::Partial,
            verdict => verdict,
        }
    }

    /// Returns the first line of the reason why the case failed, did not run or does not apply.
    fn reason(&self) -> &str {
        let detail = self.detail.as_deref().unwrap_or_default();
        detail.lines().next().unwrap_or_default()
    }
}

/// The results of cases on one or more stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// One result for each case on each store.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Reads all results below the directory `dir`. This directory has one subdirectory per store,
    /// which contains one file per case.
    ///
    /// # Errors
    /// If a directory or a file cannot be read, or if a file does not contain a result.
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
                    let result = serde_json::from_slice(&fs::read(&path)?);
                    let named = |error| io::Error::other(format!("{}: {error}", path.display()));
                    report.results.push(result.map_err(named)?);
                }
            }
        }
        report.sort();
        Ok(report)
    }

    /// Adds the results of `other` to this report. If both reports have a result for the same case
    /// on the same store, the result of `other` replaces the existing one.
    pub fn merge(&mut self, other: Self) {
        let replaced: BTreeSet<(&str, &str)> = other.results.iter().map(key).collect();
        self.results
            .retain(|result| !replaced.contains(&key(result)));
        self.results.extend(other.results);
        self.sort();
    }

    /// Returns the names of all stores in the report, in ascending order.
    #[must_use]
    pub fn stores(&self) -> BTreeSet<&str> {
        self.results.iter().map(|result| &*result.store).collect()
    }

    /// Returns the result of each clause on each store. The outer key is the id of the clause, and
    /// the inner key is the name of the store.
    ///
    /// The result is [`Fail`](Verdict::Fail) if a check of the clause failed, and
    /// [`Pass`](Verdict::Pass) if all cases of the clause passed. It is
    /// [`Partial`](Verdict::Partial) if only some of the checks ran. If no check ran, it is
    /// [`Missing`](Verdict::Missing) or [`NotApplicable`](Verdict::NotApplicable).
    #[must_use]
    pub fn clauses(&self) -> BTreeMap<&str, BTreeMap<&str, Verdict>> {
        let mut clauses: BTreeMap<&str, BTreeMap<&str, Verdict>> = BTreeMap::new();
        for result in &self.results {
            for clause in &result.clauses {
                let verdict = result.verdict_of(clause);
                let known = clauses
                    .entry(clause)
                    .or_default()
                    .entry(&result.store)
                    .or_insert(verdict);
                *known = verdict.and(*known);
            }
        }
        clauses
    }

    /// Returns a Markdown table with the result of each clause on each store. A field is empty if
    /// no case of the clause has a result for the store.
    ///
    /// Below the table are lists of:
    /// - the failed cases, each with the first line of the reason;
    /// - the reasons why cases did not run or do not apply, each with the number of cases;
    /// - the number of repeated calls of each store.
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
        out + &self.lists()
    }

    fn lists(&self) -> String {
        let of = |verdict| {
            let results = self.results.iter();
            results.filter(move |result| result.verdict == verdict)
        };
        let failed = of(Verdict::Fail)
            .map(|one| format!("{} {}: {}", one.store, one.case, one.reason()))
            .collect();
        let reasons = |verdict| -> Vec<String> {
            let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
            for one in of(verdict) {
                *counts.entry((&one.store, one.reason())).or_default() += 1;
            }
            let line = |((store, reason), count)| {
                format!("{store}: {reason} ({})", counted(count, "case"))
            };
            counts.into_iter().map(line).collect()
        };
        let mut repeats: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for one in self.results.iter().filter(|one| one.repeated > 0) {
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

    fn sort(&mut self) {
        self.results.sort_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Returns the number with the noun `thing` in the singular or plural: "1 case", "2 cases".
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

fn key(result: &CaseResult) -> (&str, &str) {
    (&result.store, &result.case)
}

/// Reads all results below the directory `dir` and returns them as a Markdown table. See
/// [`Report::table`].
///
/// # Errors
/// The same errors as [`Report::read_dir`].
pub fn table(dir: &Path) -> io::Result<String> {
    Ok(Report::read_dir(dir)?.table())
}

/// Returns the directory in which the suite writes its results. The environment variable
/// `RATCHET_REPORT_DIR` sets this directory. By default, it is `ratchet-conformance` in the target
/// directory of the running program.
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
