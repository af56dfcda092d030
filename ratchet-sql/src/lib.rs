//! Shares code among the stores of Ratchet on SQL databases.
//!
//! It is for the crates of this repository and makes no promise of stability.

mod statements;

pub use statements::{Reader, render, split, statement, unlisted};
