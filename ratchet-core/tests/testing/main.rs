//! What the testing kit promises, on the memory store.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod app;
mod assertions;
mod bodies;
mod stored;
