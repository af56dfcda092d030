//! Tests of the commands for jobs, queues, nodes, locks and recurring definitions, with output as
//! text and JSON.

use std::time::Duration;

use ratchet::store_api::model::{ClaimRequest, Heartbeat};
use ratchet::{
    Name, NewJob, NodeId, NodeLoad, NodeStatus, Outcome, Priority, Recurring, Settlement,
};

use crate::asking::kill;
use crate::kit::WorkDir;

#[test]
fn a_job_is_enqueued_as_told_and_shown() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&[
        "resize",
        "{\"path\": \"cat.png\", \"n\": 1.0}",
        "--queue",
        "images",
        "--priority",
        "high",
        "--delay",
        "2h",
        "--tag",
        "tenant:7",
        "--tag",
        "b",
        "--unique-key",
        "cat",
        "--capability",
        "gpu",
        "--lane",
        "cats",
        "--timeout",
        "30s",
    ]);
    let job = dir.json(&["jobs", "show", &id, "--payload"]);
    let wanted = [
        ("kind", "resize"),
        ("queue", "images"),
        ("priority", "high"),
        ("state", "pending"),
        ("unique_key", "cat"),
        ("capability", "gpu"),
        ("lane", "cats"),
    ];
    for (field, value) in wanted {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["tags"], serde_json::json!(["b", "tenant:7"]));
    assert_eq!(job["timeout_ms"], 30_000);
    assert_eq!(job["payload"]["path"], "cat.png");
    assert_eq!(job["history"], serde_json::json!([]));
    // The payload may be confidential, so it is hidden by default.
    let hidden = dir
        .run(&["jobs", "show", &id])
        .exits(0)
        .says("images")
        .says("in 1 h 59 min");
    assert!(!hidden.stdout.contains("cat.png"), "{hidden:?}");
    assert!(dir.json(&["jobs", "show", &id]).get("payload").is_none());
    dir.run(&["jobs", "show", &id, "--payload"])
        .exits(0)
        .says("cat.png")
        .says("1.0");

    let twice = dir.json(&["enqueue", "resize", "1", "--unique-key", "cat"]);
    assert_eq!(
        (&twice["job"], &twice["created"]),
        (&id.as_str().into(), &false.into())
    );
    let twice = dir.run(&["enqueue", "resize", "1", "--unique-key", "cat"]);
    let twice = twice.exits(0).complains("nothing was enqueued");
    assert_eq!(twice.stdout, format!("{id}\n"));

    let daily = ["--idempotency-key", "daily", "--unique-for", "24h"];
    let daily = [&["enqueue", "resize", "3"][..], &daily].concat();
    assert_eq!(dir.json(&daily)["created"], true);
    assert_eq!(dir.json(&daily)["created"], false);
    let alone = ["enqueue", "resize", "3", "--unique-for", "24h"];
    dir.run(&alone).exits(2).complains("--idempotency-key");

    let replace = ["--unique-key", "cat", "--on-conflict", "replace"];
    let replaced = dir.run(&[&["enqueue", "resize", "2"][..], &replace].concat());
    let replaced = replaced.exits(0).complains("got this payload");
    assert_eq!(replaced.stdout, format!("{id}\n"));
    let shown = dir.json(&["jobs", "show", &id, "--payload"]);
    assert_eq!(shown["payload"], 2);
    let alone = ["enqueue", "resize", "2", "--on-conflict", "replace"];
    dir.run(&alone).exits(2).complains("--unique-key");
    let debounce = ["--unique-key", "cat", "--on-conflict", "debounce"];
    let debounce = [&["enqueue", "resize", "2"][..], &debounce].concat();
    dir.run(&debounce).exits(2).complains("--max-delay");
    let short = [&debounce[..], &["--delay", "9s", "--max-delay", "5s"]].concat();
    dir.run(&short).complains("max_delay");
}

#[test]
fn a_job_is_enqueued_with_an_expiry_and_shown_with_it() {
    let dir = WorkDir::migrated();
    let ran = dir.run(&["enqueue", "greet", "1", "--expires-in", "5m"]);
    let id = ran.exits(0).stdout.trim().to_owned();
    dir.run(&["jobs", "show", &id]).exits(0).says("expires");
    let job = dir.json(&["jobs", "show", &id]);
    assert_eq!(job["expired"], false);
    assert!(job["expires_at"].is_string(), "{job}");
    let at = "2100-01-01T00:00:00Z";
    let ran = dir.run(&["enqueue", "greet", "1", "--expires-at", at]);
    let job = dir.json(&["jobs", "show", ran.exits(0).stdout.trim()]);
    assert_eq!(job["expires_at"], "2100-01-01T00:00:00.000Z");
    let never = [
        "enqueue",
        "greet",
        "1",
        "--expires-in",
        "5m",
        "--delay",
        "6m",
    ];
    dir.run(&never).complains("expires_in");
    let both = ["enqueue", "greet", "1", "--expires-in", "5m", "--at", at];
    dir.run(&both).exits(2).complains("--at");
}

