//! The text of every statement; each file says which contract clauses it serves and what it reads.
//! Also the type by which they are prepared.

use rusqlite::CachedStatement;

/// A connection on which the store runs its statements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection<'a>(&'a rusqlite::Connection);

impl<'a> Connection<'a> {
    pub(crate) const fn new(conn: &'a rusqlite::Connection) -> Self {
        Self(conn)
    }

    /// The connection of the driver, for what is no statement on a table of the store.
    pub(crate) const fn driver(self) -> &'a rusqlite::Connection {
        self.0
    }

    /// Prepares a statement, or takes it from the cache of the connection.
    pub(crate) fn prepare_cached(self, sql: &str) -> rusqlite::Result<CachedStatement<'a>> {
        #[cfg(feature = "mutants")]
        let sql = {
            let sql = ratchet_mutant::text(sql);
            ratchet_mutant::note_use(sql);
            sql
        };
        self.0.prepare_cached(sql)
    }
}

pub(crate) const ADD_ATTEMPT: &str = include_str!("sql/add_attempt.sql");
pub(crate) const ADD_LINK: &str = include_str!("sql/add_link.sql");
pub(crate) const ADD_MIGRATION: &str = include_str!("sql/add_migration.sql");
pub(crate) const ADD_ROUTE: &str = include_str!("sql/add_route.sql");
pub(crate) const ADD_SIGNAL: &str = include_str!("sql/add_signal.sql");
pub(crate) const APPLIED_MIGRATIONS: &str = include_str!("sql/applied_migrations.sql");
pub(crate) const ARCHIVE_DUE: &str = include_str!("sql/archive_due.sql");
pub(crate) const ARCHIVE_JOB: &str = include_str!("sql/archive_job.sql");
pub(crate) const BATCH_OF: &str = include_str!("sql/batch_of.sql");
pub(crate) const BUMP_VERSION: &str = include_str!("sql/bump_version.sql");
pub(crate) const CHANGE_STATE: &str = include_str!("sql/change_state.sql");
pub(crate) const CHILDREN_OF: &str = include_str!("sql/children_of.sql");
pub(crate) const CLAIM_DUE: &str = include_str!("sql/claim_due.sql");
pub(crate) const CLAIM_JOB: &str = include_str!("sql/claim_job.sql");
pub(crate) const CLAIM_OWNERS: &str = include_str!("sql/claim_owners.sql");
pub(crate) const CLAIM_READ: &str = include_str!("sql/claim_read.sql");
pub(crate) const CLAIM_RECURRING: &str = include_str!("sql/claim_recurring.sql");
pub(crate) const CLAIM_STREAMS: &str = include_str!("sql/claim_streams.sql");
pub(crate) const CLEAR_ERROR: &str = include_str!("sql/clear_error.sql");
pub(crate) const CLOSE_BATCH: &str = include_str!("sql/close_batch.sql");
pub(crate) const CLOSE_SIGNAL: &str = include_str!("sql/close_signal.sql");
pub(crate) const COUNT_BATCH: &str = include_str!("sql/count_batch.sql");
pub(crate) const COUNT_CHILD: &str = include_str!("sql/count_child.sql");
pub(crate) const COUNT_IN_BATCH: &str = include_str!("sql/count_in_batch.sql");
pub(crate) const COUNT_JOBS: &str = include_str!("sql/count_jobs.sql");
pub(crate) const COUNT_MATCHING: &str = include_str!("sql/count_matching.sql");
pub(crate) const COUNT_TAGGED: &str = include_str!("sql/count_tagged.sql");
pub(crate) const CREATE_BATCH: &str = include_str!("sql/create_batch.sql");
pub(crate) const CREATE_MIGRATIONS: &str = include_str!("sql/create_migrations.sql");
pub(crate) const DECLARED_RECURRING: &str = include_str!("sql/declared_recurring.sql");
pub(crate) const DELETE_RECURRING: &str = include_str!("sql/delete_recurring.sql");
pub(crate) const DECIDE_LINK: &str = include_str!("sql/decide_link.sql");
pub(crate) const DISOWN_JOB: &str = include_str!("sql/disown_job.sql");
pub(crate) const DISPLACE_LABEL: &str = include_str!("sql/displace_label.sql");
pub(crate) const DUE_RECURRING: &str = include_str!("sql/due_recurring.sql");
pub(crate) const COUNT_DUE: &str = include_str!("sql/count_due.sql");
pub(crate) const DUE_ROUTES: &str = include_str!("sql/due_routes.sql");
pub(crate) const END_BATCH: &str = include_str!("sql/end_batch.sql");
pub(crate) const ENQUEUE_DATA: &str = include_str!("sql/enqueue_data.sql");
pub(crate) const ENQUEUE_JOB: &str = include_str!("sql/enqueue_job.sql");
pub(crate) const ENTER_LANE: &str = include_str!("sql/enter_lane.sql");
pub(crate) const FAIL_UNREADABLE: &str = include_str!("sql/fail_unreadable.sql");
pub(crate) const FAIL_WAITING: &str = include_str!("sql/fail_waiting.sql");
pub(crate) const FIND_ENDED: &str = include_str!("sql/find_ended.sql");
pub(crate) const FIND_IDEMPOTENCY_KEY: &str = include_str!("sql/find_idempotency_key.sql");
pub(crate) const FIND_LOCK: &str = include_str!("sql/find_lock.sql");
pub(crate) const FIND_NODE: &str = include_str!("sql/find_node.sql");
pub(crate) const FIND_RECURRING: &str = include_str!("sql/find_recurring.sql");
pub(crate) const FIND_PERMIT: &str = include_str!("sql/find_permit.sql");
pub(crate) const FIND_RATE: &str = include_str!("sql/find_rate.sql");
pub(crate) const FIND_SIGNAL: &str = include_str!("sql/find_signal.sql");
pub(crate) const FIND_UNIQUE_KEY: &str = include_str!("sql/find_unique_key.sql");
pub(crate) const FIND_SETTLER: &str = include_str!("sql/find_settler.sql");
pub(crate) const FIND_VERSION: &str = include_str!("sql/find_version.sql");
pub(crate) const FIRE_RECURRING: &str = include_str!("sql/fire_recurring.sql");
pub(crate) const FLAG_PARENT: &str = include_str!("sql/flag_parent.sql");
pub(crate) const FORGET_LANE: &str = include_str!("sql/forget_lane.sql");
pub(crate) const FORGET_NODE: &str = include_str!("sql/forget_node.sql");
pub(crate) const FORGET_RATES: &str = include_str!("sql/forget_rates.sql");
pub(crate) const FREE_UNIQUE_KEY: &str = include_str!("sql/free_unique_key.sql");
pub(crate) const GET_ARCHIVED: &str = include_str!("sql/get_archived.sql");
pub(crate) const GET_BATCH: &str = include_str!("sql/get_batch.sql");
pub(crate) const GET_JOB: &str = include_str!("sql/get_job.sql");
pub(crate) const HELD_PERMITS: &str = include_str!("sql/held_permits.sql");
pub(crate) const GROW_BATCH: &str = include_str!("sql/grow_batch.sql");
pub(crate) const HAS_OPEN_LINKS: &str = include_str!("sql/has_open_links.sql");
pub(crate) const HISTORY: &str = include_str!("sql/history.sql");
pub(crate) const JOB_EXISTS: &str = include_str!("sql/job_exists.sql");
pub(crate) const JOURNAL_MODE: &str = include_str!("sql/journal_mode.sql");
pub(crate) const JOIN_BATCH: &str = include_str!("sql/join_batch.sql");
pub(crate) const KEEP_CHECKPOINT: &str = include_str!("sql/keep_checkpoint.sql");
pub(crate) const KEEP_ERROR: &str = include_str!("sql/keep_error.sql");
pub(crate) const KEEP_IDEMPOTENCY_KEY: &str = include_str!("sql/keep_idempotency_key.sql");
pub(crate) const KEEP_PROGRESS: &str = include_str!("sql/keep_progress.sql");
pub(crate) const KEEP_RESULT: &str = include_str!("sql/keep_result.sql");
pub(crate) const LANE_EXISTS: &str = include_str!("sql/lane_exists.sql");
pub(crate) const LANE_HEAD: &str = include_str!("sql/lane_head.sql");
pub(crate) const LANE_OF: &str = include_str!("sql/lane_of.sql");
pub(crate) const LAST_DATA: &str = include_str!("sql/last_data.sql");
pub(crate) const LAST_ROUTE: &str = include_str!("sql/last_route.sql");
pub(crate) const LEAVE_LANE: &str = include_str!("sql/leave_lane.sql");
pub(crate) const LIST_ARCHIVED_NEWEST: &str = include_str!("sql/list_archived_newest.sql");
pub(crate) const LIST_ARCHIVED_OLDEST: &str = include_str!("sql/list_archived_oldest.sql");
pub(crate) const LINKS_OF: &str = include_str!("sql/links_of.sql");
pub(crate) const LIST_BATCHES: &str = include_str!("sql/list_batches.sql");
pub(crate) const LIST_BATCH_NEWEST: &str = include_str!("sql/list_batch_newest.sql");
pub(crate) const LIST_BATCH_OLDEST: &str = include_str!("sql/list_batch_oldest.sql");
pub(crate) const LIST_ENDED_NEWEST: &str = include_str!("sql/list_ended_newest.sql");
pub(crate) const LIST_ENDED_OLDEST: &str = include_str!("sql/list_ended_oldest.sql");
pub(crate) const LIST_FRONT_NEWEST: &str = include_str!("sql/list_front_newest.sql");
pub(crate) const LIST_FRONT_OLDEST: &str = include_str!("sql/list_front_oldest.sql");
pub(crate) const LIST_LOCKS: &str = include_str!("sql/list_locks.sql");
pub(crate) const LIST_NEWEST: &str = include_str!("sql/list_newest.sql");
pub(crate) const LIST_OLDEST: &str = include_str!("sql/list_oldest.sql");
pub(crate) const LIST_RECURRING: &str = include_str!("sql/list_recurring.sql");
pub(crate) const LIST_TAGGED_NEWEST: &str = include_str!("sql/list_tagged_newest.sql");
pub(crate) const LIST_TAGGED_OLDEST: &str = include_str!("sql/list_tagged_oldest.sql");
pub(crate) const LIST_UNFINISHED_NEWEST: &str = include_str!("sql/list_unfinished_newest.sql");
pub(crate) const LIST_UNFINISHED_OLDEST: &str = include_str!("sql/list_unfinished_oldest.sql");
pub(crate) const LOAD_CHECKPOINT: &str = include_str!("sql/load_checkpoint.sql");
pub(crate) const LOAD_INPUT: &str = include_str!("sql/load_input.sql");
pub(crate) const LOAD_ROUTES: &str = include_str!("sql/load_routes.sql");
pub(crate) const LOST_ROUTES: &str = include_str!("sql/lost_routes.sql");
pub(crate) const MOVE_EXPIRY: &str = include_str!("sql/move_expiry.sql");
pub(crate) const NEXT_IN_LANE: &str = include_str!("sql/next_in_lane.sql");
pub(crate) const NEXT_RECURRING: &str = include_str!("sql/next_recurring.sql");
pub(crate) const NODE_CLAIMS: &str = include_str!("sql/node_claims.sql");
pub(crate) const NODES: &str = include_str!("sql/nodes.sql");
pub(crate) const NOW: &str = include_str!("sql/now.sql");
pub(crate) const OLD_BATCH_EXISTS: &str = include_str!("sql/old_batch_exists.sql");
pub(crate) const OPEN_CHILDREN: &str = include_str!("sql/open_children.sql");
pub(crate) const OTHER_NODES: &str = include_str!("sql/other_nodes.sql");
pub(crate) const OVERDUE_SIGNALS: &str = include_str!("sql/overdue_signals.sql");
pub(crate) const OWN_OBJECTS: &str = include_str!("sql/own_objects.sql");
pub(crate) const PAUSED_QUEUES: &str = include_str!("sql/paused_queues.sql");
pub(crate) const PAUSE_QUEUE: &str = include_str!("sql/pause_queue.sql");
pub(crate) const PROMOTE_JOB: &str = include_str!("sql/promote_job.sql");
pub(crate) const PURGE_ARCHIVE: &str = include_str!("sql/purge_archive.sql");
pub(crate) const PURGE_ATTEMPTS: &str = include_str!("sql/purge_attempts.sql");
pub(crate) const PURGE_BATCHES: &str = include_str!("sql/purge_batches.sql");
pub(crate) const PURGE_DATA: &str = include_str!("sql/purge_data.sql");
pub(crate) const PURGE_DUE: &str = include_str!("sql/purge_due.sql");
pub(crate) const PURGE_JOB: &str = include_str!("sql/purge_job.sql");
pub(crate) const PURGE_LINKS: &str = include_str!("sql/purge_links.sql");
pub(crate) const PURGE_MEMBERSHIP: &str = include_str!("sql/purge_membership.sql");
pub(crate) const PURGE_NOTES: &str = include_str!("sql/purge_notes.sql");
pub(crate) const PURGE_TAGS: &str = include_str!("sql/purge_tags.sql");
pub(crate) const PURGE_SIGNAL: &str = include_str!("sql/purge_signal.sql");
pub(crate) const PUT_LOCK: &str = include_str!("sql/put_lock.sql");
pub(crate) const PUT_NODE: &str = include_str!("sql/put_node.sql");
pub(crate) const PUT_RECURRING: &str = include_str!("sql/put_recurring.sql");
pub(crate) const PUT_RATE: &str = include_str!("sql/put_rate.sql");
pub(crate) const READ_CLAIM: &str = include_str!("sql/read_claim.sql");
pub(crate) const READ_STATE: &str = include_str!("sql/read_state.sql");
pub(crate) const RECLAIM_JOB: &str = include_str!("sql/reclaim_job.sql");
pub(crate) const RELEASE_JOB: &str = include_str!("sql/release_job.sql");
pub(crate) const RENEW_SIGNAL: &str = include_str!("sql/renew_signal.sql");
pub(crate) const REPORT_LIFE: &str = include_str!("sql/report_life.sql");
pub(crate) const REQUEST_CANCEL: &str = include_str!("sql/request_cancel.sql");
pub(crate) const REQUEUE_JOB: &str = include_str!("sql/requeue_job.sql");
pub(crate) const RESCHEDULE_JOB: &str = include_str!("sql/reschedule_job.sql");
pub(crate) const RESUME_QUEUE: &str = include_str!("sql/resume_queue.sql");
pub(crate) const RUNNING_JOBS: &str = include_str!("sql/running_jobs.sql");
pub(crate) const SETTLE_JOB: &str = include_str!("sql/settle_job.sql");
pub(crate) const SET_NODE_STATUS: &str = include_str!("sql/set_node_status.sql");
pub(crate) const SET_PRIORITY: &str = include_str!("sql/set_priority.sql");
pub(crate) const TAG_JOB: &str = include_str!("sql/tag_job.sql");
pub(crate) const SET_PERMITS: &str = include_str!("sql/set_permits.sql");
pub(crate) const SIGNAL_WAS_HAD: &str = include_str!("sql/signal_was_had.sql");
pub(crate) const TAKE_SIGNAL: &str = include_str!("sql/take_signal.sql");
pub(crate) const TAKE_UNIQUE_KEY: &str = include_str!("sql/take_unique_key.sql");
pub(crate) const TIMEOUTS_OF: &str = include_str!("sql/timeouts_of.sql");
pub(crate) const UNIQUE_KEY_OF: &str = include_str!("sql/unique_key_of.sql");
pub(crate) const WAITING_SIGNALS: &str = include_str!("sql/waiting_signals.sql");
