//! Checks of the dashboard's files without a browser.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, body: fn() -> Result<(), Failed>| {
        Trial::test(format!("sources::{name}"), body)
    };
    vec![
        trial("no file makes markup of text", no_markup),
        trial("no file names another place", no_other_place),
        trial("every file that is named is there", all_there),
        trial("there is nothing inline", nothing_inline),
    ]
}

fn files() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                all.push((path, text));
            }
        }
    }
    assert!(all.len() > 20, "{} files only", all.len());
    all
}

fn none_has(words: &[&str], extension: Option<&str>) -> Result<(), Failed> {
    for (path, text) in files() {
        if extension.is_some_and(|it| path.extension().is_none_or(|other| other != it)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                return Err(format!("{}:{}: {word}", path.display(), number + 1).into());
            }
        }
    }
    Ok(())
}

fn no_markup() -> Result<(), Failed> {
    let words = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "setHTML",
        "srcdoc=",
        "eval(",
        "new Function",
        "javascript:",
    ];
    none_has(&words, None)
}

fn no_other_place() -> Result<(), Failed> {
    for (path, text) in files() {
        // The name of the SVG namespace looks like a URL but is never requested.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for word in ["http://", "https://", "//cdn", "@import", "url(/"] {
            if text.contains(word) {
                return Err(format!("{} has {word}", path.display()).into());
            }
        }
    }
    Ok(())
}

fn all_there() -> Result<(), Failed> {
    for (path, text) in files() {
        let folder = path.parent().unwrap();
        let quoted = text.split('"').skip(1).step_by(2);
        for name in quoted.filter(|text| {
            [".js", ".css", ".svg"]
                .iter()
                .any(|end| text.ends_with(end))
        }) {
            if !folder.join(name).is_file() {
                return Err(
                    format!("{} names {name}, which does not exist", path.display()).into(),
                );
            }
        }
    }
    Ok(())
}

fn nothing_inline() -> Result<(), Failed> {
    none_has(
        &["style=", "onclick=", "onload=", "<style", "<script>"],
        Some("html"),
    )
}
