//! Tests of a few commands on PostgreSQL, in a separate schema. They run only if
//! RATCHET_TEST_POSTGRES_URL names a server.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::kit::{WorkDir, finish};

#[test]
fn the_schema_is_made_and_looked_at() {
    let Ok(url) = std::env::var("RATCHET_TEST_POSTGRES_URL") else {
        return;
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the time makes the name of the schema unique"
    )]
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let schema = format!("cli_{now}");
    let dir = WorkDir::empty();
    let run = |args: &[&str]| {
        let mut command = dir.command();
        command.env("RATCHET_STORE__URL", &url);
        command.env("RATCHET_STORE__POSTGRES__SCHEMA", &schema);
        finish(command.args(args), None)
    };
    run(&["migrate", "--print"]).exits(0).says(&schema);
    run(&["migrate", "--check"]).exits(6).says("init");
    run(&["migrate", "--dry-run"])
        .exits(0)
        .says("CREATE TABLE")
        .says("COMMIT;");
    // The read-only commands have changed nothing.
    run(&["migrate", "--check"]).exits(6);
    run(&["status"]).exits(1).complains("ratchet migrate");
    run(&["migrate"]).exits(0);
    run(&["migrate", "--check"]).exits(0);
    let id = run(&["enqueue", "greet", "1"]).exits(0).stdout;
    run(&["jobs", "show", id.trim()]).exits(0).says("pending");
    run(&["status"]).exits(0).says("postgres");
    run(&["locks"]).exits(0);
    // A due job without a live node is an error.
    let report = run(&["--json", "doctor"]).exits(6).json();
    assert_eq!(report["backend"], "postgres");
    run(&["jobs", "cancel", "--all", "--yes"])
        .exits(0)
        .says("1 changed");
    let here = run(&["doctor"]).exits(0);
    assert!(!here.stdout.contains("not encrypted"), "{here:?}");

    // The address 0.0.0.0 is not a loopback address. So `doctor` treats this machine as another
    // host, and warns that the connection is not encrypted.
    let remote = url
        .replace("127.0.0.1", "0.0.0.0")
        .replace("localhost", "0.0.0.0");
    if remote != url {
        let doctor = |mode: &str| {
            let separator = if url.contains('?') { '&' } else { '?' };
            let mut command = dir.command();
            command.env("RATCHET_STORE__POSTGRES__SCHEMA", &schema);
            let url = format!("{remote}{separator}sslmode={mode}");
            finish(command.args(["--url", &url, "doctor"]), None)
        };
        for mode in ["disable", "prefer"] {
            let found = doctor(mode).exits(0);
            found
                .says("not encrypted")
                .says("0.0.0.0")
                .says("sslmode=verify-full");
        }
    }
}
