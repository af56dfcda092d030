//! What nodes promise, on the memory store under paused time.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cancel;
mod drain;
mod kit;
mod lanes;
mod leadership;
mod lifecycle;
mod outcomes;
mod polling;
mod pools;
mod reports;
mod robust;
mod suspects;
mod workflows;
