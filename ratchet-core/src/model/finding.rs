//! Findings: the facts and problems that a store reports about its database.
//!
//! This module defines the severity of the problems that several stores can have. So such a problem
//! has the same severity in every store.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::error::StoreErrorKind;

/// How bad a [`Finding`] is.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::Severity;
///
/// for finding in client.findings().await?.unwrap_or_default() {
///     if finding.severity == Severity::Error {
///         println!("{}: {:?}", finding.summary, finding.remedy);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information only.
    Info,
    /// The store works, but will become slow, or is less safe than it could be.
    Warning,
    /// Something that the store relies on is missing or wrong, or already slows the store down.
    Error,
}

impl Severity {
    /// Returns the name in lower case, for labels and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A fact or a problem that a store has found in its database.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// use ratchet::Severity;
///
/// for finding in client.findings().await?.unwrap_or_default() {
///     if finding.severity == Severity::Error {
///         println!("{}: {:?}", finding.summary, finding.remedy);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The code: lower-case letters and underscores, the same in every version.
    pub code: &'static str,
    /// How bad the problem is.
    pub severity: Severity,
    /// The problem, in one sentence without a full stop.
    pub summary: String,
    /// Names and numbers that help to locate the problem.
    pub detail: Option<String>,
    /// What the operator should do about the problem.
    pub remedy: Option<String>,
}

/// A session, a prepared transaction or a replication slot that keeps the database from removing
/// old row versions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name of the holder, as the database's own tools show it.
    pub who: String,
    /// For how long the holder has kept old row versions from being removed; `None` if the database
    /// does not report this.
    pub held_for: Option<Duration>,
    /// How many transactions have begun since then; `None` if the database does not report this.
    pub transactions: Option<u64>,
    /// How an operator can end the session, the transaction or the slot.
    pub remedy: String,
}

impl Holder {
    /// Creates a holder of unknown age. To set the age, assign to the other fields.
    #[must_use]
    pub fn new(who: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            held_for: None,
            transactions: None,
            remedy: remedy.into(),
        }
    }
}

/// Collects the findings of a store, one check after the other (`[diag.poison]`).
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds the findings of one check. `what` names the object that was checked.
    ///
    /// A check that failed becomes a [`not_seen`](Finding::not_seen) finding, so the other checks
    /// can still run. A transient error is returned instead, because all checks may succeed when
    /// the caller repeats them.
    ///
    /// # Errors
    /// Returns the error of the check if its kind is [transient](StoreErrorKind::is_transient).
    pub fn add<E: fmt::Display>(
        &mut self,
        what: &str,
        found: Result<Vec<Finding>, E>,
        kind: impl FnOnce(&E) -> StoreErrorKind,
    ) -> Result<(), E> {
        match found {
            Ok(found) => self.0.extend(found),
            Err(error) if kind(&error).is_transient() => return Err(error),
            Err(error) => self.0.push(Finding::not_seen(what, error.to_string())),
        }
        Ok(())
    }

    /// Returns all findings, in the order in which stores list them.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Finding> {
        Finding::sort(&mut self.0);
        self.0
    }
}

impl Finding {
    /// The age at which a held snapshot is reported as a warning.
    pub const HELD_LONG: Duration = Duration::from_secs(5 * 60);
    /// The age at which a held snapshot is reported as an error, because it then slows down a busy
    /// queue.
    pub const HELD_TOO_LONG: Duration = Duration::from_secs(60 * 60);
    /// The number of transactions at which a held snapshot of unknown age is reported as a warning.
    /// The transactions that have begun since the snapshot was taken are counted.
    pub const HELD_FOR_MANY: u64 = 100_000;
    /// The size of a write-ahead log, in bytes, at which it is reported as a warning: 256 MiB.
    pub const LARGE_LOG: u64 = 256 << 20;
    /// The number of jobs without a route from which on a count is only a minimum, because a store
    /// may stop counting at this number.
    pub const LOST_COUNTED: u64 = 1_000;

