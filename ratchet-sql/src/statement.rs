//! The statements that the shared store runs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::dialect::Dialect;

/// An SQL statement on the tables of one schema.
pub struct Statement<D> {
    text: Arc<str>,
    /// Number of parameters of the statement.
    parameters: usize,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> Statement<D> {
    /// Builds a statement. `file` is its text in the file of statements, and `text` is the text to
    /// run.
    ///
    /// Counts the parameters in `file`, because `text` includes the name of the schema, and that
    /// name may look like a parameter.
    #[must_use]
    pub fn new(file: &str, text: String) -> Self {
        Self {
            text: text.into(),
            parameters: highest_parameter(file, D::PARAMETER),
            dialect: PhantomData,
        }
    }

    /// Returns a query that runs this statement. None of its parameters is bound yet.
    #[must_use]
    pub fn query(&self) -> D::Query {
        D::query(self.text(), self.parameters)
    }

    /// Returns the SQL text to run. All of it is constant, except for the quoted name of the
    /// schema.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        #[cfg(feature = "mutants")]
        ratchet_mutant::note_use(&self.text);
        &self.text
    }
}

/// Returns the highest parameter number in an SQL text, or 0 if the text has no parameters.
/// `prefix` is the text before each number, such as `$`.
fn highest_parameter(text: &str, prefix: &str) -> usize {
    let after_prefix = text.split(prefix).skip(1);
    let numbers = after_prefix.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    numbers.max().unwrap_or(0)
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

/// Statements that a dialect may define in addition to the shared ones. The shared store runs such
/// a statement if its method returns one. `None` means that the dialect does not need the
/// statement.
pub trait OwnStatements<D>: fmt::Debug + Send + Sync + 'static {
    /// Returns the statement that waits until the claim statements in progress have finished. The
    /// store runs it in the transaction that pauses a queue.
    fn await_claims(&self) -> Option<&Statement<D>> {
        None
    }

    /// Returns the statement that waits for other transactions in which a node joins under the same
    /// label. The store runs it in the transaction in which a node joins. Its parameter is the
    /// label.
    fn await_label(&self) -> Option<&Statement<D>> {
        None
    }

    /// Returns a statement that stores a single job. It is faster than the statement for many jobs.
    fn enqueue_job(&self) -> Option<&Statement<D>> {
        None
    }

    /// Returns the statements that give turns to jobs with a fair key. `None` means that the
    /// dialect does not support fair keys. With `Some`, the statements `enqueue_keyed`,
    /// `add_route`, `load_routes` and `claim_jobs` have the parameters and columns for fair keys.
    fn turns(&self) -> Option<TurnStatements<'_, D>> {
        None
    }

    /// Returns the statements that limit the running jobs of fair keys. `None` means that the
    /// dialect does not support limits. With `Some`, [`turns`](Self::turns) returns statements too,
    /// and the statement `claim_jobs` has the parameters for limits. Each statement that takes
    /// places or turns away from jobs notes this in the table `freed`.
    fn limits(&self) -> Option<LimitStatements<'_, D>> {
        None
    }

    /// Returns the statements that move jobs out of shared routes. `None` means that the dialect
    /// gives each queue routes of its own. With `Some`, the statements that store, claim, list and
    /// count jobs have the parameters and columns for the queues of shared routes.
    fn queues(&self) -> Option<QueueStatements<'_, D>> {
        None
    }

    /// Returns the statement that reads the tags of jobs. `None` means that the statement
    /// `get_jobs` returns the tags.
    fn tags_of(&self) -> Option<&Statement<D>> {
        None
    }
}

/// The statements that move jobs out of shared routes, see [`ratchet_core::dictionary`].
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each statement begins with a comment that describes it"
)]
pub struct QueueStatements<'a, D> {
    pub misplaced_jobs: &'a Statement<D>,
    pub move_jobs: &'a Statement<D>,
}

/// The statements that give turns to jobs with a fair key, see [`ratchet_core::fair`].
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each statement begins with a comment that describes it"
)]
pub struct TurnStatements<'a, D> {
    pub lock_routes: &'a Statement<D>,
    pub try_lock_routes: &'a Statement<D>,
    pub find_turns: &'a Statement<D>,
    pub find_sleepers: &'a Statement<D>,
    pub give_turns: &'a Statement<D>,
}

/// The statements that limit the running jobs of fair keys, see [`ratchet_core::fair`].
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each statement begins with a comment that describes it"
)]
pub struct LimitStatements<'a, D> {
    pub set_fair_limit: &'a Statement<D>,
    pub remove_fair_limit: &'a Statement<D>,
    pub list_fair_limits: &'a Statement<D>,
    pub find_fair_limits: &'a Statement<D>,
    pub flag_limited: &'a Statement<D>,
    pub free_parked: &'a Statement<D>,
    pub lock_limited: &'a Statement<D>,
    pub take_freed: &'a Statement<D>,
    pub keep_freed: &'a Statement<D>,
    pub count_limited: &'a Statement<D>,
    pub parked_levels: &'a Statement<D>,
    pub first_parked: &'a Statement<D>,
    pub park_jobs: &'a Statement<D>,
}

