//! Determines which stores, servers and programs the tests require. This module does not depend on
//! the rest of the suite, so that a program can use this module alone.

use std::env;

/// Returns whether the environment variable `RATCHET_REQUIRE` names this store, server or program.
/// If `name` is required and not available, the tests that need it fail. If it is not required,
/// these tests are ignored.
///
/// The variable contains a comma-separated list of names. The entry `1` or `true` requires
/// everything.
#[must_use]
pub fn is_required(name: &str) -> bool {
    env::var("RATCHET_REQUIRE").is_ok_and(|names| lists(&names, name))
}

fn lists(names: &str, name: &str) -> bool {
    let mut names = names.split(',').map(str::trim);
    names.any(|one| ["1", "true", name].contains(&one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_required_all_or_by_name() {
        for (names, required) in [
            ("", false),
            ("0", false),
            ("other", false),
            ("1", true),
            ("true", true),
            ("mystore", true),
            ("other, mystore", true),
        ] {
            assert_eq!(lists(names, "mystore"), required, "{names:?}");
        }
    }
}
