//! Helpers of the tests, which run the built command.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ratchet::{Client, Ratchet};
use serde_json::Value;
use tempfile::TempDir;

/// The result of a run of the command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Parses stdout as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "expected `{text}` on stdout, found {self:#?}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "expected `{text}` on stderr, found {self:#?}"
        );
        self
    }
}

/// A directory in which the command runs, and the database there.
pub(crate) struct WorkDir {
    dir: TempDir,
    url: String,
}

impl WorkDir {
    /// Creates a directory without a database.
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
        Self { dir, url }
    }

    /// Creates a directory with a database whose schema is up to date.
    pub(crate) fn migrated() -> Self {
        let dir = Self::empty();
        dir.run(&["migrate"]).exits(0);
        dir
    }

    /// Creates an empty directory whose commands use the database of this URL.
    pub(crate) fn of(url: &str) -> Self {
        let mut dir = Self::empty();
        url.clone_into(&mut dir.url);
        dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.current_dir(self.dir.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RATCHET_") {
                command.env_remove(&name);
            }
        }
        command.env_remove("NO_COLOR").env_remove("RUST_LOG");
        command.stdin(Stdio::null());
        command
    }

    /// Runs the command on the database.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.command();
        command.args(["--url", &self.url]).args(args);
        finish(&mut command, None)
    }

    /// Runs the command on the database, and parses its JSON output.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut with = vec!["--json"];
        with.extend(args);
        self.run(&with).exits(0).json()
    }

    /// Runs the command on the database with this text on stdin.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let mut command = self.command();
        command.args(["--url", &self.url]).args(args);
        finish(&mut command, Some(stdin))
    }

    /// Enqueues a job and returns its id.
    #[track_caller]
    pub(crate) fn enqueue(&self, args: &[&str]) -> String {
        let mut with = vec!["enqueue"];
        with.extend(args);
        self.json(&with)["job"].as_str().unwrap().to_owned()
    }

    /// Runs code on a client of the database, to create states that the command cannot create.
    pub(crate) fn with_client<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = ratchet::connect(&self.url).await.unwrap();
            work(Ratchet::client(store)).await
        })
    }
}

/// Runs a command to its end, with the text `stdin` as its input. Returns its exit code and output.
pub(crate) fn finish(command: &mut Command, stdin: Option<&str>) -> Ran {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
