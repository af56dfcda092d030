//! Runs the engine simulation: random faults, kills and pauses on the memory store, one history per
//! seed.

use anyhow::Result;

use crate::process;

/// Which seeds to run. The simulation reads them from its environment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The number of seeds.
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Replays only this seed, and shows its output.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    replay: Option<u64>,
    /// Continues after a failed seed, and counts the failures by kind.
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut test = process::cargo(&["test", "--release", "--package", "ratchet-jobs-core"]);
    test.args(["--test", "simulation", "--", "--nocapture"]);
    match args.replay {
        Some(seed) => test.env("RATCHET_SIM_SEED", seed.to_string()),
        None => test
            .env("RATCHET_SIM_SEEDS", args.seeds.to_string())
            .env("RATCHET_SIM_FROM", args.from.to_string()),
    };
    if args.keep_going {
        test.env("RATCHET_SIM_KEEP_GOING", "1");
    }
    process::run(&mut test)
}
