//! Builds the tests of a store with its feature `mutants`, and runs groups of their cases with or
//! without a mutant.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::set::Mutant;
use crate::process::{self, Stopwatch};

/// The shortest time limit of a group, in seconds.
const LEAST: f64 = 20.0;
/// The time limit of a group with a mutant, as a multiple of its time without one.
const PATIENCE: f64 = 5.0;

/// The result of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This case failed, or the process ended in another way that counts as a failure.
    Killed(String),
    /// This group did not end in time.
    Hung(String),
    /// All cases passed, although the mutant ran.
    Survived,
    /// No case ran the statement.
    NeverReached,
}

/// The result of a group of cases.
enum Ended {
    Passed,
    Failed(String),
    Hung,
}

/// The tests of one store.
pub(super) struct Tests {
    /// The test programs, by name.
    programs: BTreeMap<String, PathBuf>,
    variables: Vec<(String, String)>,
    /// The directory for mutants and reports.
    directory: PathBuf,
    /// How long each group may take, by test and group.
    limits: BTreeMap<(String, String), Duration>,
}

impl Tests {
    /// Builds these tests of a package.
    pub(super) fn build(
        package: &str,
        tests: &[&str],
        variables: Vec<(String, String)>,
    ) -> Result<Self> {
        let mut build =
            process::cargo(&["test", "--no-run", "--package", &process::package(package)]);
        build.args([
            "--features",
            "mutants",
            "--message-format",
            "json-render-diagnostics",
        ]);
        for test in tests {
            build.args(["--test", test]);
        }
        let messages = process::read(&mut build)?;
        let programs: BTreeMap<_, _> = messages.lines().filter_map(program).collect();
        for test in tests {
            let built = programs.contains_key(*test);
            anyhow::ensure!(built, "cargo did not report the program of the test {test}");
        }
        let directory = process::target_dir()?.join("xtask/mutants").join(package);
        if directory.is_dir() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(Self {
            programs,
            variables,
            directory,
            limits: BTreeMap::new(),
        })
    }

    /// Runs a group without a mutant, and fails if a case does. Returns the time limit of the group
    /// with a mutant.
    pub(super) fn measure(&self, test: &str, group: &str) -> Result<Duration> {
        let watch = Stopwatch::start();
        let ended = self.run(test, group, None, Duration::from_secs(600))?;
        let seconds = watch.seconds();
        match ended {
            Ended::Passed => Ok(Duration::from_secs_f64(LEAST.max(seconds * PATIENCE))),
            Ended::Failed(case) => bail!("without a mutant, {case} fails"),
            Ended::Hung => bail!("without a mutant, the group {group} of {test} hangs"),
        }
    }

    /// Sets how long a group may take with a mutant.
    pub(super) fn limit(&mut self, test: &str, group: &str, limit: Duration) {
        let key = (test.to_owned(), group.to_owned());
        self.limits.insert(key, limit);
    }

    /// Runs the groups of a mutant until a case fails.
    pub(super) fn try_mutant(&self, number: usize, mutant: &Mutant) -> Result<Verdict> {
        let directory = self.directory.join(number.to_string());
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(ratchet_mutant::STATEMENT), &mutant.statement)?;
        fs::write(
            directory.join(ratchet_mutant::REPLACEMENT),
            &mutant.replacement,
        )?;
        let mut verdict = Verdict::Survived;
        for group in &mutant.groups {
            let key = (mutant.test.clone(), group.clone());
            let limit = self
                .limits
                .get(&key)
                .context("the time limit of the group was not measured")?;
            match self.run(&mutant.test, group, Some(&directory), *limit)? {
                Ended::Passed => continue,
                Ended::Failed(case) => verdict = Verdict::Killed(case),
                Ended::Hung => verdict = Verdict::Hung(group.clone()),
            }
            break;
        }
        let reached = directory.join(ratchet_mutant::REACHED).is_file();
        fs::remove_dir_all(&directory)?;
        Ok(if reached {
            verdict
        } else {
            Verdict::NeverReached
        })
    }

    /// Runs the cases of a group until one fails. An empty name means all groups.
    fn run(
        &self,
        test: &str,
        group: &str,
        mutant: Option<&Path>,
        limit: Duration,
    ) -> Result<Ended> {
        let program = self.programs.get(test).context("the test was not built")?;
        let mut command = process::program(program);
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("RATCHET_REPORT_DIR", self.directory.join("reports"))
            // A case that hangs fails before the limit of its group, so the result names the case.
            .env("RATCHET_CASE_SECONDS", limit.as_secs().to_string())
            .env("RATCHET_HISTORY_SECONDS", limit.as_secs().to_string());
        if !group.is_empty() {
            command.arg(format!("{group}::"));
        }
        if let Some(directory) = mutant {
            command.env(ratchet_mutant::DIRECTORY, directory);
        }
        until_failure(&mut command, group, limit * 2)
    }
}