#[test]
fn a_payload_can_come_from_stdin_and_a_time_be_named() {
    let dir = WorkDir::migrated();
    let args = ["enqueue", "greet", "-", "--at", "2100-01-01T00:00:00Z"];
    let ran = dir.run_with(&args, " [1, 2]\n").exits(0);
    let job = dir.json(&["jobs", "show", ran.stdout.trim(), "--payload"]);
    assert_eq!(job["payload"], serde_json::json!([1, 2]));
    assert_eq!(job["run_at"], "2100-01-01T00:00:00.000Z");
}

#[test]
fn jobs_are_listed_in_pages() {
    let dir = WorkDir::migrated();
    let ids: Vec<String> = (0..5)
        .map(|n| dir.enqueue(&["mail", &n.to_string()]))
        .collect();
    dir.enqueue(&["report", "1", "--tag", "weekly"]);
    let first = dir.json(&[
        "jobs", "list", "--kind", "mail", "--order", "oldest", "--limit", "2",
    ]);
    let listed: Vec<&str> = first["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ids[..2]);
    let next = first["next"].as_str().unwrap();
    let rest = dir.json(&[
        "jobs", "list", "--kind", "mail", "--order", "oldest", "--after", next,
    ]);
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 3);
    assert!(rest["next"].is_null());
    dir.run(&["jobs", "list", "--limit", "2"])
        .exits(0)
        .says("--after");
    dir.run(&["jobs", "list", "--tag", "weekly"])
        .exits(0)
        .says("report");
    dir.run(&["jobs", "list", "--state", "failed,cancelled"])
        .exits(0)
        .says("no jobs match");
    let lines = dir.run(&["--json", "jobs", "list", "--stream"]).exits(0);
    assert_eq!(lines.stdout.lines().count(), 6);
    for line in lines.stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let bounded = ["--json", "jobs", "list", "--stream", "--limit", "4"];
    assert_eq!(dir.run(&bounded).exits(0).stdout.lines().count(), 4);
}

#[test]
fn a_dead_letter_tells_its_story_and_cannot_steer_the_terminal() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["mail", "1"]);
    kill(&dir);
    let shown = dir.run(&["--color", "never", "jobs", "show", &id]).exits(0);
    let shown = shown.says("Attempts").says("no route\n");
    let shown = shown.says(" to \u{fffd}[31mhost");
    assert!(!shown.stdout.contains('\u{1b}'), "{shown:?}");
    dir.run(&["jobs", "list"]).exits(0).says("no route to");
    let job = dir.json(&["jobs", "show", &id]);
    assert_eq!(job["history"][0]["outcome"], "failed");
    assert_eq!(job["last_error"], "no route\nto \u{1b}[31mhost");
}

#[test]
fn a_stack_trace_keeps_its_lines_and_nodes_their_labels() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["mail", "1"]);
    let trace = "boom\n  at body (mail.rs:7)\n\tat main";
    let (node, other) = (NodeId::new(), NodeId::new());
    dir.with_client(|client| async move {
        let (store, second) = (client.store(), Duration::from_secs(1));
        let label = Name::new("label", "media-1").unwrap();
        let beat = Heartbeat::new(node, label, NodeStatus::Active, second);
        store.nodes().heartbeat(&beat).await.unwrap();
        // The node of the second attempt is no longer stored.
        for (node, error) in [(node, "first\n  of two"), (other, trace)] {
            let request = ClaimRequest::new(node, 1);
            let claimed = store.jobs().claim_next_batch(&request).await.unwrap();
            let error = error.to_owned();
            let outcome = match node == other {
                true => Outcome::Failed { error },
                false => Outcome::Retry {
                    error,
                    delay: Duration::ZERO,
                },
            };
            let ended = Settlement::new(claimed[0].claim.token, outcome);
            store.jobs().settle(&[ended]).await.unwrap();
        }
    });
    let shown = dir.run(&["--color", "never", "jobs", "show", &id]).exits(0);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.ends_with("boom"))
        .unwrap();
    assert!(lines[at].starts_with("error"), "{shown:?}");
    let column = lines[at].find("boom").unwrap();
    for (line, text) in lines[at + 1..]
        .iter()
        .zip(["  at body (mail.rs:7)", "    at main"])
    {
        assert_eq!(line.trim_end(), format!("{}{text}", " ".repeat(column)));
    }
    // The attempt with the last error does not repeat that error in full.
    assert_eq!(shown.stdout.matches("mail.rs:7").count(), 1, "{shown:?}");
    let first = lines
        .iter()
        .position(|line| line.ends_with("first"))
        .unwrap();
    assert!(lines[first].contains("media-1"), "{shown:?}");
    assert!(lines[first + 1].ends_with("  of two"), "{shown:?}");
    assert!(lines[first + 2].contains(&other.to_string()), "{shown:?}");
}

