//! Runs the same random history on the in-memory store and on the store under test, and compares
//! both after every step.
//!
//! `RATCHET_HISTORIES` sets how many histories all cases together run. `RATCHET_SEED` selects the
//! only history to run.

mod difference;
mod generator;
mod history;
mod step;

use std::env;

use super::prelude::*;

/// Number of cases in this group. The cases run concurrently, and each case runs a share of the
/// histories.
const CASES_IN_ALL: u64 = 10;
/// Default number of random histories that all cases of this group run together.
pub(crate) const HISTORIES: u64 = 100;
const STEPS: usize = 100;

/// Runs the histories with the seeds `part`, `part` + 10, `part` + 20 and so on, below the total
/// number of histories. If `RATCHET_SEED` is set, runs only the history with that seed, and only if
/// `part` is the last digit of the seed.
async fn histories(cx: &Cx, part: u64) {
    if let Some(seed) = number("RATCHET_SEED") {
        if seed % CASES_IN_ALL == part {
            history::run(cx, seed, STEPS).await;
        }
        return;
    }
    let count = number("RATCHET_HISTORIES").unwrap_or(cx.settings().histories);
    for seed in (0..count).filter(|seed| seed % CASES_IN_ALL == part) {
        history::run(cx, seed, STEPS).await;
    }
}

/// Returns the number in the environment variable `variable`, or `None` if the variable is not set.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!(
            "the environment variable {variable} is {text:?}, which is not valid: \
             {error}"
        ),
    }
}

cases! {
    "differential" on Cx;

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_zero_match_the_model(cx: &Cx) {
        histories(cx, 0).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_one_match_the_model(cx: &Cx) {
        histories(cx, 1).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_two_match_the_model(cx: &Cx) {
        histories(cx, 2).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_three_match_the_model(cx: &Cx) {
        histories(cx, 3).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_four_match_the_model(cx: &Cx) {
        histories(cx, 4).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_five_match_the_model(cx: &Cx) {
        histories(cx, 5).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_six_match_the_model(cx: &Cx) {
        histories(cx, 6).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_seven_match_the_model(cx: &Cx) {
        histories(cx, 7).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_eight_match_the_model(cx: &Cx) {
        histories(cx, 8).await;
    }

    #[proves("model.agrees")]
    #[needs(Clock)]
    async fn histories_ending_in_nine_match_the_model(cx: &Cx) {
        histories(cx, 9).await;
    }
}
