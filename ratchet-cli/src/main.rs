//! The command `ratchet`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratchet_cli::run()
}
