//! The command of Ratchet, which also accepts the URLs of this store: `redb:path/to/file`.

use std::process::ExitCode;

use custom_store_example::open;

fn main() -> ExitCode {
    let open = |url: String| async move { open(url.trim_start_matches("redb:")).await };
    ratchet::register_scheme("redb", open).expect("no other store should have this scheme");
    ratchet_cli::run()
}
