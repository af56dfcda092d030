//! The texts of all statements, and the type that prepares them. The comment of each statement
//! names the contract clauses that it implements, and the indexes or tables that it reads.

use std::sync::LazyLock;

use rusqlite::CachedStatement;

/// A connection that runs the store's statements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection<'a>(&'a rusqlite::Connection);

impl<'a> Connection<'a> {
    pub(crate) const fn new(conn: &'a rusqlite::Connection) -> Self {
        Self(conn)
    }

    /// Returns the driver's connection, for statements that do not use the store's tables.
    pub(crate) const fn driver(self) -> &'a rusqlite::Connection {
        self.0
    }

    /// Prepares a statement. Uses the prepared statement in the connection's cache, if there is
    /// one.
    pub(crate) fn prepare_cached(self, sql: &Statement) -> rusqlite::Result<CachedStatement<'a>> {
        #[cfg(feature = "mutants")]
        ratchet_mutant::note_use(&sql.0);
        self.0.prepare_cached(&sql.0)
    }
}

/// The text of a statement, as it is sent to SQLite.
#[derive(Debug)]
pub(crate) struct Statement(String);

impl Statement {
    /// Creates a statement from its text in the SQL file. Removes the comments to shorten the text,
    /// because the driver hashes it at every call.
    fn new(name: &str, text: &str) -> Self {
        #[cfg(feature = "mutants")]
        let text = ratchet_mutant::text(name, text);
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        Self(ratchet_sql::render(name, &text))
    }
}

/// The texts of all statements, as they are sent to SQLite.
pub(crate) static SQL: LazyLock<Named<Statement>> = LazyLock::new(|| TEXTS.map(Statement::new));

ratchet_sql::statements! {
    jobs: enqueue_job enqueue_data last_data find_idempotency_key find_unique_key
        keep_idempotency_key has_free_keys forget_keys take_unique_key free_unique_key unique_key_of find_holder
        replace_payload clear_notes drop_unique_key drop_key_flag job_exists tag_job
        get_job history read_state change_state request_cancel requeue_job reschedule_job
        set_priority release_job keep_error clear_error purge_due purge_job purge_data purge_notes
        purge_attempts purge_tags put_expiry flag_expiry find_expiry overdue_expiries close_expiry
        drop_expiry;
    claims: claim_streams claim_due claim_shared_streams claim_shared_due claim_queue_streams
        claim_queue_due claim_turns find_turns find_sleepers give_turn claim_read
        claim_job fail_unreadable load_checkpoint load_input read_claim settle_job find_settler add_attempt keep_result report_life keep_progress
        keep_checkpoint running_jobs timeouts_of reclaim_job disown_job;
    lists: list_oldest list_newest list_batch_oldest list_batch_newest list_ended_oldest
        list_ended_newest list_front_oldest list_front_newest list_tagged_oldest list_tagged_newest
        list_unfinished_oldest list_unfinished_newest count_matching count_tagged count_batch;
    lanes: lane_exists next_in_lane enter_lane lane_of lane_head leave_lane promote_job forget_lane;
    links: add_link flag_parent find_ended open_children decide_link has_open_links links_of
        children_of purge_links;
    batches: create_batch close_batch get_batch list_batches grow_batch join_batch batch_of
        count_child count_in_batch end_batch old_batch_exists purge_batches purge_membership;
    signals: add_signal find_signal waiting_signals overdue_signals take_signal fail_waiting
        renew_signal signal_was_had close_signal purge_signal;
    locks: put_lock move_expiry find_lock list_locks bump_version find_version;
    nodes: find_node put_node nodes set_node_status displace_label node_claims is_alone
        claim_owners forget_node now;
    queues: pause resume pauses count_jobs due_routes count_due misplaced_jobs move_jobs add_route
        load_routes last_route lost_routes;
    permits: set_permits held_permits find_permit find_rate put_rate forget_rates set_fair_limit
        remove_fair_limit list_fair_limits find_fair_limits count_running_key find_freed
        remove_freed add_freed free_parked parked_levels count_ahead first_parked place_of_job;
    recurring: put_recurring find_recurring list_recurring due_recurring claim_recurring
        next_recurring fire_recurring declared_recurring delete_recurring;
    archive: archive_due archive_job get_archived list_archived_oldest list_archived_newest
        purge_archive;
    schema: create_migrations add_migration applied_migrations own_objects journal_mode
        data_version;
}
