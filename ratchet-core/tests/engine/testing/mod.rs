//! The guarantees of the testing kit, on the memory store.

mod app;
mod assertions;
mod bodies;
mod limited;
mod stored;
