//! The test command: runs every test, the examples in the documentation and the example programs,
//! and then prints a summary that says which backends ran.

mod counts;
mod nextest;
mod servers;
mod summary;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Result, anyhow, bail};

use self::counts::Counts;
use self::nextest::{Ended, Reader};
use self::servers::Servers;
use crate::load::Load;
use crate::matrix::{self, Report};
use crate::process::{self, Stopwatch};

/// Which tests to run, and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs only what needs no server and little time: unit tests, the engine, and the conformance
    /// suite on memory and SQLite
    #[arg(long)]
    quick: bool,
    /// Runs many random histories of the conformance suite on each store, for hours
    #[arg(long, conflicts_with = "quick")]
    deep: bool,
    /// Runs the tests this many times
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Keeps the processors and the disk busy during the tests
    #[arg(long)]
    under_load: bool,
    /// Arguments for the test runner, such as the name of a test; documentation tests and examples
    /// are then left out
    #[arg(last = true)]
    runner: Vec<String>,
}

/// The program that runs the tests.
#[derive(Clone, Copy)]
enum Runner {
    /// cargo-nextest, which runs every test in a separate process.
    Nextest,
    /// Cargo itself, if nextest is not installed.
    Cargo,
}

/// How many tests run at the same time per processor: tests spend much of their time waiting for
/// servers, the disk and each other.
const TESTS_PER_PROCESSOR: usize = 2;
/// The most tests that run at the same time: each may have a dozen connections, and the PostgreSQL
/// server of the tests allows 200.
const MOST_TESTS: usize = 16;
/// The packages that a quick run tests.
const QUICK: [&str; 4] = [
    "ratchet-jobs-core",
    "ratchet-jobs-config",
    "ratchet-jobs-conformance",
    "ratchet-jobs-store-sqlite",
];
/// The variables of a deep run: the number of random histories per store, the time limit in seconds
/// of the cases that run them, the number of seeds per simulation, and the number of cases per
/// property.
const DEEP: [(&str, &str); 4] = [
    ("RATCHET_HISTORIES", "1000"),
    ("RATCHET_HISTORY_SECONDS", "14000"),
    ("RATCHET_SIM_SEEDS", "2000"),
    ("PROPTEST_CASES", "1000"),
];

/// One finished step.
struct Step {
    /// The name of the step's phase in the summary. Steps of the same kind share a phase.
    phase: &'static str,
    /// Distinguishes the step from the others of its phase; may be empty.
    name: String,
    passed: bool,
    seconds: f64,
    note: String,
    /// The tests of the step, if the runner reports them one by one.
    tests: Vec<Ended>,
}

impl Step {
    fn title(&self) -> String {
        title(self.phase, &self.name)
    }
}

