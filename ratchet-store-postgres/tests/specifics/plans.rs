//! The server's plans for the statements.

use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use crate::open;
use crate::server::Schema;
use ratchet_conformance::kit::{enqueue, job};
use ratchet_sql::JOB_TABLES;

/// Statements that may read a whole table of jobs. Only requests of operators run these statements,
/// never the loops of a node.
const SCANS: [&str; 10] = [
    "count_jobs",
    "count_matching",
    "list_oldest",
    "list_newest",
    "list_ended_oldest",
    "list_ended_newest",
    "list_unfinished_oldest",
    "list_unfinished_newest",
    "list_archived_oldest",
    "list_archived_newest",
];
/// Statements that EXPLAIN does not accept.
const SCRIPTS: [&str; 2] = ["create_migrations", "await_claims"];

/// Further tables that grow over time, in addition to [`JOB_TABLES`].
const OTHER_TABLES: [&str; 5] = ["idempotency_keys", "lanes", "archive", "batches", "freed"];

fn tables() -> impl Iterator<Item = &'static str> {
    JOB_TABLES.into_iter().chain(OTHER_TABLES)
}

fn text(file: &str, name: &str) -> String {
    render(name, ratchet_sql::statement(file, name))
}

fn render(name: &str, source: &str) -> String {
    let text = ratchet_sql::render(name, source);
    let lines = text.lines().filter(|line| !line.starts_with("--"));
    let clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("{now}", clock)
        .replace("{session_gone}", "false")
}

fn parameters(sql: &str) -> usize {
    (1..40)
        .take_while(|number| sql.contains(&format!("${number}")))
        .count()
}

async fn plan(schema: &Schema, explain: &str) -> String {
    let rows = schema.rows(explain).await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}

/// Stores jobs without analyzing the tables, so that the planner still assumes empty tables.
async fn fill(schema: &Schema, jobs: usize) {
    let fill = format!(
        "ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off);
         ALTER TABLE {{schema}}.job_data SET (autovacuum_enabled = off);
         INSERT INTO {{schema}}.jobs (id, run_at, created_at, route, state, priority)
         SELECT gen_random_uuid(), n, n, 1, 0, n % 5 FROM generate_series(1, {jobs}) AS n;
         INSERT INTO {{schema}}.job_data (id, payload) SELECT id, '1' FROM {{schema}}.jobs
         ON CONFLICT DO NOTHING"
    );
    schema.execute(&fill).await.unwrap();
}

async fn analyze(schema: &Schema) {
    for table in tables() {
        let analyze = format!("ANALYZE {{schema}}.{table}");
        schema.execute(&analyze).await.unwrap();
    }
}

/// Fills the tables with many jobs, while the planner's statistics still describe 300 jobs.
async fn grow(schema: &Schema) {
    let empty = "TRUNCATE {schema}.jobs, {schema}.job_data";
    schema.execute(empty).await.unwrap();
    fill(schema, 300).await;
    analyze(schema).await;
    fill(schema, 150_000).await;
}

fn scanned(plan: &str) -> Option<&str> {
    plan.lines().find(|line| {
        tables().any(|table| {
            line.contains(&format!("Seq Scan on {table} "))
                || line.ends_with(&format!("Seq Scan on {table}"))
        })
    })
}

