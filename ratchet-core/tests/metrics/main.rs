//! Checks that at least one scenario emits each metric of the catalog, and that no scenario emits
//! any other metric. All scenarios run on the memory store under paused time.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;
mod documents;
mod jobs;
#[path = "../engine/kit.rs"]
#[expect(dead_code, reason = "only the tests of the engine use all of the kit")]
mod kit;
mod recorder;
mod store;
mod upkeep;

use std::collections::BTreeSet;

use ratchet_core::metrics::{CATALOG, SECONDS, SIZES};

use recorder::Metrics;

/// Declares a test for each scenario. Another test runs all scenarios, and checks that each metric
/// of the catalog is emitted by at least one of them.
macro_rules! scenarios {
    ($($module:ident::$name:ident,)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let metrics = Metrics::default();
                let _installed = metrics.install();
                $module::$name(&metrics).await;
                metrics.check();
                assert_eq!(metrics.described(), CATALOG.len());
            }
        )*

        #[tokio::test(start_paused = true)]
        async fn every_metric_of_the_catalog_is_emitted() {
            let mut emitted = BTreeSet::new();
            $({
                let metrics = Metrics::default();
                let _installed = metrics.install();
                Box::pin($module::$name(&metrics)).await;
                emitted.extend(metrics.emitted());
            })*
            let all: BTreeSet<String> = CATALOG.iter().map(|one| one.name.to_owned()).collect();
            let missing: Vec<&String> = all.difference(&emitted).collect();
            assert!(missing.is_empty(), "expected every metric from at least one scenario, \
                missing: {missing:?}");
        }
    };
}

scenarios! {
    jobs::outcomes_are_counted_by_kind_and_pool,
    jobs::a_cancelled_body_counts_as_cancelled_whatever_it_returns,
    jobs::waiting_is_measured_from_when_a_job_was_due,
    jobs::a_body_that_stalls_is_lost,
    jobs::what_may_not_begin_is_put_off,
    jobs::a_circuit_breaker_opens_and_closes,
    jobs::jobs_with_permits_wait_apart,
    jobs::prefetched_claims_are_held_and_handed_back,
    jobs::a_job_that_kills_its_nodes_is_a_suspect_and_then_a_dead_letter,
    cluster::what_a_node_loses_while_it_is_taken_for_dead,
    cluster::who_leads_and_who_stops_to,
    cluster::writes_of_a_superseded_leader_are_refused,
    cluster::nodes_and_slots_are_there_while_they_run,
    cluster::daemons_that_fail_are_started_again,
    cluster::wakeups_are_sent_received_and_lost,
    cluster::a_drain_is_clean_or_not,
    cluster::panics_of_loops_and_hooks_are_counted,
    store::calls_are_counted_by_operation_and_result,
    store::settlements_are_tried_again_and_refused,
    store::steps_of_the_clock_are_counted,
    store::rewinds_of_the_database_are_counted,
    store::claims_that_were_never_received_are_counted,
    store::actions_are_counted_by_what_they_did,
    upkeep::recurring_definitions_fire_late_and_miss_slots,
    upkeep::definitions_of_a_newer_release_are_met,
    upkeep::what_is_old_is_done_away_with,
    upkeep::signals_that_do_not_come,
    upkeep::jobs_that_expire,
    upkeep::the_leader_measures_the_named_queues,
    upkeep::an_outage_is_logged_when_it_begins_and_when_it_ends,
    upkeep::what_alerts_watch_is_there_before_anything_happens,
}

#[test]
fn names_are_those_that_prometheus_wants() {
    use ratchet_core::metrics::Kind;
    let mut names = BTreeSet::new();
    for metric in CATALOG {
        let name = metric.name;
        assert!(
            names.insert(name),
            "expected each name once in the catalog, found {name} twice"
        );
        assert!(name.starts_with("ratchet_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert_eq!(
            metric.kind == Kind::Counter,
            name.ends_with("_total"),
            "{name}"
        );
        // The exporter chooses the buckets of histograms by these suffixes.
        let divided = name.ends_with("_seconds") || name.ends_with("_jobs");
        assert!(metric.kind != Kind::Histogram || divided, "{name}");
    }
    for bounds in [SECONDS, SIZES] {
        assert!(bounds.is_sorted_by(|one, other| one < other));
    }
}
