//! `ratchet doctor`: looks for problems with the database and the cluster, and explains how to fix
//! them.

mod judge;

use std::time::Duration;

use ratchet::store_api::time;
use ratchet::{Client, Finding, Severity, StoreInfo, ZoneData};
use serde::Serialize;

use self::judge::{Seen, Tolerance, judge};
use crate::app::{App, open};
use crate::args::Doctor;
use crate::exit::{Failure, Verdict};
use crate::output::{BAD, BOLD, DIM, GOOD, WARN, clean, paint};

/// Number of times that the clocks are compared. Only the comparison with the shortest round trip
/// is used.
const LOOKS: usize = 3;

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    backend: Option<&'static str>,
    version: Option<String>,
    /// The time by which this host's clock is ahead of the database's clock. Negative if this
    /// host's clock is behind.
    clock_skew_ms: Option<i64>,
    /// The time-zone data that this process uses.
    zone_data: ZoneData,
    findings: Vec<Shown<'a>>,
}

/// A finding, as the JSON output contains it.
#[derive(Serialize)]
struct Shown<'a> {
    code: &'a str,
    severity: &'a str,
    summary: &'a str,
    detail: Option<&'a str>,
    remedy: Option<&'a str>,
}

impl<'a> From<&'a Finding> for Shown<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            code: finding.code,
            severity: finding.severity.as_str(),
            summary: &finding.summary,
            detail: finding.detail.as_deref(),
            remedy: finding.remedy.as_deref(),
        }
    }
}

pub(super) async fn run(app: &mut App, what: Doctor) -> Result<(), Failure> {
    let store = app.database()?;
    let client = match open(&store).await {
        Ok(client) => client,
        Err(error) => {
            let missing = Box::pin(ratchet::pending_migrations(&store)).await;
            let finding = judge::schema(error, &missing.unwrap_or_default())?;
            // Without a matching schema, nothing else can be read.
            return tell(app, &[finding], None, None, what.strict);
        }
    };
    let seen = look(&client).await?;
    let tolerance = Tolerance {
        skew: what.skew,
        overdue: what.overdue,
    };
    let mut findings = judge(&seen, tolerance);
    findings.extend(client.findings().await?.into_iter().flatten());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    tell(app, &findings, Some(&client), Some(seen.skew), what.strict)
}

async fn look(client: &Client) -> Result<Seen, Failure> {
    let (skew, doubt, now) = compare_clocks(client).await?;
    let nodes = client.nodes().await?;
    let due = client.due_routes().await?;
    Ok(Seen {
        now,
        skew,
        doubt,
        leaders: client.leaders(&nodes).await?,
        stranded: judge::stranded_now(&due, &nodes, now),
        nodes,
        due,
    })
}

/// Compares this host's clock with the database's clock. Returns how far this host's clock is
/// ahead, in milliseconds, the maximum error of this value, and the database's time.
///
/// Assumes that the database reads its clock in the middle of the round trip.
async fn compare_clocks(client: &Client) -> Result<(i64, Duration, time::Timestamp), Failure> {
    let mut best: Option<(i64, Duration, time::Timestamp)> = None;
    for _ in 0..LOOKS {
        let (began, wall) = (time::monotonic(), time::wall_clock());
        let database = client.database_time().await?;
        let half = (time::monotonic() - began) / 2;
        let skew = (time::add(wall, half) - database).num_milliseconds();
        if best.is_none_or(|(_, doubt, _)| half < doubt) {
            best = Some((skew, half, database));
        }
    }
    best.ok_or_else(|| {
        Failure::failed(
            "could not compare the clocks of this host and of the \
             database",
        )
    })
}

fn tell(
    app: &mut App,
    findings: &[Finding],
    client: Option<&Client>,
    clock_skew_ms: Option<i64>,
    strict: bool,
) -> Result<(), Failure> {
    let worst = findings.iter().map(|finding| finding.severity).max();
    let ok = worst.is_none_or(|worst| match strict {
        true => worst < Severity::Warning,
        false => worst < Severity::Error,
    });
    let verdict = if ok { Ok(()) } else { Err(Failure::found()) };
    let info = client.map(|client| client.store().info());
    if app.out.is_json() {
        return verdict.told(app.out.document(&Report {
            ok,
            backend: info.as_ref().map(|info| info.backend),
            version: info.as_ref().map(|info| info.version.clone()),
            clock_skew_ms,
            zone_data: ZoneData::in_use(),
            findings: findings.iter().map(Shown::from).collect(),
        }));
    }
    verdict.told(write(app, findings, info.as_ref(), worst))
}

fn write(
    app: &mut App,
    findings: &[Finding],
    info: Option<&StoreInfo>,
    worst: Option<Severity>,
) -> Result<(), Failure> {
    if let Some(info) = info {
        let name = format!("{} {}", info.backend, info.version);
        app.out.line(paint(DIM, clean(&name)))?;
    }
    let zones = format!("time zones {}", ZoneData::in_use());
    app.out.line(paint(DIM, clean(&zones)))?;
    for finding in findings {
        show(app, finding)?;
    }
    match worst.is_none_or(|worst| worst < Severity::Warning) {
        true => app.out.line(paint(GOOD, "No problems found.")),
        false => Ok(()),
    }
}

fn show(app: &mut App, finding: &Finding) -> Result<(), Failure> {
    let style = match finding.severity {
        Severity::Info => DIM,
        Severity::Warning => WARN,
        Severity::Error => BAD,
    };
    let word = format!("{:<7}", finding.severity.as_str());
    let summary = paint(BOLD, clean(&finding.summary));
    let code = paint(DIM, clean(finding.code));
    app.out
        .line(format_args!("{}  {summary}  {code}", paint(style, word)))?;
    let more = [finding.detail.as_deref(), finding.remedy.as_deref()];
    for text in more.into_iter().flatten() {
        app.out.line(format_args!("         {}", clean(text)))?;
    }
    Ok(())
}