/// Returns the title of a step, such as `tests: run 2 of 5`.
fn title(phase: &str, name: &str) -> String {
    match name {
        "" => phase.to_owned(),
        name => format!("{phase}: {name}"),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !process::works(process::program(c_compiler()).arg("--version")) {
        eprintln!(
            "note: found no C compiler named `cc`, which SQLite needs because it is compiled from \
             source"
        );
    }
    let target = process::target_dir()?;
    let reports = matrix::directory();
    if reports.is_dir() {
        fs::remove_dir_all(&reports)?;
    }
    let whole = !args.quick && args.runner.is_empty();
    let runner = match process::works(&mut process::cargo(&["nextest", "--version"])) {
        true => Runner::Nextest,
        false => Runner::Cargo,
    };

    let mut steps = Vec::new();
    let (built, servers) = thread::scope(|scope| {
        let servers = scope.spawn(|| match args.quick {
            true => Servers::none(),
            false => Servers::start(),
        });
        let built = step("compile", "", || build(args, runner));
        let servers = servers.join();
        (
            built,
            servers.map_err(|_| anyhow!("the thread that starts the servers panicked")),
        )
    });
    let servers = servers??;
    servers.announce();
    let compiled = built.passed;
    steps.push(built);
    let mut report = Report::default();
    if compiled {
        steps.extend(repeated(args, runner, &target, &servers, &mut report)?);
    }
    if compiled && whole {
        steps.push(step("documentation tests", "", || {
            documentation_tests(&servers)
        }));
        steps.extend(examples(&target, &servers)?);
    }
    fs::create_dir_all(target.join("xtask"))?;
    summary::write_times(&steps, &target.join("xtask").join("test-times.tsv"))?;
    let summary = summary::of(&steps, &report, &servers, whole);
    println!("\n== summary");
    summary.lines.iter().for_each(|line| println!("{line}"));
    let failed: Vec<String> = steps
        .iter()
        .filter(|step| !step.passed)
        .map(Step::title)
        .chain(summary.missing.into_iter().map(str::to_owned))
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn c_compiler() -> OsString {
    env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// The result that a step reports when it has ended.
struct Done {
    passed: bool,
    note: String,
    tests: Vec<Ended>,
}

impl Done {
    fn new(passed: bool, note: impl Into<String>) -> Self {
        Self {
            passed,
            note: note.into(),
            tests: Vec::new(),
        }
    }
}

/// Runs a step and records its result. A step that cannot even start has failed.
fn step(phase: &'static str, name: &str, work: impl FnOnce() -> Result<Done>) -> Step {
    println!("\n== {}", title(phase, name));
    let watch = Stopwatch::start();
    let done = work().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Done::new(false, format!("{error:#}"))
    });
    Step {
        phase,
        name: name.to_owned(),
        passed: done.passed,
        seconds: watch.seconds(),
        note: done.note,
        tests: done.tests,
    }
}

/// Returns the packages and features to build and test. The same selection everywhere avoids
/// recompiling.
fn selection(args: &Args) -> Vec<&'static str> {
    let packages = match args.quick {
        true => QUICK.iter().flat_map(|name| ["--package", name]).collect(),
        false => vec!["--workspace"],
    };
    [packages, vec!["--all-features"]].concat()
}

/// Compiles all tests, programs and examples.
fn build(args: &Args, runner: Runner) -> Result<Done> {
    let mut tests = match runner {
        Runner::Nextest => process::cargo(&["nextest", "run", "--no-run"]),
        Runner::Cargo => process::cargo(&["test", "--no-run"]),
    };
    process::run(tests.args(selection(args)))?;
    // Builds the programs together with the examples. Examples enable the features of development
    // dependencies, as tests do. Programs that are built alone do not, so Cargo would compile half
    // of the dependencies again.
    let mut programs = process::cargo(&["build", "--bins", "--examples"]);
    process::run(programs.args(selection(args)))?;
    Ok(Done::new(true, ""))
}

/// Runs the tests as often as requested, and under load if requested. In the report, a case counts
/// as failed if it failed in any run.
fn repeated(
    args: &Args,
    runner: Runner,
    target: &Path,
    servers: &Servers,
    report: &mut Report,
) -> Result<Vec<Step>> {
    let load = args.under_load.then(|| Load::start(&target.join("xtask")));
    let _load = load.transpose()?;
    let run = |number| {
        let name = match args.repeat {
            1 => String::new(),
            all => format!("run {number} of {all}"),
        };
        let ended = step("tests", &name, || match runner {
            Runner::Nextest => run_nextest(args, servers),
            Runner::Cargo => run_cargo_test(args, servers),
        });
        matrix::add(report, matrix::read()?);
        Ok(ended)
    };
    (1..=args.repeat).map(run).collect()
}

/// Returns the environment variables for the tests.
fn variables<'a>(
    args: &Args,
    servers: &'a Servers,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let deep = DEEP.into_iter().filter(|_| args.deep);
    servers.variables().chain(deep)
}