/// Returns the name and the path of a test's program, if this message of cargo contains them.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let name = message["target"]["name"].as_str()?;
    Some((name.to_owned(), message["executable"].as_str()?.into()))
}

/// Runs a test program until it ends, a case fails or the time limit is over.
fn until_failure(command: &mut Command, group: &str, limit: Duration) -> Result<Ended> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (sender, lines) = mpsc::channel();
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || send_lines(stdout, &sender));
    let watch = Stopwatch::start();
    let mut ran = 0;
    let ended = loop {
        let left = (limit.as_secs_f64() - watch.seconds()).max(0.0);
        match lines.recv_timeout(Duration::from_secs_f64(left)) {
            Ok(line) => match verdict_of(&line) {
                Some((case, false)) => break Some(Ended::Failed(case.to_owned())),
                Some((_, true)) => ran += 1,
                None => {}
            },
            Err(RecvTimeoutError::Timeout) => break Some(Ended::Hung),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    let ended = match ended {
        Some(ended) => {
            stop(&mut child)?;
            ended
        }
        None => match child.wait()? {
            status if !status.success() => Ended::Failed(format!("a process: {status}")),
            _ if ran == 0 => bail!("no case of the group `{group}` ran"),
            _ => Ended::Passed,
        },
    };
    // The reader ends too, because the pipe is closed when the process ends.
    let _ = reader.join();
    Ok(ended)
}

fn stop(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn send_lines(from: Option<impl Read>, to: &mpsc::Sender<String>) {
    let Some(from) = from else { return };
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        if to
            .send(String::from_utf8_lossy(&line).into_owned())
            .is_err()
        {
            return;
        }
    }
}

/// Returns the case whose result a line of a test runner reports, and whether it passed.
fn verdict_of(line: &str) -> Option<(&str, bool)> {
    let (case, passed) = match line.trim_end().strip_prefix("test ")?.rsplit_once("... ")? {
        (case, "ok") => (case, true),
        (case, "FAILED") => (case, false),
        _ => return None,
    };
    Some((case.trim_end(), passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_test_runners_are_understood() {
        assert_eq!(verdict_of("test a::b ... ok"), Some(("a::b", true)));
        assert_eq!(verdict_of("test a::b    ... FAILED"), Some(("a::b", false)));
        assert_eq!(verdict_of("test a::b ... ignored"), None);
        assert_eq!(verdict_of("test result: FAILED. 1 passed"), None);
        assert_eq!(verdict_of("running 3 tests"), None);
    }

    #[test]
    fn the_first_failed_case_ends_a_run_and_a_hanging_one_is_stopped() {
        let shell = |line: &str, limit: u64| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            until_failure(&mut command, "g", Duration::from_secs(limit))
        };
        let fails = "echo 'test g::a ... ok'; echo 'test g::b ... FAILED'; exec sleep 1000";
        assert!(matches!(shell(fails, 1000).unwrap(), Ended::Failed(case) if case == "g::b"));
        assert!(matches!(shell("exec sleep 1000", 0).unwrap(), Ended::Hung));
        let passes = shell("echo 'test g::a ... ok'", 1000).unwrap();
        assert!(matches!(passes, Ended::Passed));
        let aborts = shell("echo 'test g::a ... ok'; exit 3", 1000).unwrap();
        assert!(matches!(aborts, Ended::Failed(_)));
        assert!(
            shell("true", 1000).is_err(),
            "expected an error, because no case ran"
        );
    }

    #[test]
    fn programs_are_found_in_the_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"t"},"executable":"/p"}"#;
        assert_eq!(program(message), Some(("t".to_owned(), "/p".into())));
        assert_eq!(program(&message.replace("\"/p\"", "null")), None);
        assert_eq!(program("no JSON"), None);
    }
}