pub(crate) async fn no_statement_of_a_loop_reads_all_jobs(schema: Arc<Schema>) {
    let store = open(&schema).await;
    enqueue(&store, job()).await;
    // After a vacuum, the server knows that a table is empty.
    for table in tables() {
        let vacuum = format!("VACUUM ANALYZE {{schema}}.{table}");
        schema.execute(&vacuum).await.unwrap();
    }
    let generic = "SET plan_cache_mode = force_generic_plan";
    schema.execute(generic).await.unwrap();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
    let files = std::fs::read_dir(sources).unwrap();
    let files = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let files: Vec<String> = files.collect();
    let mut prepared = Vec::new();
    for (name, source) in files.iter().flat_map(|file| ratchet_sql::split(file)) {
        assert!(
            source.starts_with("-- "),
            "expected the statement {name} to begin with a comment"
        );
        if SCRIPTS.contains(&name) || SCANS.contains(&name) {
            continue;
        }
        let sql = render(name, source);
        let prepare = format!("PREPARE {name} AS {sql}");
        schema.execute(&prepare).await.unwrap();
        let nulls = vec!["NULL"; parameters(&sql)].join(", ");
        let arguments = if nulls.is_empty() {
            nulls
        } else {
            format!("({nulls})")
        };
        prepared.push((name, format!("EXPLAIN EXECUTE {name}{arguments}")));
    }
    assert!(prepared.len() > 30);
    for state in ["empty", "grown since it was analyzed", "analyzed"] {
        match state {
            "empty" => {}
            "analyzed" => analyze(&schema).await,
            _ => grow(&schema).await,
        }
        for (name, explain) in &prepared {
            let plan = plan(&schema, explain).await;
            let scanned = scanned(&plan);
            assert_eq!(scanned, None, "{name}, {state}:\n{plan}");
        }
    }
}

pub(crate) async fn a_claim_of_a_long_queue_reads_only_candidates(schema: Arc<Schema>) {
    const LIMIT: usize = 50;
    drop(open(&schema).await);
    let route = "INSERT INTO {schema}.routes (id, queue, kind, stamp) VALUES (1, 'q', 'k', 7)";
    schema.execute(route).await.unwrap();
    let vacuum = "VACUUM ANALYZE {schema}.jobs";
    schema.execute(vacuum).await.unwrap();
    let sql = text(include_str!("../../src/sql/claims.sql"), "claim_jobs");
    for mode in ["force_generic_plan", "force_custom_plan"] {
        let prepare = format!("SET plan_cache_mode = {mode}; PREPARE {mode} AS {sql}");
        schema.execute(&prepare).await.unwrap();
    }
    // `most` is NULL, or the limit that free permits impose. `fair` is the route if its jobs have
    // fair keys.
    let explain = |mode: &str, most: &str, fair: &str| {
        format!(
            "SET plan_cache_mode = {mode};
             EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE {mode}
             ('{{1}}', '{{q}}', '{{k}}', '{{{most}}}', 1, 900000, {LIMIT}, {LIMIT},
              gen_random_uuid(), true, 7, '{{{fair}}}', true, '{{}}', '{{}}',
              '{{{fair}}}', '{{}}', '{{}}')"
        )
    };
    // The plan is made for an empty table, and then used for a full one.
    plan(&schema, &explain("force_generic_plan", "NULL", "")).await;
    for state in [
        "never analyzed",
        "grown since it was analyzed",
        "analyzed",
        "with turns, before analyze",
        "with turns",
    ] {
        match state {
            "never analyzed" => fill(&schema, 100_000).await,
            "analyzed" | "with turns" => analyze(&schema).await,
            "with turns, before analyze" => {
                let keys = "UPDATE {schema}.jobs SET fair_key = 'key ' || run_at % 100,
                            fair_cost = 1000, turn = run_at";
                schema.execute(keys).await.unwrap();
            }
            _ => grow(&schema).await,
        }
        let (fair, index) = match state.starts_with("with turns") {
            true => ("1", "using jobs_turn"),
            false => ("", "using jobs_claim"),
        };
        let modes = ["force_generic_plan", "force_custom_plan"];
        for (mode, most) in modes
            .map(|mode| ["NULL", "7"].map(|most| (mode, most)))
            .concat()
        {
            schema.execute("BEGIN").await.unwrap();
            let plan = plan(&schema, &explain(mode, most, fair)).await;
            schema.execute("ROLLBACK").await.unwrap();
            let context = format!("{mode}, most {most}, {state}:\n{plan}");
            assert_eq!(scanned(&plan), None, "{context}");
            assert!(plan.contains(index), "{context}");
            // Each step reads at most one batch per priority.
            for (read, line) in rows_read(&plan) {
                assert!(read <= 5.0 * 50.0, "{read} rows: {line}\n{context}");
            }
            let removed = plan.lines().find(|line| line.contains("Rows Removed"));
            assert_eq!(removed, None, "{context}");
        }
    }
}

