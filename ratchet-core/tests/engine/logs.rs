//! The log lines that operators read: failed attempts, dead letters, and the end of a node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::{JobError, JobResult, RetryPolicy};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// An event: its level, target and fields, the message among them.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    target: &'static str,
    fields: Fields,
}

#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// Keeps the lines with targets of their own, whose fields are documented.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        if target.starts_with("ratchet::") {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().unwrap().push(Line {
                level,
                target,
                fields,
            });
        }
    }
}

impl Log {
    /// Keeps what this thread logs while the guard lives.
    fn install() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn of(&self, target: &str) -> Vec<Line> {
        let lines = self.0.lock().unwrap();
        let of = lines.iter().filter(|line| line.target == target);
        of.cloned().collect()
    }
}

fn shown(line: &Line, fields: &[&str]) -> String {
    let value = |field| {
        line.fields
            .0
            .get(field)
            .map_or("-", |value: &String| value.as_str())
    };
    let values: Vec<&str> = fields.iter().copied().map(value).collect();
    format!("{} {}", line.level, values.join(" "))
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_a_warning_and_a_dead_letter_an_error() {
    let (log, _installed) = Log::install();
    let world = World::new();
    let fails = world.job("fails", |_| async { Err::<(), _>("no".into()) });
    let fails = fails.queue("mail").retry(RetryPolicy::fixed(2, SECOND));
    let fails = world.enqueue(fails).await;
    let node = world.start();
    world.ended(fails).await;
    node.stop().await.unwrap();
    let fields = [
        "message",
        "kind",
        "id",
        "queue",
        "attempt",
        "max_attempts",
        "retry_in",
        "error",
        "suppressed",
    ];
    let lines: Vec<String> = log
        .of("ratchet::job")
        .iter()
        .map(|line| shown(line, &fields))
        .collect();
    assert_eq!(
        lines,
        [
            format!("WARN an attempt failed scripted {fails} mail 1 2 1s no 0"),
            format!(
                "ERROR a job failed for good: it is a dead letter scripted {fails} mail 2 - - no 0"
            ),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_failures_is_cut_and_counted() {
    let (log, _installed) = Log::install();
    let world = World::new();
    let discards = || async { Err::<(), _>(JobError::discard("bad")) };
    let mut ids = Vec::new();
    for number in 0..25 {
        let job = world.job(&format!("{number}"), move |_| discards());
        ids.push(world.enqueue(job).await);
    }
    let node = world.start();
    for id in ids {
        world.ended(id).await;
    }
    node.stop().await.unwrap();
    let lines = log.of("ratchet::job");
    let suppressed: Vec<String> = lines
        .iter()
        .map(|line| shown(line, &["suppressed"]))
        .collect();
    let mut expected = vec!["ERROR 0".to_owned(); 10];
    expected.push("WARN 15".to_owned());
    assert_eq!(suppressed, expected);
}

#[tokio::test(start_paused = true)]
async fn jobs_lost_with_their_nodes_are_logged_by_the_node_that_fails_them() {
    let (log, _installed) = Log::install();
    let world = World::new();
    let kills = world.job("kills", |_| std::future::pending::<JobResult<()>>());
    let kills = world.enqueue(kills).await;
    for claims in 1..=4 {
        let doomed = Started::new(world.builder().label("n").build().unwrap());
        world.until(kills, |job| job.claim_seq == claims).await;
        doomed.kill().await;
    }
    let node = world.start();
    world.ended(kills).await;
    node.stop().await.unwrap();
    let lines: Vec<String> = log
        .of("ratchet::job")
        .iter()
        .map(|line| shown(line, &["id", "attempt", "error"]))
        .collect();
    assert_eq!(
        lines,
        [format!("ERROR {kills} 0 lost with its node 4 times")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_says_that_it_joins_drains_and_leaves() {
    let (log, _installed) = Log::install();
    let world = World::new();
    let node = Started::new(world.builder().label("n").build().unwrap());
    tokio::time::sleep(SECOND).await;
    node.stop().await.unwrap();
    let lines: Vec<String> = log
        .of("ratchet::node")
        .iter()
        .map(|line| shown(line, &["label", "message"]))
        .collect();
    assert_eq!(
        lines,
        [
            "INFO n node joined",
            "INFO n node drains: claims nothing more, and waits for its bodies",
            "INFO n node left",
        ]
    );
}
