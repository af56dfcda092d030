//! The built command against real databases.

mod asking;
mod codes;
mod kit;
mod operating;
mod output;
mod postgres;
mod schema;
mod tools;
