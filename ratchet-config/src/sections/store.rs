use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::backend::Backend;
use crate::section::{Key, section};
use crate::value::{DatabaseUrl, duration};

section! {
    /// The database, and how Ratchet connects to it.
    pub struct StoreConfig in "store" {
        /// URL of the database. The scheme of the URL chooses the backend: `sqlite://jobs.db`,
        /// `postgres://user:password@host/database`, `mysql://…`, `sqlserver://…`, `mongodb://…`,
        /// `s3://bucket/prefix`, `az://…`, `gs://…`, `file:///directory` or `memory:`.
        url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost/jobs\"", setting "the URL";

        /// File with the URL in its first line. Cannot be set together with `url`.
        url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-url\"";

        /// Whether Ratchet creates and upgrades its tables when it connects. If `false`, connecting
        /// fails until another program has created or upgraded the tables.
        migrate: bool, default true, initially true;

        /// Maximum number of connections in the pool. A few additional connections serve
        /// heartbeats, locks and wakeups. If unset, 10. SQLite has no pool.
        max_connections: Option<u32>, example "10";

        /// Time after which a store call fails. If unset, 30 s for SQLite and object storage, 20 s
        /// for MongoDB, and 10 s for other databases.
        deadline: Option<Duration> as "duration", example "\"10s\"";

        /// Application name that the connections send to the server. If unset, the name in the URL,
        /// or `ratchet` if the URL has no name. Not supported for MySQL.
        application_name: Option<String>, example "\"ratchet\"";
    }
    with {
        /// Settings that apply to SQLite only.
        sqlite: SqliteConfig,
        /// Settings that apply to PostgreSQL only.
        postgres: PostgresConfig,
        /// Settings that apply to MySQL and MariaDB only.
        mysql: MysqlConfig,
        /// Settings that apply to SQL Server only.
        sqlserver: SqlServerConfig,
        /// Settings that apply to MongoDB only.
        mongo: MongoConfig,
        /// Settings that apply to object storage only.
        object: ObjectConfig,
    }
}

impl StoreConfig {
    /// Returns the key of the setting that a backend's error calls `setting`. Returns `None` if the
    /// configuration has no such key.
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

/// Time at which SQLite makes a commit durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Synchronous {
    /// A commit is durable before the store call returns.
    Full,
    /// A commit is durable soon after the store call has returned. A power failure may undo the
    /// last transactions.
    Normal,
}

section! {
    /// Settings that apply to SQLite only.
    pub struct SqliteConfig in "store.sqlite" {
        /// When SQLite makes a commit durable. With `"full"`, before the store call returns. With
        /// `"normal"`, soon after the store call has returned.
        synchronous: Option<Synchronous>, default "full";

        /// Maximum time that a store call waits while other processes write to the database file.
        busy_timeout: Option<Duration> as "duration", default "5s";

        /// Maximum size of the database file, in pages. A page has 4 KiB by default. If unset, the
        /// size is unlimited.
        max_pages: Option<u32>, example "262144";
    }
}

section! {
    /// Settings that apply to PostgreSQL only.
    pub struct PostgresConfig in "store.postgres" {
        /// Name of the database schema that contains Ratchet's tables.
        schema: Option<String>, default "ratchet";

        /// Maximum time that a store call waits for a connection from the pool.
        acquire_timeout: Option<Duration> as "duration", default "5s";

        /// Age at which the pool replaces a connection.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// Whether the store sends and receives wakeups, through `LISTEN` and `NOTIFY`.
        wakeups: Option<bool>, default true;

        /// Whether a lock is released as soon as the server notices that the holder's connection is
        /// closed. If unset, the value in the URL, or `false` if the URL has no value.
        session_locks: Option<bool>, example "true";

        /// URL of a direct connection to the same database, if `url` connects to a pooler.
        /// Heartbeats, locks, migrations and wakeups use the direct connection.
        direct_url: Option<DatabaseUrl>, example "\"postgres://ratchet@localhost:5432/jobs\"", setting "direct";

        /// File with the direct URL in its first line. Cannot be set together with `direct_url`.
        direct_url_file: Option<PathBuf>, example "\"/run/secrets/ratchet-direct-url\"";
    }
}

