//! The test command: every test, the documentation's examples and the example programs, then a
//! summary that says which backends ran.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::browser;
use crate::db::{self, InMemory, Server};
use crate::load::Load;
use crate::matrix;
use crate::process::{self, Stopwatch};

/// A store that has a conformance test in this workspace.
struct Backend {
    /// Its name, also in the conformance reports.
    name: &'static str,
    /// What it needs to be tested; none: it needs no server.
    server: Option<Needs>,
}

/// A server for the tests of a store.
struct Needs {
    /// The variable with which the tests are told of it.
    url: &'static str,
    /// Gives the one that is named by the variable, or starts one.
    provide: fn() -> Result<Server>,
}

/// The stores there are. A new one is one entry.
const BACKENDS: [Backend; 6] = [
    Backend {
        name: "memory",
        server: None,
    },
    Backend {
        name: "sqlite",
        server: None,
    },
    Backend {
        name: "postgres",
        server: Some(Needs {
            url: db::postgres::URL,
            provide: db::postgres::provide,
        }),
    },
    Backend {
        name: "sqlserver",
        server: Some(Needs {
            url: db::sqlserver::URL,
            provide: db::sqlserver::provide,
        }),
    },
    Backend {
        name: "mongodb",
        server: Some(Needs {
            url: db::mongodb::URL,
            provide: db::mongodb::provide,
        }),
    },
    // What there is without transactions.
    Backend {
        name: "mongodb-standalone",
        server: Some(Needs {
            url: db::mongodb::STANDALONE_URL,
            provide: db::mongodb::provide_standalone,
        }),
    },
];

/// The servers the tests use, or why there is none. They are stopped when this is dropped.
struct Servers {
    /// By the name of the backend, with the variable that names it.
    backends: Vec<(&'static str, &'static str, Result<Server>)>,
    /// For the example of a coordinator of one's own.
    redis: Result<Server>,
    /// Where they and the tests keep their files, unless that is a disk. Dropped after the servers.
    memory: Option<InMemory>,
}

impl Servers {
    fn start() -> Result<Self> {
        let memory = db::use_memory()?;
        match &memory {
            Some(memory) => println!("files of the tests: in memory, {}", memory.path.display()),
            None => println!("files of the tests: on disk"),
        }
        let mut backends = Vec::new();
        for Backend { name, server } in &BACKENDS {
            if let Some(Needs { url, provide }) = server {
                println!("\n== server for {name}");
                let server = provide();
                match &server {
                    Ok(server) => println!("{}", server.origin),
                    Err(reason) => println!("not available: {reason:#}"),
                }
                backends.push((*name, *url, server));
            }
        }
        let redis = db::redis::provide();
        if let Err(reason) = &redis {
            println!("no server for the example custom_coordinator: {reason:#}");
        }
        Ok(Self {
            memory,
            backends,
            redis,
        })
    }

    /// No server, for tests that need none.
    fn none() -> Result<Self> {
        Ok(Self {
            memory: db::use_memory()?,
            backends: Vec::new(),
            redis: Err(anyhow!("not needed")),
        })
    }

    /// The variables that name them.
    fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let backends = self.backends.iter();
        let backends = backends.map(|(_, variable, server)| (*variable, server));
        let all = backends.chain([(db::redis::URL, &self.redis)]);
        let urls = all
            .filter_map(|(variable, server)| Some((variable, server.as_ref().ok()?.url.as_str())));
        let memory = self.memory.as_ref().and_then(|memory| memory.path.to_str());
        urls.chain(memory.map(|path| ("TMPDIR", path)))
    }

    fn of(&self, backend: &str) -> Option<&Result<Server>> {
        let mut servers = self.backends.iter();
        servers.find_map(|(name, _, server)| (*name == backend).then_some(server))
    }
}

/// Whether `RATCHET_REQUIRE` says that this backend must be there, as for the conformance suite.
fn required(backend: &str) -> bool {
    let required = env::var("RATCHET_REQUIRE").unwrap_or_default();
    let mut words = required.split(',').map(str::trim);
    words.any(|word| word == "1" || word == "true" || word == backend)
}

/// What to test.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what needs no server and little time: unit tests, the engine, and the conformance suite on
    /// memory and SQLite.
    #[arg(long)]
    quick: bool,
    /// Runs many random histories of the conformance suite on each store, for hours.
    #[arg(long, conflicts_with = "quick")]
    deep: bool,
    /// Runs the tests so many times.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Keeps the processors and the disk busy beside the tests.
    #[arg(long)]
    under_load: bool,
    /// Passed on to the test runner, such as the name of a test.
    #[arg(last = true)]
    runner: Vec<String>,
}

