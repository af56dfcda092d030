//! Simulation of whole clusters on one memory store, under paused time, from a seed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clusters;
mod rewinds;
mod seeds;
