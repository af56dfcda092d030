//! Tests of MySQL and MariaDB.

use ratchet::mysql::sqlx::mysql::MySqlConnection;
use ratchet::mysql::sqlx::{self, AssertSqlSafe, Connection};
use ratchet::{ConnectError, StoreErrorKind};

use crate::{Backend, runs_jobs};

pub(crate) static BACKEND: Backend = Backend {
    name: "mysql",
    url: "RATCHET_TEST_MYSQL_URL",
    tests: &[
        ("a_url_is_enough", |url| Box::pin(a_url_is_enough(url))),
        ("the_scheme_chooses_it", |url| {
            Box::pin(the_scheme_chooses_it(url))
        }),
    ],
};

/// Connects with a URL that names the database, without any other setting.
async fn a_url_is_enough(url: &str) {
    let name = format!("ratchet_test_{}", ratchet::JobId::new().as_uuid().simple());
    let mut admin = MySqlConnection::connect(url).await.unwrap();
    let create = sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")));
    create.execute(&mut admin).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let place = server.split_once("://").unwrap().1;
    for scheme in ["mysql", "mariadb"] {
        let store = ratchet::connect(&format!("{scheme}://{place}/{name}")).await;
        let store = store.unwrap();
        assert_eq!(store.info().backend, "mysql");
        if scheme == "mysql" {
            runs_jobs(store).await;
        }
    }
    let drop = sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name}")));
    drop.execute(&mut admin).await.unwrap();
}

async fn the_scheme_chooses_it(url: &str) {
    let (place, _) = url.rsplit_once('/').unwrap();
    let error = ratchet::connect(&format!("{place}/")).await.unwrap_err();
    let ConnectError::Store(error) = error else {
        panic!("another store: {error}")
    };
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("no database"), "{error}");
}
