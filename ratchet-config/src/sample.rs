//! Generates the sample file and the reference documentation from the table of keys.

use std::fmt::Write;

use crate::section::{ANY, Key};
use crate::sections::*;

/// The section `store` with its description and its keys. In the file, the sections of the backends
/// follow it.
const STORE: (&[&str], &[Key]) = (StoreConfig::ABOUT, StoreConfig::KEYS);

/// The sections after those of the backends, in the order of the file. Each item contains the
/// description and the keys of a section.
const OTHERS: [(&[&str], &[Key]); 8] = [
    (NodeConfig::ABOUT, NodeConfig::KEYS),
    (ClusterConfig::ABOUT, ClusterConfig::KEYS),
    (RetentionConfig::ABOUT, RetentionConfig::KEYS),
    (WorkerConfig::ABOUT, WorkerConfig::KEYS),
    (PoolConfig::ABOUT, PoolConfig::KEYS),
    (permits::ABOUT, permits::KEYS),
    (PollConfig::ABOUT, PollConfig::KEYS),
    (HttpConfig::ABOUT, HttpConfig::KEYS),
];

/// Path of a pool's section. `NAME` is a placeholder for the name of the pool.
pub(crate) const POOL: &str = "worker.pools.NAME";

/// Returns all keys, in the order of the sample file.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    sections().flat_map(|(_, _, keys)| keys)
}

/// Returns the path, the description and the keys of each section.
pub(crate) fn sections() -> impl Iterator<Item = (&'static str, String, &'static [Key])> {
    let stores = [STORE].into_iter().chain(STORES);
    stores.chain(OTHERS).map(|(about, keys)| {
        let about: Vec<&str> = about.iter().map(|line| line.trim()).collect();
        (
            keys.first().map_or("", |key| key.section),
            about.join(" "),
            keys,
        )
    })
}

/// Returns the path of a section in dotted form. In the path of a pool, replaces the pool's name by
/// `NAME`.
fn section_of(path: &[String]) -> String {
    match path {
        [worker, pools, _] if worker == "worker" && pools == "pools" => POOL.to_owned(),
        _ => path.join("."),
    }
}

pub(crate) fn is_section(path: &[String]) -> bool {
    let section = section_of(path);
    sections().any(|(known, ..)| known == section)
}

/// Returns the properties of the key with this path, or `None` if the key is unknown.
pub(crate) fn row(path: &[String]) -> Option<&'static Key> {
    let (name, above) = path.split_last()?;
    let section = section_of(above);
    keys().find(|key| key.section == section && (key.name == name || key.name == ANY))
}

/// Returns the text of `ratchet.sample.toml`. In this text, each setting is a comment that shows
/// its default or an example.
#[must_use]
pub fn sample() -> String {
    let mut text = String::from(
        "# All settings. A line such as `#ttl = \"12s\"` shows the default of a setting; settings without\n\
         # a default have an example. Environment variables take precedence over this file. They are\n\
         # named after the section and the key, such as RATCHET_CLUSTER__TTL=20s, and separate the\n\
         # items of a list by commas. Durations have units: \"1m 30s\", \"200ms\".\n\
         # This file is generated from the table of keys; do not edit it.\n",
    );
    for (section, about, keys) in sections() {
        let mark = if section == POOL { "# " } else { "" };
        let _ = write!(text, "\n# {about}\n{mark}[{section}]\n");
        for (index, key) in keys.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            for line in key.doc {
                let _ = writeln!(text, "#{line}");
            }
            let _ = match (key.default, key.example) {
                (Some(default), _) => writeln!(text, "#{} = {default}", key.name),
                (None, Some(example)) => writeln!(text, "# Example: {} = {example}", key.name),
                (None, None) => Ok(()),
            };
        }
    }
    text
}

/// Returns the reference documentation of all keys, as Markdown tables.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for (section, about, keys) in sections() {
        let _ = write!(
            text,
            "### `[{section}]`\n\n{about}\n\n| key | default | |\n|---|---|---|\n"
        );
        for key in keys {
            let doc: Vec<&str> = key.doc.iter().map(|line| line.trim()).collect();
            let default = key
                .default
                .map_or("".to_owned(), |default| format!("`{default}`"));
            let example = match (key.default, key.example) {
                (None, Some(example)) => format!(" Example: `{example}`."),
                _ => String::new(),
            };
            let doc = doc.join(" ").replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | {default} | {doc}{example} |", key.name);
        }
        text.push('\n');
    }
    text
}
