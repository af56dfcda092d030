//! Checks the wording of comments and documents: words that slow readers down, and comments that
//! are too wide.
//!
//! `xtask/prose.txt` lists the files that still contain such places, with the number of places in
//! each file. A number may only decrease.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::process;

/// Words that name no actor, and old-fashioned phrases. They are compared in lower case.
const WORDS: [&str; 20] = [
    "whoever",
    "somebody",
    "nobody",
    "anybody",
    " who is ",
    " who has ",
    "is told",
    "are told",
    "behind it",
    "behind this",
    "so many",
    "so long",
    "; none",
    "unless told",
    "unless said",
    " dear ",
    "what is to be",
    "of one's own",
    "is had",
    "lets go",
];
/// The widest comment that is allowed, in columns, including its indentation.
const WIDTH: usize = 100;
/// The list of files that still contain such places, with the number of places in each file.
const LEFT: &str = "xtask/prose.txt";

/// How to report the places that were found.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the current number of places in each file to the list
    #[arg(long)]
    write: bool,
    /// Print every place, also in files that have no more places than the list allows
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut listed = process::program("git");
    let listed = process::read(listed.args(["ls-files", "*.rs", "*.sql", "*.md"]))?;
    let mut found = BTreeMap::new();
    // `git ls-files` also lists a file whose removal is not staged yet.
    let files = listed.lines().filter(|file| !is_exempt(file));
    for file in files.filter(|file| process::root().join(file).exists()) {
        let text = fs::read_to_string(process::root().join(file))?;
        let places = places(file, &text);
        if !places.is_empty() {
            found.insert(file, places);
        }
    }
    let path = process::root().join(LEFT);
    if args.write {
        let mut text = String::new();
        for (file, places) in &found {
            writeln!(text, "{file} {}", places.len())?;
        }
        return Ok(fs::write(path, text)?);
    }
    let left = fs::read_to_string(&path).with_context(|| format!("cannot read {LEFT}"))?;
    let left = left
        .lines()
        .map(allowed)
        .collect::<Result<BTreeMap<_, _>>>()?;
    let mut problems = 0;
    for (file, places) in &found {
        let allowed = left.get(file).copied().unwrap_or(0);
        let more = places.len() > allowed;
        if more || args.all {
            problems += usize::from(more);
            println!(
                "{file}: found {} places, {allowed} are allowed",
                places.len()
            );
            places.iter().for_each(|place| println!("    {place}"));
        }
    }
    for (file, allowed) in &left {
        let count = found.get(file).map_or(0, Vec::len);
        if count < *allowed {
            problems += 1;
            println!("{file}: found {count} places, {allowed} are allowed: lower the number");
        }
    }
    if problems > 0 {
        bail!("{problems} files differ from {LEFT}; `cargo xtask prose --write` updates that file");
    }
    let count: usize = found.values().map(Vec::len).sum();
    println!("{count} places are left in {} files.", found.len());
    Ok(())
}

/// Returns whether a file may contain the words: this file, which lists them, and the ADRs, which
/// are historical records.
fn is_exempt(file: &str) -> bool {
    file == "xtask/src/prose.rs" || file.starts_with("docs/adr/")
}

fn allowed(line: &str) -> Result<(&str, usize)> {
    let (file, count) = line
        .rsplit_once(' ')
        .context("expected a file and a number in each line")?;
    Ok((file, count.parse()?))
}

fn places(file: &str, text: &str) -> Vec<String> {
    let mut places = Vec::new();
    let mut in_example = false;
    for (number, line) in (1..).zip(text.lines()) {
        let lower = line.to_lowercase();
        let words = WORDS.iter().filter(|word| lower.contains(**word));
        places.extend(words.map(|word| format!("{number}: `{}`: {}", word.trim(), line.trim())));
        let comment = line.trim_start();
        let is_comment = comment.starts_with("//") && file.ends_with(".rs");
        let body = comment.trim_start_matches(['/', '!']).trim_start();
        in_example = is_comment && in_example != body.starts_with("```");
        // A link, a table row and a line of code cannot be wrapped.
        let is_whole = in_example || body.starts_with('|') || line.contains("](");
        if is_comment && line.chars().count() > WIDTH && !is_whole {
            places.push(format!(
                "{number}: wider than {WIDTH} columns: {}",
                line.trim()
            ));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_wide_comments_are_found() {
        let wide = format!("    /// {}", "x".repeat(93));
        let text =
            format!("// Whoever waits.\n// So many jobs, and nobody.\n{wide}\nlet dearest = 1;\n");
        let found = places("a.rs", &text);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(places("a.rs", "/// Claims up to `limit` due jobs.").is_empty());
        assert!(places("a.md", &wide).is_empty());
    }

    #[test]
    fn tables_links_and_examples_may_be_wide() {
        let long = "x".repeat(100);
        let text = format!("//! | {long} |\n/// ```\n/// {long}\n/// ```\n/// [a]({long})\n");
        assert!(places("a.rs", &text).is_empty());
        let after = places("a.rs", &format!("{text}/// {long}\n"));
        assert_eq!(after.len(), 1, "{after:?}");
    }

    #[test]
    fn a_line_is_a_file_and_a_number() {
        assert_eq!(allowed("a b.rs 3").unwrap(), ("a b.rs", 3));
        allowed("a.rs").unwrap_err();
    }
}