pub(crate) async fn a_claim_of_shared_queues_reads_only_candidates(schema: Arc<Schema>) {
    const LIMIT: usize = 50;
    drop(open(&schema).await);
    let route = "INSERT INTO {schema}.routes (id, queue, kind, stamp) VALUES (1, '', 'k', 7)";
    schema.execute(route).await.unwrap();
    schema
        .execute("VACUUM ANALYZE {schema}.jobs")
        .await
        .unwrap();
    let sql = text(include_str!("../../src/sql/claims.sql"), "claim_jobs");
    let sql = format!("SET plan_cache_mode = force_generic_plan; PREPARE claim AS {sql}");
    schema.execute(&sql).await.unwrap();
    // All queues but one, or one queue.
    let explain = |queue: &str| {
        format!(
            "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE claim
             ('{{1}}', '{{{queue}}}', '{{k}}', '{{NULL}}', 1, 900000, {LIMIT}, {LIMIT},
              gen_random_uuid(), true, 7, '{{}}', true, '{{1}}', '{{q0}}',
              '{{}}', '{{}}', '{{}}')"
        )
    };
    plan(&schema, &explain("q1")).await;
    for state in ["never analyzed", "grown since it was analyzed", "analyzed"] {
        match state {
            "never analyzed" => fill(&schema, 100_000).await,
            "analyzed" => analyze(&schema).await,
            _ => grow(&schema).await,
        }
        let share = "UPDATE {schema}.jobs SET queue = 'q' || run_at / 5 % 100";
        schema.execute(share).await.unwrap();
        for (queue, index) in [("\"\"", "using jobs_claim"), ("q1", "using jobs_queue")] {
            schema.execute("BEGIN").await.unwrap();
            let plan = plan(&schema, &explain(queue)).await;
            schema.execute("ROLLBACK").await.unwrap();
            let context = format!("{queue}, {state}:\n{plan}");
            assert_eq!(scanned(&plan), None, "{context}");
            let used = plan.lines().find(|line| line.contains(index));
            let used = used.unwrap_or_else(|| panic!("{context}"));
            assert!(!used.contains("never executed"), "{context}");
            for (read, line) in rows_read(&plan) {
                assert!(read <= 5.0 * 50.0, "{read} rows: {line}\n{context}");
            }
        }
    }
}

