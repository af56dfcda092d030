//! What nodes promise, on the memory store under paused time.

mod cancel;
mod drain;
mod kit;
mod lifecycle;
mod outcomes;
mod polling;
mod reports;
