//! Measures age: runs millions of jobs through one database, whose node deletes them again, and
//! shows whether the jobs become slower or the database larger.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ratchet::{Client, Job, JobContext, JobResult, NewJob, Ratchet, Requires, Retain, Retention};
use ratchet_bench::figures::{per_second, percentiles};
use ratchet_bench::load::{Clock, wait_for};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::gauges::Gauges;
use crate::server::on_database;
use crate::sizes::Sizes;

/// Number of parts of a run that are compared.
const TENTHS: usize = 10;
/// Approximate number of latencies that are kept for each tenth.
const SAMPLES: usize = 50_000;
/// How often the node deletes jobs whose retention time has passed.
const PURGE: Duration = Duration::from_secs(1);
/// Time without progress after which the run fails.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// The URL of an empty database, or of a server with --fresh
    #[arg(long)]
    url: String,
    /// Number of jobs
    #[arg(long, default_value_t = 5_000_000)]
    jobs: usize,
    /// Number of concurrent producers
    #[arg(long, default_value_t = 8)]
    producers: usize,
    /// Number of jobs per enqueue call
    #[arg(long, default_value_t = 100)]
    batch: u32,
    /// Maximum number of jobs that are enqueued and have not begun
    #[arg(long, default_value_t = 2_000)]
    backlog: u32,
    /// Maximum number of bodies that run at once
    #[arg(long, default_value_t = 32)]
    concurrency: usize,
    /// Retention of finished jobs, in seconds
    #[arg(long, default_value_t = 10)]
    keep: u32,
    /// Create a database on the server for this run, and drop it at the end (PostgreSQL, MySQL,
    /// SQL Server, MongoDB)
    #[arg(long)]
    fresh: bool,
}

/// The result of a run.
#[derive(Debug, Serialize)]
struct Figures {
    jobs: usize,
    /// Jobs that ran more than once.
    duplicates: usize,
    tenths: Vec<Tenth>,
    /// The last tenth divided by the first, by the heading of the figure.
    last_to_first: BTreeMap<&'static str, f64>,
    /// The largest figure of the last five tenths divided by the largest of the first five, by the
    /// heading of the figure. About 1 if a size has reached its plateau.
    later_to_earlier: BTreeMap<&'static str, f64>,
}

/// One tenth of a run. The sizes are those at its end.
#[derive(Debug, Default, Serialize)]
struct Tenth {
    jobs_per_s: f64,
    /// The 50th, 95th and 99th percentile and the maximum of the start latencies, in milliseconds.
    /// A start latency is the time from the call of the enqueue to the start of the body.
    start_ms: [f64; 4],
    /// Finished jobs that have not been deleted.
    kept: u64,
    /// Resident memory of this process, in bytes.
    memory: Option<u64>,
    sizes: Sizes,
}

/// The heading of a figure, and how it is read. The result is `None` if the figure is unknown.
type Column = (&'static str, fn(&Tenth) -> Option<f64>);

/// The columns of the table.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
const COLUMNS: [Column; 9] = {
    const MIB: f64 = (1 << 20) as f64;
    [
        ("jobs/s", |it| Some(it.jobs_per_s)),
        ("p50 ms", |it| Some(it.start_ms[0])),
        ("p99 ms", |it| Some(it.start_ms[2])),
        ("kept jobs", |it| Some(it.kept as f64)),
        ("disk MiB", |it| {
            it.sizes.disk.map(|bytes| bytes as f64 / MIB)
        }),
        ("tables MiB", |it| {
            it.sizes
                .sum(|it| Some(it.bytes))
                .map(|bytes| bytes as f64 / MIB)
        }),
        ("indexes MiB", |it| {
            it.sizes
                .sum(|it| Some(it.index_bytes))
                .map(|bytes| bytes as f64 / MIB)
        }),
        ("dead rows", |it| {
            it.sizes.sum(|it| it.dead_rows).map(|rows| rows as f64)
        }),
        ("memory MiB", |it| it.memory.map(|bytes| bytes as f64 / MIB)),
    ]
};

/// A job that knows when it was enqueued.
#[derive(Serialize, Deserialize)]
struct Aged {
    enqueued: Duration,
    text: String,
}

impl Job for Aged {
    const KIND: &'static str = "ratchet-bench-soak";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        ctx.state::<Arc<Load>>().began(self.enqueued);
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Load>>()
    }
}

