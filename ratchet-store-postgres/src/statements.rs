//! The text of every statement; its comment says which contract clauses it serves and what it reads.

use ratchet_sql::PATIENCE;

use crate::dialect::Postgres;

/// A statement on the tables of one schema.
pub(crate) type Statement = ratchet_sql::Statement<Postgres>;

/// A name as it is written in a statement, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The database's clock. It goes on inside a transaction, and is rounded down as everywhere.
pub(crate) const DATABASE_CLOCK: &str =
    "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Holds if a row `lock` is bound to a session that the server no longer has. A session whose
/// beginning this role may not see counts as alive.
const SESSION_GONE: &str = "(lock.session_pid IS NOT NULL AND NOT EXISTS (\
    SELECT FROM pg_catalog.pg_stat_activity AS session \
    WHERE session.pid = lock.session_pid \
      AND coalesce(floor(extract(epoch FROM session.backend_start) * 1000000)::bigint \
                   = lock.session_start, true)))";

/// Fills in the placeholders of a file and drops its comments: they are for readers of the file,
/// and every call hashes the text. `{now}` is the clock, `{patience}` is [`PATIENCE`], `{schema}` the quoted schema,
/// `{session_gone}` is [`SESSION_GONE`].
pub(crate) fn render(file: &str, schema: &str, now: &str) -> String {
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("{session_gone}", SESSION_GONE)
        .replace("{now}", now)
        .replace("{patience}", &format!("{}ms", PATIENCE.as_millis()))
        .replace("{schema}", &quoted(schema))
}

/// Every statement, for one schema.
pub(crate) type Statements = Named<Statement>;

impl Statements {
    /// The statements for this schema; `now` is the expression of its clock.
    pub(crate) fn new(schema: &str, now: &str) -> Self {
        TEXTS.map(|name, text| {
            #[cfg(feature = "mutants")]
            let text = ratchet_mutant::text(name, text);
            let text = ratchet_sql::render(name, text);
            Statement::new(render(&text, schema, now))
        })
    }

    /// Those that the shared store runs.
    pub(crate) fn shared(&self) -> ratchet_sql::Statements<Postgres> {
        ratchet_sql::shared_statements! { self;
            await_claims: Some(self.await_claims.clone()),
            await_nodes: Some(self.await_nodes.clone()),
            enqueue_job: Some(self.enqueue_job.clone()),
            tags_of: None,
        }
    }
}

ratchet_sql::statements! {
    jobs: enqueue_job enqueue_jobs enqueue_keyed find_keys take_unique_keys find_unique_keys
        get_jobs history histories read_state change_state request_cancel requeue_jobs
        reschedule_jobs set_priority release_jobs keep_errors lock_free lock_old delete_jobs;
    claims: claim_jobs unclaim_jobs load_inputs settle_jobs find_settled report_life running_jobs
        reclaim_jobs;
    lists: list_oldest list_newest list_batch_oldest list_batch_newest list_ended_oldest
        list_ended_newest list_front_oldest list_front_newest list_tagged_oldest list_tagged_newest
        list_unfinished_oldest list_unfinished_newest count_matching count_tagged count_batch;
    lanes: enter_lanes lanes_of lock_lanes place_in_lanes advance_lanes;
    links: add_links flag_parents find_ended awaited_parents lock_children undecided_links
        decide_links open_links links_of children_of;
    batches: create_batch close_batch get_batches list_batches lock_batches grow_batches
        join_batches batches_of count_children count_in_batches end_batches purge_batches;
    signals: add_signals signals_of waiting_signals overdue_signals take_signals miss_signals
        renew_signals signal_was_had;
    locks: acquire_lock move_expiry find_lock list_locks is_tenure bump_version find_versions
        own_session rebind_locks;
    nodes: beat_node put_node nodes set_node_status bury_nodes forget_nodes now await_nodes;
    queues: pause_queue resume_queue paused_queues count_jobs due_routes count_due add_route
        load_routes find_routes lost_routes await_claims notify_queues;
    permits: set_permits held_permits look_at_permits lock_permits find_permit take_rates
        forget_rates;
    recurring: add_recurring change_recurring find_recurring lock_recurring list_recurring
        claim_recurring lock_tokens fire_recurring declared_recurring delete_recurring;
    archive: archive_jobs get_archived list_archived_oldest list_archived_newest purge_archive;
    schema: create_migrations applied_migrations own_objects find_schema identify held_by_sessions
        held_by_prepared held_by_slots invalid_indexes own_encryption server_state vacuum_settings;
}

/// The files.
pub(crate) const FILES: Files = Files {
    jobs: include_str!("sql/jobs.sql"),
    claims: include_str!("sql/claims.sql"),
    lists: include_str!("sql/lists.sql"),
    lanes: include_str!("sql/lanes.sql"),
    links: include_str!("sql/links.sql"),
    batches: include_str!("sql/batches.sql"),
    signals: include_str!("sql/signals.sql"),
    locks: include_str!("sql/locks.sql"),
    nodes: include_str!("sql/nodes.sql"),
    queues: include_str!("sql/queues.sql"),
    permits: include_str!("sql/permits.sql"),
    recurring: include_str!("sql/recurring.sql"),
    archive: include_str!("sql/archive.sql"),
    schema: include_str!("sql/schema.sql"),
};

/// The statements as they are in their files.
pub(crate) const TEXTS: Named<&str> = Named::load(&FILES);

/// For the scripts of the migrations.
pub(crate) const CREATE_MIGRATIONS: &str = TEXTS.create_migrations;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_listed_once() {
        assert_eq!(ratchet_sql::unlisted(&FILES.listed()), [""; 0]);
    }

    #[test]
    fn any_name_can_be_a_schema() {
        let text = render(
            "-- a comment\nSELECT {now} FROM {schema}.t",
            "a\"; b {now}",
            "0",
        );
        assert_eq!(text, "SELECT 0 FROM \"a\"\"; b {now}\".t");
    }
}
