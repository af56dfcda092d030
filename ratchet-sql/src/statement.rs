//! The statements that the shared store runs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::dialect::Dialect;

/// A statement on the tables of one schema.
pub struct Statement<D> {
    text: Arc<str>,
    /// How many parameters it has.
    parameters: usize,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> Statement<D> {
    /// A statement with this text, whose parameters are numbered without gaps.
    #[must_use]
    pub fn new(text: String) -> Self {
        let mut parameters = 0;
        while text.contains(&format!("{}{}", D::PARAMETER, parameters + 1)) {
            parameters += 1;
        }
        Self {
            text: text.into(),
            parameters,
            dialect: PhantomData,
        }
    }

    /// Returns the statement to be bound and run.
    #[must_use]
    pub fn query(&self) -> D::Query {
        D::query(self.text(), self.parameters)
    }

    /// Returns the text. Nothing in it comes from outside but the name of the schema, which is quoted.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        #[cfg(feature = "mutants")]
        ratchet_mutant::note_use(&self.text);
        &self.text
    }
}

impl<D> Clone for Statement<D> {
    fn clone(&self) -> Self {
        Self {
            text: Arc::clone(&self.text),
            parameters: self.parameters,
            dialect: PhantomData,
        }
    }
}

impl<D> fmt::Debug for Statement<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The statements that the shared store runs, by name: their list, their type, and a value of it.
///
/// `shared_statements!(named; tags_of: None, …)` makes [`Statements`] of anything with a
/// [`Statement`] for each name; a name that is missing is an error of the compiler. What follows the
/// semicolon are the statements that not every server needs.
#[macro_export]
macro_rules! shared_statements {
    (@names $($then:tt)*) => {
        $crate::shared_statements! { $($then)*
            acquire_lock add_links add_recurring add_route add_signals advance_lanes archive_jobs
            awaited_parents batches_of beat_node bump_version bury_nodes change_recurring change_state
            children_of claim_jobs claim_recurring close_batch count_batch count_children count_due
            count_in_batches count_jobs count_matching count_tagged create_batch decide_links
            declared_recurring delete_jobs delete_recurring due_routes end_batches enqueue_jobs
            enqueue_keyed enter_lanes find_ended find_keys find_lock find_permit find_recurring
            find_routes find_settled find_unique_keys find_versions fire_recurring flag_parents
            forget_nodes forget_rates get_archived get_batches get_jobs grow_batches held_permits
            histories history is_tenure join_batches keep_errors lanes_of links_of list_archived_newest
            list_archived_oldest list_batch_newest list_batch_oldest list_batches list_ended_newest
            list_ended_oldest list_front_newest list_front_oldest list_locks list_newest list_oldest
            list_recurring list_tagged_newest list_tagged_oldest list_unfinished_newest
            list_unfinished_oldest load_inputs load_routes lock_batches lock_children lock_free
            lock_lanes lock_old lock_permits lock_recurring lock_tokens look_at_permits miss_signals
            move_expiry nodes now open_links overdue_signals pause_queue paused_queues place_in_lanes
            purge_archive purge_batches put_node read_state reclaim_jobs release_jobs renew_signals
            report_life request_cancel requeue_jobs reschedule_jobs resume_queue running_jobs
            set_node_status set_permits set_priority settle_jobs signal_was_had signals_of take_rates
            take_signals take_unique_keys unclaim_jobs undecided_links waiting_signals
        }
    };
    (@define $($name:ident)*) => {
        /// Every statement that the shared store runs, for one schema. Those in an `Option` are not
        /// needed on every server.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "each text begins with what it does")]
        pub struct Statements<D: Dialect> {
            $(pub $name: Statement<D>,)*
            /// Waits for the claims that are going on, in the transaction that pauses a queue.
            pub await_claims: Option<Statement<D>>,
            /// Waits for the nodes that join, in the transaction in which a node does.
            pub await_nodes: Option<Statement<D>>,
            /// Stores a single job for less than the statement for many.
            pub enqueue_job: Option<Statement<D>>,
            /// Reads the tags of jobs, where `get_jobs` returns none.
            pub tags_of: Option<Statement<D>>,
        }
    };
    (@collect $named:ident { $($optional:tt)* } $($name:ident)*) => {
        $crate::Statements {
            $($name: ::core::clone::Clone::clone(&$named.$name),)*
            $($optional)*
        }
    };
    ($named:ident; $($optional:tt)*) => {
        $crate::shared_statements! { @names @collect $named { $($optional)* } }
    };
}

shared_statements! { @names @define }