/// State that the producers and the bodies share. Its size does not depend on the age of the run.
struct Load {
    clock: Clock,
    jobs: usize,
    batch: u32,
    enqueued: AtomicUsize,
    /// One permit for each job that may be enqueued now.
    room: Semaphore,
    runs: AtomicUsize,
    /// Only the latency of each `stride`-th run is kept.
    stride: usize,
    latencies: Mutex<Vec<Duration>>,
}

impl Load {
    fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            jobs: options.jobs,
            batch: options.batch,
            enqueued: AtomicUsize::new(0),
            room: Semaphore::new(options.backlog as usize),
            runs: AtomicUsize::new(0),
            stride: (options.jobs / TENTHS / SAMPLES).max(1),
            latencies: Mutex::default(),
        })
    }

    /// Enqueues jobs until all are enqueued. Waits while the backlog is full.
    async fn produce(self: Arc<Self>, client: Client) -> Result<()> {
        loop {
            let first = self
                .enqueued
                .fetch_add(self.batch as usize, Ordering::Relaxed);
            if first >= self.jobs {
                return Ok(());
            }
            let last = self.jobs.min(first + self.batch as usize);
            let count = u32::try_from(last - first)?;
            self.room.acquire_many(count).await?.forget();
            let enqueued = self.clock.elapsed();
            let job = |_| {
                let text = "0123456789abcdef".repeat(4);
                Aged { enqueued, text }.into_job()
            };
            let jobs: Vec<NewJob> = (first..last).map(job).collect();
            client.enqueue_all(&jobs).await?;
        }
    }

    fn began(&self, enqueued: Duration) {
        self.room.add_permits(1);
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        if run.is_multiple_of(self.stride) {
            let latency = self.clock.elapsed().saturating_sub(enqueued);
            self.latencies().push(latency);
        }
    }

    fn latencies(&self) -> std::sync::MutexGuard<'_, Vec<Duration>> {
        self.latencies
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Runs the scenario. Prints the table to stderr while the jobs run, and returns the figures as one
/// line of JSON.
pub(crate) async fn run(options: Options) -> Result<String> {
    ensure!(options.jobs >= TENTHS, "--jobs must be at least {TENTHS}");
    ensure!(options.producers > 0, "--producers must be at least 1");
    ensure!(options.concurrency > 0, "--concurrency must be at least 1");
    ensure!(options.batch > 0, "--batch must be at least 1");
    ensure!(
        options.backlog >= options.batch,
        "--backlog must be at least --batch"
    );
    let figures = on_database(&options.url, options.fresh, false, async |url| {
        measure(url, &options).await
    });
    Ok(serde_json::to_string(&figures.await?)?)
}

async fn measure(url: &str, options: &Options) -> Result<Figures> {
    let store = ratchet::connect(url).await?;
    let load = Load::new(options);
    let keep = Duration::from_secs(options.keep.into());
    let node = Ratchet::builder(Arc::clone(&store))
        .register::<Aged>()
        .state(Arc::clone(&load))
        .concurrency(options.concurrency)
        .retention(Retention::all(Retain::Delete(keep)))
        .maintenance_interval(PURGE)
        .build()?;
    let mut gauges = Gauges::open(url).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn({
        let node = node.clone();
        async move { node.run_until(stopped).await }
    });
    let mut producers = JoinSet::new();
    for _ in 0..options.producers {
        producers.spawn(Arc::clone(&load).produce(node.client().clone()));
    }

    eprintln!("{}", heading());
    let mut tenths = Vec::new();
    let (mut finished, mut since) = (0, Duration::ZERO);
    for number in 1..=TENTHS {
        let goal = options.jobs * number / TENTHS;
        wait_for(goal, STUCK, || {
            if let Some(ended) = producers.try_join_next() {
                ended??;
            }
            ensure!(
                !running.is_finished(),
                "the node stopped before all jobs had ended"
            );
            Ok(usize::try_from(node.stats().finished)?)
        })
        .await?;
        let (stats, now) = (node.stats(), load.clock.elapsed());
        let ended = usize::try_from(stats.finished)?;
        let latencies = std::mem::take(&mut *load.latencies());
        let tenth = Tenth {
            jobs_per_s: per_second(ended - finished, now - since).round(),
            start_ms: percentiles(latencies).unwrap_or_default(),
            kept: stats.finished.saturating_sub(stats.deleted),
            memory: resident_memory(),
            sizes: gauges.sizes().await?,
        };
        (finished, since) = (ended, now);
        let cells = COLUMNS.map(|(_, read)| read(&tenth));
        eprintln!("{}", row(&number.to_string(), cells));
        tenths.push(tenth);
    }
    drop(stop);
    running.await??;
    store.close().await;
    let trends = [last_to_first, later_to_earlier].map(|trend| trends(&tenths, trend));
    for (name, trend) in ["last ÷ first", "later ÷ earlier half"].iter().zip(&trends) {
        let cells = COLUMNS.map(|(heading, _)| trend.get(heading).copied());
        eprintln!("{}", row(name, cells));
    }
    let [last_to_first, later_to_earlier] = trends;
    Ok(Figures {
        jobs: options.jobs,
        duplicates: load
            .runs
            .load(Ordering::Relaxed)
            .saturating_sub(options.jobs),
        tenths,
        last_to_first,
        later_to_earlier,
    })
}

