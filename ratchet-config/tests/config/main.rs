//! Settings from files, variables and arguments.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod sample;
mod secrets;
mod settings;