/// Defines the statements of a dialect. The arguments name all statement files, in the order of the
/// shared statements. After each file name they list only the dialect's own statements.
///
/// ```text
/// ratchet_sql::dialect_statements! { Postgres;
///     jobs: enqueue_job;
///     claims: ;
///     …
/// }
/// ```
///
/// Defines the items that [`statements!`](crate::statements) defines, and two more. The struct
/// `Own` contains the dialect's own statements. The function `load` builds the dialect's
/// [`Statements`].
#[macro_export]
macro_rules! dialect_statements {
    ($dialect:ident; $($own:tt)*) => {
        $crate::shared_statements! { @dialect $dialect { $($own)* } }
    };
}

/// Contains the list of the shared statements. Passes this list to the rule of this macro that the
/// arguments name.
#[doc(hidden)]
#[macro_export]
macro_rules! shared_statements {
    (@dialect $($then:tt)*) => {
        $crate::shared_statements! { @list @load $($then)* }
    };
    (@list $($then:tt)*) => {
        $crate::shared_statements! { $($then)*
            jobs: enqueue_jobs enqueue_keyed find_keys take_unique_keys find_unique_keys get_jobs
                history histories read_state change_state request_cancel requeue_jobs
                reschedule_jobs set_priority release_jobs keep_errors lock_free lock_old delete_jobs
                lock_holders replace_payloads release_keys drop_keys forget_keys add_expiries
                expiries_of drop_expiries overdue_expiries close_expiries;
            claims: claim_jobs unclaim_jobs load_inputs settle_jobs find_settled report_life
                running_jobs reclaim_jobs;
            lists: list_oldest list_newest list_batch_oldest list_batch_newest list_ended_oldest
                list_ended_newest list_front_oldest list_front_newest list_tagged_oldest
                list_tagged_newest list_unfinished_oldest list_unfinished_newest count_matching
                count_tagged count_batch;
            lanes: enter_lanes lanes_of lock_lanes place_in_lanes advance_lanes;
            links: add_links flag_parents find_ended awaited_parents lock_children undecided_links
                decide_links open_links links_of children_of;
            batches: create_batch close_batch get_batches list_batches lock_batches grow_batches
                join_batches batches_of count_children count_in_batches end_batches purge_batches;
            signals: add_signals signals_of waiting_signals overdue_signals take_signals
                miss_signals renew_signals signal_was_had;
            locks: acquire_lock move_expiry find_lock list_locks is_tenure bump_version
                find_versions;
            nodes: beat_node put_node nodes set_node_status bury_nodes forget_nodes now;
            queues: pause resume pauses count_jobs due_routes count_due add_route
                load_routes find_routes lost_routes;
            permits: set_permits held_permits look_at_permits lock_permits find_permit take_rates
                forget_rates;
            recurring: add_recurring change_recurring find_recurring lock_recurring list_recurring
                claim_recurring lock_tokens fire_recurring declared_recurring delete_recurring;
            archive: archive_jobs get_archived list_archived_oldest list_archived_newest
                purge_archive;
            schema: create_migrations applied_migrations own_objects held_by_sessions;
        }
    };
    (@define $($file:ident: $($name:ident)*;)*) => {
        /// All SQL statements of a dialect, for one schema.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "each statement begins with a comment that describes it")]
        pub struct Statements<D: Dialect> {
            $($(pub $name: Statement<D>,)*)*
            pub own: D::Own,
        }
    };
    (
        @load $dialect:ident { $($own_file:ident: $($own:ident)*;)* }
        $($file:ident: $($name:ident)*;)*
    ) => {
        $crate::statements! { $($file: $($name)* $($own)*;)* }

        /// The SQL statements that only this dialect has.
        #[derive(Debug)]
        pub(crate) struct Own {
            $($(pub(crate) $own: $crate::Statement<$dialect>,)*)*
        }

        /// Builds all statements of the dialect. Calls `make` for each statement, with its name and
        /// its text in the file of statements.
        pub(crate) fn load(
            make: impl FnMut(&'static str, &'static str) -> $crate::Statement<$dialect>,
        ) -> $crate::Statements<$dialect> {
            let all = TEXTS.map(make);
            $crate::Statements {
                $($($name: all.$name,)*)*
                own: Own {
                    $($($own: all.$own,)*)*
                },
            }
        }
    };
}

shared_statements! { @list @define }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_by_the_highest_number() {
        assert_eq!(highest_parameter("SELECT 1", "$"), 0);
        assert_eq!(highest_parameter("SELECT $2, $11, $1", "$"), 11);
        assert_eq!(
            highest_parameter("EXEC f @Place = @P1, @P = @P10", "@P"),
            10
        );
    }
}
