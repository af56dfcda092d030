//! The arguments of the command line, and the parser.

mod jobs;
mod parse;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use jobs::{Bulk, Enqueue, Jobs, JobsCommand, Order, Purge};
pub(crate) use tools::{Bench, Completions, ConfigCommand, Doctor, Man, Serve, Top};

use crate::exit::{CODES, Failure};

/// Operates the jobs, queues and nodes of a Ratchet database.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every command accepts.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// The configuration file; by default `ratchet.toml` in the current directory, if that file
    /// exists
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,
    /// The URL of the database, instead of the configured URL: `sqlite://FILE`, `postgres://…`,
    /// `mysql://…`, `sqlserver://…`, `mongodb://…`. Other users of the host can see the command
    /// line, so set a URL that contains a password in the configuration file or in
    /// RATCHET_STORE__URL
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) url: Option<String>,
    /// Write JSON for programs: one document, or one line for each item of a stream
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Whether to use colours; `auto` uses colours only on a terminal, and respects NO_COLOR
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        help_heading = "Global options"
    )]
    pub(crate) color: Color,
    /// Write logs of level `info` to stderr; if given twice, also of level `debug`
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
    /// Show live nodes, queues, leaders and the oldest due job
    Status,
    /// List or drain nodes
    #[command(subcommand, arg_required_else_help = true)]
    Nodes(NodesCommand),
    /// List, show and change jobs
    Jobs(Jobs),
    /// Enqueue a job
    Enqueue(Enqueue),
    /// List, pause and resume queues
    Queues(Queues),
    /// Pause and resume kinds of jobs
    #[command(subcommand, arg_required_else_help = true)]
    Kinds(KindsCommand),
    /// List the paused queues and kinds: who paused them, when and why
    Pauses,
    /// Show the fair keys with the most running and waiting jobs
    Keys(Keys),
    /// List, set and remove limits: how many jobs of a fair key may run at once
    Limits(Limits),
    /// List, show, pause, resume and trigger recurring definitions
    Recurring(Recurring),
    /// Show the locks and their owners
    Locks,
    /// Check the database and the cluster for problems
    Doctor(Doctor),
    /// Measure the enqueue rate, the drain rate and the start latency on this database
    Bench(Bench),
    /// Serve the HTTP interface and the dashboard, without running jobs
    Serve(Serve),
    /// Show a live view of the cluster in the terminal
    Top(Top),
    /// Check or show the configuration, or print a sample
    #[command(subcommand, arg_required_else_help = true)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page, or write the manual pages of all commands into a directory
    Man(Man),
}

/// The arguments of `ratchet migrate`.
#[derive(Args, Clone, Copy, Debug)]
#[group(multiple = false)]
pub(crate) struct Migrate {
    /// Print the commands that create the schema in an empty database; does not connect to a
    /// database
    #[arg(long)]
    pub(crate) print: bool,
    /// Print the commands of the migrations that this database lacks; changes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Check whether this database lacks migrations; exits with code 6 if it does, and with code 0
    /// if not
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// List the nodes
    List {
        /// Include nodes that have left or died
        #[arg(long)]
        all: bool,
    },
    /// Ask a node to claim no more jobs, finish its running jobs, and leave the cluster
    Drain {
        /// The id or the label of the node
        node: String,
    },
}

/// The arguments of `ratchet queues`.
#[derive(Args, Debug)]
pub(crate) struct Queues {
    #[command(subcommand)]
    pub(crate) command: Option<QueuesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueuesCommand {
    /// List the queues and the numbers of their jobs (the default)
    List,
    /// Pause a queue: nodes claim no more of its jobs, but running jobs continue
    Pause {
        /// The name of the queue
        queue: String,
        #[command(flatten)]
        why: Why,
        /// Pause the queue even if it is unknown because no job was enqueued in it yet
        #[arg(long)]
        new: bool,
    },
    /// Resume a queue: nodes claim its jobs again
    Resume {
        /// The name of the queue
        queue: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KindsCommand {
    /// Pause a kind: nodes claim no more of its jobs in any queue, but running jobs continue
    Pause {
        /// The name of the kind
        kind: String,
        #[command(flatten)]
        why: Why,
        /// Pause the kind even if it is unknown: no live node runs it, and no job of it is stored
        #[arg(long)]
        new: bool,
    },
    /// Resume a kind: nodes claim its jobs again
    Resume {
        /// The name of the kind
        kind: String,
    },
}

/// The arguments of `ratchet keys`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Maximum number of keys to show
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
}

/// The arguments of `ratchet limits`.
#[derive(Args, Debug)]
pub(crate) struct Limits {
    #[command(subcommand)]
    pub(crate) command: Option<LimitsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// List the limits (the default)
    List,
    /// Limit how many jobs of each fair key of a queue may run at once, in the whole cluster
    Set {
        #[command(flatten)]
        scope: LimitScope,
        /// How many jobs; 0 pauses the keys
        max: u32,
    },
    /// Remove a limit
    Remove {
        #[command(flatten)]
        scope: LimitScope,
    },
}

/// The fair keys to which a limit applies.
#[derive(Args, Debug)]
pub(crate) struct LimitScope {
    /// The name of a queue, or a pattern such as `mail*` for all queues that begin with `mail`
    pub(crate) queue: String,
    /// Only this fair key; its limit replaces that of the queue
    #[arg(long)]
    pub(crate) key: Option<String>,
}

/// Who pauses a queue or a kind, and why.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The reason, which `ratchet pauses` and the dashboard show
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Who pauses it; by default the value of the environment variable USER
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

/// The arguments of `ratchet recurring`.
#[derive(Args, Debug)]
pub(crate) struct Recurring {
    #[command(subcommand)]
    pub(crate) command: Option<RecurringCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecurringCommand {
    /// List the recurring definitions with their next slots (the default)
    List,
    /// Show one recurring definition
    Show {
        /// The name of the definition
        name: String,
        /// Also show the payload of the definition's jobs
        #[arg(long)]
        payload: bool,
    },
    /// Pause a definition: it enqueues no jobs for its slots until it is resumed
    Pause {
        /// The name of the definition
        name: String,
    },
    /// Resume a definition: it continues with the next slot in the future
    Resume {
        /// The name of the definition
        name: String,
    },
    /// Enqueue a job of a definition now, independently of its schedule
    Trigger {
        /// The name of the definition
        name: String,
    },
}

/// Returns the parser of the command line. The help of every command lists the exit codes.
pub(crate) fn command() -> clap::Command {
    with_codes(Cli::command())
}

fn with_codes(command: clap::Command) -> clap::Command {
    command.after_long_help(CODES).mut_subcommands(with_codes)
}

/// Parses the command line of this process.
///
/// If the user requests the help or the version, prints it and ends the process with exit code 0.
/// If the command line is invalid and does not contain `--json`, prints the error and ends the
/// process with exit code 2.
///
/// # Errors
/// The error of the parser, if the command line is invalid and contains `--json`.
pub(crate) fn read() -> Result<Cli, Failure> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let read = command().color(color(&args)).try_get_matches_from(&args);
    let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
    read.or_else(|error| match error.use_stderr() && asks_for_json(&args) {
        true => Err(Failure::not_understood(&error)),
        false => error.exit(),
    })
}

/// Returns the value of the option `--color` in `args`. The parser needs the value before parsing,
/// for the help and the errors that it prints.
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

/// Returns whether the options contain `--json`. Works even if the rest of the command line is
/// invalid.
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

    /// Appends all subcommands of `command` to `found`, as a user types them, such as `ratchet jobs
    /// list`.
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
