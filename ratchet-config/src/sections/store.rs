use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::backend::Backend;
use crate::section::{Key, section};
use crate::value::{DatabaseUrl, duration};

section! {
    /// The database and how it is used.
    pub struct StoreConfig in "store" {
        /// The database; its scheme chooses the backend: `sqlite://jobs.db`,
        /// `postgres://user:password@host/database`, `sqlserver://…`, `mongodb://…` or `memory:`.
        url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost/jobs\"", setting "the URL";

        /// A file with the URL in its first line. Not together with `url`.
        url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-url\"";

        /// Whether to create and upgrade the tables. If not, connecting is refused unless another
        /// program else has.
        migrate: bool, default true, initially true;

        /// How many connections the pool may have, but for the few for heartbeats, locks and
        /// wakeups. Unset, 10. SQLite has no pool.
        max_connections: Option<u32>, example "10";

        /// How long a call may take in all. Unset, 10 s; SQLite 30 s, MongoDB 20 s.
        deadline: Option<Duration> as "duration", example "\"10s\"";

        /// How the connections are called on the server; unset, `ratchet` or what the URL says.
        application_name: Option<String>, example "\"ratchet\"";
    }
    with {
        /// For SQLite only.
        sqlite: SqliteConfig,
        /// For PostgreSQL only.
        postgres: PostgresConfig,
        /// For SQL Server only.
        sqlserver: SqlServerConfig,
        /// For MongoDB only.
        mongo: MongoConfig,
    }
}

impl StoreConfig {
    /// Returns the key of the setting that a backend refuses under the name `setting`.
    #[must_use]
    pub fn key_of(&self, setting: &str) -> Option<String> {
        let scheme = self.url.as_ref().and_then(DatabaseUrl::scheme);
        let own = scheme.and_then(Backend::of).and_then(|it| it.section);
        let own = crate::keys().filter(|key| Some(key.section) == own);
        let mut keys = own.chain(Self::KEYS);
        let setting = if setting == "the path" {
            "the URL"
        } else {
            setting
        };
        keys.find(|key| key.setting == setting).map(Key::path)
    }
}

/// When SQLite makes a commit durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Synchronous {
    /// Before the call returns.
    Full,
    /// Soon after the call: a power failure may undo the last transactions.
    Normal,
}

section! {
    /// For SQLite only.
    pub struct SqliteConfig in "store.sqlite" {
        /// When a commit is safe: `"full"`, when the call returns, or `"normal"`, soon after.
        synchronous: Option<Synchronous>, default "full";

        /// How long a call waits for other processes that write.
        busy_timeout: Option<Duration> as "duration", default "5s";

        /// Grows the file to this many pages (of 4 KiB by default) and no
        /// further. Unset, without bounds.
        max_pages: Option<u32>, example "262144";
    }
}

section! {
    /// For PostgreSQL only.
    pub struct PostgresConfig in "store.postgres" {
        /// The schema of the tables.
        schema: Option<String>, default "ratchet";

        /// How long a call waits for a connection.
        acquire_timeout: Option<Duration> as "duration", default "5s";

        /// How long a connection is used before another takes its place.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// Whether the store carries wakeups, by LISTEN and NOTIFY.
        wakeups: Option<bool>, default true;

        /// Whether locks are free as soon as the server notices that the connection of their holder
        /// is gone. Unset, what the URL says, and no.
        session_locks: Option<bool>, example "true";

        /// A URL that leads past a pooler to the same database, for heartbeats, locks, migrations
        /// and wakeups.
        direct_url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost:5432/jobs\"", setting "direct";

        /// A file with that URL in its first line. Not together with `direct_url`.
        direct_url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-direct-url\"";
    }
}

/// The encryption of the connection to SQL Server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Encryption {
    /// Everything is encrypted from the first byte on (TDS 8.0).
    Strict,
    /// The login and everything after it are encrypted.
    Required,
    /// Only the login is encrypted.
    Login,
    /// Nothing is encrypted, not even the password. For tests.
    Off,
}

section! {
    /// For SQL Server only.
    pub struct SqlServerConfig in "store.sqlserver" {
        /// The schema of the tables.
        schema: Option<String>, default "ratchet";

        /// How long a call waits for a connection.
        acquire_timeout: Option<Duration> as "duration", default "5s";

        /// How long a connection is used before another takes its place.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// What is encrypted: `"strict"`, `"required"`, `"login"` or `"off"`. Unset, what the URL
        /// says, and `"required"`.
        encryption: Option<Encryption>, example "\"strict\"";

        /// Takes whatever certificate the server shows: a host that can answer in its place then
        /// reads everything.
        trust_any_certificate: Option<bool>, default false;

        /// Takes certificates of this authority, a `.pem`, `.crt` or `.der` file, beside those that
        /// the platform trusts.
        trust_authority: Option<PathBuf>, example "\"/etc/ssl/sqlserver.pem\"";

        /// Whether a database will do whose READ_COMMITTED_SNAPSHOT is off.
        locking_reads: Option<bool>, default false;
    }
}

section! {
    /// For MongoDB only.
    pub struct MongoConfig in "store.mongo" {
        /// The database. Unset, what the URL says, and `ratchet`.
        database: Option<String>, example "\"jobs\"";

        /// The prefix of the names of the collections.
        prefix: Option<String>, default "ratchet_";

        /// Whether a write waits until it is in the journals of a majority.
        journaled: Option<bool>, default true;

        /// Whether the store carries wakeups, by change streams. A standalone server cannot.
        wakeups: Option<bool>, default true;
    }
}

/// The sections of the backends, in the order of the sample: the purpose of each, and its keys.
pub(crate) const STORES: [(&[&str], &[Key]); 4] = [
    (SqliteConfig::ABOUT, SqliteConfig::KEYS),
    (PostgresConfig::ABOUT, PostgresConfig::KEYS),
    (SqlServerConfig::ABOUT, SqlServerConfig::KEYS),
    (MongoConfig::ABOUT, MongoConfig::KEYS),
];
