//! The command line.

mod jobs;
mod parse;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use jobs::{Bulk, Enqueue, Jobs, JobsCommand, Order, Purge};
pub(crate) use tools::{Bench, Completions, ConfigCommand, Doctor, Man, Serve, Top};

use crate::exit::{CODES, Failure};

/// Looks after the jobs of Ratchet.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The arguments of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// The configuration file; `ratchet.toml` in the present directory unless given, if there is
    /// one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,
    /// The database, in place of the configured one: `sqlite://FILE`, `postgres://…`,
    /// `sqlserver://…`, `mongodb://…`. Other users of the host can see the command line: a URL with
    /// a password is better kept in the configuration file or in RATCHET_STORE__URL
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) url: Option<String>,
    /// Write JSON for programs: one document, or a line for each
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Whether to use colours; `auto` is for terminals only, and heeds NO_COLOR
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        help_heading = "Global options"
    )]
    pub(crate) color: Color,
    /// Write what the program does to stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring the schema of the database up to date
    Migrate(Migrate),
    /// Show what runs, what waits, and whether anything is late
    Status,
    /// The nodes of the cluster
    #[command(subcommand, arg_required_else_help = true)]
    Nodes(NodesCommand),
    /// Look at jobs and act on them
    Jobs(Jobs),
    /// Enqueue a job
    Enqueue(Enqueue),
    /// The queues: list, pause, resume
    Queues(Queues),
    /// The recurring definitions: list, show, pause, resume, trigger
    Recurring(Recurring),
    /// The locks and who holds them
    Locks,
    /// Look for what is wrong with the database and the cluster
    Doctor(Doctor),
    /// Measure enqueue, drain and start latency against this database
    Bench(Bench),
    /// Serve the HTTP interface and the dashboard, without running jobs
    Serve(Serve),
    /// A live view of the cluster
    Top(Top),
    /// The configuration: check, show, or print a sample
    #[command(subcommand, arg_required_else_help = true)]
    Config(ConfigCommand),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write all of them into a directory
    Man(Man),
}

/// How to migrate.
#[derive(Args, Clone, Copy, Debug)]
#[group(multiple = false)]
pub(crate) struct Migrate {
    /// Print the commands that would bring an empty database there, and touch nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Print the commands that this database lacks, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Say whether this database lacks something: exit code 0 if not, 6 if it does
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// List the nodes
    List {
        /// Also those that have left or died
        #[arg(long)]
        all: bool,
    },
    /// Ask a node to claim no more, finish what it has, and leave
    Drain {
        /// The id of the node, or its label
        node: String,
    },
}

/// The queues.
#[derive(Args, Debug)]
pub(crate) struct Queues {
    #[command(subcommand)]
    pub(crate) command: Option<QueuesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueuesCommand {
    /// List the queues with their jobs (the default)
    List,
    /// Stop the claiming of a queue's jobs; running ones go on
    Pause {
        /// The queue
        queue: String,
        /// Also if nothing was ever enqueued in it
        #[arg(long)]
        new: bool,
    },
    /// Let a queue's jobs be claimed again
    Resume {
        /// The queue
        queue: String,
    },
}

/// The recurring definitions.
#[derive(Args, Debug)]
pub(crate) struct Recurring {
    #[command(subcommand)]
    pub(crate) command: Option<RecurringCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecurringCommand {
    /// List the definitions with their next slots (the default)
    List,
    /// Show one definition
    Show {
        /// Its name
        name: String,
        /// Show the payload of its jobs
        #[arg(long)]
        payload: bool,
    },
    /// Fire no more slots until it is resumed
    Pause {
        /// Its name
        name: String,
    },
    /// Go on with the next slot in the future
    Resume {
        /// Its name
        name: String,
    },
    /// Enqueue a job of it now, out of turn
    Trigger {
        /// Its name
        name: String,
    },
}

/// The command line as it can be printed: every command says the exit codes.
pub(crate) fn command() -> clap::Command {
    with_codes(Cli::command())
}

fn with_codes(command: clap::Command) -> clap::Command {
    command.after_long_help(CODES).mut_subcommands(with_codes)
}

/// The command line of this process. What asks for help or the version gets it, and a bad one is
/// said to people here: both end the process, with exit code 0 and 2.
///
/// # Errors
/// The error as JSON, if the output is for programs.
pub(crate) fn read() -> Result<Cli, Failure> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let read = command().color(color(&args)).try_get_matches_from(&args);
    let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
    read.or_else(|error| match error.use_stderr() && asks_for_json(&args) {
        true => Err(Failure::not_understood(&error)),
        false => error.exit(),
    })
}

/// The colours that `--color` asks for, for what the parser itself prints.
fn color(args: &[OsString]) -> clap::ColorChoice {
    let mut options = args.iter().take_while(|arg| *arg != "--");
    let mut last = None;
    while let Some(arg) = options.next() {
        let value = match arg.to_str() {
            Some("--color") => options.next().and_then(|value| value.to_str()),
            Some(arg) => arg.strip_prefix("--color="),
            None => None,
        };
        last = value.or(last);
    }
    match last {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

/// Whether `--json` is among the options, however little else of the command line makes sense.
fn asks_for_json(args: &[OsString]) -> bool {
    let mut options = args.iter().take_while(|arg| *arg != "--");
    options.any(|arg| arg == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn the_parser_heeds_the_option_of_colours() {
        let color = |args: &[&str]| color(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(color(&["ratchet", "bogus"]), clap::ColorChoice::Auto);
        assert_eq!(
            color(&["--color", "never", "bogus"]),
            clap::ColorChoice::Never
        );
        assert_eq!(
            color(&["bogus", "--color=always"]),
            clap::ColorChoice::Always
        );
        assert_eq!(color(&["--", "--color=always"]), clap::ColorChoice::Auto);
    }

    /// Every command, as it is typed.
    fn all(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            all(sub, &path, found);
            found.push(path);
        }
    }

    #[test]
    fn every_command_is_documented() {
        let text = include_str!("../../../docs/cli.md");
        let mut commands = Vec::new();
        all(&command(), "ratchet", &mut commands);
        assert!(commands.len() > 30, "{commands:?}");
        for name in commands {
            assert!(text.contains(&name), "docs/cli.md lacks `{name}`");
        }
    }

    #[test]
    fn every_option_is_documented() {
        fn options(command: &clap::Command, found: &mut Vec<String>) {
            let longs = command.get_arguments().filter_map(|arg| arg.get_long());
            found.extend(longs.map(|long| format!("--{long}")));
            for sub in command.get_subcommands() {
                options(sub, found);
            }
        }
        let text = include_str!("../../../docs/cli.md");
        let mut found = Vec::new();
        options(&command(), &mut found);
        for option in found {
            assert!(text.contains(&option), "docs/cli.md lacks `{option}`");
        }
    }

    #[test]
    fn every_help_names_the_exit_codes() {
        fn check(command: &mut clap::Command) {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Exit codes:"), "{}", command.get_name());
            assert!(
                help.contains("needs confirmation"),
                "{}",
                command.get_name()
            );
            let subs = command.get_subcommands_mut();
            subs.filter(|sub| sub.get_name() != "help").for_each(check);
        }
        check(&mut command());
    }
}
