//! Arguments of the commands that are not about stored things.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::parse;

/// The checks to make.
#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// Exit with code 6 for warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// How late a queue may be before it counts as overdue
    #[arg(long, value_parser = parse::duration, default_value = "5m", value_name = "DURATION")]
    pub(crate) overdue: Duration,
    /// How far the clocks of this host and of the database may differ
    #[arg(long, value_parser = parse::duration, default_value = "1s", value_name = "DURATION")]
    pub(crate) skew: Duration,
}

/// The measurements to make.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// Jobs to enqueue in hundreds, and to drain
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) jobs: u32,
    /// Jobs to enqueue one by one
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) singles: u32,
    /// Bodies at once
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) handlers: u32,
    /// Jobs of the measurement of start latency, 50 a second
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) latency: u32,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// How to serve.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The address to listen on; that of the configuration unless given, 127.0.0.1:8080 by default
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Allow writes to clients that send the token of the configuration
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Ask for the token for reads too; the default on an address that is not of the loopback
    #[arg(long)]
    pub(crate) protect_reads: bool,
    /// The file that holds the token, in place of the configured one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve on an address that is not of the loopback although no token is configured
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// The view to show.
#[derive(Args, Clone, Debug)]
pub(crate) struct Top {
    /// How often to look
    #[arg(long, value_parser = parse::duration, default_value = "2s", value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Look twice, print what would be shown, and end; for places without a terminal
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and name everything that is wrong with it
    Check,
    /// Show the configuration in effect, without its secrets
    Show,
    /// Print a commented sample
    Sample,
}

/// Which shell.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Which pages.
#[derive(Args, Clone, Debug)]
pub(crate) struct Man {
    /// Write the page of every command into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