/// The packages of a quick run.
const QUICK: [&str; 4] = [
    "ratchet-core",
    "ratchet-config",
    "ratchet-conformance",
    "ratchet-store-sqlite",
];
/// How many random histories a deep run has on each store.
const DEEP: &str = "1000";

/// One finished step.
struct Step {
    name: &'static str,
    passed: bool,
    seconds: f64,
    note: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !process::works(process::program(c_compiler()).arg("--version")) {
        eprintln!(
            "note: no C compiler answers as `cc`; SQLite is compiled from source and needs one"
        );
    }
    let target = process::target_dir()?;
    let reports = matrix::directory(&target);
    if reports.is_dir() {
        fs::remove_dir_all(&reports)?;
    }

    if args.quick {
        let servers = Servers::none()?;
        return end(&repeated(args, &target, &servers)?, None.into_iter());
    }
    let servers = Servers::start()?;
    let mut steps = repeated(args, &target, &servers)?;
    steps.extend([
        step("documentation tests", || {
            let mut docs = process::cargo(&["test", "--doc", "--workspace", "--all-features"]);
            docs.arg("--no-fail-fast").envs(servers.variables());
            let (passed, output) = process::tee(&mut docs)?;
            Ok((passed, Counts::of_cargo_test(&output).to_string()))
        })?,
        step("example quickstart", || {
            example("quickstart", &[], &servers)
        })?,
        step("example reload_configuration", || {
            example("reload_configuration", &[], &servers)
        })?,
        step("example recurring", || example("recurring", &[], &servers))?,
        step("example telemetry", || example("telemetry", &[], &servers))?,
    ]);
    let input = index_files_input(&target)?;
    let (dir, db) = (input.join("files"), input.join("index.db"));
    let words = [dir.as_os_str(), OsStr::new("--db"), db.as_os_str()];
    steps.push(step("example index_files", || {
        example("index_files", &words, &servers)
    })?);
    steps.push(step("example index_files, again", || {
        example("index_files", &words, &servers)
    })?);

    if servers.of("postgres").is_some_and(Result::is_ok) {
        steps.push(step("example transactional_enqueue", || {
            example("transactional_enqueue", &[], &servers)
        })?);
    }
    if let Ok(redis) = &servers.redis {
        let url = OsStr::new(&redis.url);
        steps.push(step("example custom_coordinator", || {
            example("custom_coordinator", &[url], &servers)
        })?);
    }

    let missing = summarize(&steps, &reports, &servers, args.runner.is_empty())?;
    end(&steps, missing)
}

/// Runs the tests as often as asked for, under load if asked for.
fn repeated(args: &Args, target: &Path, servers: &Servers) -> Result<Vec<Step>> {
    let load = args.under_load.then(|| Load::start(&target.join("xtask")));
    let _load = load.transpose()?;
    (0..args.repeat)
        .map(|_| step("tests", || run_tests(args, servers)))
        .collect()
}

/// Fails if a step failed, or a backend is missing.
fn end(steps: &[Step], missing: impl Iterator<Item = &'static str>) -> Result<()> {
    let failed: Vec<&str> = steps
        .iter()
        .filter(|step| !step.passed)
        .map(|step| step.name)
        .chain(missing)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    println!("\neverything passed");
    Ok(())
}

fn c_compiler() -> std::ffi::OsString {
    env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// Runs a step and remembers how it went; a step that cannot even start has failed.
fn step(name: &'static str, work: impl FnOnce() -> Result<(bool, String)>) -> Result<Step> {
    println!("\n== {name}");
    let watch = Stopwatch::start();
    let (passed, note) = work().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        (false, format!("{error:#}"))
    });
    Ok(Step {
        name,
        passed,
        seconds: watch.seconds(),
        note,
    })
}

