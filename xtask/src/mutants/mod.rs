//! Mutation testing of the SQL stores: runs the tests of a store with one wrong statement at a
//! time, and prints the mutants that no case notices.
//!
//! A store is built once, with its feature `mutants`, which replaces the text of a statement at run
//! time (`ratchet-mutant`). The mutants are data, in `mutants.toml` beside the manifest of the
//! store.

mod report;
mod set;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, bail, ensure};
use clap::builder::PossibleValuesParser;

use self::report::Outcome;
use self::set::Mutant;
use self::trial::Tests;
use crate::backends::{BACKENDS, Backend, Needs};
use crate::db;
use crate::matrix::is_required;

/// Which mutants to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store. Default: each SQL store whose server is available.
    #[arg(value_parser = names())]
    store: Option<String>,
    /// Runs only mutants whose name, or whose statement's name, contains one of these texts.
    filters: Vec<String>,
    /// How many mutants to run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Runs all groups, not only those that a mutant names. Use it for survivors.
    #[arg(long)]
    whole_suite: bool,
}

/// A store that has mutants, and its crate.
type Store = (&'static Backend, &'static str);

fn stores() -> impl Iterator<Item = Store> {
    let stores = BACKENDS.iter();
    stores.filter_map(|backend| Some((backend, backend.sql?)))
}

fn names() -> PossibleValuesParser {
    stores().map(|(backend, _)| backend.name).into()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = |name: &str| args.store.as_deref().is_none_or(|store| store == name);
    let mut bad = Vec::new();
    for store in stores().filter(|(backend, _)| chosen(backend.name)) {
        if !test(store, args)? {
            bad.push(store.1);
        }
    }
    ensure!(
        bad.is_empty(),
        "too many mutants survive in {}",
        bad.join(", ")
    );
    Ok(())
}

/// Runs the mutants of a store. Returns whether enough of them were killed.
fn test((backend, package): Store, args: &Args) -> Result<bool> {
    let mut mutants = set::read(package)?;
    if !args.filters.is_empty() {
        let wanted = |mutant: &Mutant| {
            let mut filters = args.filters.iter();
            filters.any(|text| mutant.name.contains(text) || mutant.statement.contains(text))
        };
        mutants.retain(wanted);
    }
    ensure!(
        !mutants.is_empty(),
        "no mutant of {package} matches {}",
        args.filters.join(" or ")
    );
    if args.whole_suite {
        for mutant in &mut mutants {
            mutant.groups.push(String::new());
        }
    }
    println!("\n== {package}: {} mutants", mutants.len());
    let memory = db::use_memory()?;
    let mut variables = Vec::new();
    if let Some(path) = memory.as_ref().and_then(|memory| memory.path.to_str()) {
        variables.push(("TMPDIR".to_owned(), path.to_owned()));
    }
    let mut server = None;
    if let Some(Needs { url, provide, .. }) = &backend.server {
        match provide() {
            Ok(found) => {
                println!("{}", found.origin);
                variables.push(((*url).to_owned(), found.url.clone()));
                server = Some(found);
            }
            Err(reason) if args.store.is_none() && !is_required(backend.name) => {
                println!(
                    "not run, but checked that each mutant applies to its statement: \
                     {reason:#}"
                );
                return Ok(true);
            }
            Err(reason) => return Err(reason),
        }
    }
    let outcomes = try_all(package, mutants, variables, args.jobs)?;
    drop(server);
    Ok(report::print(package, &outcomes))
}

/// Builds the tests, runs the groups once without a mutant, and then runs each mutant.
fn try_all(
    package: &str,
    mutants: Vec<Mutant>,
    variables: Vec<(String, String)>,
    jobs: usize,
) -> Result<Vec<Outcome>> {
    let names: BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.test).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let mut tests = Tests::build(package, &names, variables)?;
    println!("without a mutant");
    let groups: BTreeSet<(&str, &str)> = mutants.iter().flat_map(Mutant::groups).collect();
    let groups: Vec<_> = groups.into_iter().collect();
    let limits = at_once(jobs, &groups, |_, (test, group)| tests.measure(test, group))?;
    for (&(test, group), limit) in groups.iter().zip(limits) {
        tests.limit(test, group, limit);
    }
    let verdicts = at_once(jobs, &mutants, |number, mutant| {
        let verdict = tests.try_mutant(number, mutant)?;
        report::line(mutant, &verdict);
        Ok(verdict)
    })?;
    let outcomes = mutants.into_iter().zip(verdicts);
    let outcome = |(mutant, verdict)| Outcome { mutant, verdict };
    Ok(outcomes.map(outcome).collect())
}

/// Runs `work` on each item, at most `jobs` at a time, and returns the results in order. Starts no
/// further item after one has failed.
fn at_once<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let worker = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return Ok(());
            };
            let result = work(number, item).inspect_err(|_| {
                next.store(items.len(), Ordering::Relaxed);
            })?;
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.insert(number, result);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(done) => done,
                Err(_) => bail!("a worker panicked"),
            })
    })?;
    let results = results.into_inner();
    Ok(results
        .unwrap_or_else(PoisonError::into_inner)
        .into_values()
        .collect())
}