fn run_nextest(args: &Args, servers: &Servers) -> Result<Done> {
    let mut nextest = process::cargo(&["nextest", "run", "--no-fail-fast"]);
    nextest
        .args(["--status-level", "pass", "--final-status-level", "none"])
        .env("NEXTEST_TEST_THREADS", test_threads())
        .args(selection(args))
        .args(&args.runner)
        .envs(variables(args, servers));
    if args.deep {
        nextest.args(["--profile", "deep"]);
    }
    let mut reader = Reader::default();
    let mut output = String::new();
    let passed = process::watch(&mut nextest, |line| {
        let shown = reader.read(line);
        shown.inspect(|shown| {
            output.push_str(shown);
            output.push('\n');
        })
    })?;
    Ok(Done {
        passed,
        note: Counts::of_nextest(&output).to_string(),
        tests: reader.ended,
    })
}

/// Returns how many tests run at the same time, unless the caller has set it.
fn test_threads() -> OsString {
    env::var_os("NEXTEST_TEST_THREADS").unwrap_or_else(|| {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let tests = (processors * TESTS_PER_PROCESSOR).min(MOST_TESTS);
        tests.to_string().into()
    })
}

fn run_cargo_test(args: &Args, servers: &Servers) -> Result<Done> {
    let mut test = process::cargo(&["test", "--lib", "--bins", "--tests", "--no-fail-fast"]);
    test.args(selection(args))
        .args(&args.runner)
        .envs(variables(args, servers));
    let (passed, output) = process::tee(&mut test)?;
    Ok(Done::new(
        passed,
        Counts::of_cargo_test(&output).to_string(),
    ))
}

fn documentation_tests(servers: &Servers) -> Result<Done> {
    let mut docs = process::cargo(&["test", "--doc", "--workspace", "--all-features"]);
    docs.arg("--no-fail-fast").envs(servers.variables());
    let (passed, output) = process::tee(&mut docs)?;
    Ok(Done::new(
        passed,
        Counts::of_cargo_test(&output).to_string(),
    ))
}

/// Runs the example programs that end without being stopped.
fn examples(target: &Path, servers: &Servers) -> Result<Vec<Step>> {
    let input = index_files_input(target)?;
    let (dir, db) = (input.join("files"), input.join("index.db"));
    let index = [dir.as_os_str(), OsStr::new("--db"), db.as_os_str()];
    let redis = servers.redis.as_ref().ok();
    let redis = redis.map(|redis| OsStr::new(&redis.url));
    let postgres = servers.of("postgres").is_some_and(Result::is_ok);
    let runs: [(&str, Option<&[&OsStr]>); 8] = [
        ("examples/quickstart", Some(&[])),
        ("examples/reload_configuration", Some(&[])),
        ("examples/recurring", Some(&[])),
        ("telemetry-example", Some(&[])),
        // The second run finds that everything is done.
        ("index-files-example", Some(&index)),
        ("index-files-example", Some(&index)),
        ("transactional-enqueue-example", postgres.then_some(&[])),
        (
            "custom-coordinator-example",
            redis.as_ref().map(std::slice::from_ref),
        ),
    ];
    let run = |(program, args): (&str, Option<&[&OsStr]>)| {
        let name = program.strip_prefix("examples/").unwrap_or(program);
        let Some(args) = args else {
            println!("\n== examples: leaving out {name}, because its server is not available");
            return None;
        };
        Some(step("examples", name, || {
            let mut command = process::program(target.join("debug").join(program));
            process::run(command.args(args).envs(servers.variables()))?;
            Ok(Done::new(true, "exit code 0"))
        }))
    };
    Ok(runs.into_iter().filter_map(run).collect())
}

/// Creates a small directory for `index-files-example` to read, new for each run, with room for its
/// database beside it.
fn index_files_input(target: &Path) -> Result<PathBuf> {
    let input = target.join("xtask").join("index_files");
    if input.is_dir() {
        fs::remove_dir_all(&input)?;
    }
    let files = input.join("files");
    fs::create_dir_all(files.join("deep/er"))?;
    fs::write(files.join("empty"), "")?;
    fs::write(files.join("two lines.txt"), "one\ntwo\n")?;
    fs::write(files.join("binary"), [0, 159, 146, 150, 10])?;
    for number in 0..20 {
        fs::write(
            files.join(format!("deep/er/{number}.txt")),
            "line\n".repeat(number),
        )?;
    }
    Ok(input)
}
