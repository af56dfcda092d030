//! Runs a simulation for many seeds, each on a separate runtime with paused time.
//!
//! `RATCHET_SIM_SEEDS=N` runs more seeds, `RATCHET_SIM_FROM=S` starts at another seed, and
//! `RATCHET_SIM_SEED=S` replays one. With `RATCHET_SIM_KEEP_GOING=1` the run continues after a
//! failed seed, and the failures are counted by kind.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const ORDINARY_SEEDS: u64 = 160;
const SHARDS: u64 = 4;
/// The message of a planned panic, which the panic hook does not print.
pub(crate) const PLANNED: &str = "planned panic";

/// Runs the simulation for the seeds that belong to this shard, which are every fourth seed. Panics
/// if any of them fails.
pub(crate) fn simulate_shard<F>(shard: u64, simulation: impl Fn(u64) -> F)
where
    F: Future<Output = ()>,
{
    silence_planned_panics();
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("RATCHET_SIM_SEED") {
        if shard == 0
            && let Err(panic) = simulate(seed, &simulation)
        {
            resume_unwind(panic);
        }
        return;
    }
    let from = number("RATCHET_SIM_FROM").unwrap_or(0);
    let seeds = number("RATCHET_SIM_SEEDS").unwrap_or(ORDINARY_SEEDS);
    let keep_going = std::env::var_os("RATCHET_SIM_KEEP_GOING").is_some();
    let mut failures: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (from..from + seeds).filter(|seed| seed % SHARDS == shard) {
        if let Err(panic) = simulate(seed, &simulation) {
            if !keep_going {
                resume_unwind(panic);
            }
            *failures.entry(kind(&*panic)).or_default() += 1;
        }
    }
    assert!(
        failures.is_empty(),
        "expected no failed seed; failures by kind: {failures:#?}"
    );
}

/// Returns the kind of a failure: the beginning of its message, without the values that differ from
/// seed to seed.
fn kind(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.and_then(|text| text.lines().next());
    let text = text.unwrap_or("not a text");
    let said = text
        .strip_prefix("assertion `")
        .and_then(|rest| rest.split_once(": "));
    let text = said.map_or(text, |(_, said)| said);
    text.split([':', '{', '[']).take(1).map(str::trim).collect()
}

fn simulate<F>(seed: u64, simulation: &impl Fn(u64) -> F) -> std::thread::Result<()>
where
    F: Future<Output = ()>,
{
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(simulation(seed));
    };
    let result = catch_unwind(AssertUnwindSafe(run));
    if result.is_err() {
        eprintln!("seed {seed} failed; replay it with RATCHET_SIM_SEED={seed}");
    }
    result
}

fn silence_planned_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let planned = info.payload().downcast_ref::<&str>() == Some(&PLANNED);
        if !planned {
            usual(info);
        }
    }));
}
