//! Derives the findings of `ratchet doctor` from the data that it has read, as pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet::{
    ConnectError, DueRoute, Finding, Leader, Migration, Name, NodeRecord, SchemaProblem, Severity,
    StoreErrorKind, Timestamp, ZoneData,
};

use crate::exit::{Failure, schema_remedy};
use crate::output::since;

/// The data that `ratchet doctor` has read from the database.
#[derive(Debug)]
pub(super) struct Seen {
    /// The time of the database's clock when the data was read.
    pub(super) now: Timestamp,
    /// The time by which this host's clock is ahead of the database's clock, in milliseconds.
    /// Negative if this host's clock is behind.
    pub(super) skew: i64,
    /// The maximum error of `skew`.
    pub(super) doubt: Duration,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) leaders: Vec<Leader>,
    pub(super) due: Vec<DueRoute>,
    pub(super) stranded: Vec<DueRoute>,
}

/// The limits above which `ratchet doctor` reports a finding: for the clock skew, and for the delay
/// of due jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub(super) skew: Duration,
    pub(super) overdue: Duration,
}

/// Converts a connection error to a finding about the schema. `missing` contains the migrations
/// that the database lacks.
///
/// # Errors
/// Returns the error itself if it is not about the schema.
pub(super) fn schema(error: ConnectError, missing: &[Migration]) -> Result<Finding, Failure> {
    let ConnectError::Store(store) = &error else {
        return Err(error.into());
    };
    let StoreErrorKind::SchemaMismatch(problem) = store.kind() else {
        return Err(error.into());
    };
    let names: Vec<&str> = missing.iter().map(|step| step.name.as_str()).collect();
    let summary = match problem {
        SchemaProblem::Behind if !names.is_empty() => {
            format!("The schema lacks {}", names.join(", "))
        }
        _ => store.to_string(),
    };
    Ok(found(
        Severity::Error,
        "schema",
        summary,
        schema_remedy(problem),
    ))
}

fn found(severity: Severity, code: &'static str, summary: String, remedy: &str) -> Finding {
    Finding::new(code, severity, summary).remedy(remedy)
}

/// Returns the routes with due jobs that no live node can run. A node whose last heartbeat is too
/// long ago does not count as live.
pub(super) fn stranded_now(
    due: &[DueRoute],
    nodes: &[NodeRecord],
    now: Timestamp,
) -> Vec<DueRoute> {
    let heard = nodes
        .iter()
        .filter(|node| !node.is_silent(NodeRecord::DEAD_AFTER, now));
    let heard: Vec<NodeRecord> = heard.cloned().collect();
    ratchet::store_api::stranded::stranded(due, &heard)
}

/// Derives all findings from the data that was read.
pub(super) fn judge(seen: &Seen, tolerance: Tolerance) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(clock(seen, tolerance.skew));
    let (silent, live): (Vec<&NodeRecord>, _) = (seen.nodes.iter())
        .filter(|node| node.status.is_live())
        .partition(|node| node.is_silent(NodeRecord::DEAD_AFTER, seen.now));
    findings.extend(nodes(&silent, &live, seen));
    findings.extend(leaders(&live, &seen.leaders));
    findings.extend(unheld_claims(&live));
    findings.extend(open_breakers(&live));
    findings.extend(zone_data(&live));
    findings.extend(seen.stranded.iter().map(stranded));
    findings.extend(overdue(seen, tolerance.overdue));
    findings
}

fn clock(seen: &Seen, most: Duration) -> Option<Finding> {
    let apart = Duration::from_millis(seen.skew.unsigned_abs());
    let side = if seen.skew > 0 { "ahead of" } else { "behind" };
    (apart.saturating_sub(seen.doubt) > most).then(|| {
        found(
            Severity::Warning,
            "clock_skew",
            format!(
                "This host's clock is {} {side} the database's",
                since(apart)
            ),
            "Synchronize both clocks with NTP. Ratchet uses the database's clock; times that a \
             program computes from its own clock are wrong by this difference.",
        )
    })
}

fn nodes<'a>(
    silent: &'a [&NodeRecord],
    live: &'a [&NodeRecord],
    seen: &'a Seen,
) -> impl Iterator<Item = Finding> + 'a {
    let no_node = live.is_empty().then(|| {
        let waits = seen.due.iter().any(|due| !due.is_paused());
        let severity = if waits {
            Severity::Error
        } else {
            Severity::Warning
        };
        found(
            severity,
            "no_nodes",
            "No node is live, so no job runs".to_owned(),
            "Start a node. `ratchet nodes list --all` shows which nodes have ended.",
        )
    });
    let silent = silent.iter().map(|node| {
        let silence = (seen.now - node.last_seen).to_std().unwrap_or_default();
        found(
            Severity::Warning,
            "silent_node",
            format!(
                "The node {} has been silent for {}",
                node.label,
                since(silence)
            ),
            "The node crashed, hangs, or cannot reach the database. The leader of `maintenance`, \
             or the next node that starts, reclaims its jobs.",
        )
        .detail(format!(
            "node {}, {} jobs running",
            node.node, node.load.running
        ))
    });
    no_node.into_iter().chain(silent)
}

