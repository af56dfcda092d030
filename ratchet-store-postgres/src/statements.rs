//! The text of every statement; each file says which contract clauses it serves and what it reads.

use std::fmt;
use std::sync::Arc;

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// A statement on the tables of one schema.
#[derive(Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// The statement to be bound and run.
    pub(crate) fn query(&self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.text())
    }

    /// The text. Nothing in it came from outside but the name of the schema, which is quoted.
    pub(crate) fn text(&self) -> SqlStr {
        #[cfg(feature = "mutants")]
        ratchet_mutant::note_use(&self.0);
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
/// and every call hashes the text. `{now}` is the clock, `{schema}` the quoted schema,
/// `{session_gone}` is [`SESSION_GONE`].
pub(crate) fn render(file: &str, schema: &str, now: &str) -> String {
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("{session_gone}", SESSION_GONE)
        .replace("{now}", now)
        .replace("{schema}", &quoted(schema))
}

macro_rules! statements {
    ($($name:ident)*) => {
        /// Every statement, for one schema.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            /// The statements for this schema; `now` is the expression of its clock.
            pub(crate) fn new(schema: &str, now: &str) -> Self {
                let statement = |_name: &str, file: &str| {
                    #[cfg(feature = "mutants")]
                    let file = ratchet_mutant::text(_name, file);
                    Statement(render(file, schema, now).into())
                };
                Self {
                    $($name: statement(stringify!($name), include_str!(
                        concat!("sql/", stringify!($name), ".sql")
                    )),)*
                }
            }
        }
    };
}

statements! {
    acquire_lock add_links add_recurring add_route add_signals advance_lanes applied_migrations
    archive_jobs await_claims await_nodes awaited_parents batches_of beat_node bump_version bury_nodes
    change_recurring change_state children_of claim_jobs claim_recurring close_batch
    count_batch count_children count_due count_in_batches count_jobs count_matching count_tagged create_batch decide_links
    declared_recurring delete_jobs delete_recurring end_batches enqueue_job enqueue_jobs
    enqueue_keyed enter_lanes due_routes find_ended find_keys find_lock find_permit find_recurring find_routes find_schema
    find_settled find_unique_keys find_versions fire_recurring flag_parents forget_nodes
    forget_rates get_archived get_batches get_jobs grow_batches held_by_prepared held_by_sessions held_by_slots held_permits histories history
    identify invalid_indexes is_tenure join_batches keep_errors lanes_of links_of list_archived_newest
    list_archived_oldest list_batch_newest list_batch_oldest list_batches list_ended_newest
    list_ended_oldest list_front_newest list_front_oldest list_locks list_newest list_oldest list_recurring list_tagged_newest list_tagged_oldest list_unfinished_newest list_unfinished_oldest
    load_inputs load_routes lock_batches lock_children lock_free lock_lanes lock_old lock_permits lock_recurring lock_tokens
    look_at_permits lost_routes miss_signals move_expiry nodes notify_queues now open_links
    overdue_signals own_encryption own_objects own_session pause_queue paused_queues place_in_lanes purge_archive
    purge_batches put_node read_state rebind_locks reclaim_jobs release_jobs
    renew_signals report_life request_cancel requeue_jobs reschedule_jobs resume_queue running_jobs server_state
    set_node_status set_permits set_priority settle_jobs signal_was_had signals_of take_rates
    take_signals take_unique_keys unclaim_jobs undecided_links vacuum_settings waiting_signals
}

/// For the scripts of the migrations.
pub(crate) const CREATE_MIGRATIONS: &str = include_str!("sql/create_migrations.sql");

#[cfg(test)]
mod tests {
    use super::*;

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
