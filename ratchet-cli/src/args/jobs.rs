//! The arguments of `ratchet jobs` and `ratchet enqueue`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use ratchet::{BatchId, InvalidInput, JobFilter, JobId, JobOrder, JobState, Name};

use super::parse;

/// Jobs.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    pub(crate) command: JobsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// The maximum number of jobs to list; 50 by default, or all with --stream
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// Only jobs that come after this one in the order of the list
        #[arg(long, value_name = "ID")]
        after: Option<JobId>,
        /// The order of the list
        #[arg(long, value_enum, default_value_t)]
        order: Order,
        /// With --json: write one line for each job as it is read
        #[arg(long)]
        stream: bool,
    },
    /// Show one job with its attempts
    Show {
        /// The id of the job
        id: JobId,
        /// Show payload, result and checkpoint, which may be confidential
        #[arg(long)]
        payload: bool,
    },
    /// Make dead letters pending again, with a fresh count of attempts
    Retry {
        /// The ids of the jobs
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Cancel jobs: at once if they wait; running jobs get the request within a heartbeat
    Cancel {
        /// The ids of the jobs; alternatively, give a filter or --all
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
    /// Make all matching dead letters pending again
    Requeue {
        #[command(flatten)]
        bulk: Bulk,
    },
    /// Delete jobs that ended more than a given time ago
    Purge(Purge),
}

/// A filter of jobs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only jobs in this state; may be repeated, or have several states separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// Only jobs in this queue
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only jobs of this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only jobs with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Only jobs in this batch
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

/// The jobs that an action applies to: those that match a filter, or all.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bulk {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Act on every job; required if there is no filter
    #[arg(long)]
    pub(crate) all: bool,
    /// The maximum number of jobs to act on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The ended jobs to delete.
#[derive(Args, Clone, Debug)]
pub(crate) struct Purge {
    /// Only jobs that ended more than this time ago, such as 30d or 12h
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) older_than: Duration,
    /// Only jobs in this state; may be repeated; by default succeeded, failed and cancelled
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// The maximum number of jobs to delete
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The job to enqueue.
#[derive(Args, Clone, Debug)]
pub(crate) struct Enqueue {
    /// The kind of the job
    pub(crate) kind: String,
    /// The payload as JSON, or `-` to read it from stdin
    pub(crate) payload: String,
    /// The queue; `default` if not given
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// The priority
    #[arg(long, value_enum)]
    pub(crate) priority: Option<Priority>,
    /// The delay until the job is due, such as 30s or 2h
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) delay: Option<Duration>,
    /// The time at which the job is due, such as 2030-12-31T23:59:00Z
    #[arg(long, value_parser = parse::time, value_name = "TIME", conflicts_with = "delay")]
    pub(crate) at: Option<DateTime<Utc>>,
    /// A tag to find the job by; may be repeated
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// The unique key: at most one unfinished job has it
    #[arg(long, value_name = "KEY")]
    pub(crate) unique_key: Option<String>,
    /// The idempotency key: at most one job ever has it
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// The capability that a node needs to run the job
    #[arg(long)]
    pub(crate) capability: Option<String>,
    /// The lane inside the queue; jobs of one lane run one after the other
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// The resource of which the job needs a permit to run
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
