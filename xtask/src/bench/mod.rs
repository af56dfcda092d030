//! Measures every backend and its *floor* side by side, and prints one Markdown table. The floor is
//! a hand-written loop on the same database, without Ratchet.
//!
//! The rounds are interleaved, so that temporary load on the machine affects every subject. The
//! table shows the medians of the rounds. `--compare` measures two revisions instead, see
//! [`compare`].

mod compare;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use ratchet_bench::figures::{Outcome, median};

use crate::backends::{BACKENDS, Backend};
use crate::db::Server;
use crate::process;

pub(crate) use self::compare::Slower;

/// How much to measure, and on which backends.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Jobs per run of `enqueue` and `drain` [default: 100000, with --quick 10000].
    #[arg(long)]
    jobs: Option<u64>,
    /// Runs briefly, to check that everything works; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// How many times each scenario is measured [default: 3, with --quick 1, with --compare 5].
    #[arg(long)]
    rounds: Option<u64>,
    /// The backends to measure [default: all, with --compare sqlite and postgres].
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Measures only scenarios whose line begins with one of these words, such as `drain`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The server to measure a backend on; its user may create databases [default: one that is
    /// started for this run, or that the environment names].
    #[arg(long, value_name = "BACKEND=URL")]
    server: Vec<String>,
    /// Compares the working tree with this revision, and prints the ratios of their figures with
    /// confidence intervals. Exits with status 3 if a figure is worse.
    #[arg(long, value_name = "REV")]
    compare: Option<String>,
    /// A figure is worse if the confidence interval of its ratio lies wholly below this ratio.
    #[arg(long, default_value_t = 0.95, requires = "compare")]
    threshold: f64,
    /// The profile of cargo for the build; `dev` is only for trying the command.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// A program that is measured.
struct Subject {
    heading: String,
    peer: &'static str,
    backend: &'static str,
    /// Whether the subject is Ratchet's engine, which runs every scenario. The floor is a loop that
    /// runs only some scenarios.
    engine: bool,
}

/// The backends that have a floor.
const FLOORS: [&str; 3] = ["sqlite", "postgres", "mysql"];

/// Every backend, followed by its floor if it has one.
static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let mut subjects = Vec::new();
    for Backend { name, bench, .. } in &BACKENDS {
        let Some(heading) = bench else { continue };
        subjects.push(Subject {
            heading: (*heading).to_owned(),
            peer: "ratchet",
            backend: name,
            engine: true,
        });
        if FLOORS.contains(name) {
            subjects.push(Subject {
                heading: format!("floor on {heading}"),
                peer: "floor",
                backend: name,
                engine: false,
            });
        }
    }
    subjects
});

/// Returns the pairs whose ratio the last columns show: a backend and its floor.
fn ratios() -> impl Iterator<Item = (usize, usize)> {
    let floors = (1..SUBJECTS.len()).filter(|place| !SUBJECTS[*place].engine);
    floors.map(|floor| (floor - 1, floor))
}

/// A scenario that is measured.
struct Scenario {
    heading: String,
    args: Vec<String>,
    /// Whether only the engine runs the scenario, and not the floor.
    engine: bool,
    /// Whether only backends with a server run the scenario.
    server: bool,
    /// The fields of the result to show, with their units.
    fields: Fields,
}

type Fields = &'static [(fn(&Outcome) -> Option<f64>, &'static str)];