#[test]
fn named_jobs_are_paused_resumed_and_deleted() {
    let dir = WorkDir::migrated();
    let (a, b) = (dir.enqueue(&["mail", "1"]), dir.enqueue(&["mail", "2"]));
    let state = |id: &str| dir.json(&["jobs", "show", id])["state"].clone();
    dir.run(&["jobs", "pause", &a, &b]).exits(0).says("paused");
    assert_eq!((state(&a), state(&b)), ("paused".into(), "paused".into()));
    dir.run(&["jobs", "pause", &a]).exits(4).says("refused");
    dir.run(&["jobs", "resume", &a]).exits(0).says("pending");
    assert_eq!((state(&a), state(&b)), ("pending".into(), "paused".into()));
    // Only ended jobs are deleted, and only after a confirmation.
    dir.run(&["jobs", "delete", &a, "--yes"])
        .exits(4)
        .complains("is pending");
    dir.run(&["jobs", "cancel", &a]).exits(0);
    dir.run(&["jobs", "delete", &a])
        .exits(5)
        .complains("delete 1 job");
    let deleted = dir.json(&["jobs", "delete", &a, "--yes"]);
    assert_eq!(deleted["jobs"][0]["outcome"], "deleted");
    dir.run(&["jobs", "show", &a]).exits(3);
    dir.run(&["jobs", "delete", &a, "--yes"]).exits(3);
    for action in ["pause", "resume", "delete"] {
        dir.run(&["jobs", action]).exits(2);
    }
}

#[test]
fn named_jobs_are_cancelled_one_by_one() {
    let dir = WorkDir::migrated();
    let (a, b) = (dir.enqueue(&["mail", "1"]), dir.enqueue(&["mail", "2"]));
    let done = dir.json(&["jobs", "cancel", &a, &b]);
    assert_eq!(done["jobs"][0]["outcome"], "became");
    assert_eq!(done["jobs"][1]["state"], "cancelled");
    // The action is applied to the jobs that allow it, and the other jobs are reported.
    let c = dir.enqueue(&["mail", "3"]);
    let ran = dir.run(&["jobs", "cancel", &a, &c]).exits(4).complains(&a);
    assert!(
        ran.stdout.contains("refused") && ran.stdout.contains("became"),
        "{ran:?}"
    );
    dir.run(&["jobs", "cancel", &c, "--all"]).exits(2);
}

#[test]
fn what_was_done_before_a_failure_is_said_with_it() {
    let dir = WorkDir::migrated();
    // Stores one job more than one call of the store accepts. The database fails for the last job.
    let ids = dir.with_client(|client| async move {
        let mut jobs: Vec<_> = (0..500).map(|n| NewJob::new("mail", &n)).collect();
        jobs.push(NewJob::new("mail", &500).priority(Priority::Critical));
        let made = client.enqueue_all(&jobs).await.unwrap();
        made.iter()
            .map(|made| made.id().to_string())
            .collect::<Vec<_>>()
    });
    let trigger = "CREATE TRIGGER stuck BEFORE UPDATE ON ratchet_jobs WHEN OLD.priority = 4
                   BEGIN SELECT RAISE(ABORT, 'it is stuck'); END";
    let database = rusqlite::Connection::open(dir.path("jobs.db")).unwrap();
    database.execute_batch(trigger).unwrap();
    drop(database);
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let cancel = |also: &[&str]| dir.run(&[also, &["jobs", "cancel"], &ids].concat());

    let ran = cancel(&["--json"]).exits(1).complains("act: ");
    let done = &ran.json()["jobs"];
    assert_eq!(done.as_array().unwrap().len(), 500);
    assert_eq!(done[499]["outcome"], "became");
    // The first 500 jobs are now refused, because they are already cancelled. The command still
    // reports the failure of the store call for the last job.
    let ran = cancel(&[]).exits(1).complains("act: ");
    assert_eq!(ran.stdout.lines().count(), 500);
    assert!(ran.stdout.contains("refused"), "{ran:?}");
}

