//! The command `ratchet`, with which operators inspect and change the jobs of a database.
//!
//! A program with its own store can include this command: it registers the scheme of its URLs, and
//! then calls [`run`].
//!
//! ```no_run
//! # use std::process::ExitCode;
//! use ratchet::MemoryStore;
//!
//! fn main() -> ExitCode {
//!     let open = |_url| async { Ok(MemoryStore::new()) };
//!     ratchet::register_scheme("mine", open).expect("`mine` is a free scheme");
//!     ratchet_cli::run()
//! }
//! ```

mod app;
mod args;
mod commands;
mod confirm;
mod exit;
mod output;

use std::process::ExitCode;

use anstream::ColorChoice;
use tracing_subscriber::EnvFilter;

use app::App;
use exit::{Failure, conclude};

/// Runs the command with the arguments of the process, and returns its exit code.
///
/// Starts a Tokio runtime, so do not call this function from within a runtime.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match args::read() {
        Ok(cli) => cli,
        Err(failure) => return conclude(Err(failure), true),
    };
    let json = cli.global.json;
    cli.global.color.choice().write_global();
    let serves = matches!(cli.command, args::Command::Serve(_));
    log_to_stderr(cli.global.verbose, serves);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return conclude(Err(error.into()), json),
    };
    let ended = runtime.block_on(async {
        let mut app = App::new(cli.global);
        let done = commands::run(&mut app, cli.command).await;
        // Output that was written before a failure must appear before the failure.
        let flushed = app.out.flush();
        done.and(flushed)
    });
    // Do not wait for threads that are blocked on the terminal or on a database.
    runtime.shutdown_background();
    conclude(ended, json)
}

/// Writes the logs of this program's libraries to stderr.
///
/// The default level is `error`, or `warn` if `serves` is true. `-v` and `RUST_LOG` set another
/// level.
fn log_to_stderr(verbose: u8, serves: bool) {
    let level = match verbose {
        0 if serves => "warn",
        0 => "error",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never)
        .with_env_filter(filter);
    // This fails only if another subscriber is installed already.
    drop(log.try_init());
}

/// Runs the work until it ends or Ctrl-C interrupts it. If Ctrl-C interrupts a store call, the call
/// may or may not have taken effect.
async fn interruptible<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        // The signal handler must be installed before the work begins.
        biased;
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted("interrupted")),
        done = work => done,
    }
}