const JOBS_PER_S: (fn(&Outcome) -> Option<f64>, &str) = (|it| Some(it.jobs_per_s), "jobs/s");
const RATE: Fields = &[JOBS_PER_S];
const LATENCY: Fields = &[
    (|it| Some(it.p50_ms), "p50 ms"),
    (|it| Some(it.p99_ms), "p99 ms"),
    (|it| Some(it.max_ms), "max ms"),
];
const COST: Fields = &[JOBS_PER_S, (|it| it.wal_bytes_per_job, "WAL bytes/job")];
const STATEMENTS: Fields = &[(|it| it.statements_per_job, "statements/job")];
#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
const CONTEND: Fields = &[
    JOBS_PER_S,
    (|it| Some(it.claims as f64), "claims"),
    (
        |it| it.empty_claims.map(|count| count as f64),
        "claims in vain",
    ),
];
const CLAIM: Fields = &[
    (|it| Some(it.p50_ms), "p50 ms"),
    (|it| Some(it.p99_ms), "p99 ms"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let rounds = match (args.rounds, &args.compare) {
        (Some(rounds), _) => rounds,
        (None, Some(_)) => compare::ROUNDS,
        (None, None) if args.quick => 1,
        (None, None) => 3,
    };
    if rounds == 0 || args.jobs == Some(0) {
        bail!("--rounds and --jobs must be at least 1");
    }
    let scenarios = scenarios(args);
    let target = process::target_dir()?;
    match &args.compare {
        Some(revision) => compare::run(args, revision, rounds, &scenarios, &target),
        None => measure_all(args, rounds, &scenarios, &target),
    }
}

/// Measures every backend and its floor.
fn measure_all(args: &Args, rounds: u64, scenarios: &[Scenario], target: &Path) -> Result<()> {
    let program = build(&process::root(), target, &args.profile)?;
    let chosen = |backend: &str| {
        args.backend.is_empty() || args.backend.iter().any(|chosen| chosen == backend)
    };
    let servers = servers(args, chosen);
    let available = |subject: &Subject| is_available(subject, &servers, chosen);

    // `results[scenario][subject]` has one outcome per round.
    let mut results = vec![vec![Vec::new(); SUBJECTS.len()]; scenarios.len()];
    for round in 1..=rounds {
        for (scenario, results) in scenarios.iter().zip(&mut results) {
            for (subject, results) in SUBJECTS.iter().zip(results) {
                if !available(subject) || !scenario.is_for(subject) {
                    continue;
                }
                eprintln!(
                    "round {round} of {rounds}: {}, {}",
                    subject.heading, scenario.heading
                );
                results.push(measure(&program, target, &servers, subject, scenario)?);
            }
        }
    }

    print_origin(&servers, &args.profile);
    print!("\n{}", table(scenarios, &results));
    fail_if_wrong(&wrong_runs(scenarios, &results))
}

/// Builds `ratchet-bench` from the sources in `root`. Returns the path of the program.
fn build(root: &Path, target: &Path, profile: &str) -> Result<PathBuf> {
    let mut cargo = process::cargo(&["build", "--profile", profile]);
    cargo.args(["--package", "ratchet-jobs-bench", "--target-dir"]);
    process::run(cargo.arg(target).current_dir(root))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target.join(folder).join("ratchet-bench"))
}

/// Returns the servers of the chosen backends. Leaves out servers that cannot be started.
fn servers(args: &Args, chosen: impl Fn(&str) -> bool) -> Servers {
    let mut servers = Servers::new();
    for backend in BACKENDS.iter().filter(|backend| chosen(backend.name)) {
        if let (Some(needs), Some(_)) = (&backend.server, backend.bench) {
            let named = args
                .server
                .iter()
                .filter_map(|server| server.split_once('='));
            let mut named = named.filter(|(name, _)| *name == backend.name);
            let server = match named.next() {
                Some((_, url)) => Ok(Server::named(url.to_owned())),
                None => (needs.own)(),
            };
            match server {
                Ok(server) => drop(servers.insert(backend.name, server)),
                Err(reason) => eprintln!("note: leaving out {}: {reason:#}", backend.name),
            }
        }
    }
    servers
}

fn is_available(subject: &Subject, servers: &Servers, chosen: impl Fn(&str) -> bool) -> bool {
    let present = !is_server(subject.backend) || servers.contains_key(subject.backend);
    chosen(subject.backend) && present
}

/// Prints on which machine and servers the figures were measured.
fn print_origin(servers: &Servers, profile: &str) {
    println!("\n{}, {profile} build", machine());
    for (name, server) in servers {
        println!(
            "{name}: {}; with the store's default durability",
            server.origin
        );
    }
}

