//! Tests of `assert_enqueued` and `refute_enqueued`: which jobs match, and the failure messages.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::testing::{assert_enqueued, drain, memory_store, refute_enqueued};
use ratchet_core::{Client, Job, JobState, MemoryStore, NewJob, Priority, Ratchet};
use serde_json::json;

use super::app::{Mail, Resize, Tick, cat, node};

async fn filled() -> Client {
    let client = Ratchet::client(Arc::new(MemoryStore::new()));
    let jobs = [
        cat(5).into_job().queue("images").unique_key("cat"),
        cat(640)
            .into_job()
            .priority(Priority::High)
            .capability("gpu"),
        Mail("dog.png".to_owned()).into_job().lane("l"),
        Tick.into_job()
            .delay(Duration::from_secs(60))
            .tag("tenant:7"),
        NewJob::new("scale", &json!({"path": "old.png"})).payload_version(1),
        NewJob::new("resize", &json!(["something", "else"])).payload_version(2),
    ];
    client.enqueue_all(&jobs).await.unwrap();
    client
}

#[tokio::test]
async fn patterns_guards_and_conditions_select_jobs() {
    let client = filled().await;
    assert_enqueued!(client, Resize { width: 5, .. });
    assert_enqueued!(&client, Resize { path, width: 1.. } if path == "cat.png", count = 2);
    assert_enqueued!(client, Resize, count = 3,);
    assert_enqueued!(client, crate::testing::app::Mail(path) if path.starts_with("dog"), queue = "mail");
    assert_enqueued!(client, Tick, delayed = true);
    assert_enqueued!(client, Resize { .. }, delayed = false, count = 3);
    assert_enqueued!(client, kind = "resize", count = 3);
    assert_enqueued!(
        client,
        Resize { width: 640, .. },
        priority = Priority::High,
        capability = "gpu"
    );
    assert_enqueued!(client, unique_key = "cat", queue = "images", count = 1);
    assert_enqueued!(client, lane = "l", state = JobState::Pending);
    let wanted = 5;
    let found = assert_enqueued!(client, Resize { width, .. } if *width == wanted);
    assert_eq!(found[0].spec.route.queue, "images");

    // This job is stored under an alias of its kind, and with an older payload version.
    let old = assert_enqueued!(client, Resize { path, width: 640 } if path == "old.png");
    assert_eq!(old[0].spec.route.kind, "scale");

    assert_enqueued!(client, Tick, tag = "tenant:7");
    assert_enqueued!(client, tag = "tenant:7", count = 1);
    refute_enqueued!(client, tag = "tenant:8");
    refute_enqueued!(client, Resize { width: 5, .. }, tag = "tenant:7");

    refute_enqueued!(client, Resize { width: 6, .. });
    refute_enqueued!(client, Resize { width: 5, .. }, queue = "default");
    refute_enqueued!(client, queue = "cellar");
    refute_enqueued!(client, Tick, delayed = false);
    refute_enqueued!(client, Mail(_), state = JobState::Running);
}

#[tokio::test]
async fn jobs_that_ended_are_looked_for_by_their_state_only() {
    let (store, _clock) = memory_store();
    let node = node(store);
    node.enqueue(cat(5).into_job()).await.unwrap();
    assert_eq!(drain(&node).await.unwrap().succeeded, 1);
    refute_enqueued!(node, Resize);
    assert_enqueued!(node, Resize { width: 5, .. }, state = JobState::Succeeded);
    assert_enqueued!(node, Mail(_), count = 1);
}

#[tokio::test]
async fn more_jobs_than_one_page_are_looked_through() {
    let client = Ratchet::client(Arc::new(MemoryStore::new()));
    let jobs: Vec<NewJob> = (0..1_200).map(|width| cat(width).into_job()).collect();
    client.enqueue_all(&jobs).await.unwrap();
    assert_enqueued!(client, Resize { width: 0, .. }, count = 1);
    assert_enqueued!(client, Resize, count = 1_200);
}

/// Returns the panic message of a future in which an assertion fails.
async fn said(fails: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(fails).await.unwrap_err().into_panic();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_failed_assertion_shows_what_is_enqueued() {
    let told = said(async {
        let client = Ratchet::client(Arc::new(MemoryStore::new()));
        assert_enqueued!(client, Resize { width: 5, .. });
    });
    assert_eq!(
        told.await,
        "no enqueued job matches Resize { width: 5, .. }\nthe store has no jobs"
    );
    let told = said(async {
        let client = filled().await;
        client.pause_queue("mail").await.unwrap();
        assert_enqueued!(client, Resize { width: 5, .. }, queue = "cellar");
    });
    let told = told.await;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2 + 6, "{told}");
    assert_eq!(
        lines[0],
        r#"no enqueued job matches Resize { width: 5, .. }, queue = "cellar""#
    );
    assert_eq!(lines[1], "the store has these jobs, newest first:");
    for line in [
        r#"  pending   resize {"path":"cat.png","width":5} in queue images, unique key cat"#,
        r#"  pending   resize {"path":"cat.png","width":640} in queue default, capability gpu, priority High"#,
        r#"  pending   mail "dog.png" in queue mail, lane l"#,
        r#"  pending   scale {"path":"old.png"} in queue default"#,
    ] {
        assert!(lines.contains(&line), "{line}\nis not in\n{told}");
    }
    assert!(
        lines[4].starts_with("  pending   tick null in queue default, tag tenant:7, due "),
        "{told}"
    );
}

#[tokio::test]
async fn wrong_numbers_and_unwanted_jobs_are_told() {
    let told = said(async {
        let client = filled().await;
        assert_enqueued!(client, Resize, count = 2);
    });
    let first = "3 enqueued jobs match, expected 2: Resize, count = 2\n";
    assert!(told.await.starts_with(first));
    let told = said(async {
        let client = filled().await;
        refute_enqueued!(client, Resize { width: 5, .. });
    });
    let first = "1 enqueued jobs match, expected none: Resize { width: 5, .. }\n";
    assert!(told.await.starts_with(first));
    let told = said(async {
        let client = Ratchet::client(Arc::new(MemoryStore::new()));
        let jobs: Vec<NewJob> = (0..21).map(|width| cat(width).into_job()).collect();
        client.enqueue_all(&jobs).await.unwrap();
        assert_enqueued!(client, Tick);
    });
    let told = told.await;
    assert_eq!(
        (told.lines().count(), told.lines().last()),
        (23, Some("  …"))
    );
}
