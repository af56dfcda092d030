//! Loads the text of every statement. The comment of a statement names the contract clauses that it
//! implements, and the tables and indexes that it reads.

use ratchet_sql::{LimitStatements, OwnStatements, PATIENCE, QueueStatements, TurnStatements};

use crate::dialect::Postgres;

/// A statement on the tables of one schema.
pub(crate) type Statement = ratchet_sql::Statement<Postgres>;

/// Quotes a name for use in a statement. The name may contain any characters.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQL expression that returns the time of the database, in milliseconds since 1970. The time
/// advances within a transaction. It is rounded down, as all times are.
pub(crate) const DATABASE_CLOCK: &str =
    "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// SQL condition that is true if the row `lock` is bound to a session that has ended. If this role
/// may not see the start time of a session, the session counts as alive.
const SESSION_GONE: &str = "(lock.session_pid IS NOT NULL AND NOT EXISTS (\
    SELECT FROM pg_catalog.pg_stat_activity AS session \
    WHERE session.pid = lock.session_pid \
      AND coalesce(floor(extract(epoch FROM session.backend_start) * 1000000)::bigint \
                   = lock.session_start, true)))";

/// Replaces the placeholders in the text of a statement. Removes comments to shorten the text,
/// because the driver hashes it at every call.
///
/// The placeholders are `{now}` for the clock, `{patience}` for [`PATIENCE`], `{schema}` for the
/// quoted schema, and `{session_gone}` for [`SESSION_GONE`].
pub(crate) fn render(file: &str, schema: &str, now: &str) -> String {
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("{session_gone}", SESSION_GONE)
        .replace("{now}", now)
        .replace("{patience}", &format!("{}ms", PATIENCE.as_millis()))
        .replace("{schema}", &quoted(schema))
}

/// All statements for one schema.
pub(crate) type Statements = ratchet_sql::Statements<Postgres>;

/// Builds all statements for one schema. `now` is the SQL expression of the clock.
pub(crate) fn statements(schema: &str, now: &str) -> Statements {
    load(|name, text| {
        #[cfg(feature = "mutants")]
        let text = ratchet_mutant::text(name, text);
        let rendered = render(&ratchet_sql::render(name, text), schema, now);
        Statement::new(text, rendered)
    })
}

impl OwnStatements<Postgres> for Own {
    fn await_claims(&self) -> Option<&Statement> {
        Some(&self.await_claims)
    }

    fn await_label(&self) -> Option<&Statement> {
        Some(&self.await_label)
    }

    fn enqueue_job(&self) -> Option<&Statement> {
        Some(&self.enqueue_job)
    }

    fn queues(&self) -> Option<QueueStatements<'_, Postgres>> {
        Some(QueueStatements {
            misplaced_jobs: &self.misplaced_jobs,
            move_jobs: &self.move_jobs,
        })
    }

    fn limits(&self) -> Option<LimitStatements<'_, Postgres>> {
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

    fn turns(&self) -> Option<TurnStatements<'_, Postgres>> {
        Some(TurnStatements {
            lock_routes: &self.lock_routes,
            try_lock_routes: &self.try_lock_routes,
            find_turns: &self.find_turns,
            find_sleepers: &self.find_sleepers,
            give_turns: &self.give_turns,
        })
    }
}

ratchet_sql::dialect_statements! { Postgres;
    jobs: enqueue_job;
    claims: lock_routes try_lock_routes find_turns find_sleepers give_turns;
    lists: ;
    lanes: ;
    links: ;
    batches: ;
    signals: ;
    locks: own_session rebind_locks;
    nodes: await_label;
    queues: misplaced_jobs move_jobs await_claims notify_queues;
    permits: set_fair_limit remove_fair_limit list_fair_limits find_fair_limits flag_limited
        free_parked lock_limited take_freed keep_freed count_limited parked_levels first_parked
        park_jobs;
    recurring: ;
    archive: ;
    schema: find_schema identify held_by_prepared held_by_slots invalid_indexes own_encryption
        server_state vacuum_settings;
}

/// Statement that creates the table `migrations`. The scripts of the migrations contain it.
pub(crate) const CREATE_MIGRATIONS: &str = TEXTS.create_migrations;

#[cfg(test)]
mod tests {
    use super::*;

    /// `enqueue_job` and `enqueue_jobs` have the same parameters. `enqueue_jobs` names its list
    /// parameters. For each of these names, `enqueue_job` must write the parameter to the column of
    /// that name.
    #[test]
    fn one_job_is_stored_in_the_columns_of_many() {
        let (_, names) = TEXTS.enqueue_jobs.split_once("AS new (").unwrap();
        let names: Vec<&str> = list(names).collect();
        let mut seen = 0;
        for insert in TEXTS.enqueue_job.split("INSERT INTO").skip(1) {
            let (_, columns) = insert.split_once('(').unwrap();
            let (_, values) = insert.split_once("SELECT").unwrap();
            for (column, value) in list(columns).zip(values.split(',').map(str::trim)) {
                let number = value.strip_prefix("coalesce(").unwrap_or(value);
                let number = number.strip_prefix('$').and_then(|n| n.split(' ').next());
                if let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) {
                    assert_eq!(names[number - 1], column, "{value}");
                    seen += 1;
                }
            }
        }
        assert_eq!(
            seen,
            names.len(),
            "expected every parameter except the delay, and the id in \
             both tables"
        );
    }

    fn list(text: &str) -> impl Iterator<Item = &str> {
        let end = text.find(')').unwrap();
        text[..end].split(',').map(str::trim)
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