/// Returns the trend of each figure, by its heading. Leaves out figures that are unknown or 0.
fn trends(tenths: &[Tenth], trend: fn(&[f64]) -> Option<f64>) -> BTreeMap<&'static str, f64> {
    let of = |(heading, read): Column| {
        let figures: Option<Vec<f64>> = tenths.iter().map(read).collect();
        let trend = trend(&figures?)?;
        trend.is_finite().then_some((heading, trend))
    };
    COLUMNS.into_iter().filter_map(of).collect()
}

fn last_to_first(figures: &[f64]) -> Option<f64> {
    Some(figures.last()? / figures.first()?)
}

/// Returns the largest figure of the second half, divided by the largest of the first half.
fn later_to_earlier(figures: &[f64]) -> Option<f64> {
    let (earlier, later) = figures.split_at(figures.len() / 2);
    let largest = |half: &[f64]| half.iter().copied().reduce(f64::max);
    Some(largest(later)? / largest(earlier)?)
}

fn heading() -> String {
    let columns = COLUMNS.map(|(heading, _)| heading).join(" | ");
    format!(
        "| tenth | {columns} |\n|---|{}",
        "---:|".repeat(COLUMNS.len())
    )
}

fn row(name: &str, cells: [Option<f64>; COLUMNS.len()]) -> String {
    let cell = |figure: Option<f64>| match figure {
        None => "–".to_owned(),
        Some(large) if large >= 100.0 => format!("{large:.0}"),
        Some(small) => format!("{small:.2}"),
    };
    format!("| {name} | {} |", cells.map(cell).join(" | "))
}

/// Returns the resident memory of this process in bytes. Returns `None` if the system is not Linux.
fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Relation;

    fn tenths(count: usize) -> Vec<Tenth> {
        let tenth = |n: usize| {
            let bytes = [1 << 20, 5 << 20, 4 << 20, 6 << 20][n];
            Tenth {
                jobs_per_s: [1000.0, 900.0, 950.0, 800.0][n],
                sizes: Sizes {
                    disk: None,
                    relations: vec![Relation {
                        bytes,
                        ..Relation::default()
                    }],
                },
                ..Tenth::default()
            }
        };
        (0..count).map(tenth).collect()
    }

    #[test]
    fn the_last_tenth_is_compared_with_the_first() {
        let trends = trends(&tenths(4), last_to_first);
        assert_eq!(trends.get("jobs/s"), Some(&0.8));
        assert_eq!(trends.get("tables MiB"), Some(&6.0));
        assert_eq!(trends.get("disk MiB"), None, "the size is unknown");
        assert_eq!(trends.get("indexes MiB"), None, "the size was 0");
    }

    #[test]
    fn a_plateau_is_seen_in_the_largest_sizes() {
        assert_eq!(
            trends(&tenths(4), later_to_earlier).get("tables MiB"),
            Some(&1.2)
        );
        assert_eq!(later_to_earlier(&[1.0, 4.0, 4.0, 3.0]), Some(1.0));
        assert_eq!(later_to_earlier(&[]), None);
    }

    #[test]
    fn a_row_shows_large_and_small_figures_and_gaps() {
        let mut cells = [None; COLUMNS.len()];
        cells[0] = Some(12_345.6);
        cells[2] = Some(0.126);
        let shown = row("3", cells);
        assert_eq!(shown, "| 3 | 12346 | – | 0.13 | – | – | – | – | – | – |");
        let columns = |line: &str| line.matches('|').count();
        for line in heading().lines() {
            assert_eq!(columns(line), columns(&shown));
        }
    }
}