/// Returns a finding for each role that has live candidates but no leader.
fn leaders(live: &[&NodeRecord], leaders: &[Leader]) -> Vec<Finding> {
    let led: BTreeSet<&str> = leaders
        .iter()
        .filter(|leader| leader.node.is_some())
        .map(|leader| leader.role.as_str())
        .collect();
    let stood_for: BTreeSet<&str> = live
        .iter()
        .flat_map(|node| node.profile.roles.iter().map(Name::as_str))
        .filter(|role| *role != "worker")
        .collect();
    let missing = stood_for.difference(&led).map(|role| {
        found(
            Severity::Warning,
            "no_leader",
            format!("No node leads in `{role}`"),
            "A candidate becomes the leader within one lease. If this finding persists, check the logs \
             of the candidates and `ratchet locks`.",
        )
    });
    missing.collect()
}

/// Returns a finding if the store lists claims under live nodes that do not hold these claims.
fn unheld_claims(live: &[&NodeRecord]) -> Option<Finding> {
    let unheld = |node: &&NodeRecord| {
        let claims = node.load.unheld_claims.filter(|claims| *claims > 0)?;
        Some((claims, format!("{}: {claims}", node.label)))
    };
    let (claims, nodes): (Vec<u32>, Vec<String>) = live.iter().filter_map(unheld).unzip();
    let sum: u64 = claims.iter().copied().map(u64::from).sum();
    (sum > 0).then(|| {
        found(
            Severity::Warning,
            "claims_unheld",
            format!("The store lists {sum} claims under nodes that do not hold them"),
            "Each node releases such claims itself, within seconds after an outage. If the number persists, \
             the store refuses the release or is too slow: see the node's log. Stopping the node \
             releases the claims too.",
        )
        .detail(nodes.join(", "))
    })
}

/// Returns a finding if live nodes use different versions of the time-zone data. If they all use
/// one version, returns a finding if it is older than the version compiled into this program.
fn zone_data(live: &[&NodeRecord]) -> Option<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut is_old = false;
    for node in live {
        let data = node.profile.zone_data.as_ref();
        if let Some(version) = data.and_then(|data| data.version.as_deref()) {
            versions
                .entry(version)
                .or_default()
                .push(node.label.as_str());
            is_old |= data.is_some_and(ZoneData::is_older_than_built_in);
        }
    }
    let names: Vec<&str> = versions.keys().copied().collect();
    let names = names.join(", ");
    let nodes = versions
        .iter()
        .map(|(version, labels)| format!("{version}: {}", labels.join(", ")));
    let detail = nodes.collect::<Vec<_>>().join("; ");
    let finding = if versions.len() > 1 {
        found(
            Severity::Warning,
            "zone_data_differs",
            format!("Nodes use different versions of the time-zone data: {names}"),
            "Install one version of the package `tzdata` on all hosts and images, or point TZDIR to \
             the same data. The node that fires a recurring job computes its next slot.",
        )
    } else if is_old {
        found(
            Severity::Info,
            "zone_data_old",
            format!(
                "Nodes use version {names} of the time-zone data; this program has version {}",
                ZoneData::built_in()
            ),
            "Update the package `tzdata` of the hosts and images: recurring jobs run at the wrong hour in \
             zones whose rules have changed since. Recurring jobs in UTC are not affected.",
        )
    } else {
        return None;
    };
    Some(finding.detail(detail))
}

/// Returns a finding for each kind whose circuit breaker is open on live nodes.
fn open_breakers(live: &[&NodeRecord]) -> Vec<Finding> {
    let mut kinds: BTreeMap<&Name, Vec<&str>> = BTreeMap::new();
    for node in live {
        for kind in &node.profile.open_breakers {
            kinds.entry(kind).or_default().push(node.label.as_str());
        }
    }
    let finding = |(kind, labels): (&Name, Vec<&str>)| {
        found(
            Severity::Warning,
            "breaker_open",
            format!("The circuit breaker of `{kind}` is open, because most of its attempts failed"),
            "Repair what the jobs need. A probe closes the breaker when it succeeds.",
        )
        .detail(format!("on the nodes {}", labels.join(", ")))
    };
    kinds.into_iter().map(finding).collect()
}

