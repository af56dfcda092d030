//! Builds the archives for publishing, and runs the quickstart from these archives alone.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process;

const FACADE: &str = "ratchet-jobs";

pub(crate) fn run() -> Result<()> {
    let packages = publishable(&process::metadata()?)?;
    let target = process::target_dir()?;
    let folder = target.join("xtask/package");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    // Uncommitted changes can be packaged, too.
    let mut package = process::cargo(&["package", "--no-verify", "--allow-dirty", "--target-dir"]);
    package.arg(&folder);
    for (name, _) in &packages {
        package.args(["--package", name]);
    }
    process::run(&mut package)?;
    let archives = folder.join("package");
    let mut patches = String::from("\n[workspace]\n\n[patch.crates-io]\n");
    for (name, version) in &packages {
        let archive = archives.join(format!("{name}-{version}.crate"));
        let mut unpack = process::program("tar");
        // The files in every archive have the same modification time. `m` gives them the current
        // time instead. Otherwise Cargo would treat what it compiled from earlier archives as up to
        // date.
        process::run(unpack.arg("-xmzf").arg(archive).arg("-C").arg(&archives))?;
        writeln!(patches, "{name} = {{ path = \"../{name}-{version}\" }}")?;
    }
    let (_, version) = packages
        .iter()
        .find(|(name, _)| name == FACADE)
        .context("the facade should be among the packages that may be published")?;
    run_quickstart(&archives.join(format!("{FACADE}-{version}")), &patches)?;
    println!("\n{} crates can be published.", packages.len());
    Ok(())
}

/// Runs the quickstart in the unpacked facade. The other crates come from their archives instead of
/// the registry.
fn run_quickstart(facade: &Path, patches: &str) -> Result<()> {
    let manifest = facade.join("Cargo.toml");
    let itself = format!("{FACADE} =");
    let others = patches.lines().filter(|line| !line.starts_with(&itself));
    let others: String = others.flat_map(|line| [line, "\n"]).collect();
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text + &others)?;
    let target = process::target_dir()?;
    let mut quickstart = process::cargo(&["run", "--example", "quickstart", "--target-dir"]);
    quickstart.arg(target).arg("--manifest-path").arg(&manifest);
    process::run(&mut quickstart)
}

/// Returns the packages that may be published, each with its version.
fn publishable(metadata: &Value) -> Result<Vec<(String, String)>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let members = packages
        .iter()
        .filter(|package| package["source"].is_null());
    let published = members.filter(|package| package["publish"].is_null());
    let named = published.map(|package| {
        let text = |key: &str| package[key].as_str().map(str::to_owned).context("no text");
        let (name, version) = (text("name")?, text("version")?);
        for key in ["description", "license", "documentation", "rust_version"] {
            ensure!(package[key].is_string(), "the package {name} has no {key}");
        }
        for key in ["keywords", "categories"] {
            let empty = package[key].as_array().is_none_or(Vec::is_empty);
            ensure!(!empty, "the package {name} has no {key}");
        }
        Ok((name, version))
    });
    named.collect()
}
