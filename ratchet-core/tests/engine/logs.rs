//! The log lines for operators: about failed attempts, dead letters, and the end of a node.

use std::time::Duration;

use ratchet_core::testing::{LogLine, Logs};
use ratchet_core::{JobError, JobResult, RetryPolicy};
use tracing::Level;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

fn shown(line: &LogLine, fields: &[&str]) -> String {
    let value = |field: &&str| line.field(field).unwrap_or("-").to_owned();
    let values: Vec<String> = fields.iter().map(value).collect();
    format!("{} {}", line.level, values.join(" "))
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_a_warning_and_a_dead_letter_an_error() {
    let log = Logs::capture();
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
        .lines_of("ratchet::job")
        .iter()
        .map(|line| shown(line, &fields))
        .collect();
    assert_eq!(
        lines,
        [
            format!("WARN an attempt failed scripted {fails} mail 1 2 1s no 0"),
            format!(
                "ERROR a job failed permanently and is now a dead letter scripted {fails} mail 2 - \
                 - no 0"
            ),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_failures_is_cut_and_counted() {
    let log = Logs::capture();
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
    let lines = log.lines_of("ratchet::job");
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
    let log = Logs::capture();
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
        .lines_of("ratchet::job")
        .iter()
        .map(|line| shown(line, &["id", "attempt", "error"]))
        .collect();
    assert_eq!(
        lines,
        [format!(
            "ERROR {kills} 0 its node crashed or stopped 4 times while running the job"
        )]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_says_that_it_joins_drains_and_leaves() {
    let log = Logs::capture();
    let world = World::new();
    let node = Started::new(world.builder().label("n").build().unwrap());
    tokio::time::sleep(SECOND).await;
    node.stop().await.unwrap();
    let lines: Vec<String> = log
        .lines_of("ratchet::node")
        .iter()
        .map(|line| shown(line, &["label", "message"]))
        .collect();
    assert_eq!(
        lines,
        [
            "INFO n node joined",
            "INFO n node is draining: it claims no more jobs and waits for its running bodies",
            "INFO n node left",
        ]
    );
}

#[test]
#[should_panic = "expected ERROR of `a` with [(\"x\", \"2\")], found:\n  ERROR a: message=\"no\" x=\"1\""]
fn a_line_that_is_missing_is_named_with_those_of_its_target() {
    let log = Logs::capture();
    tracing::error!(target: "a", x = 1, "no");
    tracing::error!(target: "b", x = 2, "no");
    log.assert_logged(Level::ERROR, "a", &[("x", "1")]);
    log.assert_logged(Level::ERROR, "a", &[("x", "2")]);
}
