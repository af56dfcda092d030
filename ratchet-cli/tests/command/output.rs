//! Tests of colours, of a closed pipe, and of Ctrl-C.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::kit::{WorkDir, finish};

#[test]
fn colours_are_for_terminals_or_those_who_ask() {
    let dir = WorkDir::migrated();
    dir.enqueue(&["mail", "1"]);
    let plain = |args: &[&str]| !dir.run(args).exits(0).stdout.contains('\u{1b}');
    assert!(plain(&["queues"]));
    assert!(plain(&["--color", "never", "queues"]));
    assert!(!plain(&["--color", "always", "queues"]));
    assert!(plain(&["--color", "always", "--json", "queues"]));
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut command = dir.command();
    let command = command.env("NO_COLOR", "1").args(["--url", &url, "queues"]);
    assert!(!finish(command, None).exits(0).stdout.contains('\u{1b}'));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = WorkDir::migrated();
    dir.with_client(|client| async move {
        let jobs: Vec<_> = (0..400).map(|n| ratchet::NewJob::new("mail", &n)).collect();
        client.enqueue_all(&jobs).await.unwrap();
    });
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut child = dir
        .command()
        .args(["--url", &url, "--json", "jobs", "list", "--stream"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Reads only a small part of the output, and then closes the pipe.
    let mut pipe = child.stdout.take().unwrap();
    let mut some = [0; 16];
    pipe.read_exact(&mut some).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_cleanly() {
    let dir = WorkDir::migrated();
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut child = dir
        .command()
        .args(["--url", &url, "--json", "top", "--interval", "500ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line of output shows that the command is running.
    let mut pipe = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut pipe, &mut line).unwrap();
    serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_reading_of_a_payload() {
    let dir = WorkDir::migrated();
    let url = format!("sqlite://{}", dir.path("jobs.db").display());
    let mut child = dir
        .command()
        .args(["--url", &url, "enqueue", "mail", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // The text is longer than the pipe's buffer. So the write completes only after the command has
    // begun to read.
    pipe.write_all(&[b' '; 1 << 20]).unwrap();
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(killed.unwrap().success());
    let deadline = ratchet::store_api::time::monotonic() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if ratchet::store_api::time::monotonic() > deadline {
            child.kill().unwrap();
            panic!("expected the command to end after Ctrl-C, found it still reading stdin");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}
