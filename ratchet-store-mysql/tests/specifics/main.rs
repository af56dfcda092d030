//! Tests of what only MySQL and MariaDB have: prefixes and databases, privileges, engines,
//! transactions of the application, lost connections, locks and query plans.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod connections;
mod diagnostics;
mod fair;
mod kit;
mod lanes;
mod links;
mod locking;
mod permits;
mod schemas;
#[path = "../server/mod.rs"]
mod server;
mod snapshots;
mod transactions;

use std::process::ExitCode;

use ratchet_conformance::{DatabaseTest, DatabaseTests, database_tests};
use ratchet_core::store::Checked;
use ratchet_store_mysql::MysqlStore;

use crate::server::Database;

const TESTS: &[(&str, DatabaseTest<Database>)] = database_tests! {
    connections: a_pool_of_one_makes_progress a_pool_taken_by_others_leaves_heartbeats_and_locks
        dropped_calls_leave_the_store_usable killed_connections_are_replaced
        quiet_connections_are_replaced
        a_locked_table_is_a_timeout large_batches_are_divided
        unknown_users_and_databases_are_misconfigured;
    diagnostics: indexes_that_are_missing_are_found settings_that_risk_jobs_are_found
        a_session_that_holds_old_rows_is_seen;
    fair: calls_at_once_give_no_key_the_same_turn a_transaction_of_the_application_locks_no_turns
        a_claim_waits_for_no_turns a_claim_locks_only_routes_in_which_jobs_sleep
        a_locked_sleeper_stops_no_claim
        a_turn_is_kept_as_long_as_its_job_has_it calls_read_few_of_many_turns;
    kit: stored_jobs_are_run_for_a_test;
    lanes: an_enqueue_sees_the_end_it_waited_for;
    links:
        an_enqueue_waits_for_the_end_of_a_parent_and_sees_it
        the_second_of_two_parents_sees_what_the_first_decided
        the_last_two_of_a_batch_are_counted_one_after_the_other
        a_claim_taken_back_meanwhile_leaves_no_child_waiting
        an_end_that_is_held_for_long_is_a_timeout;
    locking: a_claim_locks_only_the_rows_it_returns a_pause_waits_for_the_claims_in_progress
        a_claim_skips_what_others_have_locked_or_changed
        the_depth_of_a_queue_leaves_out_later_jobs
        a_claim_of_a_long_queue_reads_only_candidates no_statement_of_a_loop_reads_all_jobs;
    permits: a_claim_counts_what_was_claimed_while_it_waited
        claims_that_need_no_permit_wait_for_none;
    schemas: two_prefixes_never_see_each_other a_newer_schema_is_refused
        an_older_schema_is_brought_up_to_date tables_of_others_are_refused
        an_altered_table_is_a_mismatch a_table_without_transactions_is_refused
        many_starters_migrate_once an_interrupted_migration_is_finished
        without_privileges_the_dba_is_told_what_to_run a_read_only_server_is_read_only
        printed_migrations_are_what_is_applied a_row_that_cannot_be_read_harms_only_itself
        time_zones_change_no_time;
    snapshots: the_end_of_a_parent_is_seen a_unique_key_that_was_released_is_free
        a_taken_key_keeps_no_job_from_ending a_route_that_is_newer_works;
    transactions:
        keys_lost_to_others_leave_the_transaction_usable jobs_need_a_transaction
        the_holder_of_a_key_changes_with_the_transaction
        a_holder_that_was_claimed_after_the_snapshot_runs
        a_closed_store_refuses a_session_with_other_settings_works
        the_pool_of_the_application_keeps_its_settings a_client_enqueues_in_transactions
        cached_routes_that_were_lost_are_not_used
        a_deadlock_leaves_the_settings_of_the_session;
};

fn main() -> ExitCode {
    DatabaseTests::default().on(server::SERVER, TESTS).run()
}

pub(crate) async fn open(database: &Database) -> Checked<MysqlStore> {
    database.builder().connect().await.unwrap()
}
