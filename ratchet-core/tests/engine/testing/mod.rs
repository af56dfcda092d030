//! What the testing kit promises, on the memory store.

mod app;
mod assertions;
mod bodies;
mod limited;
mod stored;
