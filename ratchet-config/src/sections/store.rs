use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::backend::Backend;
use crate::section::{Key, section};
use crate::value::{DatabaseUrl, duration};

section! {
    /// The database, and how the store uses it.
    pub struct StoreConfig in "store" {
        /// The URL of the database, whose scheme chooses the backend: `sqlite://jobs.db`,
        /// `postgres://user:password@host/database`, `sqlserver://…`, `mongodb://…` or `memory:`.
        url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost/jobs\"", setting "the URL";

        /// A file with the URL in its first line. It cannot be set together with `url`.
        url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-url\"";

        /// Whether to create and upgrade the tables. If `false`, connecting fails until another
        /// program has done so.
        migrate: bool, default true, initially true;

        /// The maximum number of connections in the pool, which does not include the few for
        /// heartbeats, locks and wakeups. 10 if unset. SQLite has no pool.
        max_connections: Option<u32>, example "10";

        /// The deadline of a store call, after which the call fails. If unset, 10 s; for SQLite 30
        /// s, for MongoDB 20 s.
        deadline: Option<Duration> as "duration", example "\"10s\"";

        /// The application name that the connections show to the server. If unset, the name in the
        /// URL, or else `ratchet`.
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
    /// Returns the key of a setting. `setting` is the name by which the backend's error refers to
    /// it.
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
    /// Soon after the call returns. A power failure may undo the last transactions.
    Normal,
}

section! {
    /// For SQLite only.
    pub struct SqliteConfig in "store.sqlite" {
        /// When a commit is durable: `"full"`, before the call returns, or `"normal"`, soon after
        /// it.
        synchronous: Option<Synchronous>, default "full";

        /// How long a call waits while other processes write to the file.
        busy_timeout: Option<Duration> as "duration", default "5s";

        /// The maximum size of the file in pages, of 4 KiB by default. Unlimited if unset.
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

        /// How long a connection is used before the pool replaces it.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// Whether the store sends and receives wakeups, by LISTEN and NOTIFY.
        wakeups: Option<bool>, default true;

        /// Whether a lock is released as soon as the server notices that the connection of its
        /// holder is closed. If unset, the value in the URL, or else `false`.
        session_locks: Option<bool>, example "true";

        /// A URL that connects to the same database directly, past a pooler, for heartbeats, locks,
        /// migrations and wakeups.
        direct_url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost:5432/jobs\"", setting "direct";

        /// A file with the direct URL in its first line. It cannot be set together with
        /// `direct_url`.
        direct_url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-direct-url\"";
    }
}

/// The encryption of the connection to SQL Server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Encryption {
    /// The whole connection is encrypted, from its first byte (TDS 8.0).
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

        /// How long a connection is used before the pool replaces it.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// The encryption of the connection: `"strict"` (all of it, TDS 8.0), `"required"` (from
        /// the login on), `"login"` (the login only) or `"off"`. If unset, the value in the URL, or
        /// else `"required"`.
        encryption: Option<Encryption>, example "\"strict\"";

        /// Whether to accept any certificate of the server. A host that impersonates the server can
        /// then read everything, including the password.
        trust_any_certificate: Option<bool>, default false;

        /// The file of a certificate authority (`.pem`, `.crt` or `.der`) to trust besides those of
        /// the platform.
        trust_authority: Option<PathBuf>, example "\"/etc/ssl/sqlserver.pem\"";

        /// Whether to accept a database in which READ_COMMITTED_SNAPSHOT is off.
        locking_reads: Option<bool>, default false;
    }
}

section! {
    /// For MongoDB only.
    pub struct MongoConfig in "store.mongo" {
        /// The name of the database. If unset, the name in the URL, or else `ratchet`.
        database: Option<String>, example "\"jobs\"";

        /// The prefix of the names of the collections.
        prefix: Option<String>, default "ratchet_";

        /// Whether a write waits until a majority of the replica set has it in its journals.
        journaled: Option<bool>, default true;

        /// Whether the store sends and receives wakeups, by change streams. A standalone server has
        /// none.
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
