//! The arguments of `ratchet jobs` and `ratchet enqueue`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use ratchet::{BatchId, InvalidInput, JobFilter, JobId, JobOrder, JobState, Name};

use super::parse;

/// The arguments of `ratchet jobs`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    pub(crate) command: JobsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, by default newest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// The maximum number of jobs to list; 50 by default, or all with --stream
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// List only jobs that come after the job with this id in the order of the list
        #[arg(long, value_name = "ID")]
        after: Option<JobId>,
        /// The order of the list
        #[arg(long, value_enum, default_value_t)]
        order: Order,
        /// Write each job as one line of JSON as soon as it is read; requires --json
        #[arg(long)]
        stream: bool,
    },
    /// Show one job and its attempts
    Show {
        /// The id of the job
        id: JobId,
        /// Also show the payload, the result and the checkpoint, which may be confidential
        #[arg(long)]
        payload: bool,
    },
    /// Make dead letters pending again, and reset their count of attempts to 0
    Retry {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Cancel jobs: waiting jobs at once; running jobs receive a request to cancel within one
    /// heartbeat interval of their node
    Cancel {
        /// The ids of the jobs; without ids, give a filter or --all
        ids: Vec<JobId>,
        #[command(flatten)]
        bulk: Bulk,
    },
    /// Pause pending jobs until they are resumed
    Pause {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Make paused jobs pending again
    Resume {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Delete ended jobs with their history
    Delete {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<JobId>,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Make all dead letters that match the filter pending again
    Requeue {
        #[command(flatten)]
        bulk: Bulk,
    },
    /// Delete jobs that ended more than a given time ago
    Purge(Purge),
}

/// Options that select jobs by their properties.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Select only jobs in this state; for several states, repeat the option or separate the states
    /// by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// Select only jobs in this queue
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Select only jobs of this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Select only jobs with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Select only jobs in this batch
    #[arg(long, value_name = "ID")]
    pub(crate) batch: Option<BatchId>,
}

impl Filter {
    pub(crate) fn read(&self) -> Result<JobFilter, InvalidInput> {
        let name = |field, text: &Option<String>| {
            let name = text.as_ref().map(|text| Name::new(field, text));
            name.transpose()
        };
        let mut filter = JobFilter::all();
        filter.states = self.state.iter().map(|state| state.read()).collect();
        filter.queue = name("queue", &self.queue)?;
        filter.kind = name("kind", &self.kind)?;
        filter.tag = name("tag", &self.tag)?;
        filter.batch = self.batch;
        Ok(filter)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    Pending,
    Blocked,
    Paused,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl State {
    pub(crate) const fn read(self) -> JobState {
        match self {
            Self::Pending => JobState::Pending,
            Self::Blocked => JobState::Blocked,
            Self::Paused => JobState::Paused,
            Self::Running => JobState::Running,
            Self::Succeeded => JobState::Succeeded,
            Self::Failed => JobState::Failed,
            Self::Cancelled => JobState::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Order {
    #[default]
    Newest,
    Oldest,
}

impl Order {
    pub(crate) const fn read(self) -> JobOrder {
        match self {
            Self::Newest => JobOrder::NewestFirst,
            Self::Oldest => JobOrder::OldestFirst,
        }
    }
}

/// Options that select the jobs for an action: all jobs that match a filter, or all jobs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bulk {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Act on all jobs; required if no filter is given
    #[arg(long)]
    pub(crate) all: bool,
    /// The maximum number of jobs to act on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The arguments of `ratchet jobs purge`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Purge {
    /// Delete only jobs that ended more than this time ago, such as 30d or 12h
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) older_than: Duration,
    /// Delete only jobs in this state; may be repeated; by default succeeded, failed and cancelled
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// The maximum number of jobs to delete
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The arguments of `ratchet enqueue`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Enqueue {
    /// The kind of the job
    pub(crate) kind: String,
    /// The payload as JSON, or `-` to read the payload from stdin
    pub(crate) payload: String,
    /// The queue of the job; by default `default`
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// The priority of the job
    #[arg(long, value_enum)]
    pub(crate) priority: Option<Priority>,
    /// The delay until the job is due, such as 30s or 2h
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) delay: Option<Duration>,
    /// The time at which the job is due, such as 2030-12-31T23:59:00Z
    #[arg(long, value_parser = parse::time, value_name = "TIME", conflicts_with = "delay")]
    pub(crate) at: Option<DateTime<Utc>>,
    /// Cancel the job if no node has claimed it within this time, such as 5m; with --delay or
    /// without a due time
    #[arg(long, value_parser = parse::duration, value_name = "DURATION", conflicts_with = "at")]
    pub(crate) expires_in: Option<Duration>,
    /// Cancel the job if no node has claimed it by this time, such as 2030-12-31T23:59:00Z; with
    /// --at or without a due time
    #[arg(
        long,
        value_parser = parse::time,
        value_name = "TIME",
        conflicts_with_all = ["expires_in", "delay"]
    )]
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// A tag by which the job can be found; may be repeated
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// The unique key; nothing is enqueued if an unfinished job has the same key
    #[arg(long, value_name = "KEY")]
    pub(crate) unique_key: Option<String>,
    /// What to do if an unfinished job has the same unique key
    #[arg(long, value_enum, value_name = "HOW", requires = "unique_key")]
    pub(crate) on_conflict: Option<OnConflict>,
    /// How long after its enqueue `--on-conflict debounce` may make the waiting job due
    #[arg(
        long,
        value_parser = parse::duration,
        value_name = "DURATION",
        requires = "on_conflict",
        required_if_eq("on_conflict", "debounce")
    )]
    pub(crate) max_delay: Option<Duration>,
    /// The idempotency key; nothing is enqueued if an earlier job had the same key
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// How long the idempotency key stays used, such as 24h; by default for ever
    #[arg(
        long,
        value_parser = parse::duration,
        value_name = "DURATION",
        requires = "idempotency_key"
    )]
    pub(crate) unique_for: Option<Duration>,
    /// The capability that a node must have to run the job
    #[arg(long)]
    pub(crate) capability: Option<String>,
    /// The lane inside the queue; jobs of one lane run one after the other
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// The resource for which the job needs a permit to run
    #[arg(long, value_name = "RESOURCE")]
    pub(crate) permit: Option<String>,
    /// The timeout of one attempt, such as 30s or 5m
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// The version of the payload's format
    #[arg(long, value_name = "N")]
    pub(crate) payload_version: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnConflict {
    /// Enqueue nothing
    Keep,
    /// Replace the payload of a waiting job; run after a running job
    Replace,
    /// As replace, and make a waiting job due later
    Debounce,
    /// As replace, and cancel a running job
    Restart,
}

impl OnConflict {
    /// Returns the value for a job. `max_delay` is set if the value is `Debounce`.
    pub(crate) fn read(self, max_delay: Option<Duration>) -> ratchet::OnConflict {
        match self {
            Self::Keep => ratchet::OnConflict::Keep,
            Self::Replace => ratchet::OnConflict::Replace,
            Self::Debounce => ratchet::OnConflict::Debounce {
                max_delay: max_delay.unwrap_or_default(),
            },
            Self::Restart => ratchet::OnConflict::Restart,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Priority {
    Lowest,
    Low,
    Normal,
    High,
    Critical,
}

impl Priority {
    pub(crate) const fn read(self) -> ratchet::Priority {
        match self {
            Self::Lowest => ratchet::Priority::Lowest,
            Self::Low => ratchet::Priority::Low,
            Self::Normal => ratchet::Priority::Normal,
            Self::High => ratchet::Priority::High,
            Self::Critical => ratchet::Priority::Critical,
        }
    }
}
