//! Reads stored rows with plain SQL and plain `find`, without using the stores.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};

use super::duty::Body;
use super::server::Server;
use super::verdict::{End, Row, Stored};
use crate::worker::Order;

/// The code of the state of a claimed job.
const RUNNING: i64 = 3;
/// The smallest code of a terminal state.
pub(crate) const ENDED: i64 = 4;
/// The codes of the outcomes that end a job: succeeded, failed, cancelled.
const LAST: [i32; 3] = [0, 2, 5];

pub(crate) async fn sql<S: Server>(server: &S, schema: &str) -> Stored {
    let mut here = server.connect().await;
    let [jobs, data, routes, notes, nodes, attempts] = [
        "jobs",
        "job_data",
        "routes",
        "job_notes",
        "nodes",
        "attempts",
    ]
    .map(|name| S::table(schema, name));
    let id = S::id("job.id");
    let found = format!(
        "SELECT {id}, job.state + 0, job.crash_count, route.queue, route.kind,
                data.payload, job.created_at, job.finished_at
         FROM {jobs} AS job
         JOIN {data} AS data ON data.id = job.id
         LEFT JOIN {routes} AS route ON route.id = job.route"
    );
    let found = rows(&mut here, found).await;
    let found = found.iter().map(|row| {
        let route: (Option<String>, Option<String>) = (row.get(3), row.get(4));
        let payload: String = row.get(5);
        let stored = Row {
            ended: row.get::<i64, _>(1) >= ENDED,
            running: row.get::<i64, _>(1) == RUNNING,
            created_at: row.get(6),
            finished_at: row.get(7),
            crashes: row.get(2),
            route: route.0.zip(route.1),
            duty: serde_json::from_str(&payload).unwrap(),
        };
        (row.get(0), stored)
    });
    let ends = format!(
        "SELECT node.label, job.claimed_at, notes.result
         FROM {jobs} AS job
         JOIN {notes} AS notes ON notes.job = job.id AND notes.result IS NOT NULL
         LEFT JOIN {nodes} AS node ON node.node = job.node
         WHERE job.state = {ENDED}
         UNION ALL
         SELECT node.label, attempt.claimed_at, attempt.error
         FROM {attempts} AS attempt
         LEFT JOIN {nodes} AS node ON node.node = attempt.node
         WHERE attempt.error IS NOT NULL"
    );
    let ends = rows(&mut here, ends).await;
    let ends = ends.iter().filter_map(|row| {
        Some(End {
            holder: row.get(0),
            claimed_at: row.get(1),
            body: body(row.get(2))?,
        })
    });
    let again =
        format!("SELECT COUNT(*) FROM {schema}.chaos_ends GROUP BY job HAVING COUNT(*) > 1");
    Stored {
        jobs: found.collect(),
        ends: ends.collect(),
        ended_again: rows(&mut here, again).await.len(),
    }
}

pub(crate) async fn rows(here: &mut AnyConnection, sql: String) -> Vec<AnyRow> {
    let found = sqlx::query(AssertSqlSafe(sql)).fetch_all(here);
    found.await.unwrap()
}

pub(crate) async fn mongodb(order: &Order) -> Stored {
    let routes = documents(order, "routes").await;
    let route = |row: &Document| {
        let text = |name| row.get_str(name).map(str::to_owned);
        Some((
            number(row, "_id"),
            (text("queue").ok()?, text("kind").ok()?),
        ))
    };
    let routes: BTreeMap<i64, (String, String)> = routes.iter().filter_map(route).collect();
    let nodes = documents(order, "nodes").await;
    let node = |row: &Document| Some((id(row, "_id")?, row.get_str("label").ok()?.to_owned()));
    let nodes: BTreeMap<String, String> = nodes.iter().filter_map(node).collect();
    let mut stored = Stored::default();
    for row in documents(order, "jobs").await {
        let job = id(&row, "_id").unwrap();
        let result = row.get_str("result").ok();
        let mut last = 0;
        for attempt in row.get_array("history").into_iter().flatten() {
            let attempt = attempt.as_document().unwrap();
            let outcome = attempt.get_i32("outcome").unwrap();
            last += usize::from(LAST.contains(&outcome));
            let text = if outcome == 0 {
                result
            } else {
                attempt.get_str("error").ok()
            };
            if let Some(body) = text.and_then(body) {
                stored.ends.push(End {
                    holder: id(attempt, "node").and_then(|node| nodes.get(&node).cloned()),
                    claimed_at: number(attempt, "claimed_at"),
                    body,
                });
            }
        }
        stored.ended_again += usize::from(last > 1);
        let payload = row.get_str("payload").unwrap();
        let of_job = Row {
            ended: number(&row, "state") >= ENDED,
            running: number(&row, "state") == RUNNING,
            created_at: number(&row, "created_at"),
            finished_at: row
                .contains_key("finished_at")
                .then(|| number(&row, "finished_at")),
            crashes: number(&row, "crash_count"),
            route: routes.get(&number(&row, "route")).cloned(),
            duty: serde_json::from_str(payload).unwrap(),
        };
        stored.jobs.insert(job, of_job);
    }
    stored
}

async fn documents(order: &Order, name: &str) -> Vec<Document> {
    let client = mongodb::Client::with_uri_str(&order.url).await.unwrap();
    let collection = client
        .database(&order.schema)
        .collection(&format!("ratchet_{name}"));
    let found = collection.find(doc! {}).await.unwrap();
    found.try_collect().await.unwrap()
}

fn number(row: &Document, name: &str) -> i64 {
    match row.get(name) {
        Some(Bson::Int64(number)) => *number,
        Some(Bson::Int32(number)) => (*number).into(),
        other => panic!("expected a whole number in `{name}`, found {other:?}"),
    }
}

/// Formats an id in the same way as `JobId`.
fn id(row: &Document, name: &str) -> Option<String> {
    let Some(Bson::Binary(binary)) = row.get(name) else {
        return None;
    };
    Some(binary.to_uuid().ok()?.to_string())
}

/// Parses the text that a body stored. Returns `None` for errors of the engine.
fn body(text: &str) -> Option<Body> {
    serde_json::from_str(text).ok()
}
