//! Simulations of whole clusters on one memory store, under paused time. A seed determines all
//! random choices of a run.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clusters;
mod rewinds;
mod seeds;
