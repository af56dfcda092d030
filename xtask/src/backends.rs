//! The table of all stores of this workspace, and of the servers that their tests use.

use anyhow::Result;

use crate::db::{self, Server};

/// A store that has a conformance test in this workspace.
pub(crate) struct Backend {
    /// The store's name in the conformance reports, in `RATCHET_REQUIRE` and for `cargo xtask
    /// mutants`.
    pub(crate) name: &'static str,
    /// The store's crate, if it has statements in `src/sql` and mutants of them.
    pub(crate) sql: Option<&'static str>,
    /// The names that backend-neutral crates must not mention: those of the backend and of its
    /// driver.
    pub(crate) words: &'static [&'static str],
    /// The heading of the backend's column in the table of `cargo xtask bench`, if it is measured.
    pub(crate) bench: Option<&'static str>,
    /// The server that the store's tests need, if any.
    pub(crate) server: Option<Needs>,
}

/// A server that the tests of a store need.
pub(crate) struct Needs {
    /// The variable that passes the server's URL to the tests.
    pub(crate) url: &'static str,
    /// Returns the server that the variable names, or starts one.
    pub(crate) provide: fn() -> Result<Server>,
    /// Starts a server for this run alone, if that is possible.
    pub(crate) own: fn() -> Result<Server>,
}

/// All stores. A new store is one more entry.
pub(crate) static BACKENDS: [Backend; 10] = [
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
        name: "mysql",
        sql: Some("ratchet-store-mysql"),
        words: &["mysql", "mariadb"],
        bench: Some("MariaDB"),
        server: Some(Needs {
            url: db::mysql::URL,
            provide: db::mysql::provide,
            own: db::mysql::own,
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
    Backend {
        name: "object",
        sql: None,
        words: &["object_store"],
        bench: None,
        server: None,
    },
    Backend {
        name: "object-s3",
        sql: None,
        words: &[],
        bench: None,
        server: Some(Needs {
            url: db::object::S3_URL,
            provide: db::object::provide_s3,
            own: db::object::own_s3,
        }),
    },
    Backend {
        name: "object-azure",
        sql: None,
        words: &[],
        bench: None,
        server: Some(Needs {
            url: db::object::AZURE_URL,
            provide: db::object::provide_azure,
            own: db::object::own_azure,
        }),
    },
    // This store has no transactions.
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

/// Returns the crates of the SQL stores.
pub(crate) fn sql_packages() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().filter_map(|backend| backend.sql)
}

/// Returns the names of all backends and drivers.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().flat_map(|backend| backend.words).copied()
}