#[test]
fn queues_are_paused_and_resumed() {
    let dir = WorkDir::migrated();
    dir.run(&["queues"]).exits(0).says("no queues");
    dir.enqueue(&["mail", "1", "--queue", "slow"]);
    assert_eq!(dir.json(&["queues", "pause", "slow"])["changed"], true);
    dir.run(&["queues", "pause", "slow"])
        .exits(0)
        .says("already");
    dir.run(&["queues", "list"]).exits(0).says("paused");
    let queue = &dir.json(&["queues"])["queues"][0];
    assert_eq!(
        (&queue["name"], &queue["counts"]["pending"]),
        (&"slow".into(), &1.into())
    );
    assert_eq!(queue["paused"], true);
    dir.run(&["queues", "resume", "slow"]).exits(0).says("Done");
    assert_eq!(dir.json(&["queues"])["queues"][0]["paused"], false);
    dir.run(&["queues", "resume", "slow"])
        .exits(0)
        .says("The queue was not paused.");
    dir.run(&["queues", "resume", "slwo"])
        .exits(3)
        .complains("there is no queue `slwo`");
    dir.run(&["queues", "pause", "slwo"])
        .exits(3)
        .complains("slwo");
    dir.run(&["queues", "pause", "later", "--new"]).exits(0);
    dir.run(&["queues", "list"]).exits(0).says("later");
}

#[test]
fn limits_of_fair_keys_are_set_listed_and_removed() {
    let dir = WorkDir::migrated();
    dir.run(&["limits"])
        .exits(0)
        .says("no fair key has a limit");
    let set = ["limits", "set", "mail*", "4"];
    assert_eq!(dir.json(&set)["changed"], true);
    dir.run(&set).exits(0).says("the same");
    let of_key = ["limits", "set", "mail", "0", "--key", "tenant:7"];
    dir.run(&of_key).exits(0).says("Done");
    let listed = dir.run(&["limits", "list"]).exits(0);
    for text in ["mail*", "(each)", "4", "tenant:7", "0"] {
        assert!(listed.stdout.contains(text), "{listed:?}");
    }
    let limits = &dir.json(&["limits"])["limits"];
    assert_eq!(limits[0]["key"], "tenant:7");
    assert_eq!(limits[1]["max"], 4);
    let remove = ["limits", "remove", "mail", "--key", "tenant:7"];
    dir.run(&remove).exits(0).says("Done");
    dir.run(&remove).exits(0).says("no such limit");
}

#[test]
fn kinds_are_paused_and_resumed_with_a_reason() {
    let dir = WorkDir::migrated();
    dir.run(&["pauses"]).exits(0).says("nothing is paused");
    dir.enqueue(&["mail", "1"]);
    let pause = ["kinds", "pause", "mail", "--by", "alice", "--reason", "why"];
    assert_eq!(dir.json(&pause)["changed"], true);
    dir.run(&pause).exits(0).says("already");
    let queue = ["queues", "pause", "later", "--new", "--reason", "moves"];
    dir.run(&queue).exits(0);
    let listed = dir.run(&["pauses"]).exits(0);
    for text in ["queue", "later", "moves", "kind", "mail", "alice", "why"] {
        assert!(listed.stdout.contains(text), "{listed:?}");
    }
    let pauses = &dir.json(&["pauses"])["pauses"];
    assert_eq!(pauses[1]["reason"], "why");
    assert_eq!(pauses[1]["by"], "alice");
    assert_eq!(dir.json(&["queues"])["queues"][0]["paused"], false);
    let resume = ["kinds", "resume", "mail"];
    dir.run(&resume).exits(0).says("Done");
    dir.run(&resume).exits(0).says("The kind was not paused.");
    for unknown in [["kinds", "pause", "mial"], ["kinds", "resume", "mial"]] {
        dir.run(&unknown).exits(3).complains("no kind `mial`");
    }
    dir.run(&["kinds", "pause", "mial", "--new"]).exits(0);
    let long = "x".repeat(1_025);
    let refused = ["kinds", "pause", "mail", "--reason", &long];
    dir.run(&refused).exits(2).complains("reason");
}

#[test]
fn the_busiest_fair_keys_are_shown() {
    let dir = WorkDir::migrated();
    dir.run(&["keys"]).exits(0).says("no job with a fair key");
    dir.with_client(|client| async move {
        for key in ["noisy", "quiet", "noisy"] {
            let job = NewJob::new("k", &1).queue("render").fair_key(key);
            client.enqueue(job).await.unwrap();
        }
    });
    let listed = dir.run(&["keys"]).exits(0);
    for text in ["render", "noisy", "quiet"] {
        assert!(listed.stdout.contains(text), "{listed:?}");
    }
    let first = dir.json(&["keys", "--limit", "1"]);
    assert_eq!(first["keys"][0]["key"], "noisy");
    assert_eq!(first["keys"][0]["waiting"], 2);
    assert_eq!(first["keys"].as_array().unwrap().len(), 1);
    assert_eq!(first["complete"], true);
    dir.run(&["keys", "--limit", "0"])
        .exits(2)
        .complains("limit");
}

