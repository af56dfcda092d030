//! Checks that the facade, the core and the command each build without features, and with each of
//! their features alone.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// Whether to check the features or to count crates.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print instead how many crates the facade depends on with each feature
    #[arg(long)]
    count: bool,
}

/// The packages, and which of their targets are built.
const PACKAGES: [(&str, &str); 3] = [
    (FACADE, "--lib"),
    ("ratchet-jobs-core", "--lib"),
    ("ratchet-jobs-cli", "--bins"),
];

const FACADE: &str = "ratchet-jobs";

pub(crate) fn run(args: &Args) -> Result<()> {
    let metadata = process::metadata()?;
    if args.count {
        return count(&features_of(&metadata, FACADE)?);
    }
    for (package, target) in PACKAGES {
        let features = features_of(&metadata, package)?;
        check(package, target, None)?;
        features
            .iter()
            .try_for_each(|feature| check(package, target, Some(feature)))?;
        println!(
            "\n{package} builds without features and with each feature alone: {}.",
            features.join(", ")
        );
    }
    // These tests check the errors that name a missing feature.
    let tests = [
        "test",
        "--package",
        FACADE,
        "--lib",
        "--no-default-features",
    ];
    process::run(&mut process::cargo(&tests))
}

/// Prints a table of how many crates the facade is built from, itself included.
fn count(features: &[String]) -> Result<()> {
    println!("| features | crates |\n|---|---:|");
    println!("| default | {} |", crates(&[])?);
    println!("| none | {} |", crates(&["--no-default-features"])?);
    for feature in features {
        let crates = crates(&["--no-default-features", "--features", feature])?;
        println!("| `{feature}` | {crates} |");
    }
    Ok(())
}

fn crates(features: &[&str]) -> Result<usize> {
    let tree = [
        "tree",
        "--package",
        FACADE,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let mut tree = process::cargo(&tree);
    let listed = process::read(tree.args(features))?;
    Ok(unique(&listed))
}

/// Returns the number of different lines, ignoring the mark ` (*)` of lines whose dependencies
/// `cargo tree` does not repeat.
fn unique(tree: &str) -> usize {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let lines: BTreeSet<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.len()
}

/// Runs Clippy, and not only a build, to find code that is unused without some feature.
fn check(package: &str, target: &str, feature: Option<&str>) -> Result<()> {
    let mut clippy = process::cargo(&["clippy", "--package", package, target]);
    clippy.arg("--no-default-features");
    if let Some(feature) = feature {
        clippy.args(["--features", feature]);
    }
    process::run(clippy.args(["--", "-D", "warnings"]))
}

/// Returns the features that a package declares, except `default`.
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

    #[test]
    fn a_crate_counts_once() {
        assert_eq!(unique("a v1\nb v1 (proc-macro)\na v1 (*)\n\na v2\n"), 3);
    }
}