fn stranded(due: &DueRoute) -> Finding {
    let route = &due.route;
    let needs = match &route.capability {
        Some(capability) => format!(" and the capability `{capability}`"),
        None => String::new(),
    };
    found(
        Severity::Error,
        "stranded",
        format!("No live node has a handler for `{}`{needs}", route.kind),
        "Deploy a node that can run these jobs, or cancel them: `ratchet jobs cancel --kind`.",
    )
    .detail(format!(
        "the oldest of these jobs in the queue {} has been due for {}",
        route.queue,
        since(due.overdue)
    ))
}

fn overdue(seen: &Seen, most: Duration) -> impl Iterator<Item = Finding> + '_ {
    let late = move |due: &&DueRoute| due.overdue > most && !seen.stranded.contains(due);
    seen.due.iter().filter(late).map(|due| {
        let (queue, kind) = (&due.route.queue, &due.route.kind);
        let detail = format!("the oldest has been due for {}", since(due.overdue));
        if due.kind_paused {
            return found(
                Severity::Info,
                "paused_kind",
                format!("Jobs of `{kind}` wait in the queue {queue}, because their kind is paused"),
                "`ratchet pauses` shows why. `ratchet kinds resume` lets nodes claim them again.",
            )
            .detail(detail);
        }
        if due.queue_paused {
            return found(
                Severity::Info,
                "paused_queue",
                format!("Jobs of `{kind}` wait in the queue {queue}, which is paused"),
                "`ratchet queues resume` lets nodes claim them again.",
            )
            .detail(detail);
        }
        found(
            Severity::Warning,
            "overdue",
            format!("Jobs of `{kind}` in the queue {queue} are late"),
            "Add nodes or slots. Check whether running jobs hang (`ratchet jobs list --state \
             running`), and whether any node polls the queue.",
        )
        .detail(detail)
    })
}

#[cfg(test)]
mod tests {
    use ratchet::store_api::model::Heartbeat;
    use ratchet::store_api::time::from_millis;
    use ratchet::{Fence, NodeId, NodeProfile, NodeStatus, Route};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(text: &str) -> Name {
        Name::new("name", text).unwrap()
    }

    /// Returns a live node that was last seen `silence` seconds ago. The node is a candidate for
    /// the role `maintenance`.
    fn node(silence: i64) -> NodeRecord {
        let roles = vec![name("worker"), name("maintenance")];
        let beat = Heartbeat::new(NodeId::new(), name("alpha"), NodeStatus::Active, 5 * SECOND)
            .profile(NodeProfile::new(roles, Vec::new()));
        NodeRecord::joined(&beat, from_millis(1_000_000 - 1_000 * silence))
    }

    fn seen(nodes: Vec<NodeRecord>) -> Seen {
        let leader = name("leader/maintenance");
        let held = ratchet::LockInfo {
            fence: Fence(1),
            holder: nodes.first().map(|node| ratchet::HeldLock {
                owner: name(&node.node.to_string()),
                fence: Fence(1),
                remaining: SECOND,
            }),
            holder_gone: false,
            expired_for: None,
        };
        Seen {
            now: from_millis(1_000_000),
            skew: 0,
            doubt: Duration::ZERO,
            leaders: Leader::among(&[(leader, held)]),
            due: Vec::new(),
            stranded: Vec::new(),
            nodes,
        }
    }

    fn codes(seen: &Seen) -> Vec<&'static str> {
        let tolerance = Tolerance {
            skew: SECOND,
            overdue: 60 * SECOND,
        };
        let findings = judge(seen, tolerance);
        findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_cluster_at_work_is_well() {
        assert!(codes(&seen(vec![node(3)])).is_empty());
    }

    #[test]
    fn nodes_that_are_silent_are_named() {
        assert!(codes(&seen(vec![node(3), node(14)])).is_empty());
        assert_eq!(codes(&seen(vec![node(3), node(16)])), ["silent_node"]);
        assert_eq!(codes(&seen(vec![node(16)])), ["no_nodes", "silent_node"]);
        let mut left = node(3_600);
        left.status = NodeStatus::Left;
        assert!(codes(&seen(vec![node(3), left])).is_empty());
    }

    #[test]
    fn without_a_node_what_is_due_makes_it_an_error() {
        let tolerance = Tolerance {
            skew: SECOND,
            overdue: 60 * SECOND,
        };
        let mut seen = seen(vec![node(16)]);
        let severity = |seen: &Seen| judge(seen, tolerance)[0].severity;
        assert_eq!(severity(&seen), Severity::Warning);
        let route = || Route::from_texts("mail", "a", "", "").unwrap();
        seen.due = vec![DueRoute::at(route(), true, 0, 1_000)];
        assert_eq!(severity(&seen), Severity::Warning);
        seen.due.push(DueRoute::at(route(), false, 0, 1_000));
        assert_eq!(severity(&seen), Severity::Error);
    }

