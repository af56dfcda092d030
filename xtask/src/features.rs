//! Each feature of the facade, of the core and of the command must build by itself, and so must each of
//! them without any.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The packages, and what of them is built.
const PACKAGES: [(&str, &str); 3] = [
    (FACADE, "--lib"),
    ("ratchet-core", "--lib"),
    ("ratchet-cli", "--bins"),
];

const FACADE: &str = "ratchet";

pub(crate) fn run() -> Result<()> {
    let metadata = process::metadata()?;
    for (package, target) in PACKAGES {
        let features = features_of(&metadata, package)?;
        check(package, target, None)?;
        features
            .iter()
            .try_for_each(|feature| check(package, target, Some(feature)))?;
        println!(
            "\n{package} builds without features and with each alone: {}.",
            features.join(", ")
        );
    }
    // The tests of the errors that name a missing feature.
    let tests = [
        "test",
        "--package",
        FACADE,
        "--lib",
        "--no-default-features",
    ];
    process::run(&mut process::cargo(&tests))
}

/// Clippy and not only a build, so that code which is unused without some feature is found.
fn check(package: &str, target: &str, feature: Option<&str>) -> Result<()> {
    let mut clippy = process::cargo(&["clippy", "--package", package, target]);
    clippy.arg("--no-default-features");
    if let Some(feature) = feature {
        clippy.args(["--features", feature]);
    }
    process::run(clippy.args(["--", "-D", "warnings"]))
}

/// The features a package declares, but for `default`.
fn features_of(metadata: &Value, package: &str) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array();
    let found = packages
        .into_iter()
        .flatten()
        .find(|candidate| candidate["name"] == package)
        .with_context(|| format!("the workspace has no package {package}"))?;
    let features = found["features"].as_object().into_iter().flatten();
    Ok(features
        .map(|(name, _)| name.clone())
        .filter(|name| name != "default")
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_are_read_from_the_metadata() {
        let metadata = json!({"packages": [
            {"name": "other", "features": {"x": []}},
            {"name": "ratchet", "features": {"default": ["a"], "a": [], "b": ["dep:b"]}},
        ]});
        assert_eq!(features_of(&metadata, "ratchet").unwrap(), ["a", "b"]);
        assert!(features_of(&metadata, "absent").is_err());
    }
}
