//! The guarantees of nodes, on the memory store under paused time.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod breakers;
mod bulk;
mod calls;
mod cancel;
mod clock_steps;
mod contention;
mod drain;
mod election;
mod expiry;
mod hooks;
mod kit;
mod lanes;
#[cfg(feature = "tower")]
mod layers;
mod leadership;
mod lifecycle;
mod limits;
mod logs;
mod newer_definitions;
mod operating;
#[cfg(feature = "otel")]
mod otel;
mod outcomes;
mod permits;
mod polling;
mod pools;
mod presence;
mod races;
mod recurring;
mod reports;
mod retention;
mod rewind;
mod robust;
mod role_locks;
mod settings;
mod signals;
mod stream;
mod suspects;
#[cfg(feature = "testing")]
mod testing;
mod undelivered;
mod versions;
mod workflows;