fn fail_if_wrong(wrong: &[String]) -> Result<()> {
    if !wrong.is_empty() {
        bail!("jobs were lost or ran twice\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// The available servers, by the name of the backend.
type Servers = BTreeMap<&'static str, Server>;

fn is_server(name: &str) -> bool {
    let mut backends = BACKENDS.iter();
    backends.any(|backend| backend.name == name && backend.server.is_some())
}

fn scenarios(args: &Args) -> Vec<Scenario> {
    let jobs = args
        .jobs
        .unwrap_or(if args.quick { 10_000 } else { 100_000 });
    let seconds = if args.quick { 3 } else { 15 };
    let scenario = |heading: String, fields, line: String| Scenario {
        heading,
        args: line.split_whitespace().map(str::to_owned).collect(),
        engine: false,
        server: false,
        fields,
    };
    let enqueue = |heading: &str, batch: u64| {
        let line = format!("enqueue --jobs {jobs} --producers 8 --batch {batch}");
        scenario(heading.to_owned(), COST, line)
    };
    let drain = |jobs: u64, heading: &str, more: &str| {
        let heading = format!("drain {} jobs{heading}", grouped(jobs as f64));
        let line = format!("drain --jobs {jobs} --concurrency 32 {more}");
        scenario(heading, RATE, line)
    };
    // These scenarios have more jobs, so that the one-time work of each node (connections, plans)
    // matters little.
    let together = |nodes: usize| Scenario {
        engine: true,
        server: nodes > 1,
        ..drain(
            4 * jobs,
            &format!(", {nodes} node{}", if nodes == 1 { "" } else { "s" }),
            &format!("--nodes {nodes}"),
        )
    };
    let watched = |dashboards: usize| Scenario {
        engine: true,
        ..drain(
            4 * jobs,
            &format!(", 1 node, {dashboards} dashboards open on it"),
            &format!("--dashboards {dashboards}"),
        )
    };
    let latency = |heading: &str, more: &str| {
        scenario(
            format!("latency at 200 jobs/s{heading}"),
            LATENCY,
            format!("latency --rate 200 --seconds {seconds} {more}"),
        )
    };
    let claim = |backlog: u64| Scenario {
        engine: true,
        ..scenario(
            format!("claim of 50, {} waiting", grouped(backlog as f64)),
            CLAIM,
            format!("claim --backlog {backlog}"),
        )
    };
    let contend = |claimers: usize| Scenario {
        engine: true,
        server: true,
        ..scenario(
            format!(
                "{claimers} claimer{} of 50 at one queue",
                if claimers == 1 { "" } else { "s" }
            ),
            CONTEND,
            format!("contend --nodes {claimers} --jobs {jobs}"),
        )
    };
    let counted = |heading: &str, line: &str| Scenario {
        server: true,
        ..scenario(
            heading.to_owned(),
            STATEMENTS,
            format!("{line} --jobs 10000 --count"),
        )
    };
    let mut scenarios = vec![
        enqueue("enqueue one by one, 8 producers", 1),
        enqueue("enqueue in hundreds, 8 producers", 100),
        Scenario {
            fields: COST,
            ..drain(jobs, "", "")
        },
        Scenario {
            server: true,
            ..drain(jobs, ", a snapshot held", "--held-snapshot")
        },
        together(1),
        watched(100),
        together(2),
        together(4),
        latency("", ""),
        Scenario {
            engine: true,
            ..latency(", found by polling", "--unheard")
        },
        claim(1_000),
        claim(if args.quick { 100_000 } else { 1_000_000 }),
        contend(1),
        contend(4),
        contend(16),
        counted("enqueue one by one, counted", "enqueue"),
        counted("enqueue in hundreds, counted", "enqueue --batch 100"),
        counted("drain, counted", "drain"),
    ];
    scenarios.retain(|scenario| args.only.is_empty() || args.only.contains(&scenario.args[0]));
    scenarios
}

impl Scenario {
    fn is_for(&self, subject: &Subject) -> bool {
        // Only PostgreSQL supports these options.
        let own = ["--held-snapshot", "--count"];
        let own = self.args.iter().any(|arg| own.contains(&arg.as_str()));
        if own && subject.backend != "postgres" {
            return false;
        }
        let server = is_server(subject.backend);
        (subject.engine || !self.engine) && (server || !self.server)
    }
}

/// Runs one measurement on a fresh database. Its files are in the target directory, which is
/// usually on a real disk, unlike the system's temporary directory.
fn measure(
    program: &Path,
    target: &Path,
    servers: &Servers,
    subject: &Subject,
    scenario: &Scenario,
) -> Result<Outcome> {
    let dir = target.join("xtask").join("bench");
    if dir.is_dir() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let url = match (subject.backend, servers.get(subject.backend)) {
        ("memory", _) => "memory:".to_owned(),
        (_, Some(server)) => server.url.clone(),
        (scheme, _) => format!("{scheme}://{}", dir.join("bench.db").display()),
    };
    let mut bench = process::program(program);
    bench
        .args(&scenario.args)
        .args(["--peer", subject.peer, "--url", &url]);
    if is_server(subject.backend) {
        bench.arg("--fresh");
    }
    let output = process::read(&mut bench)?;
    fs::remove_dir_all(&dir)?;
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.context("ratchet-bench printed no result")?;
    serde_json::from_str(line)
        .with_context(|| format!("ratchet-bench printed an invalid result: {line}"))
}

fn table(scenarios: &[Scenario], results: &[Vec<Vec<Outcome>>]) -> String {
    let measured = |subject: usize| results.iter().any(|results| !results[subject].is_empty());
    let shown: Vec<usize> = (0..SUBJECTS.len()).filter(|one| measured(*one)).collect();
    let ratios: Vec<(usize, usize)> = ratios()
        .filter(|(mine, floor)| measured(*mine) && measured(*floor))
        .collect();

    let mut headings: Vec<String> = vec!["scenario".to_owned(), "unit".to_owned()];
    headings.extend(shown.iter().map(|one| SUBJECTS[*one].heading.clone()));
    headings.extend(ratios.iter().map(|(mine, floor)| {
        let (top, bottom) = (&SUBJECTS[*mine].heading, &SUBJECTS[*floor].heading);
        format!("{top} ÷ {bottom}")
    }));
    let numbers = "---:|".repeat(headings.len() - 2);
    let mut lines = vec![row(&headings), format!("|---|---|{numbers}")];
    for (scenario, results) in scenarios.iter().zip(results) {
        for (field, unit) in scenario.fields {
            let of = |rounds: &Vec<Outcome>| median(rounds.iter().filter_map(field).collect());
            let medians: Vec<Option<f64>> = results.iter().map(of).collect();
            let mut cells = vec![scenario.heading.clone(), (*unit).to_owned()];
            cells.extend(shown.iter().map(|one| or_gap(medians[*one].map(grouped))));
            cells.extend(ratios.iter().map(|(mine, floor)| {
                let both = medians[*mine].zip(medians[*floor]);
                let both = both.filter(|(_, floor)| *floor > 0.0);
                or_gap(both.map(|(mine, floor)| format!("{:.2}", mine / floor)))
            }));
            lines.push(row(&cells));
        }
    }
    lines.join("\n") + "\n"
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn or_gap(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "–".to_owned())
}

/// Returns the runs in which a job was lost or ran twice.
fn wrong_runs(scenarios: &[Scenario], results: &[Vec<Vec<Outcome>>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (scenario, results) in scenarios.iter().zip(results) {
        for (subject, rounds) in SUBJECTS.iter().zip(results) {
            for round in rounds {
                wrong.extend(wrong_counts(&subject.heading, &scenario.heading, round));
            }
        }
    }
    wrong
}

/// Describes the counts of one run that should be 0 and are not.
fn wrong_counts(who: &str, what: &str, run: &Outcome) -> Vec<String> {
    let counts = [(run.missing, "missing"), (run.duplicates, "duplicates")];
    let wrong = counts.into_iter().filter(|(count, _)| *count > 0);
    let line = |(count, field)| format!("{who}, {what}: {count} {field}");
    wrong.map(line).collect()
}

/// Formats a number for people: 1234567 becomes 1,234,567, and small numbers keep their decimals.
fn grouped(number: f64) -> String {
    if number < 100.0 && number.fract() != 0.0 {
        return format!("{number:.2}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Describes the machine on which the figures were measured.
fn machine() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| {
        rest.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let rustc = process::read(process::program("rustc").arg("--version")).unwrap_or_default();
    format!(
        "{model}, {cores} cores, {} {}, {}",
        std::env::consts::OS,
        kernel.trim(),
        rustc.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let shown = [0.0, 0.456, 12.3, 999.6, 1_234_567.0].map(grouped);
        assert_eq!(shown, ["0", "0.46", "12.30", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_table_shows_medians_ratios_and_gaps() {
        let args = Args {
            jobs: Some(10),
            quick: true,
            rounds: None,
            backend: vec![],
            only: vec![],
            server: vec![],
            compare: None,
            threshold: 0.95,
            profile: "release".to_owned(),
        };
        let scenarios = &scenarios(&args)[..1];
        let result = |jobs_per_s: f64| {
            vec![Outcome {
                jobs_per_s,
                ..Outcome::default()
            }]
        };
        let (none, some) = (Vec::new, result);
        let mut measured = vec![none(), some(600.0), some(1000.0), some(90.0)];
        measured.resize_with(SUBJECTS.len(), none);
        let results = [measured];
        let shown = table(scenarios, &results);
        let lines: Vec<&str> = shown.lines().collect();
        let heading = "| scenario | unit | SQLite | floor on SQLite | PostgreSQL \
                       | SQLite ÷ floor on SQLite |";
        assert_eq!(lines[..2], [heading, "|---|---|---:|---:|---:|---:|"]);
        assert_eq!(
            lines[2],
            "| enqueue one by one, 8 producers | jobs/s | 600 | 1,000 | 90 | 0.60 |"
        );
        assert!(wrong_runs(scenarios, &results).is_empty());
    }
}
