//! Tests of the testing kit, `ratchet_core::testing`, on the memory store.

mod app;
mod assertions;
mod bodies;
mod limited;
mod stored;
