//! Tests of `doctor`, `bench`, `top`, `config`, `completions` and `man`.

use std::time::Duration;

use crate::kit::{WorkDir, finish};

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let dir = WorkDir::empty();
    let lacking = dir.run(&["--json", "doctor"]).exits(6).json();
    assert_eq!(lacking["findings"][0]["code"], "schema");
    assert_eq!(lacking["ok"], false);
    dir.run(&["doctor"]).exits(6).says("ratchet migrate");

    dir.run(&["migrate"]).exits(0);
    let idle = dir.json(&["doctor"]);
    assert_eq!(idle["ok"], true);
    let codes = |report: &serde_json::Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .map(|finding| finding["code"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(codes(&idle).contains(&"no_nodes".to_owned()), "{idle}");
    assert!(idle["clock_skew_ms"].as_i64().unwrap().abs() < 1_000);
    // If no job is due, a cluster without live nodes is only a warning.
    dir.run(&["doctor", "--strict"])
        .exits(6)
        .says("warning")
        .says("No node is live");

    dir.enqueue(&["mail", "1"]);
    std::thread::sleep(Duration::from_millis(5));
    // A cluster without live nodes is an error once a job is due.
    let late = dir.run(&["--json", "doctor", "--overdue", "1ms"]);
    let late = late.exits(6).json();
    assert_eq!(late["findings"][0]["code"], "no_nodes");
    assert_eq!(late["findings"][0]["severity"], "error");
    assert!(codes(&late).contains(&"overdue".to_owned()), "{late}");
    dir.run(&["queues", "pause", "default"]).exits(0);
    let paused = dir.json(&["doctor", "--overdue", "1ms"]);
    assert!(
        codes(&paused).contains(&"paused_queue".to_owned()),
        "{paused}"
    );
}

#[test]
fn a_measurement_asks_first_and_leaves_nothing_behind() {
    let dir = WorkDir::migrated();
    dir.enqueue(&["mail", "1"]);
    let small = [
        "bench",
        "--jobs",
        "250",
        "--singles",
        "20",
        "--latency",
        "5",
        "--handlers",
        "8",
    ];
    dir.run(&small).exits(5).complains("275 empty jobs");
    let report = dir.json(&[&small[..], &["--yes"]].concat());
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<&str> = phases
        .iter()
        .map(|phase| phase["phase"].as_str().unwrap())
        .collect();
    let wanted = [
        "enqueue_one_by_one",
        "enqueue_in_hundreds",
        "drain",
        "start_latency",
    ];
    assert_eq!(names, wanted);
    for phase in phases {
        assert!(phase["jobs_per_s"].as_f64().unwrap() > 0.0, "{phase}");
    }
    let left = dir.json(&["jobs", "list"]);
    let left = left["jobs"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["kind"], "mail");
    assert_eq!(left[0]["state"], "pending");
}

#[cfg(unix)]
#[test]
fn a_measurement_that_is_interrupted_leaves_nothing_behind() {
    let dir = WorkDir::migrated();
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut command = dir.command();
    let child = command
        .args(["--url", &url, "bench", "--jobs", "200000", "--yes"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let list = ["jobs", "list", "--queue", "ratchet-bench", "--limit", "1"];
    let jobs = || dir.json(&list)["jobs"].as_array().map_or(0, Vec::len);
    let deadline = ratchet::store_api::time::monotonic() + Duration::from_secs(30);
    while jobs() == 0 {
        assert!(
            ratchet::store_api::time::monotonic() < deadline,
            "expected the measurement to begin before the deadline"
        );
    }
    let pid = child.id().to_string();
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(interrupt.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(jobs(), 0);
    // The interrupted measurement has released its lock, so another one can begin.
    let small = [
        "bench",
        "--jobs",
        "1",
        "--singles",
        "1",
        "--latency",
        "1",
        "--yes",
    ];
    dir.run(&small).exits(0).says("start latency");
}

#[test]
fn one_look_of_top_can_be_printed() {
    let dir = WorkDir::migrated();
    dir.enqueue(&["mail", "1", "--queue", "slow"]);
    let top = ["top", "--once", "--interval", "500ms"];
    dir.run(&top)
        .exits(0)
        .says("no live nodes")
        .says("slow")
        .says("q quits");
    let look = dir.json(&top);
    assert_eq!(look["queues"][0]["name"], "slow");
    assert_eq!(look["live_nodes"], 0);
    dir.run(&["top"]).exits(2).complains("--once");
    dir.run(&["top", "--once", "--interval", "1ms"]).exits(2);
}

#[test]
fn the_configuration_is_checked_and_shown() {
    let dir = WorkDir::empty();
    let run = |args: &[&str]| finish(dir.command().args(args), None);
    let sample = run(&["config", "sample"]).exits(0).says("[store]");
    std::fs::write(dir.path("ratchet.toml"), &sample.stdout).unwrap();
    run(&["config", "check"]).exits(0).says("ratchet.toml");

    let text = "[store]\nurl = 'postgres://bob:hunter2@db/jobs'\n[worker]\nconcurrency = 7\n";
    std::fs::write(dir.path("ratchet.toml"), text).unwrap();
    let shown = run(&["config", "show"])
        .exits(0)
        .says("worker.concurrency")
        .says("ratchet.toml:4")
        .says("time zones ");
    assert!(!shown.stdout.contains("hunter2"), "{shown:?}");
    let shown = run(&["--json", "config", "show"]).exits(0);
    assert!(shown.json()["settings"].as_array().unwrap().len() > 20);
    assert!(shown.json()["zone_data"]["source"].is_string());
    assert!(!shown.stdout.contains("hunter2"), "{shown:?}");
    let text = "[store]\nurl = 'sqlite://jobs.db'\nmigrate = false\n";
    std::fs::write(dir.path("ratchet.toml"), text).unwrap();
    let checked = run(&["--json", "config", "check"]).exits(0).json();
    assert_eq!(checked["ok"], true);

    std::fs::write(dir.path("other.toml"), "[worker]\nconcurency = 7\n").unwrap();
    run(&["--config", "other.toml", "config", "check"])
        .exits(7)
        .complains("concurency");
    let bad = run(&["--config", "other.toml", "--json", "config", "check"]).exits(7);
    assert_eq!(bad.json()["ok"], false);
    assert_eq!(bad.json()["problems"].as_array().unwrap().len(), 1);
}

#[test]
fn the_time_zone_data_in_use_is_shown() {
    let dir = WorkDir::migrated();
    let zones = dir.path("zoneinfo");
    std::fs::create_dir_all(zones.join("Etc")).unwrap();
    // Writes a zone file of format version 1, for a zone that is always UTC.
    let header = [&b"TZif"[..], &[0; 16]].concat();
    let counts = [0_u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat();
    let data = [&header[..], &counts, &[0; 6], b"UTC\0"].concat();
    std::fs::write(zones.join("Etc/UTC"), data).unwrap();
    std::fs::write(zones.join("tzdata.zi"), "# version 2031a\n").unwrap();
    let run = |args: &[&str]| {
        let mut command = dir.command();
        let url = format!("sqlite://{}", dir.path("jobs.db").display());
        let command = command.env("TZDIR", &zones).args(["--url", &url]);
        finish(command.args(args), None).exits(0)
    };
    let shown = format!("time zones 2031a ({})", zones.display());
    for command in [&["doctor"][..], &["config", "show"]] {
        run(command).says(&shown);
        let json = run(&[&["--json"], command].concat()).json();
        assert_eq!(json["zone_data"]["version"], "2031a", "{json}");
        assert_eq!(json["zone_data"]["source"], zones.to_str().unwrap());
    }
}

#[test]
fn a_configured_database_is_used_and_the_command_line_wins() {
    let dir = WorkDir::migrated();
    std::fs::write(
        dir.path("ratchet.toml"),
        "[store]\nurl = 'sqlite://jobs.db'\n",
    )
    .unwrap();
    finish(dir.command().arg("queues"), None).exits(0);
    let mut command = dir.command();
    let elsewhere = command
        .env("RATCHET_STORE__URL", "sqlite://other.db")
        .arg("queues");
    finish(elsewhere, None).exits(1);
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut command = dir.command();
    let back = command
        .env("RATCHET_STORE__URL", "sqlite://other.db")
        .args(["--url", &url, "queues"]);
    finish(back, None).exits(0);
}

#[test]
fn completions_and_pages_are_made_of_the_command_line() {
    let dir = WorkDir::empty();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = finish(dir.command().args(["completions", shell]), None).exits(0);
        assert!(script.stdout.contains("requeue"), "{shell}");
    }
    finish(dir.command().arg("man"), None)
        .exits(0)
        .says(".TH")
        .says("Exit codes");
    finish(dir.command().args(["man", "--dir", "pages"]), None).exits(0);
    for page in ["ratchet.1", "ratchet-jobs.1", "ratchet-jobs-purge.1"] {
        assert!(dir.path("pages").join(page).exists(), "{page}");
    }
}
