//! Tests of what only PostgreSQL has: schemas, roles, transactions of the application, lost
//! connections, locks bound to sessions, query plans.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod archive;
mod connections;
mod diagnostics;
mod fair;
mod interleavings;
mod kit;
mod lanes;
mod limits;
mod links;
mod network;
mod permits;
mod plans;
mod pooler;
mod pools;
mod races;
mod routes;
mod schemas;
#[path = "../server/mod.rs"]
mod server;
mod sessions;
mod standby;
mod transactions;
mod undelivered;

use std::process::ExitCode;

use ratchet_conformance::{DatabaseTest, DatabaseTests, database_tests};
use ratchet_core::store::Checked;
use ratchet_store_postgres::PostgresStore;

use crate::server::Schema;

const TESTS: &[(&str, DatabaseTest<Schema>)] = database_tests! {
    archive: a_job_that_cannot_be_read_at_all_stays_and_keeps_no_other
        a_document_that_cannot_be_read_harms_only_itself a_pool_of_one_is_enough_to_archive
        a_pool_of_one_is_enough_for_linked_jobs
        a_job_that_goes_leaves_nothing_but_the_idempotency_key;
    connections: a_pool_of_one_makes_progress a_pool_taken_by_others_leaves_heartbeats_and_locks
        locks_precede_heartbeats_and_do_not_wait_for_one_that_hangs
        dropped_calls_leave_the_store_usable terminated_backends_are_replaced
        a_locked_table_is_a_timeout wakeups_survive_a_lost_connection
        unknown_roles_and_databases_are_misconfigured;
    diagnostics: indexes_that_are_missing_or_not_valid_are_found
        a_table_without_autovacuum_is_found a_session_that_holds_a_snapshot_is_seen;
    fair: an_enqueue_that_waits_for_a_key_keeps_no_other_waiting
        damaged_jobs_stop_no_claim a_claim_locks_only_routes_in_which_jobs_sleep;
    interleavings: a_claim_passes_over_what_has_changed_since_it_looked
        a_cancel_waits_for_a_requeue_and_ends_what_it_brought_back
        an_enqueue_waits_for_a_requeue_and_finds_its_key_taken
        a_key_stays_the_first_jobs_before_during_and_after_its_purge
        a_renewal_and_a_takeover_that_meet_at_the_expiry_agree
        a_leader_whose_bodies_hold_every_connection_keeps_its_term;
    kit: stored_jobs_are_run_for_a_test;
    lanes: an_enqueue_sees_the_end_it_waited_for;
    limits: a_claim_counts_the_claims_before_it a_new_limit_counts_the_claims_in_progress
        an_end_that_a_claim_does_not_see_frees_a_place_later
        a_waiting_job_that_is_locked_is_not_overlooked
        a_new_limit_waits_for_jobs_that_are_being_parked;
    links:
        an_enqueue_waits_for_the_end_of_a_parent_and_sees_it
        the_second_of_two_parents_sees_what_the_first_decided
        the_last_two_of_a_batch_are_counted_one_after_the_other
        a_claim_taken_back_meanwhile_leaves_no_child_waiting
        an_end_that_is_held_for_long_is_a_timeout;
    network: a_leader_that_vanishes_in_mid_write_holds_its_lock_up_for_a_moment
        an_action_whose_commit_is_not_heard_of_is_not_done_again
        a_connection_that_falls_silent_while_it_opens_is_replaced
        calls_on_silent_connections_end_at_the_deadline
        a_silent_connection_for_wakeups_is_noticed a_wrong_password_is_misconfigured
        a_setting_that_is_refused_is_done_without a_deaf_connection_for_wakeups_is_warned_about
        a_release_whose_answer_is_lost_is_applied
        purges_and_sweeps_whose_answer_is_lost_are_not_made_again
        ten_connections_that_fell_silent_cost_one_call
        a_setting_that_the_pooler_refuses_is_misconfigured;
    pooler: a_pooler_that_loses_prepared_statements_is_refused;
    pools: a_time_in_which_nothing_can_be_written_passes a_limit_of_the_role_stays
        a_deadline_beyond_the_servers_numbers_works
        a_pool_that_leads_elsewhere_is_refused a_pool_that_cannot_work_is_refused;
    permits: a_claim_counts_what_was_claimed_while_it_waited
        claims_that_need_no_permit_wait_for_none;
    plans: no_statement_of_a_loop_reads_all_jobs a_claim_of_a_long_queue_reads_only_candidates
        a_claim_of_shared_queues_reads_only_candidates
        turns_and_sleepers_are_found_without_reading_others
        to_see_what_is_late_takes_a_seek_per_route_and_level
        what_is_asked_by_tag_reads_only_jobs_that_have_it
        permits_are_counted_without_reading_the_waiting
        unfinished_jobs_are_found_without_reading_those_that_have_ended;
    races: a_job_that_can_be_neither_read_nor_failed_keeps_no_other
        an_action_spares_jobs_that_no_longer_match
        an_action_whose_jobs_are_all_gone_looks_behind_them
        a_claim_takes_no_candidate_on_its_old_terms
        a_claim_has_no_payload_that_was_replaced_before_it
        what_was_claimed_is_kept_when_looking_for_more_takes_too_long
        a_route_that_cannot_be_decoded_is_passed_over
        snapshots_that_outlive_a_statement_are_refused;
    routes: a_transaction_older_than_a_route_is_begun_again
        routes_are_added_where_jobs_are_stored
        jobs_without_a_route_are_found;
    schemas: two_schemas_never_see_each_other odd_names_work a_newer_schema_is_refused
        an_older_schema_is_brought_up_to_date
        tables_of_others_are_refused many_starters_migrate_once
        without_the_right_to_create_the_dba_is_told_what_to_run a_read_only_role_is_read_only
        printed_migrations_are_what_is_applied a_row_that_cannot_be_read_harms_only_itself;
    sessions: a_lock_whose_session_ended_is_taken_at_once
        a_holder_that_closes_its_store_leaves_its_locks_free a_lock_whose_session_lives_is_kept
        a_lock_that_is_not_bound_ends_by_time_alone
        a_holder_that_returns_before_a_candidate_looks_keeps_its_locks
        a_lock_outlives_the_planned_end_of_its_connection
        an_old_connection_stays_while_it_cannot_be_replaced
        a_connection_that_opens_slowly_is_not_dropped_half_way
        a_session_that_cannot_be_seen_counts_as_alive
        a_candidate_that_waited_for_the_row_sees_the_holders_new_session
        a_candidate_with_a_takeover_delay_leaves_it_to_the_others
        a_session_that_is_a_poolers_is_refused
        a_role_that_cannot_see_its_own_session_is_refused;
    standby: a_standby_can_be_read_and_says_so;
    transactions: a_rollback_leaves_neither_rows_nor_wakeups a_commit_brings_both
        keys_lost_to_others_leave_the_transaction_usable jobs_with_keys_lanes_or_links_need_a_transaction
        the_holder_of_a_key_changes_with_the_transaction
        a_closed_store_refuses_and_connects_no_more
        closing_again_is_silent without_wakeups_no_node_is_woken
        an_enqueue_that_meets_its_deadline_is_taken_back a_client_enqueues_in_transactions
        a_node_with_an_idle_interval_finds_what_was_committed
        cached_routes_that_were_lost_are_not_used;
    undelivered: a_lane_whose_head_was_claimed_unheard_goes_on
        a_permit_that_was_claimed_unheard_is_free_again;
};

fn main() -> ExitCode {
    DatabaseTests::default()
        .on(server::SERVER, TESTS)
        .needing("standby", server::STANDBY)
        .run()
}

pub(crate) async fn open(schema: &Schema) -> Checked<PostgresStore> {
    schema.builder().connect().await.unwrap()
}
