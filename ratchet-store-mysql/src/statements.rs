//! Loads the text of every statement. The comment of a statement names the contract clauses that it
//! implements, and the tables and indexes that it reads.

use ratchet_sql::{LimitStatements, OwnStatements, TurnStatements};

use crate::dialect::Mysql;
use crate::words::TableNames;

/// A statement on the tables of one store.
pub(crate) type Statement = ratchet_sql::Statement<Mysql>;

/// All statements for the tables of one store.
pub(crate) type Statements = ratchet_sql::Statements<Mysql>;

/// Builds all statements. `now` is the SQL expression of the clock.
pub(crate) fn statements(names: &TableNames, now: &str) -> Statements {
    load(|name, text| {
        #[cfg(feature = "mutants")]
        let text = ratchet_mutant::text(name, text);
        Statement::new(text, names.render(&ratchet_sql::render(name, text), now))
    })
}

impl OwnStatements<Mysql> for Own {
    fn await_claims(&self) -> Option<&Statement> {
        Some(&self.await_claims)
    }

    fn await_label(&self) -> Option<&Statement> {
        Some(&self.await_label)
    }

    fn enqueue_job(&self) -> Option<&Statement> {
        Some(&self.enqueue_job)
    }

    fn limits(&self) -> Option<LimitStatements<'_, Mysql>> {
        Some(LimitStatements {
            set_fair_limit: &self.set_fair_limit,
            remove_fair_limit: &self.remove_fair_limit,
            list_fair_limits: &self.list_fair_limits,
            find_fair_limits: &self.find_fair_limits,
            flag_limited: &self.flag_limited,
            free_parked: &self.free_parked,
            lock_limited: &self.lock_limited,
            take_freed: &self.take_freed,
            keep_freed: &self.keep_freed,
            count_limited: &self.count_limited,
            parked_levels: &self.parked_levels,
            first_parked: &self.first_parked,
            park_jobs: &self.park_jobs,
        })
    }

    fn turns(&self) -> Option<TurnStatements<'_, Mysql>> {
        Some(TurnStatements {
            lock_routes: &self.lock_routes,
            try_lock_routes: &self.try_lock_routes,
            find_turns: &self.find_turns,
            find_sleepers: &self.find_sleepers,
            give_turns: &self.give_turns,
        })
    }

    fn tags_of(&self) -> Option<&Statement> {
        Some(&self.tags_of)
    }
}

ratchet_sql::dialect_statements! { Mysql;
    jobs: enqueue_job tags_of;
    claims: lock_routes try_lock_routes find_turns find_sleepers give_turns;
    lists: ;
    lanes: ;
    links: ;
    batches: ;
    signals: ;
    locks: ;
    nodes: await_label;
    queues: await_claims;
    permits: set_fair_limit remove_fair_limit list_fair_limits find_fair_limits flag_limited
        free_parked lock_limited take_freed keep_freed count_limited parked_levels first_parked
        park_jobs;
    recurring: ;
    archive: ;
    schema: foreign_engines server_settings cluster_size own_encryption;
}

/// Statement that creates the table `migrations`. The scripts of the migrations contain it.
pub(crate) const CREATE_MIGRATIONS: &str = TEXTS.create_migrations;

#[cfg(test)]
mod tests {
    use super::TEXTS;
    use crate::query::UNDIVIDED;

    #[test]
    fn statements_with_a_table_and_a_limit_are_undivided() {
        TEXTS.map(|name, text| {
            let has_both = text.contains("{rows") && text.contains("LIMIT $");
            assert!(!has_both || text.contains(UNDIVIDED), "{name}");
        });
    }
}
