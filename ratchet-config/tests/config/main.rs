//! Tests of settings from files, variables and arguments.

mod rules;
mod sample;
mod secrets;
mod settings;
