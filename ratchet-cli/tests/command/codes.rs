//! Tests of the exit codes and their messages.

use serde_json::Value;

use crate::kit::{WorkDir, finish};

/// An id that no job has.
const NOBODY: &str = "01890000-0000-7000-8000-000000000000";

#[test]
fn failures_have_codes() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["greet", "\"hello\""]);
    // Exit code 1: the database cannot be opened.
    WorkDir::of("sqlite:///nowhere/at/all/jobs.db")
        .run(&["status"])
        .exits(1);
    // Exit code 2: the command line is invalid.
    dir.run(&["jobs", "show", "no id"]).exits(2);
    dir.run(&["frobnicate"]).exits(2);
    dir.run(&["enqueue", "", "1"]).exits(2).complains("kind");
    dir.run(&["enqueue", "greet", "{oops"])
        .exits(2)
        .complains("not JSON");
    dir.run(&["jobs", "requeue"]).exits(2).complains("--all");
    dir.run(&["jobs", "list", "--stream"]).exits(2);
    // Exit code 3: the named item does not exist.
    dir.run(&["jobs", "show", NOBODY])
        .exits(3)
        .complains(NOBODY);
    dir.run(&["jobs", "cancel", NOBODY]).exits(3);
    dir.run(&["nodes", "drain", "nobody"])
        .exits(3)
        .complains("nodes list");
    dir.run(&["recurring", "show", "nothing"]).exits(3);
    dir.run(&["recurring", "trigger", "nothing"]).exits(3);
    dir.run(&["recurring", "pause", "nothing"]).exits(3);
    // Exit code 4: the state of the job does not allow the action.
    dir.run(&["jobs", "retry", &id])
        .exits(4)
        .complains("pending");
    // Exit code 7: the configuration is invalid.
    WorkDir::of("oracle://host/db").run(&["status"]).exits(7);
    finish(dir.command().arg("status"), None)
        .exits(7)
        .complains("no database is configured");
    finish(
        dir.command().args(["--config", "absent.toml", "status"]),
        None,
    )
    .exits(7);
}

#[test]
fn with_json_failures_are_json_too() {
    let dir = WorkDir::migrated();
    let ran = dir.run(&["--json", "jobs", "show", NOBODY]).exits(3);
    assert_eq!(ran.stdout, "");
    let error: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["exit_code"], 3);
    assert!(error["error"]["message"].as_str().unwrap().contains(NOBODY));
}

#[test]
fn with_json_a_command_line_that_makes_no_sense_is_told_in_json_too() {
    let dir = WorkDir::empty();
    let run = |args: &[&str]| finish(dir.command().args(args), None);
    let told = |args: &[&str]| {
        let ran = run(args).exits(2);
        assert_eq!(ran.stdout, "");
        let error: Value = serde_json::from_str(&ran.stderr)
            .unwrap_or_else(|error| panic!("{args:?} {error}: {ran:?}"));
        assert_eq!(error["error"]["exit_code"], 2);
        (
            error["error"]["message"].as_str().unwrap().to_owned(),
            error["error"]["remedy"].as_str().unwrap().to_owned(),
        )
    };
    let (message, remedy) = told(&["--json", "jobs", "list", "--stat", "failed"]);
    assert_eq!(message, "unexpected argument '--stat' found");
    assert!(remedy.contains("'--state'") && remedy.contains("Usage:"));
    // `--json` may be at any position.
    let (message, _) = told(&["jobs", "show", "no id", "--json"]);
    assert!(message.contains("no id"), "{message}");
    for nothing in [&["--json"][..], &["--json", "jobs"]] {
        assert_eq!(told(nothing).0, "no command is given");
    }
    // Requested help is not an error. After `--`, `--json` is an argument, not the option.
    run(&["--json", "--help"]).exits(0).says("Usage:");
    let payload = run(&["enqueue", "mail", "--", "--json", "more"]).exits(2);
    assert!(payload.stderr.starts_with("error:"), "{payload:?}");
}

#[test]
fn a_bound_that_means_nothing_is_refused() {
    let dir = WorkDir::migrated();
    let id = dir.enqueue(&["greet", "1"]);
    let cancel = ["jobs", "cancel", &id, "--limit", "1"];
    dir.run(&cancel)
        .exits(2)
        .complains("--limit cannot be combined");
    assert_eq!(dir.json(&["jobs", "show", &id])["state"], "pending");
    let bounded = [
        &["jobs", "list"][..],
        &["jobs", "cancel", "--all"],
        &["jobs", "requeue", "--all"],
        &["jobs", "purge", "--older-than", "1d"],
    ];
    for command in bounded {
        let none = [command, &["--limit", "0"]].concat();
        dir.run(&none).exits(2).complains("--limit");
    }
    // `retry` accepts only ids, so it has no --limit.
    dir.run(&["jobs", "retry", &id, "--limit", "1"]).exits(2);
}

#[test]
fn help_names_the_codes() {
    let dir = WorkDir::empty();
    for args in [
        &["--help"][..],
        &["jobs", "--help"],
        &["jobs", "purge", "--help"],
    ] {
        let help = finish(dir.command().args(args), None).exits(0);
        let help = help.says("Exit codes:").says("needs confirmation");
        assert!(help.stdout.contains("  6  "), "{help:?}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let dir = WorkDir::of("postgres://bob:hunter2@127.0.0.1:9/db?password=hunter2");
    for args in [
        &["status"][..],
        &["migrate", "--check"],
        &["doctor"],
        &["config", "show"],
        &["config", "check"],
        &["--json", "config", "show"],
        &["--json", "status"],
    ] {
        let ran = dir.run(args);
        assert!(!ran.stdout.contains("hunter2"), "{args:?} {ran:#?}");
        assert!(!ran.stderr.contains("hunter2"), "{args:?} {ran:#?}");
    }
}
