//! The arguments of `doctor`, `bench`, `serve`, `top`, `config`, `completions` and `man`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::parse;

/// The arguments of `ratchet doctor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// Exit with code 6 also if there are only warnings
    #[arg(long)]
    pub(crate) strict: bool,
    /// Report due jobs that have waited for longer than this time
    #[arg(long, value_parser = parse::duration, default_value = "5m", value_name = "DURATION")]
    pub(crate) overdue: Duration,
    /// Report a difference between the clocks of this host and of the database that is larger than
    /// this time
    #[arg(long, value_parser = parse::duration, default_value = "1s", value_name = "DURATION")]
    pub(crate) skew: Duration,
}

/// The arguments of `ratchet bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// The number of jobs to enqueue in calls of 100 jobs
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) jobs: u32,
    /// The number of jobs to enqueue in calls of one job
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) singles: u32,
    /// The maximum number of jobs that run at the same time
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) handlers: u32,
    /// The number of jobs that measure the start latency; 50 of them are enqueued per second
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) latency: u32,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The arguments of `ratchet serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The address to listen on, instead of the configured address; by default 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Allow writes by clients that send the token
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Require the token for reads too; this is the default if the address is not on loopback
    #[arg(long)]
    pub(crate) protect_reads: bool,
    /// The file that contains the token, instead of the configured file
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve without a token even if the address is not on loopback
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// The arguments of `ratchet top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Top {
    /// The time between two reads of the database
    #[arg(long, value_parser = parse::duration, default_value = "2s", value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Read the database twice, print the view once, and exit; needs no terminal
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and list all of its problems
    Check,
    /// Show the configuration in effect, without secrets
    Show,
    /// Print a sample configuration file with comments
    Sample,
}

/// The arguments of `ratchet completions`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Completions {
    /// The shell for which to print the script
    pub(crate) shell: Shell,
}

/// The arguments of `ratchet man`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Man {
    /// Write the manual pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
