//! Which seeds are simulated, each on a runtime of its own with paused time.
//!
//! `RATCHET_SIM_SEEDS=N` runs more seeds, `RATCHET_SIM_FROM=S` starts elsewhere, and
//! `RATCHET_SIM_SEED=S` replays one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const ORDINARY_SEEDS: u64 = 320;
const SHARDS: u64 = 4;
/// What a planned panic says, so that it is not printed.
pub(crate) const PLANNED: &str = "planned panic";

/// Simulates every fourth seed, counted from `shard`.
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
        if shard == 0 {
            simulate(seed, &simulation);
        }
        return;
    }
    let from = number("RATCHET_SIM_FROM").unwrap_or(0);
    let seeds = number("RATCHET_SIM_SEEDS").unwrap_or(ORDINARY_SEEDS);
    for seed in (from..from + seeds).filter(|seed| seed % SHARDS == shard) {
        simulate(seed, &simulation);
    }
}

fn simulate<F>(seed: u64, simulation: &impl Fn(u64) -> F)
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
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        eprintln!("seed {seed} failed; replay it with RATCHET_SIM_SEED={seed}");
        resume_unwind(panic);
    }
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
