//! Finds the browser for the tests of the dashboard.

use std::env;
use std::path::{Path, PathBuf};

/// The variable that passes the browser to the tests.
pub(crate) const VARIABLE: &str = "RATCHET_TEST_CHROMIUM";
/// The browser's name in `RATCHET_REQUIRE`.
pub(crate) const NAME: &str = "chromium";

/// The names under which the tests look for a browser, unless the variable is set.
const PROGRAMS: [&str; 6] = [
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// Returns the path of the browser, if there is one.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    let mut places =
        env::split_paths(&path).flat_map(|folder| PROGRAMS.map(|name| folder.join(name)));
    places.find(|place| place.is_file())
}

/// Returns the part of the summary about the browser.
pub(crate) fn summary(browser: Option<&Path>) -> String {
    match browser {
        Some(browser) => format!("in {}", browser.display()),
        None => format!("left out: the PATH has no Chromium, and {VARIABLE} is not set to one"),
    }
}