pub(crate) async fn turns_and_sleepers_are_found_without_reading_others(schema: Arc<Schema>) {
    const LIMIT: usize = 50;
    drop(open(&schema).await);
    let route = "INSERT INTO {schema}.routes (id, queue, kind, stamp) VALUES (1, 'q', 'k', 7)";
    schema.execute(route).await.unwrap();
    let generic = "SET plan_cache_mode = force_generic_plan";
    schema.execute(generic).await.unwrap();
    let claims = include_str!("../../src/sql/claims.sql");
    let mut explained = Vec::new();
    for (name, index, arguments) in [
        (
            "claim_jobs",
            "jobs_turn",
            format!(
                "'{{1}}', '{{q}}', '{{k}}', '{{NULL}}', 1, 900000, {LIMIT}, {LIMIT},
                 gen_random_uuid(), true, 7, '{{1}}', true, '{{}}', '{{}}', '{{1}}', '{{}}', '{{}}'"
            ),
        ),
        ("try_lock_routes", "jobs_asleep", "'{1}'".to_owned()),
        (
            "find_turns",
            "jobs_key",
            "'{1}', '{2}', '{key 7}', 9223372036854775807".to_owned(),
        ),
        ("find_sleepers", "jobs_asleep", format!("'{{1}}', {LIMIT}")),
    ] {
        let prepare = format!("PREPARE {name} AS {}", text(claims, name));
        schema.execute(&prepare).await.unwrap();
        let explain =
            format!("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE {name} ({arguments})");
        // The plan is made for empty tables, and then used for full ones.
        plan(&schema, &explain).await;
        explained.push((name, index, explain));
    }
    // With this number, jobs_turn has one level more than jobs_claim and jobs_key, so without
    // statistics they look cheaper.
    let jobs = "ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off);
                INSERT INTO {schema}.jobs (id, run_at, created_at, route, state, priority,
                                           fair_key, fair_cost, turn)
                SELECT gen_random_uuid(), n, n, 1, 0, 2, 'key ' || n % 1000, 1000,
                       CASE WHEN n > 10 THEN n / 1000 END
                FROM generate_series(1, 30000) AS n";
    schema.execute(jobs).await.unwrap();
    for state in [
        "never analyzed",
        "planned when full",
        "analyzed",
        "without sleepers",
    ] {
        match state {
            "planned when full" => schema.execute("DISCARD PLANS").await.unwrap(),
            "analyzed" => analyze(&schema).await,
            "without sleepers" => {
                let wake = "UPDATE {schema}.jobs SET turn = run_at WHERE turn IS NULL";
                schema.execute(wake).await.unwrap();
            }
            _ => {}
        }
        for (name, index, explain) in &explained {
            schema.execute("BEGIN").await.unwrap();
            let plan = plan(&schema, explain).await;
            schema.execute("ROLLBACK").await.unwrap();
            let context = format!("{name}, {state}:\n{plan}");
            assert_eq!(scanned(&plan), None, "{context}");
            assert!(plan.contains(index), "{context}");
            for (read, line) in rows_read(&plan) {
                assert!(read <= 5.0 * 50.0, "{read} rows: {line}\n{context}");
            }
            // A route without sleepers is removed.
            let removed = plan.lines().filter(|line| line.contains("Rows Removed"));
            for line in removed {
                assert!(line.ends_with(": 1"), "{line}\n{context}");
            }
        }
    }
}

pub(crate) async fn to_see_what_is_late_takes_a_seek_per_route_and_level(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let routes = "INSERT INTO {schema}.routes VALUES (1, 'q', 'k', ''), (2, 'q', 'z idle', '')";
    schema.execute(routes).await.unwrap();
    let vacuum = "VACUUM ANALYZE {schema}.jobs";
    schema.execute(vacuum).await.unwrap();
    let sql = text(include_str!("../../src/sql/queues.sql"), "due_routes");
    let prepare =
        format!("SET plan_cache_mode = force_generic_plan; PREPARE due (bigint) AS {sql}");
    schema.execute(&prepare).await.unwrap();
    let sql = text(include_str!("../../src/sql/queues.sql"), "count_due");
    let prepare = format!("PREPARE depth (text, bigint) AS {sql}");
    schema.execute(&prepare).await.unwrap();
    let statements = ["due (0)", "depth ('q', 10)"];
    let explain =
        |statement: &str| format!("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE {statement}");
    // The plans are made for an empty table, and then used for a full one.
    for statement in statements {
        plan(&schema, &explain(statement)).await;
    }
    fill(&schema, 100_000).await;
    for analyzed in [false, true] {
        if analyzed {
            schema.execute("ANALYZE {schema}.jobs").await.unwrap();
        }
        for statement in statements {
            let plan = plan(&schema, &explain(statement)).await;
            let context = format!("{statement}, analyzed: {analyzed}:\n{plan}");
            assert_eq!(scanned(&plan), None, "{context}");
            assert!(plan.contains("using jobs_claim"), "{context}");
            for (read, line) in rows_read(&plan) {
                assert!(read <= 10.0, "{read} rows: {line}\n{context}");
            }
        }
    }
}

