//! The sample and the reference, written from the table of keys.

use std::fmt::Write;

use crate::section::Key;
use crate::sections::{
    ClusterConfig, HttpConfig, MongoConfig, NodeConfig, PollConfig, PoolConfig, PostgresConfig,
    RetentionConfig, SqlServerConfig, SqliteConfig, StoreConfig, WorkerConfig,
};

/// The sections in the order of the file, with what they are for.
const TABLE: [(&str, &[Key]); 12] = [
    (
        "Where the database is, and how it is used.",
        StoreConfig::KEYS,
    ),
    ("For SQLite only.", SqliteConfig::KEYS),
    ("For PostgreSQL only.", PostgresConfig::KEYS),
    ("For SQL Server only.", SqlServerConfig::KEYS),
    ("For MongoDB only.", MongoConfig::KEYS),
    (
        "What the node is, and what it takes part in.",
        NodeConfig::KEYS,
    ),
    (
        "How nodes know of each other, and who leads. All nodes of a cluster should agree.",
        ClusterConfig::KEYS,
    ),
    (
        "What becomes of finished jobs. Ages count from the end of the job.",
        RetentionConfig::KEYS,
    ),
    (
        "Which jobs the node runs, and how many at once.",
        WorkerConfig::KEYS,
    ),
    (
        "Slots of their own for some of the node's jobs. A pool takes by `queues`, by `kinds` or by `capabilities`.",
        PoolConfig::KEYS,
    ),
    (
        "How often the node looks at the database.",
        PollConfig::KEYS,
    ),
    ("How `ratchet serve` serves over HTTP.", HttpConfig::KEYS),
];

/// Every key there is, in the order of the file.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().flat_map(|(_, keys)| *keys)
}

/// Everything that can be set, commented, with the defaults.
#[must_use]
pub fn sample() -> String {
    let mut text = String::from(
        "# Everything that can be configured. Lines that begin with `#` and a name hold the default;\n\
         # examples are of what has none. A variable wins over the file: section and key, as in\n\
         # RATCHET_CLUSTER__TTL=20s. Lists have commas there. Durations have units: \"1m 30s\", \"200ms\".\n\
         # This file is made from the table of keys; do not edit it.\n",
    );
    for (about, keys) in TABLE {
        let section = keys.first().map_or("", |key| key.section);
        let mark = if section.ends_with("NAME") { "# " } else { "" };
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

/// The reference of all keys, as Markdown tables.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for (about, keys) in TABLE {
        let section = keys.first().map_or("", |key| key.section);
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