    #[test]
    fn silent_nodes_take_nothing() {
        let takes = |silence, kind| {
            let mut node = node(silence);
            node.profile.kinds = Some(vec![name(kind)]);
            node
        };
        let due = Route::from_texts("mail", "a", "", "").unwrap();
        let due = [DueRoute::at(due, false, 0, 1_000)];
        let now = from_millis(1_000_000);
        let stranded = |nodes: &[NodeRecord]| stranded_now(&due, nodes, now).len();
        assert_eq!(stranded(&[takes(3, "a"), takes(3, "b")]), 0);
        assert_eq!(stranded(&[takes(16, "a"), takes(3, "b")]), 1);
    }

    #[test]
    fn a_role_without_a_leader_is_named() {
        let mut seen = seen(vec![node(3)]);
        seen.leaders.clear();
        assert_eq!(codes(&seen), ["no_leader"]);
    }

    #[test]
    fn claims_that_no_node_holds_are_counted() {
        let with = |unheld| {
            let mut node = node(0);
            node.load.unheld_claims = unheld;
            node
        };
        assert!(codes(&seen(vec![with(None), with(Some(0))])).is_empty());
        let seen = seen(vec![with(Some(2)), with(Some(0)), with(Some(1))]);
        assert_eq!(codes(&seen), ["claims_unheld"]);
        let finding = unheld_claims(&seen.nodes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(finding.detail.as_deref(), Some("alpha: 2, alpha: 1"));
        assert!(finding.summary.contains("3 claims"));
    }

    #[test]
    fn nodes_with_other_zone_data_are_named() {
        let built_in = ZoneData::built_in();
        let with = |version: Option<&str>| {
            let mut node = node(3);
            let version = version.map(str::to_owned);
            node.profile.zone_data = Some(ZoneData::new("/zoneinfo", version));
            node
        };
        let newest = built_in.version.as_deref();
        // Nodes with an earlier release of Ratchet do not report the version, and a directory with
        // time-zone data may lack a version.
        assert!(codes(&seen(vec![with(newest), with(newest), with(None), node(3)])).is_empty());
        assert_eq!(codes(&seen(vec![with(Some("2025b"))])), ["zone_data_old"]);
        let mut seen = seen(vec![with(newest), with(Some("2025b")), node(3)]);
        assert_eq!(codes(&seen), ["zone_data_differs"]);
        let finding = zone_data(&seen.nodes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        let detail = finding.detail.unwrap();
        assert!(detail.starts_with("2025b: alpha; 202"), "{detail}");
        // A silent node computes no slots, so its time-zone data does not matter.
        seen.nodes[1].last_seen = from_millis(0);
        assert_eq!(codes(&seen), ["silent_node"]);
    }

    #[test]
    fn clocks_may_differ_by_as_much_as_is_not_known() {
        let mut seen = seen(vec![node(3)]);
        (seen.skew, seen.doubt) = (-1_400, 500 * SECOND / 1_000);
        assert!(codes(&seen).is_empty());
        seen.skew = -1_600;
        assert_eq!(codes(&seen), ["clock_skew"]);
    }

    #[test]
    fn open_breakers_are_reported_once_for_each_kind() {
        let mut seen = seen(vec![node(3), node(3)]);
        let kinds = ["a", "b"].map(|kind| Name::new("kind", kind).unwrap());
        seen.nodes[0].profile.open_breakers = kinds[..1].to_vec();
        seen.nodes[1].profile.open_breakers = kinds.to_vec();
        assert_eq!(codes(&seen), ["breaker_open", "breaker_open"]);
    }

    #[test]
    fn late_jobs_are_stranded_or_overdue_or_paused() {
        let route = |kind| Route::from_texts("mail", kind, "", "").unwrap();
        let due =
            |kind, paused, seconds: i64| DueRoute::at(route(kind), paused, 0, seconds * 1_000);
        let mut seen = seen(vec![node(3)]);
        seen.due = vec![due("a", false, 61), due("b", true, 61), due("c", false, 59)];
        assert_eq!(codes(&seen), ["overdue", "paused_queue"]);
        seen.stranded = vec![due("a", false, 61)];
        assert_eq!(codes(&seen), ["stranded", "paused_queue"]);
        seen.stranded.clear();
        seen.due = vec![due("a", false, 61).kind_paused(true), due("b", true, 61)];
        assert_eq!(codes(&seen), ["paused_kind", "paused_queue"]);
    }
}