pub(crate) async fn what_is_asked_by_tag_reads_only_jobs_that_have_it(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let statements = [
        (
            "list_tagged_oldest",
            text(
                include_str!("../../src/sql/lists.sql"),
                "list_tagged_oldest",
            ),
        ),
        (
            "list_tagged_newest",
            text(
                include_str!("../../src/sql/lists.sql"),
                "list_tagged_newest",
            ),
        ),
        (
            "count_tagged",
            text(include_str!("../../src/sql/lists.sql"), "count_tagged"),
        ),
    ];
    schema
        .execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let mut explained = Vec::new();
    for (name, sql) in statements {
        schema
            .execute(&format!("PREPARE {name} AS {sql}"))
            .await
            .unwrap();
        let arguments = match name {
            "list_tagged_oldest" => {
                format!("('{{0,4}}', NULL, '{}', 1000, 'rare', '')", Uuid::nil())
            }
            "list_tagged_newest" => {
                format!("('{{0,4}}', NULL, '{}', 1000, 'rare', '')", Uuid::max())
            }
            _ => "('{0,4}', NULL, 'rare', '')".to_owned(),
        };
        let explain =
            format!("EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE {name}{arguments}");
        // The plan is made for empty tables, and then used for full ones.
        plan(&schema, &explain).await;
        explained.push((name, explain));
    }
    fill(&schema, 50_000).await;
    let tag = "ALTER TABLE {schema}.job_tags SET (autovacuum_enabled = off);
               INSERT INTO {schema}.job_tags (job, tag)
               SELECT id, 'tenant:' || row_number() OVER () % 1000 FROM {schema}.jobs;
               INSERT INTO {schema}.job_tags (job, tag) SELECT id, 'rare' FROM {schema}.jobs LIMIT 20";
    schema.execute(tag).await.unwrap();
    for analyzed in [false, true] {
        if analyzed {
            schema
                .execute("ANALYZE {schema}.jobs; ANALYZE {schema}.job_tags")
                .await
                .unwrap();
        }
        for (name, explain) in &explained {
            let plan = plan(&schema, explain).await;
            let context = format!("{name}, analyzed: {analyzed}:\n{plan}");
            assert_eq!(scanned(&plan), None, "{context}");
            assert!(plan.contains("job_tags_pkey"), "{context}");
            for line in plan.lines() {
                let Some((_, actual)) = line.split_once("actual rows=") else {
                    continue;
                };
                let rows: f64 = actual.split([' ', ')']).next().unwrap().parse().unwrap();
                assert!(rows <= 20.0, "{rows} rows: {line}\n{context}");
            }
            let removed = plan.lines().find(|line| line.contains("Rows Removed"));
            assert_eq!(removed, None, "{context}");
        }
    }
}

/// Returns how many rows each executed step of a plan read, over all its loops.
fn rows_read(plan: &str) -> impl Iterator<Item = (f64, &str)> {
    plan.lines()
        .filter_map(|line| {
            let (_, actual) = line.split_once("actual rows=")?;
            let (rows, rest) = actual.split_once(" loops=")?;
            let loops = rest.split(')').next()?;
            Some((rows.parse::<f64>().ok()? * loops.parse::<f64>().ok()?, line))
        })
        .collect::<Vec<_>>()
        .into_iter()
}