#[test]
fn recurring_definitions_are_looked_after() {
    let dir = WorkDir::migrated();
    dir.run(&["recurring"]).exits(0).says("no recurring");
    dir.with_client(|client| async move {
        let job = NewJob::new("report", &7).queue("reports");
        let nightly = Recurring::cron("0 3 * * *")
            .zone("Europe/Berlin")
            .job(job)
            .named("nightly");
        client.recurring().put(nightly).await.unwrap();
    });
    dir.run(&["recurring", "list"])
        .exits(0)
        .says("0 3 * * * (Europe/Berlin)")
        .says("nightly");
    assert_eq!(dir.json(&["recurring"])["recurring"][0]["kind"], "report");
    assert_eq!(
        dir.json(&["recurring", "pause", "nightly"])["changed"],
        true
    );
    dir.run(&["recurring", "show", "nightly"])
        .exits(0)
        .says("paused")
        .says("reports");
    assert_eq!(
        dir.json(&["recurring", "show", "nightly", "--payload"])["payload"],
        7
    );
    dir.run(&["recurring", "resume", "nightly"]).exits(0);
    let made = dir.json(&["recurring", "trigger", "nightly"]);
    assert_eq!(made["created"], true);
    let id = made["job"].as_str().unwrap();
    assert_eq!(
        dir.json(&["jobs", "show", id])["recurring"]["name"],
        "nightly"
    );
}

/// Stores one heartbeat of a new node with this label, and returns the node's id.
fn join(dir: &WorkDir, label: &'static str) -> NodeId {
    let node = NodeId::new();
    dir.with_client(|client| async move {
        let label = Name::new("label", label).unwrap();
        let minute = Duration::from_secs(60);
        let beat = Heartbeat::new(node, label, NodeStatus::Active, minute);
        let beat = beat.load(NodeLoad::new(3, 32));
        client.store().nodes().heartbeat(&beat).await.unwrap();
    });
    node
}

#[test]
fn nodes_are_listed_and_drained() {
    let dir = WorkDir::migrated();
    dir.run(&["nodes", "list"]).exits(0).says("no live nodes");
    let node = join(&dir, "alpha").to_string();
    dir.run(&["nodes", "list"])
        .exits(0)
        .says("alpha")
        .says("active");
    let listed = dir.json(&["nodes", "list", "--all"]);
    assert_eq!(listed["nodes"][0]["id"], node.as_str());
    assert_eq!(listed["nodes"][0]["capacity"], 32);
    assert_eq!(dir.json(&["nodes", "drain", "alpha"])["changed"], true);
    dir.run(&["nodes", "drain", &node]).exits(0).says("already");
    dir.run(&["nodes", "list"]).exits(0).says("draining");
    dir.run(&["status"]).exits(0).says("1 live, 3 of 32");
}

#[test]
fn locks_are_listed() {
    let dir = WorkDir::migrated();
    dir.run(&["locks"]).exits(0).says("no locks");
    dir.with_client(|client| async move {
        let name = |text| Name::new("name", text).unwrap();
        let (lock, owner) = (name("export"), name("me"));
        let minute = Duration::from_secs(60);
        client
            .store()
            .locks()
            .acquire(&lock, &owner, minute)
            .await
            .unwrap();
    });
    dir.run(&["locks"])
        .exits(0)
        .says("export")
        .says("held")
        .says("me");
    let lock = &dir.json(&["locks"])["locks"][0];
    assert_eq!(
        (&lock["name"], &lock["owner"]),
        (&"export".into(), &"me".into())
    );
    assert!(lock["expires_in_ms"].as_u64().unwrap() <= 60_000);
}

#[test]
fn the_status_has_everything() {
    let dir = WorkDir::migrated();
    dir.enqueue(&["mail", "1"]);
    dir.run(&["status"])
        .exits(0)
        .says("sqlite")
        .says("nothing runs")
        .says("default");
    let status = dir.json(&["status"]);
    assert_eq!(status["backend"], "sqlite");
    assert_eq!(status["live_nodes"], 0);
    assert_eq!(status["queues"][0]["counts"]["pending"], 1);
    assert!(status["oldest_due_ms"].as_u64().unwrap() < 60_000);
}
