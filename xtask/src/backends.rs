//! The stores of this workspace, and the servers that their tests use: the one table of them.

use anyhow::Result;

use crate::db::{self, Server};

/// A store that has a conformance test in this workspace.
pub(crate) struct Backend {
    /// Its name in the conformance reports, in `RATCHET_REQUIRE` and for `cargo xtask mutants`.
    pub(crate) name: &'static str,
    /// Its crate, if that has statements in `src/sql` and mutants of them.
    pub(crate) sql: Option<&'static str>,
    /// The names that neutral crates may not mention: that of the backend, and of its driver.
    pub(crate) words: &'static [&'static str],
    /// Its heading in the table of `cargo xtask bench`, if it is measured.
    pub(crate) bench: Option<&'static str>,
    /// The server its tests need, if they need one.
    pub(crate) server: Option<Needs>,
}

/// A server for the tests of a store.
pub(crate) struct Needs {
    /// The variable that carries its URL to the tests.
    pub(crate) url: &'static str,
    /// Returns the server that the variable names, or starts one.
    pub(crate) provide: fn() -> Result<Server>,
    /// Starts one for this run alone, where that can be done.
    pub(crate) own: fn() -> Result<Server>,
}

/// The stores there are. A new one is one entry.
pub(crate) static BACKENDS: [Backend; 6] = [
    Backend {
        name: "memory",
        sql: None,
        words: &[],
        bench: Some("memory"),
        server: None,
    },
    Backend {
        name: "sqlite",
        sql: Some("ratchet-store-sqlite"),
        words: &["sqlite"],
        bench: Some("SQLite"),
        server: None,
    },
    Backend {
        name: "postgres",
        sql: Some("ratchet-store-postgres"),
        words: &["postgres", "sqlx"],
        bench: Some("PostgreSQL"),
        server: Some(Needs {
            url: db::postgres::URL,
            provide: db::postgres::provide,
            own: db::postgres::own,
        }),
    },
    Backend {
        name: "sqlserver",
        sql: Some("ratchet-store-sqlserver"),
        words: &["sqlserver", "tiberius"],
        bench: Some("SQL Server"),
        server: Some(Needs {
            url: db::sqlserver::URL,
            provide: db::sqlserver::provide,
            own: db::sqlserver::provide,
        }),
    },
    Backend {
        name: "mongodb",
        sql: None,
        words: &["mongo"],
        bench: Some("MongoDB"),
        server: Some(Needs {
            url: db::mongodb::URL,
            provide: db::mongodb::provide,
            own: db::mongodb::own,
        }),
    },
    // The store without transactions.
    Backend {
        name: "mongodb-standalone",
        sql: None,
        words: &[],
        bench: None,
        server: Some(Needs {
            url: db::mongodb::STANDALONE_URL,
            provide: db::mongodb::provide_standalone,
            own: db::mongodb::own_standalone,
        }),
    },
];

/// The crates of the SQL stores.
pub(crate) fn sql_packages() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().filter_map(|backend| backend.sql)
}

/// What backends and drivers are called.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().flat_map(|backend| backend.words).copied()
}
