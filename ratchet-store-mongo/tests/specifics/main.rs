//! Tests of what only MongoDB has: replica sets and standalone servers, foreign indexes,
//! transactions of the application, elections, killed commands.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod archive;
mod claims;
mod collections;
mod connect;
mod fair;
mod fair_limits;
mod faults;
mod guards;
mod jobs;
mod links;
mod nodes;
mod passes;
mod permits;
mod plans;
mod rates;
mod routes;
mod secured;
#[path = "../server/mod.rs"]
mod server;
mod standalone;
mod transactions;

use std::process::ExitCode;

use ratchet_conformance::{DatabaseTest, DatabaseTests, database_tests};
use ratchet_core::store::Checked;
use ratchet_store_mongo::MongoStore;

use crate::server::Space;

const TESTS: &[(&str, DatabaseTest<Space>)] = database_tests! {
    claims: a_number_that_a_pause_took_back_is_not_given_out_again
        a_node_that_was_displaced_meanwhile_claims_nothing
        a_claim_passes_over_what_has_another_priority_by_then
        what_a_killed_claim_took_is_returned a_claim_that_was_given_up_takes_nothing_later
        an_action_goes_on_among_claimers a_row_mended_by_hand_stops_no_claim
        a_node_that_cannot_be_read_silences_no_other;
    collections: two_prefixes_never_see_each_other odd_names_work a_newer_version_is_refused
        collections_of_others_are_refused indexes_of_others_are_refused
        collections_of_another_kind_are_refused what_an_operator_changed_is_found
        a_statement_without_its_index_names_it
        what_is_missing_is_named_where_nothing_may_be_created many_starters_create_once;
    connect: a_wrong_password_is_misconfigured an_unknown_replica_set_is_misconfigured
        a_server_that_is_not_there_is_unavailable a_closed_store_refuses
        a_database_of_the_application_works a_missing_right_is_misconfigured;
    fair: calls_at_once_give_no_key_the_same_turn a_transaction_of_the_application_locks_no_level
        locked_sleepers_keep_no_other_job_waiting calls_read_few_of_many_turns
        a_job_that_a_pause_took_back_keeps_its_turn;
    fair_limits: a_job_that_is_removed_leaves_its_freed_entry
        without_limits_nothing_is_kept_of_removed_jobs
        a_claim_gives_back_what_a_new_limit_may_meet
        a_job_that_was_cancelled_meanwhile_uses_no_place
        a_new_limit_meets_those_that_it_replaces
        locked_parked_jobs_keep_no_other_key_waiting
        a_claim_with_limits_reads_few_of_many_jobs;
    faults: a_lost_connection_is_repeated_and_leaves_one_job an_election_is_waited_for
        an_unheard_commit_is_committed_once a_claim_whose_answer_is_lost_is_not_made_again
        a_killed_operation_is_a_timeout a_killed_cursor_is_opened_again
        a_silent_server_is_a_timeout a_majority_that_does_not_answer_is_a_timeout
        a_pool_taken_by_others_leaves_heartbeats_locks_and_elections wakeups_survive_a_lost_stream;
    archive: a_long_history_is_archived_whole_and_leaves_nothing
        a_purge_leaves_the_documents_of_other_programs
        two_passes_at_once_archive_each_job_once;
    guards: a_lock_is_free_while_a_guarded_write_goes_on_and_the_write_is_stale
        a_guarded_write_whose_lock_expires_before_its_end_is_stale;
    jobs: payloads_that_look_like_commands_are_kept texts_that_look_like_expressions_are_kept
        a_long_history_moves_out_of_the_job a_purged_job_takes_its_history_along
        documents_of_others_are_on_no_page_and_stop_nothing
        documents_of_others_hold_up_no_signal_and_no_lane
        of_claims_that_would_end_alike_each_ends_as_it_must
        claims_that_end_alike_keep_their_own_times
        the_servers_clock_is_what_counts;
    links: a_transaction_links_to_its_own_jobs_and_to_ended_ones_again
        an_end_sees_the_child_that_a_transaction_brings
        an_enqueue_sees_the_end_that_came_first two_ends_at_once_let_their_child_go
        an_end_and_a_signal_at_once_let_the_job_go an_enqueue_that_is_killed_leaves_nothing
        an_end_that_is_killed_leaves_nothing_half_made many_ends_in_one_batch_are_all_counted
        a_settlement_that_expects_a_batch_ends_other_jobs_too;
    nodes: a_label_goes_with_the_last_node_that_has_it;
    passes: a_parent_stays_for_the_last_of_many_children
        kept_parents_in_front_are_passed_in_several_transactions
        a_job_is_archived_as_one_transaction_sees_it
        a_key_stays_the_first_jobs_before_during_and_after_its_purge;
    permits: a_claim_waits_for_who_takes_permits_of_the_same_resource
        a_claim_by_the_old_number_meets_the_new_one;
    plans: candidates_come_from_the_index_alone a_claim_of_a_long_queue_reads_only_what_it_takes
        no_statement_of_a_loop_reads_all_jobs
        a_listing_of_few_among_many_reads_the_front_and_them
        counts_read_no_documents_but_those_of_running_jobs calls_on_shared_queues_read_an_index
        a_pass_reads_one_page_of_many_children an_end_reads_only_the_open_links_of_its_job
        idle_rates_come_from_an_index;
    rates: the_server_forgets_idle_keys_and_no_fence
        what_was_granted_before_a_loss_is_not_counted_again;
    routes: a_lost_connection_makes_the_cache_compare_its_routes
        jobs_of_a_route_that_does_not_exist_are_found;
    secured: the_rights_in_the_guide_are_enough a_missing_right_does_not_show_a_result
        a_user_that_was_dropped_and_created_again_is_let_in;
    transactions:
        a_key_lost_to_others_is_contention jobs_need_a_transaction_that_was_begun
        a_lane_held_by_a_transaction_holds_up_no_other
        a_producer_that_stops_before_its_commit_holds_no_lane
        what_is_refused_leaves_nothing_in_the_transaction
        what_fails_behind_the_first_write_cannot_be_committed
        a_session_that_can_have_no_transaction_is_misconfigured
        a_client_enqueues_in_transactions;
};

/// Tests on a standalone server.
const STANDALONE: &[(&str, DatabaseTest<Space>)] = database_tests! {
    standalone: what_needs_transactions_is_refused it_says_what_it_is
        an_ended_job_is_deleted_with_its_history a_batch_that_cannot_be_stored_is_taken_away
        a_job_that_was_reported_as_stored_stays the_jobs_of_a_dead_node_are_taken_back
        a_job_that_another_stored_stays;
};

fn main() -> ExitCode {
    DatabaseTests::default()
        .on(server::SERVER, TESTS)
        .needing("secured", server::PROGRAM)
        .on(server::STANDALONE, STANDALONE)
        .run()
}

pub(crate) async fn open(space: &Space) -> Checked<MongoStore> {
    space.builder().connect().await.unwrap()
}
