//! Runs cargo and other programs, from the root of the workspace and without the terminal's input.

use std::env;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map(Path::to_path_buf).unwrap_or(xtask)
}

/// Returns a command for the cargo that runs this program, with these first arguments.
///
/// The command does not inherit the variables that the outer cargo set for this package. Otherwise
/// cargo would rebuild the crates whose builds depend on these variables, and half of the workspace
/// with them.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    let of_a_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(of_a_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the package name of this folder of the workspace, as used by the registry and cargo. The
/// folders are named like the libraries.
pub(crate) fn package(folder: &str) -> String {
    folder.replacen("ratchet", "ratchet-jobs", 1)
}

/// Returns a command for any program, which runs in the root of the workspace.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a command that inherits our output, and fails if the command does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output. Fails if the command does.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", line(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a command can be started and succeeds. Its output is dropped.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command and forwards its output as it arrives. Returns whether it succeeded, and all its
/// output, without colours.
pub(crate) fn tee(command: &mut Command) -> Result<(bool, String)> {
    announce(command);
    if io::stdout().is_terminal() && env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let copies = [
        thread::spawn(move || copy(out, &mut io::stdout())),
        thread::spawn(move || copy(err, &mut io::stderr())),
    ];
    let status = child.wait()?;
    let mut written = String::new();
    for copy in copies {
        if let Ok(text) = copy.join() {
            written.push_str(&text?);
        }
    }
    Ok((status.success(), without_colours(&written)))
}

/// Runs a command and prints what `show` returns for each line of its standard error. Returns
/// whether the command succeeded.
pub(crate) fn watch(
    command: &mut Command,
    mut show: impl FnMut(&str) -> Option<String>,
) -> Result<bool> {
    announce(command);
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut bytes = Vec::new();
    while lines.read_until(b'\n', &mut bytes)? > 0 {
        if let Some(shown) = show(&String::from_utf8_lossy(&bytes)) {
            eprintln!("{shown}");
        }
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

fn copy(from: Option<impl Read>, to: &mut impl Write) -> io::Result<String> {
    let mut written = String::new();
    let Some(from) = from else { return Ok(written) };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        written.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(written)
}

/// Returns the text without terminal escape sequences of the form `ESC [ … letter`.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut pieces = text.split("\u{1b}[");
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        plain.push_str(
            piece
                .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
                .get(1..)
                .unwrap_or_default(),
        );
    }
    plain
}

/// Returns the output of `cargo metadata` for the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let json = read(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    serde_json::from_str(&json).context("cargo printed metadata that is not JSON")
}

/// Returns cargo's target directory.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    Ok(target
        .context("cargo printed metadata without a target directory")?
        .into())
}

fn announce(command: &Command) {
    println!("\n$ {}", line(command));
}

/// Returns the command as a person would type it.
fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name();
    let mut words = vec![name.unwrap_or(command.get_program())];
    words.extend(command.get_args());
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Measures how long a step takes.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time is only printed, and nothing depends on it"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_removed() {
        assert_eq!(
            without_colours("\u{1b}[32;1m12\u{1b}[0m passed"),
            "12 passed"
        );
        assert_eq!(without_colours("plain [x]"), "plain [x]");
    }

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("Cargo.lock").is_file());
    }
}
