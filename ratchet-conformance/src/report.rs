//! Results: one small file per case, and the table of clauses by store that is made from the files.
//! This module does not depend on the rest of the suite, so that a program can read reports without
//! it.
//!
//! A test runner may run every case in a separate process, so no process knows the whole result.
//! Each case writes its own file, and [`Report::read_dir`] combines them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};

/// The result of a case or a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not applicable: a power is missing, or the store is exempted.
    NotApplicable,
    /// The database could not be reached, so the result is unknown.
    Missing,
    /// For a clause only: not all of its checks ran, and no check that ran failed.
    Partial,
    /// The store does what the contract requires.
    Pass,
    /// The store does not do what the contract requires.
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

    /// Combines the results of two cases of one clause.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Pass, Self::Pass) => Self::Pass,
            (Self::NotApplicable, Self::NotApplicable) => Self::NotApplicable,
            // Cases that do not apply show nothing, so they leave the result unknown.
            (Self::Missing, Self::Missing | Self::NotApplicable)
            | (Self::NotApplicable, Self::Missing) => Self::Missing,
            _ => Self::Partial,
        }
    }
}

/// The result of one case on one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The name that the store's suite was given.
    pub store: String,
    /// The full name of the case.
    pub case: String,
    /// The clauses that the case proves.
    pub clauses: Vec<String>,
    /// The result.
    pub verdict: Verdict,
    /// The reason why the case failed, was not run or does not apply.
    pub detail: Option<String>,
    /// For a failed case: the clauses that its failed assertion is about.
    #[serde(default)]
    pub blamed: Vec<String>,
    /// How many calls of the store were repeated after contention or a timeout.
    #[serde(default)]
    pub repeated: u64,
}

impl CaseResult {
    /// Returns the result for one of the case's clauses. A failed case proves that the clauses it
    /// blames are broken; it ran only part of the checks of its other clauses, so these are
    /// partial.
    fn verdict_of(&self, clause: &str) -> Verdict {
        let broken = self.blamed.is_empty() || self.blamed.iter().any(|one| one == clause);
        match self.verdict {
            Verdict::Fail if !broken => Verdict::Partial,
            verdict => verdict,
        }
    }

    /// Returns the first line of the reason why the case failed or was not run.
    fn reason(&self) -> &str {
        let detail = self.detail.as_deref().unwrap_or_default();
        detail.lines().next().unwrap_or_default()
    }
}

/// The results of any number of cases on any number of stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The results, one for each case of a store.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Reads every result below `dir`: one directory per store, one file per case.
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
                    let result = serde_json::from_slice(&fs::read(&path)?);
                    let named = |error| io::Error::other(format!("{}: {error}", path.display()));
                    report.results.push(result.map_err(named)?);
                }
            }
        }
        report.sort();
        Ok(report)
    }

    /// Merges another report into this one. For a case in both, the result of `other` replaces this
    /// one's.
    pub fn merge(&mut self, other: Self) {
        let replaced: BTreeSet<(&str, &str)> = other.results.iter().map(key).collect();
        self.results
            .retain(|result| !replaced.contains(&key(result)));
        self.results.extend(other.results);
        self.sort();
    }

    /// Returns the names of the stores, sorted.
    #[must_use]
    pub fn stores(&self) -> BTreeSet<&str> {
        self.results.iter().map(|result| &*result.store).collect()
    }

    /// Returns the result of each clause on each store: failed if one of its cases failed, passed
    /// if all passed, partial if only some ran to their end.
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

    /// Returns the clauses by store as a Markdown table, in which a blank field means not run.
    /// Below the table are lists: the cases that failed, each with the first line of the reason;
    /// the reasons why cases were not run, each with the number of cases; and how many calls were
    /// repeated.
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

/// Returns a number with its noun: "1 case", "2 cases".
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

fn key(result: &CaseResult) -> (&str, &str) {
    (&result.store, &result.case)
}

/// Returns the Markdown table, with its lists, of all results below `dir`.
///
/// # Errors
/// As for [`Report::read_dir`].
pub fn table(dir: &Path) -> io::Result<String> {
    Ok(Report::read_dir(dir)?.table())
}

/// Returns the directory of the results: `RATCHET_REPORT_DIR`, or `ratchet-conformance` in the
/// target directory of the running program.
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
