//! Tests of the built command on real databases.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod asking;
mod codes;
mod kit;
mod operating;
mod output;
mod postgres;
mod schema;
mod serve;
mod tools;
