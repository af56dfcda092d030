//! Executes jobs: from the admission of a claim to the end of its body.

pub(super) mod admission;
pub(super) mod breakers;
pub(super) mod executor;
pub(super) mod newer_payloads;
mod outcome;
pub(super) mod reporter;
pub(super) mod running;
mod span;
pub(super) mod suspects;