section! {
    /// Settings that apply to MySQL and MariaDB only.
    pub struct MysqlConfig in "store.mysql" {
        /// Prefix of the names of Ratchet's tables, before `_`. The tables are in the database of
        /// the URL.
        schema: Option<String>, default "ratchet";

        /// Maximum time that a store call waits for a connection from the pool.
        acquire_timeout: Option<Duration> as "duration", default "5s";

        /// Age at which the pool replaces a connection.
        max_lifetime: Option<Duration> as "duration", default "30m";
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
    /// Nothing is encrypted, not even the password. This mode is for tests only.
    Off,
}

section! {
    /// Settings that apply to SQL Server only.
    pub struct SqlServerConfig in "store.sqlserver" {
        /// Name of the database schema that contains Ratchet's tables.
        schema: Option<String>, default "ratchet";

        /// Maximum time that a store call waits for a connection from the pool.
        acquire_timeout: Option<Duration> as "duration", default "5s";

        /// Age at which the pool replaces a connection.
        max_lifetime: Option<Duration> as "duration", default "30m";

        /// Encryption of the connection. `"strict"` encrypts everything (TDS 8.0), `"required"`
        /// encrypts the login and everything after it, `"login"` encrypts only the login, and
        /// `"off"` encrypts nothing. If unset, the value in the URL, or `"required"` if the URL has
        /// no value.
        encryption: Option<Encryption>, example "\"strict\"";

        /// Whether the connection accepts any certificate from the server. If `true`, a host that
        /// impersonates the server can read all data, including the password.
        trust_any_certificate: Option<bool>, default false;

        /// File with the certificate of an additional certificate authority to trust, as `.pem`,
        /// `.crt` or `.der`. The connection also trusts the authorities of the platform.
        trust_authority: Option<PathBuf>, example "\"/etc/ssl/sqlserver.pem\"";

        /// Whether the store accepts a database whose option READ_COMMITTED_SNAPSHOT is off. In
        /// such a database, readers wait for writers.
        locking_reads: Option<bool>, default false;
    }
}

section! {
    /// Settings that apply to MongoDB only.
    pub struct MongoConfig in "store.mongo" {
        /// Name of the database. If unset, the name in the URL, or `ratchet` if the URL has no
        /// name.
        database: Option<String>, example "\"jobs\"";

        /// Prefix of the collections' names.
        prefix: Option<String>, default "ratchet_";

        /// Whether a write waits until it is in the journals of a majority of the replica set.
        journaled: Option<bool>, default true;

        /// Whether the store sends and receives wakeups, through change streams. A standalone
        /// server has no change streams.
        wakeups: Option<bool>, default true;
    }
}

section! {
    /// Settings that apply to object storage only.
    pub struct ObjectConfig in "store.object" {
        /// Age at which segments and snapshots are deleted if newer ones replace them. At least 15
        /// minutes more than `request_life`. If unset, one hour, or that minimum if it is longer.
        retention: Option<Duration> as "duration", example "\"2h\"";

        /// Time for which the service may accept a request after it was made. If unset, 15 minutes
        /// if each request is signed (`s3://`, and `az://` with an account key) and for `file://`;
        /// 24 hours for tokens (`gs://`, other `az://`). Set the same on all nodes.
        request_life: Option<Duration> as "duration", example "\"1h\"";

        /// Number of segments after which a snapshot follows.
        snapshot_every: Option<u32>, default 1000;

        /// Maximum number of objects that a process puts in a minute. If unset, unlimited. Calls
        /// that change something wait for the next put.
        puts_per_minute: Option<u32>, example "60";
    }
}

/// Sections of the backends in the order of the sample file. Each item contains the description and
/// the keys of a section.
pub(crate) const STORES: [(&[&str], &[Key]); 6] = [
    (SqliteConfig::ABOUT, SqliteConfig::KEYS),
    (PostgresConfig::ABOUT, PostgresConfig::KEYS),
    (MysqlConfig::ABOUT, MysqlConfig::KEYS),
    (SqlServerConfig::ABOUT, SqlServerConfig::KEYS),
    (MongoConfig::ABOUT, MongoConfig::KEYS),
    (ObjectConfig::ABOUT, ObjectConfig::KEYS),
];
