//! Tests of stores that are opened with a configuration.

use ratchet::config::{Config, ConfigError, Loader};
use ratchet::{ConnectError, configured};

fn load(text: &str) -> Config {
    let loader: Loader = Config::loader().text("ratchet.toml", text);
    match loader.variables::<&str, &str>([]).load() {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn problems(text: &str) -> Vec<String> {
    let checked = configured::check(&load(text));
    let problems = |error: ConfigError| error.problems().iter().map(ToString::to_string).collect();
    checked.err().map(problems).unwrap_or_default()
}

#[tokio::test]
async fn a_configuration_without_a_url_connects_nowhere() {
    let error = ratchet::connect_configured(&load("").store).await;
    let error = error.map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::NoUrl), "{error}");
    assert_eq!(problems("[store]\ndeadline = '0s'\n"), [""; 0]);
}

#[tokio::test]
async fn what_the_backend_refuses_is_named_by_its_key() {
    let config = load("[store]\nurl = 'sqlite://x.db'\ndeadline = '0s'\n");
    let error = ratchet::connect_configured(&config.store).await;
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("store.deadline: "), "{error}");
}

#[test]
fn a_check_tells_all_that_the_backend_refuses() {
    assert_eq!(
        problems(
            "[store]\nurl = 'sqlite://x.db?synchronous=maybe'\ndeadline = '0s'\n\
             [store.sqlite]\nbusy_timeout = '0s'\nmax_pages = 0\n"
        ),
        [
            "store.url = \"sqlite://x.db?synchronous=maybe\" (ratchet.toml:2): synchronous is \
             `maybe`; expected `full` or `normal`",
        ]
    );
    assert_eq!(
        problems(
            "[store]\nurl = 'sqlite://x.db'\ndeadline = '0s'\n\
             [store.sqlite]\nbusy_timeout = '0s'\nmax_pages = 0\n"
        ),
        [
            "store.deadline = \"0s\" (ratchet.toml:3): deadline is zero",
            "store.sqlite.busy_timeout = \"0s\" (ratchet.toml:5): busy_timeout is zero",
            "store.sqlite.max_pages = 0 (ratchet.toml:6): max_pages is zero",
        ]
    );
}

#[test]
fn postgres_settings_are_named_by_their_keys() {
    assert_eq!(
        problems(
            "[store]\nurl = 'postgres://me:hunter2@db/jobs'\nmax_connections = 0\n\
             [store.postgres]\nschema = 'pg_jobs'\nacquire_timeout = '0s'\nmax_lifetime = '0s'\n\
             direct_url = 'mysql://me:hunter2@db'\n"
        ),
        [
            "store.max_connections = 0 (ratchet.toml:3): max_connections is zero",
            "store.postgres.acquire_timeout = \"0s\" (ratchet.toml:6): acquire_timeout is zero",
            "store.postgres.direct_url = \"mysql://me:***@db\" (ratchet.toml:8): the URL has the \
             scheme `mysql`; expected `postgres`",
            "store.postgres.max_lifetime = \"0s\" (ratchet.toml:7): max_lifetime is zero",
            "store.postgres.schema = \"pg_jobs\" (ratchet.toml:5): schema begins with `pg_`, which \
             PostgreSQL reserves",
        ]
    );
}

#[test]
fn mongo_settings_are_named_by_their_keys() {
    assert_eq!(
        problems(
            "[store]\nurl = 'mongodb://me:hunter2@db/jobs'\nmax_connections = 0\n\
             deadline = '30d'\n[store.mongo]\nprefix = '$a'\ndatabase = 'admin'\n"
        ),
        [
            "store.deadline = \"30d\" (ratchet.toml:4): deadline is longer than the server \
             allows, which is about 24 days",
            "store.max_connections = 0 (ratchet.toml:3): max_connections is zero",
            "store.mongo.database = \"admin\" (ratchet.toml:7): database is reserved by the \
             server",
            "store.mongo.prefix = \"$a\" (ratchet.toml:6): prefix has a `$` or a NUL",
        ]
    );
}

#[test]
fn sqlserver_settings_are_named_by_their_keys() {
    assert_eq!(
        problems(
            "[store]\nurl = 'sqlserver://me:hunter2@db/jobs'\nmax_connections = 0\n\
             [store.sqlserver]\nschema = '{a}'\nacquire_timeout = '0s'\nencryption = 'strict'\n"
        ),
        [
            "store.max_connections = 0 (ratchet.toml:3): max_connections is zero",
            "store.sqlserver.acquire_timeout = \"0s\" (ratchet.toml:6): acquire_timeout is zero",
            "store.sqlserver.schema = \"{a}\" (ratchet.toml:5): schema has a brace",
        ]
    );
}

/// Checks that settings in the file take effect in the database.
#[tokio::test]
async fn settings_reach_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.db");
    let config = |migrate: bool| {
        let file = file.display();
        load(&format!(
            "[store]\nurl = 'sqlite://{file}'\nmigrate = {migrate}\n"
        ))
    };
    let refused = ratchet::connect_configured(&config(false).store).await;
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("schema mismatch"), "{error}");
    assert!(!file.exists());
    for migrate in [true, false] {
        let store = ratchet::connect_configured(&config(migrate).store)
            .await
            .unwrap();
        assert_eq!(store.info().backend, "sqlite");
    }
}
