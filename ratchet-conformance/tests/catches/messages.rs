//! Tests of the failure messages.

use ratchet_conformance::{Failure, Suite};

use crate::sabotage::{Sabotage, powers};
use crate::sabotaged;

/// Runs a case, and shrinks a failing history.
async fn check(sabotage: Sabotage, case: &str) -> Result<(), Failure> {
    let found =
        Suite::case(case).unwrap_or_else(|| panic!("the suite should have the case {case}"));
    Suite::check(found, &powers(), sabotaged(sabotage)).await
}

/// Returns the case's failure message, and the clauses that the failure names as broken.
async fn told(sabotage: Sabotage, case: &str) -> (String, Vec<&'static str>) {
    match check(sabotage, case).await {
        Err(failure) => (failure.to_string(), failure.clauses().to_vec()),
        Ok(()) => panic!("{case} passes"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_that_does_not_move_ends_every_walk() {
    for case in [
        "page::a_walk_visits_every_job_once_in_both_orders",
        "page::a_filter_lists_exactly_what_it_matches",
        "archive::a_walk_through_the_archive_visits_what_matches_once",
        "batch::a_filter_by_batch_finds_its_children_and_cancels_them",
        "lock::names_of_any_characters_are_listed_by_their_bytes",
        "recurring::a_walk_visits_every_definition_once_by_name",
        "tag::listings_and_counts_by_tag_are_exact",
    ] {
        let (told, _) = told(Sabotage::IgnoresCursors, case).await;
        assert!(told.contains("comes for the second time"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_a_history_is_one_field_of_one_job() {
    let mut told = None;
    for part in ["zero", "one", "two"] {
        let case = format!("differential::histories_ending_in_{part}_match_the_model");
        told = check(Sabotage::ForgetsPayloadVersions, &case).await.err();
        if told.is_some() {
            break;
        }
    }
    let failure = told.expect("a history should contain jobs of payload version 2");
    assert_eq!(failure.clauses(), ["model.agrees"]);
    let told = failure.to_string();
    let first = told.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("jobs[0].spec.payload_version: expected "),
        "{told}"
    );
    assert!(first.ends_with(" / found 1"), "{told}");
    assert_eq!(told.matches("NewJob {").count(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_clauses_of_the_failed_assertion_are_broken() {
    for (sabotage, case, broken) in [
        (
            Sabotage::IgnoresTokensOnReport,
            "token::a_claim_of_the_same_number_by_another_node_is_stale",
            &["report.token"] as &[_],
        ),
        (
            Sabotage::ForgetsPayloadVersions,
            "claim::the_version_of_a_payload_comes_with_every_claim",
            &["enqueue.created", "get.whole"],
        ),
        (
            Sabotage::AnswersRepeatedSignalsAsDelivered,
            "signal::a_job_runs_when_its_signal_has_come_and_can_read_it",
            &["signal.once"],
        ),
        (
            Sabotage::ForgetsDeadlines,
            "signal::a_missed_signal_is_an_end_like_any_other",
            &["signal.expire"],
        ),
    ] {
        let (told, clauses) = told(sabotage, case).await;
        assert_eq!(clauses, broken, "{sabotage:?}: {told}");
    }
}
