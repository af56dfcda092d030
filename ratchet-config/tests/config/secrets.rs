//! Checks that no output contains a secret, wherever the secret was written.

use proptest::prelude::*;
use ratchet_config::{Config, redact_url};

/// A text that every secret contains. Output that contains this text has leaked a secret.
const MARK: &str = "Zq7Xk";

/// Configures the number of cases: the value of the variable `PROPTEST_CASES`, or `usual` if the
/// variable is not set. `cargo xtask test --deep` sets the variable.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}

/// Generates passwords, including some with special characters that a URL should escape.
fn secret() -> impl Strategy<Value = String> {
    let tail = prop_oneof![
        "[a-zA-Z0-9]{0,12}",
        "[a-zA-Z0-9@:/?#&;=%+ \\[\\]{},.$!*'\"\\\\-]{0,16}",
        "\\PC{0,8}",
    ];
    // The mark is at both ends and in the middle, because the text after a special character is
    // secret too.
    (tail.clone(), tail).prop_map(|(one, two)| format!("{MARK}{one}{MARK}{two}{MARK}"))
}

/// Returns texts that name a database, with the password in each possible place.
fn places(secret: &str) -> Vec<String> {
    let mut places: Vec<String> = [
        "postgres",
        "postgresql",
        "sqlserver",
        "mssql",
        "mongodb",
        "mongodb+srv",
        "mysql",
        "mariadb",
        "oracle",
        "POSTGRES",
    ]
    .iter()
    .flat_map(|scheme| {
        [
            format!("{scheme}://me:{secret}@db.example:5432/jobs?sslmode=require"),
            format!("{scheme}://me:{secret}@db.example"),
            format!("{scheme}:me:{secret}@db.example"),
            format!("{scheme}://:{secret}@/jobs"),
            format!("{scheme}://db.example/jobs?user=me&password={secret}"),
            format!("{scheme}://db.example;database=jobs;user=me;password={secret}"),
        ]
    })
    .collect();
    places.extend([
        format!("Server=db;Database=jobs;User Id=me;Password={secret};Encrypt=true"),
        format!("Server=db;Pwd=\"{secret}\";Database=jobs"),
        format!("host=db user=me password={secret}"),
        secret.to_owned(),
        format!("me:{secret}@db"),
    ]);
    places
}

/// Returns a string as it is written in a TOML file.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("the value should be serializable")
}

/// Returns all output about a configuration. If the configuration is refused, returns all output
/// about the error.
fn shown(file: &str, variables: &[(&str, &str)]) -> String {
    let loader = Config::loader().text("ratchet.toml", file);
    match loader.variables(variables.iter().copied()).load() {
        Ok(config) => {
            let settings = json(&config.settings());
            let url = config
                .store
                .url
                .as_ref()
                .map(|url| format!("{url} {url:?}"));
            let url = url.unwrap_or_default();
            let secrets = json(&(&config.store.url, &config.http.token));
            format!(
                "{config:?}{config:#?}{}{settings}{url}{secrets}",
                config.redacted()
            )
        }
        Err(error) => {
            let json = json(error.problems());
            format!("{error}{error:?}{error:#?}{json}")
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn urls_are_shown_without_their_passwords(secret in secret()) {
        for url in places(&secret) {
            let shown = redact_url(&url);
            prop_assert!(!shown.contains(MARK), "{url}\nshows as\n{shown}");
        }
    }

}

proptest! {
    // Each case reads several hundred configurations.
    #![proptest_config(cases(4))]

    #[test]
    fn no_output_has_a_secret(secret in secret()) {
        for url in places(&secret) {
            let in_url = quoted(&url);
            let plain = url.replace('\0', "");
            for file in [
                format!("[store]\nurl = {in_url}\n"),
                format!("[store]\nurl = {in_url}\n[poll]\nmin = '9s'\n"),
                format!("[store]\nurl = {in_url}\n[store.mongo]\nprefix = 'a'\n[store.sqlite]\nmax_pages = 1\n"),
                format!("[store]\nurl = 'postgres://h/d'\n[store.postgres]\ndirect_url = {in_url}\n"),
                format!("[store]\nurl = [{in_url}]\n"),
                format!("[store]\nurl = {{ a = {in_url} }}\n"),
                format!("[store]\nulr = {in_url}\n"),
                format!("[sotre]\nurl = {in_url}\n"),
                // These lines are not valid TOML, and contain the secret.
                format!("[store]\nurl = \"{}\n", plain.replace(['\n', '"'], "")),
                format!("[store]\nurl = {}\n", plain.replace(['\n', '"', '\'', '#'], "")),
                format!("[store]\nurl = {in_url}\nurl = {in_url}\n"),
            ] {
                let shown = shown(&file, &[]);
                prop_assert!(!shown.contains(MARK), "{file}\nshows as\n{shown}");
            }
            for variable in ["RATCHET_STORE__URL", "RATCHET_STORE__POSTGRES__DIRECT_URL", "RATCHET_STORE__ULR"] {
                let shown = shown("", &[(variable, &plain)]);
                prop_assert!(!shown.contains(MARK), "{variable}={plain}\nshows as\n{shown}");
            }
        }
        let token = quoted(&secret);
        let plain = secret.replace('\0', "");
        for (file, variables) in [
            (format!("[http]\ntoken = {token}\n"), vec![]),
            (format!("[http]\ntoken = {token}\nlisten = 'x'\n"), vec![]),
            (format!("[http]\ntoken = {token}\ntoken_file = 'x'\n"), vec![]),
            (format!("[http]\ntoken = [{token}]\n"), vec![]),
            (String::new(), vec![("RATCHET_HTTP__TOKEN", plain.as_str())]),
            ("[http]\nlisten = 1\n".to_owned(), vec![("RATCHET_HTTP__TOKEN", plain.as_str())]),
        ] {
            let shown = shown(&file, &variables);
            prop_assert!(!shown.contains(MARK), "{file}\nshows as\n{shown}");
        }
    }
}

#[test]
fn what_is_harmless_is_shown() {
    let table = [
        (
            "sqlite://jobs.db?synchronous=normal",
            "sqlite://jobs.db?synchronous=normal",
        ),
        ("memory:", "memory:"),
        (
            "postgres://me:x@db:5432/jobs?sslmode=require&password=x",
            "postgres://me:***@db:5432/jobs?sslmode=require&password=***",
        ),
        (
            "postgres://me@[::1]:5432/jobs",
            "postgres://me@[::1]:5432/jobs",
        ),
        (
            "mongodb://me:x@a:1,b:2/jobs?replicaSet=rs0&authMechanismProperties=x",
            "mongodb://me:***@a:1,b:2/jobs?replicaSet=rs0&authMechanismProperties=***",
        ),
        (
            "sqlserver://db;user=sa;password=x",
            "sqlserver://db;user=sa;password=***",
        ),
        (
            "Server=db;User Id=sa;Password=x",
            "Server=db;User Id=sa;Password=***",
        ),
        (
            "postgres://db/jobs?password=x;w=x",
            "postgres://db/jobs?password=***",
        ),
        ("host=db password=x dbname=jobs", "host=db password=*** ***"),
        ("mysql://me:x@db/jobs", "mysql://me:***@db/jobs"),
        ("oracle://me:x@db/jobs", "oracle://***"),
        ("hunter2", "***"),
    ];
    for (url, shown) in table {
        assert_eq!(redact_url(url), shown);
    }
}