pub(crate) async fn unfinished_jobs_are_found_without_reading_those_that_have_ended(
    schema: Arc<Schema>,
) {
    drop(open(&schema).await);
    let generic = "SET plan_cache_mode = force_generic_plan";
    schema.execute(generic).await.unwrap();
    let lists = [
        text(
            include_str!("../../src/sql/lists.sql"),
            "list_unfinished_oldest",
        ),
        text(
            include_str!("../../src/sql/lists.sql"),
            "list_unfinished_newest",
        ),
    ];
    for (number, sql) in lists.iter().enumerate() {
        let prepare = format!("PREPARE list_{number} AS {sql}");
        schema.execute(&prepare).await.unwrap();
    }
    // 40 unfinished jobs among 100,000, the rest of which have succeeded.
    fill(&schema, 100_000).await;
    let end = "UPDATE {schema}.jobs SET state = 4, finished_at = 1 WHERE run_at % 2500 > 0;
               UPDATE {schema}.jobs SET state = run_at / 2500 % 4 WHERE state = 0;
               VACUUM ANALYZE {schema}.jobs";
    for statement in end.split(';') {
        schema.execute(statement).await.unwrap();
    }
    for (number, beginning) in [Uuid::nil(), Uuid::max()].iter().enumerate() {
        let explain = format!(
            "EXPLAIN (ANALYZE, TIMING off, SUMMARY off)
             EXECUTE list_{number}('{{0,1,2,3}}', NULL, '{beginning}', 100, '')"
        );
        let plan = plan(&schema, &explain).await;
        assert_eq!(scanned(&plan), None, "{plan}");
        assert!(plan.contains("rows=40 "), "{plan}");
        for (rows, line) in rows_read(&plan) {
            assert!(rows <= 40.0, "{rows} rows: {line}\n{plan}");
        }
    }
}

pub(crate) async fn permits_are_counted_without_reading_the_waiting(schema: Arc<Schema>) {
    drop(open(&schema).await);
    let routes = "INSERT INTO {schema}.permits VALUES ('api', 10);
                  INSERT INTO {schema}.routes
                  SELECT n, 'q' || n, 'k', '', CASE WHEN n <= 3 THEN 'api' ELSE '' END
                  FROM generate_series(1, 200) AS n";
    schema.execute(routes).await.unwrap();
    for table in ["jobs", "routes", "permits"] {
        let vacuum = format!("VACUUM ANALYZE {{schema}}.{table}");
        schema.execute(&vacuum).await.unwrap();
    }
    let counts = [
        (
            text(include_str!("../../src/sql/permits.sql"), "held_permits"),
            "'{api}', false",
        ),
        (
            text(include_str!("../../src/sql/permits.sql"), "look_at_permits"),
            "'{1, 2, 3}'",
        ),
    ];
    let generic = "SET plan_cache_mode = force_generic_plan";
    schema.execute(generic).await.unwrap();
    for (number, (sql, _)) in counts.iter().enumerate() {
        let prepare = format!("PREPARE count_{number} AS {sql}");
        schema.execute(&prepare).await.unwrap();
    }
    // 100,000 jobs are in a route that needs permits; 8 of them run and hold a permit. 300 jobs of
    // other routes run too.
    fill(&schema, 100_000).await;
    let run = "UPDATE {schema}.jobs SET state = 3, flags = flags | 128 WHERE run_at <= 8;
               UPDATE {schema}.jobs SET state = 3, route = 4 + run_at % 100
               WHERE run_at BETWEEN 1001 AND 1300";
    schema.execute(run).await.unwrap();
    for analyzed in [false, true] {
        if analyzed {
            schema.execute("ANALYZE {schema}.jobs").await.unwrap();
        }
        for (number, (_, argument)) in counts.iter().enumerate() {
            let explain = format!(
                "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) EXECUTE count_{number}({argument})"
            );
            let plan = plan(&schema, &explain).await;
            assert_eq!(scanned(&plan), None, "analyzed: {analyzed}:\n{plan}");
            assert!(plan.contains("jobs_permits"), "{plan}");
            for (rows, line) in rows_read(&plan) {
                assert!(
                    rows <= 200.0,
                    "expected at most 200 rows, found {rows}: {line}\nanalyzed: {analyzed}:\n{plan}"
                );
            }
        }
    }
}