    /// Creates a finding with this code, severity and summary.
    #[must_use]
    pub fn new(code: &'static str, severity: Severity, summary: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            summary: summary.into(),
            detail: None,
            remedy: None,
        }
    }

    /// Adds names and numbers that help to locate the problem.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what to do about the problem.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sorts findings into the order in which stores list them: the worst first, then by code,
    /// summary and detail.
    pub fn sort(findings: &mut [Self]) {
        findings.sort_by(|a, b| {
            b.severity
                .cmp(&a.severity)
                .then_with(|| (a.code, &a.summary, &a.detail).cmp(&(b.code, &b.summary, &b.detail)))
        });
    }

    /// Creates `schema_version`: the number of migrations applied to the schema, compared with the
    /// number that the program knows.
    #[must_use]
    pub fn schema(applied: u64, known: u64) -> Self {
        let of = |severity, summary: String| Self::new("schema_version", severity, summary);
        if applied < known {
            let behind = format!("the schema has version {applied}; version {known} is needed");
            return of(Severity::Error, behind).remedy("run `ratchet migrate`");
        }
        if applied > known {
            let ahead = format!(
                "the schema has version {applied}, newer than version {known} that this \
                 program knows"
            );
            return of(Severity::Warning, ahead).remedy(
                "deploy the version of the program that migrated the schema, or a later \
                 one",
            );
        }
        of(Severity::Info, format!("the schema has version {applied}"))
    }

    /// Creates `missing_object`: a table or an index of the schema is missing.
    #[must_use]
    pub fn missing(object: &str) -> Self {
        let summary = format!("{object} is missing");
        Self::new("missing_object", Severity::Error, summary).remedy(
            "create the object as the migrations do; without an index, claims read the whole \
             backlog",
        )
    }

    /// Creates `invalid_index`: an index exists, but is invalid, so the database does not use it.
    #[must_use]
    pub fn invalid_index(index: &str, remedy: impl Into<String>) -> Self {
        let summary = format!("the index {index} is not valid, so the database does not use it");
        Self::new("invalid_index", Severity::Error, summary).remedy(remedy)
    }

    /// Creates `held_snapshot`: a holder keeps the database from removing old row versions. Returns
    /// `None` if the holder has not done so for long enough to be a problem.
    #[must_use]
    pub fn held(holder: &Holder) -> Option<Self> {
        let severity = match (holder.held_for, holder.transactions) {
            (Some(age), _) if age >= Self::HELD_TOO_LONG => Severity::Error,
            (Some(age), _) if age >= Self::HELD_LONG => Severity::Warning,
            (None, Some(many)) if many >= Self::HELD_FOR_MANY => Severity::Warning,
            _ => return None,
        };
        let summary = format!("{} holds an old snapshot", holder.who);
        let age = holder
            .held_for
            .map(|age| format!("for {} s", age.as_secs()));
        let many = holder
            .transactions
            .map(|many| format!("{many} transactions ago"));
        let parts: Vec<String> = age.into_iter().chain(many).collect();
        let finding = Self::new("held_snapshot", severity, summary);
        Some(finding.detail(parts.join(", ")).remedy(&*holder.remedy))
    }

    /// Creates `large_log`: the write-ahead log has this many bytes. Returns `None` if the log is
    /// smaller than [`LARGE_LOG`](Self::LARGE_LOG).
    #[must_use]
    pub fn log_size(bytes: u64) -> Option<Self> {
        (bytes >= Self::LARGE_LOG).then(|| {
            let summary = "the write-ahead log is large, because a long read transaction keeps the \
                database from reusing it";
            Self::new("large_log", Severity::Warning, summary)
                .detail(format!("{bytes} bytes"))
                .remedy("find the process that holds the read transaction open, and end it")
        })
    }

    /// Creates `lost_route`: waiting jobs refer to route numbers that do not exist, so no node runs
    /// or lists them. Returns `None` if `lost` is empty.
    ///
    /// `lost` contains these route numbers, each with the number of jobs that refer to it. If the
    /// sum is at least [`LOST_COUNTED`](Self::LOST_COUNTED), the finding reports it as a minimum.
    /// `repair` is a statement that gives the jobs of one lost route another route number. The
    /// statement has the placeholder `N` in place of the number of the lost route.
    #[must_use]
    pub fn lost_routes(lost: &[(i64, u64)], repair: &str) -> Option<Self> {
        lost.first()?;
        let count: u64 = lost.iter().map(|(_, count)| count).sum();
        let least = if count < Self::LOST_COUNTED {
            ""
        } else {
            "at least "
        };
        let summary = format!("{least}{count} waiting jobs have a route that does not exist");
        let each: Vec<String> = lost
            .iter()
            .map(|(route, count)| format!("{count} of route {route}"))
            .collect();
        let finding = Self::new("lost_route", Severity::Error, summary);
        Some(finding.detail(each.join(", ")).remedy(format!(
            "find the queue and kind of these jobs from their payloads, look up or enqueue a job of \
             that queue and kind to get its route number, and run for each number N: {repair}"
        )))
    }

    /// Creates `plaintext`: statements and payloads reach `host` unencrypted. Returns `None` if
    /// `host` is this machine: `localhost`, a loopback address or the path of a socket.
    #[must_use]
    pub fn plaintext(host: &str, remedy: impl Into<String>) -> Option<Self> {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let local = host.starts_with('/')
            || address.eq_ignore_ascii_case("localhost")
            || (address.parse::<IpAddr>())
                .is_ok_and(|address| address.to_canonical().is_loopback());
        (!local).then(|| {
            let summary = "the connection to the database is not encrypted";
            Self::new("plaintext", Severity::Warning, summary)
                .detail(format!(
                    "host {host}; payloads and results are readable on the network"
                ))
                .remedy(remedy)
        })
    }

    /// Creates `not_seen`: a check of `what` was not possible, usually because a privilege is
    /// missing. `why` is the reason.
    #[must_use]
    pub fn not_seen(what: &str, why: impl Into<String>) -> Self {
        let summary = format!("could not check {what}");
        Self::new("not_seen", Severity::Info, summary).detail(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{SchemaProblem, StoreError};

    #[test]
    fn what_is_held_gets_worse_with_its_age() {
        let severity = |held_for, transactions| {
            let mut holder = Holder::new("session 7", "end it");
            (holder.held_for, holder.transactions) = (held_for, transactions);
            Finding::held(&holder).map(|finding| finding.severity)
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(severity(seconds(299), Some(u64::MAX)), None);
        assert_eq!(severity(seconds(300), None), Some(Severity::Warning));
        assert_eq!(severity(seconds(3_600), None), Some(Severity::Error));
        assert_eq!(severity(None, Some(99_999)), None);
        assert_eq!(severity(None, Some(100_000)), Some(Severity::Warning));
        assert_eq!(severity(None, None), None);
    }

    #[test]
    fn a_schema_that_is_behind_is_an_error() {
        assert_eq!(Finding::schema(3, 3).severity, Severity::Info);
        assert_eq!(Finding::schema(2, 3).severity, Severity::Error);
        assert_eq!(Finding::schema(4, 3).severity, Severity::Warning);
    }

    #[test]
    fn jobs_without_a_route_are_counted_up_to_a_limit() {
        assert_eq!(Finding::lost_routes(&[], "UPDATE"), None);
        let few = Finding::lost_routes(&[(7, 2), (9, 1)], "UPDATE jobs").unwrap();
        assert_eq!(few.severity, Severity::Error);
        assert!(few.summary.starts_with("3 waiting jobs"), "{}", few.summary);
        assert_eq!(few.detail.as_deref(), Some("2 of route 7, 1 of route 9"));
        assert!(few.remedy.unwrap().ends_with("N: UPDATE jobs"));
        let many = Finding::lost_routes(&[(7, Finding::LOST_COUNTED)], "UPDATE jobs");
        assert!(many.unwrap().summary.starts_with("at least 1000"));
    }

    #[test]
    fn plaintext_matters_between_machines_only() {
        let local = [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.8.0.1",
            "::1",
            "[::1]",
        ];
        for host in local
            .into_iter()
            .chain(["::ffff:127.0.0.1", "/run/postgresql"])
        {
            assert_eq!(Finding::plaintext(host, ""), None, "{host}");
        }
        for host in [
            "db",
            "db.localhost.example",
            "10.0.0.7",
            "0.0.0.0",
            "fe80::1",
        ] {
            let found = Finding::plaintext(host, "encrypt").unwrap();
            assert_eq!(
                (found.code, found.severity),
                ("plaintext", Severity::Warning)
            );
            assert!(found.detail.unwrap().contains(host));
        }
    }

    #[test]
    fn the_worst_comes_first() {
        let mut findings = [
            Finding::not_seen("b", ""),
            Finding::schema(1, 1),
            Finding::not_seen("a", ""),
            Finding::missing("jobs_claim"),
        ];
        Finding::sort(&mut findings);
        let order: Vec<_> = findings
            .iter()
            .map(|one| (one.code, one.severity))
            .collect();
        let info = Severity::Info;
        let expected = [
            ("missing_object", Severity::Error),
            ("not_seen", info),
            ("not_seen", info),
            ("schema_version", info),
        ];
        assert_eq!(order, expected);
        let summaries = [&findings[1], &findings[2]].map(|one| &one.summary);
        assert!(summaries[0] < summaries[1], "{summaries:?}");
    }

    #[test]
    fn a_look_that_failed_keeps_no_other_away() {
        let mut findings = Findings::default();
        let mut add = |found| findings.add("it", found, StoreError::kind);
        let fails = |kind| Err(StoreError::new(kind, "findings"));
        add(Ok(vec![Finding::schema(1, 1)])).unwrap();
        add(fails(StoreErrorKind::SchemaMismatch(
            SchemaProblem::Altered,
        )))
        .unwrap();
        add(Ok(vec![Finding::missing("jobs")])).unwrap();
        let lost = add(fails(StoreErrorKind::Unavailable)).unwrap_err();
        assert_eq!(lost.kind(), StoreErrorKind::Unavailable);
        let codes: Vec<&str> = findings.into_sorted().iter().map(|it| it.code).collect();
        assert_eq!(codes, ["missing_object", "not_seen", "schema_version"]);
    }
}
