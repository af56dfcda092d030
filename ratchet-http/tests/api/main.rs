//! Tests of the API: requests of a client to its router, and the responses.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod actions;
mod bulk;
mod counts;
mod described;
mod description;
mod draft;
mod fuzz;
mod guards;
mod kit;
mod reads;
mod topics;
