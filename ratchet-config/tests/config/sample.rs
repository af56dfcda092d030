//! Checks that the sample file and the reference in the repository match the table of keys, and
//! that the sample is a valid configuration.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ratchet_config::{Config, HttpConfig, StoreConfig, keys};
use ratchet_core::{MemoryStore, NodeBuilder, Ratchet};

fn root(path: &str) -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.join("..").join(path)
}

/// Compares a file of the repository with `content`, or writes it if `RATCHET_UPDATE` is set.
fn is_checked_in(path: &str, content: &str) {
    let path = root(path);
    if std::env::var_os("RATCHET_UPDATE").is_some() {
        fs::write(&path, content).expect("the file should be writable");
    }
    let found = fs::read_to_string(&path).expect("the file should exist");
    assert!(
        found == content,
        "{} is not up to date; RATCHET_UPDATE=1 cargo test -p ratchet-jobs-config writes it",
        path.display()
    );
}

fn load(text: &str) -> Config {
    let loader = Config::loader().text("ratchet.toml", text);
    match loader.variables::<&str, &str>([]).load() {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn builder() -> NodeBuilder {
    Ratchet::builder(Arc::new(MemoryStore::new()))
}

/// Returns the sample with every setting that has a default uncommented.
fn uncommented() -> String {
    let sample = Config::sample();
    let lines = sample.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(char::is_alphabetic) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_is_up_to_date() {
    is_checked_in("ratchet.sample.toml", &Config::sample());
}

#[test]
fn the_reference_is_up_to_date() {
    const BEGIN: &str = "<!-- begin of the table of keys -->\n";
    const END: &str = "<!-- end of the table of keys -->\n";
    let page = fs::read_to_string(root("docs/configuration.md")).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect(
        "the page should have the begin mark of the \
         table",
    );
    let (_, tail) = rest
        .split_once(END)
        .expect("the page should have the end mark of the table");
    let reference = ratchet_config::reference();
    is_checked_in(
        "docs/configuration.md",
        &format!("{head}{BEGIN}\n{reference}{END}{tail}"),
    );
}

#[test]
fn the_sample_sets_nothing() {
    let config = load(&Config::sample());
    assert!(
        config
            .settings()
            .iter()
            .all(|setting| setting.origin == "default")
    );
}

#[test]
fn the_sample_without_its_comment_signs_is_what_holds_anyway() {
    let config = load(&uncommented());
    let set = config
        .settings()
        .iter()
        .filter(|setting| setting.origin != "default")
        .count();
    assert_eq!(
        set,
        keys()
            .filter(|key| key.default.is_some() && !key.section.ends_with("NAME"))
            .count()
    );
    // The builder's debug output contains all of its settings. So equal outputs show that the
    // sample changes no default.
    let applied = format!("{:#?}", config.apply(builder()));
    assert_eq!(applied, format!("{:#?}", builder()));
    assert_eq!(config.http.listen, HttpConfig::default().listen);
    assert_eq!(config.http.payloads, HttpConfig::default().payloads);
    assert_eq!(config.store.migrate, StoreConfig::default().migrate);
}

#[test]
fn every_key_says_what_it_is_and_has_a_default_or_an_example() {
    for key in keys() {
        assert!(!key.doc.is_empty(), "{}", key.path());
        assert!(
            key.default.is_some() != key.example.is_some(),
            "{}",
            key.path()
        );
    }
}