/// Every target of every package, with nextest if it is installed.
fn run_tests(args: &Args, servers: &Servers) -> Result<(bool, String)> {
    let extra = &args.runner;
    let packages = match args.quick {
        true => QUICK.iter().flat_map(|name| ["--package", name]).collect(),
        false => vec!["--workspace"],
    };
    let common: Vec<&str> = ["--all-features", "--no-fail-fast"]
        .into_iter()
        .chain(packages)
        .collect();
    let deep = args.deep.then_some(("RATCHET_HISTORIES", DEEP));
    let variables = || servers.variables().chain(deep);
    if process::works(&mut process::cargo(&["nextest", "--version"])) {
        let mut nextest = process::cargo(&["nextest", "run"]);
        let (passed, output) = process::tee(nextest.args(&common).args(extra).envs(variables()))?;
        return Ok((passed, Counts::of_nextest(&output).to_string()));
    }
    let mut test = process::cargo(&["test", "--lib", "--bins", "--tests", "--examples"]);
    let (passed, output) = process::tee(test.args(&common).args(extra).envs(variables()))?;
    Ok((passed, Counts::of_cargo_test(&output).to_string()))
}

fn example(name: &str, args: &[&OsStr], servers: &Servers) -> Result<(bool, String)> {
    let mut command = process::cargo(&["run", "--all-features", "--example", name, "--"]);
    process::run(command.args(args).envs(servers.variables()))?;
    Ok((true, "exit code 0".to_owned()))
}

/// Makes a small directory for `index_files` to read, fresh at each run, and leaves room for its
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

/// Prints what ran. Returns the backends that should have been tested and were not.
fn summarize(
    steps: &[Step],
    reports: &Path,
    servers: &Servers,
    everything: bool,
) -> Result<impl Iterator<Item = &'static str>> {
    println!("\n== summary");
    for Step {
        name,
        passed,
        seconds,
        note,
    } in steps
    {
        let passed = if *passed { "passed" } else { "FAILED" };
        println!("{name:<28} {passed}  {seconds:>7.1} s  {note}");
    }
    println!();
    let results = matrix::read(reports)?;
    let mut missing = Vec::new();
    for Backend { name, .. } in BACKENDS {
        let says = match (matrix::summary(&results, name), servers.of(name)) {
            (_, Some(Err(reason))) => {
                let required = required(name);
                if required {
                    missing.push(name);
                }
                let loudly = if required { "REQUIRED, BUT " } else { "" };
                format!("{loudly}not available: {reason:#}")
            }
            (Some(cases), Some(Ok(server))) => format!("ran, {cases}; on {}", server.origin),
            (Some(cases), None) => format!("ran, {cases}"),
            (None, _) if !everything => "not chosen".to_owned(),
            (None, _) => {
                missing.push(name);
                "DID NOT RUN: no report of a conformance case".to_owned()
            }
        };
        println!("backend {name:<20} {says}");
    }
    let found = browser::find();
    let says = browser::summary(found.as_deref());
    if found.is_none() && required(browser::NAME) {
        missing.push(browser::NAME);
    }
    println!("dashboard                    {says}");
    for other in matrix::stores(&results) {
        if BACKENDS.iter().all(|known| known.name != other)
            && let Some(cases) = matrix::summary(&results, other)
        {
            println!("also {other:<23} ran, {cases}");
        }
    }
    Ok(missing.into_iter())
}

/// How many tests ended how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Reads the closing line of nextest.
    fn of_nextest(output: &str) -> Self {
        Self::of_lines(output, "Summary [")
    }

    /// Adds up the closing lines of all test programs.
    fn of_cargo_test(output: &str) -> Self {
        Self::of_lines(output, "test result:")
    }

    fn of_lines(output: &str, start: &str) -> Self {
        let mut counts = Self::default();
        for line in output
            .lines()
            .filter(|line| line.trim_start().starts_with(start))
        {
            let words: Vec<&str> = line
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
                .collect();
            for pair in words.windows(2) {
                let Ok(number) = pair[0].parse::<u64>() else {
                    continue;
                };
                match pair[1] {
                    "passed" => counts.passed += number,
                    "failed" | "timed" | "exec" => counts.failed += number,
                    "ignored" | "skipped" => counts.skipped += number,
                    _ => {}
                }
            }
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_nextest_is_read() {
        let output = "test result: FAILED. 0 passed; 1 failed; 0 ignored\n     Summary [   1.204s] \
                      52 tests run: 48 passed (2 slow), 3 failed, 1 timed out, 7 skipped\n";
        let counts = Counts {
            passed: 48,
            failed: 4,
            skipped: 7,
        };
        assert_eq!(Counts::of_nextest(output), counts);
    }

    #[test]
    fn the_closing_lines_of_cargo_test_are_added() {
        let output = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out\n";
        let counts = Counts {
            passed: 7,
            failed: 1,
            skipped: 1,
        };
        assert_eq!(Counts::of_cargo_test(output), counts);
    }
}
