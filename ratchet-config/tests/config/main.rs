//! Tests of settings from files, variables and arguments.

mod sample;
mod secrets;
mod settings;
