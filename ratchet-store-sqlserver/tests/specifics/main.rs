//! Tests of what only SQL Server has: transactions of the application, discarded connections,
//! settings of sessions and of the database, schemas.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod connections;
mod diagnostics;
mod network;
mod rights;
mod schemas;
#[allow(dead_code, reason = "each test binary uses its part of this module")]
#[path = "../server/mod.rs"]
mod server;
mod sessions;
mod transactions;

use std::process::ExitCode;

use ratchet_conformance::{DatabaseTest, DatabaseTests, database_tests};
use ratchet_core::store::Checked;
use ratchet_store_sqlserver::SqlServerStore;

use crate::server::Schema;

const TESTS: &[(&str, DatabaseTest<Schema>)] = database_tests! {
    connections: a_pool_of_one_makes_progress a_pool_taken_by_others_leaves_heartbeats_and_locks
        dropped_calls_leave_the_store_usable killed_sessions_are_replaced
        a_held_row_is_a_timeout a_wrong_password_is_misconfigured
        a_missing_database_is_misconfigured encryption_that_cannot_be_had_is_misconfigured
        an_address_without_a_server_is_unavailable lost_races_are_not_logged;
    diagnostics: tables_and_indexes_that_are_missing_are_found a_schema_of_another_version_is_found
        readers_that_wait_for_writers_are_found a_session_that_keeps_versions_is_seen
        who_may_not_look_gets_the_other_findings;
    network: an_action_whose_commit_is_not_heard_of_is_not_done_again
        a_commit_of_an_application_that_is_not_heard_of_is_unavailable
        an_enqueue_whose_answer_is_lost_is_stored_once
        calls_on_silent_connections_end_at_the_deadline
        a_transaction_on_a_silent_connection_ends_at_the_deadline
        a_server_that_is_gone_for_a_while_is_found_again
        a_release_whose_answer_is_lost_is_applied
        purges_and_sweeps_whose_answer_is_lost_are_not_made_again;
    rights: without_the_right_to_create_the_dba_is_told_what_to_run
        without_rights_to_the_tables_the_dba_is_told_what_to_run
        who_may_only_read_is_refused_by_the_right
        odd_passwords_log_in_by_url_and_by_connection_string;
    schemas: two_schemas_never_see_each_other odd_names_work a_newer_schema_is_refused
        tables_of_others_are_refused many_starters_migrate_once printed_migrations_are_what_is_applied
        without_migrating_a_missing_schema_is_refused times_are_those_of_the_clock_and_far_ones_too
        a_large_payload_of_long_characters_comes_back the_clock_counts_beyond_what_fits_into_an_int
        a_url_is_enough a_migration_that_fails_leaves_nothing a_starter_waits_for_who_migrates
        a_step_that_is_made_meanwhile_is_none_that_is_missing;
    sessions: a_session_is_used_again_and_again a_dropped_call_takes_its_session_with_it
        an_error_leaves_no_transaction_open
        a_transaction_that_was_ended_or_begun_inside_is_refused
        what_cannot_be_set_back_closes_the_session
        what_a_procedure_leaves_ends_with_the_transaction the_isolation_level_is_the_stores_own
        worn_sessions_are_replaced a_session_that_is_killed_in_a_transaction_ends_it;
    transactions: a_rollback_leaves_no_rows a_commit_brings_them a_dropped_transaction_leaves_nothing
        a_dropped_call_throws_its_connection_away a_refused_enqueue_leaves_the_transaction_usable
        an_error_of_the_server_fails_the_transaction a_key_that_two_transactions_want_is_had_by_one
        what_an_application_sets_lasts_until_the_end
        a_temporary_table_made_without_parameters_lasts the_last_statement_is_counted
        a_closed_store_refuses an_enqueue_stores_every_job_whatever_was_set_before
        a_transaction_of_another_store_is_refused a_refused_statement_fails_the_transaction
        a_client_enqueues_in_transactions;
};

fn main() -> ExitCode {
    DatabaseTests::default().on(server::SERVER, TESTS).run()
}

pub(crate) async fn open(schema: &Schema) -> Checked<SqlServerStore> {
    schema.builder().connect().await.unwrap()
}
