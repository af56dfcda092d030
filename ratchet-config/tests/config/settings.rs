//! Checks that a file, a variable and an argument can set every setting, and that problems name the
//! key.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ratchet_config::{Config, ConfigError, Key, Loader, Origin, keys};
use ratchet_core::{MemoryStore, Ratchet, Retain, Retention};

const NONE: [(&str, &str); 0] = [];

pub(crate) fn text(text: &str) -> Loader {
    Config::loader().text("ratchet.toml", text).variables(NONE)
}

pub(crate) fn refused(loader: Loader) -> ConfigError {
    match loader.load() {
        Ok(config) => panic!(
            "expected the configuration to be refused, found it accepted:\n{}",
            config.redacted()
        ),
        Err(error) => error,
    }
}

/// Loads an invalid file, and returns the keys that each problem names.
pub(crate) fn named(file: &str) -> Vec<Vec<String>> {
    let error = refused(text(file));
    let problems = error.problems().iter();
    problems
        .map(|problem| {
            problem
                .places
                .iter()
                .map(|place| place.key.clone())
                .collect()
        })
        .collect()
}

/// Returns the path of a key, with a name for the pool.
fn path(key: &Key) -> String {
    let path = key.path().replace(".NAME.", ".gpu.");
    path.replace("permits.NAME", "permits.gpu")
}

/// Returns a valid value for a key, and the other settings that this value requires.
fn sound(key: &Key) -> (String, &'static [(&'static str, &'static str)]) {
    let value = key.default.or(key.example).expect("it has one");
    match (key.section, key.name) {
        ("worker.pools.NAME", "concurrency") => (value.into(), &[("kinds", "['a']")]),
        ("worker.pools.NAME", "queues" | "kinds") => (value.into(), &[("concurrency", "1")]),
        ("worker.pools.NAME", "capabilities") => {
            ("[]".into(), &[("concurrency", "1"), ("kinds", "['a']")])
        }
        ("worker.pools.NAME", _) => (value.into(), &[("concurrency", "1"), ("kinds", "['a']")]),
        _ => (value.into(), &[]),
    }
}

/// Creates a file that is valid for every key whose value is a path. Returns the path of the file.
fn secret_file(dir: &tempfile::TempDir) -> String {
    let file = dir.path().join("secret");
    fs::write(&file, "memory:\n").expect("the file should be writable");
    file.display().to_string()
}

#[test]
fn every_key_is_set_by_the_file_by_its_variable_and_by_an_argument() {
    let dir = tempfile::tempdir().unwrap();
    let file = secret_file(&dir);
    for key in keys() {
        let (mut value, others) = sound(key);
        if key.name.ends_with("_file") {
            value = format!("'{file}'");
        }
        let path = path(key);
        let (section, name) = path.rsplit_once('.').unwrap();
        let others: String = others
            .iter()
            .map(|(key, value)| format!("{key} = {value}\n"))
            .collect();
        let shown = |config: &Config| {
            let settings = config.settings();
            let found = settings.into_iter().find(|setting| setting.key == path);
            found.map(|setting| (setting.value, setting.origin))
        };

        let in_file = text(&format!("[{section}]\n{name} = {value}\n{others}"));
        let config = in_file
            .load()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let (by_file, origin) = shown(&config).unwrap();
        assert!(by_file.is_some(), "{path}");
        assert_eq!(origin, "ratchet.toml:2", "{path}");

        // In a variable, a value has no quotes, and only commas separate the items of a list.
        let plain = value
            .trim_matches(['[', ']'])
            .replace(['"', '\''], "")
            .replace(", ", ",");
        let variable = key.variable().replace("__NAME", "__GPU");
        let rest = format!("[{section}]\n{others}");
        let by_variable = text(&rest).variables([(variable.as_str(), plain.as_str())]);
        let config = by_variable
            .load()
            .unwrap_or_else(|error| panic!("{variable}: {error}"));
        assert_eq!(shown(&config), Some((by_file.clone(), variable)), "{path}");

        let by_argument = text(&rest).set(&path, plain.as_str(), "--it");
        let config = by_argument
            .load()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(shown(&config), Some((by_file, "--it".to_owned())), "{path}");
    }
}

#[test]
fn arguments_win_over_variables_and_these_over_the_file() {
    let file = || text("[cluster]\nttl = '20s'\nteardown = '1s'\n[poll]\nmax = '3s'\n");
    let variables = [("RATCHET_CLUSTER__TTL", "21s"), ("RATCHET_POLL__MAX", "4s")];
    let config = file()
        .variables(variables)
        .set("poll.max", "5s", "--poll")
        .load()
        .unwrap();
    let seconds = |count| Some(Duration::from_secs(count));
    assert_eq!(config.cluster.ttl, seconds(21));
    assert_eq!(config.poll.max, seconds(5));
    assert_eq!(config.cluster.teardown, seconds(1));
    let line = Origin::File {
        path: "ratchet.toml".into(),
        line: 3,
    };
    assert_eq!(config.origin("cluster.teardown"), line);
    assert_eq!(
        config.origin("cluster.ttl"),
        Origin::Variable("RATCHET_CLUSTER__TTL".into())
    );
    assert_eq!(config.origin("poll.max"), Origin::Argument("--poll".into()));
    assert_eq!(config.origin("poll.min"), Origin::Default);
}

#[test]
fn values_are_read_as_people_write_them() {
    let config = text(
        "[poll]\nmin = '200ms'\nmax = '1m 30s'\n[cluster.retention]\nsucceeded = '36h'\n\
         failed = 'archive after 90d'\ncancelled = 'forever'\narchive = '365d'\n\
         [worker]\nconcurrency = 0x10\nqueues = ['a', 'b c']\n",
    );
    let config = config.load().unwrap();
    assert_eq!(config.poll.min, Some(Duration::from_millis(200)));
    assert_eq!(config.poll.max, Some(Duration::from_secs(90)));
    assert_eq!(config.worker.concurrency, Some(16));
    assert_eq!(
        config.worker.queues.as_deref(),
        Some(&["a".to_owned(), "b c".to_owned()][..])
    );
    const DAY: Duration = Duration::from_secs(86_400);
    let builder = Ratchet::builder(Arc::new(MemoryStore::new()));
    let retention = Retention::all(Retain::Forever)
        .succeeded(Retain::Delete(DAY * 3 / 2))
        .failed(Retain::Archive(90 * DAY))
        .archive(Some(365 * DAY));
    assert_eq!(config.apply(builder).current_retention(), &retention);
    // The redacted output is itself a valid configuration with the same values.
    let again = text(&config.redacted()).load().unwrap();
    let values = |config: &Config| -> Vec<(String, Option<String>)> {
        let settings = config.settings().into_iter();
        settings
            .map(|setting| (setting.key, setting.value))
            .collect()
    };
    assert_eq!(values(&again), values(&config));
    assert!(
        config
            .redacted()
            .contains("max = \"1m 30s\"  # ratchet.toml:3\n"),
        "{}",
        config.redacted()
    );
}

#[test]
fn values_of_another_type_are_refused_with_what_is_meant() {
    let table = [
        (
            "[cluster]\nttl = 15",
            "cluster.ttl = 15 (ratchet.toml:2): expected a duration",
        ),
        (
            "[cluster]\nttl = '15'",
            "cluster.ttl = \"15\" (ratchet.toml:2): expected a duration",
        ),
        ("[cluster]\nttl = '-1s'", "expected a duration"),
        (
            "[cluster]\nmax_crashes = -1",
            "= -1 (ratchet.toml:2): is not a whole number from 0 to 4294967295",
        ),
        (
            "[cluster]\nmax_crashes = '3'",
            "expected a whole number, found a string",
        ),
        (
            "[cluster]\nmax_crashes = 1.5",
            "found a floating-point number",
        ),
        (
            "[worker]\nqueues = 'a'",
            "expected a list of strings, found a string",
        ),
        (
            "[worker]\nqueues = ['a', 1]",
            "found an item that is a number",
        ),
        (
            "[store]\nmigrate = 'no'",
            "expected `true` or `false`, found a string",
        ),
        (
            "[store.sqlite]\nsynchronous = 'fast'",
            "expected one of \"full\" \"normal\"",
        ),
        (
            "[cluster.retention]\nfailed = 'never'",
            "\"archive after 90d\"",
        ),
        (
            "[http]\nlisten = 'localhost'",
            "http.listen = \"localhost\"",
        ),
        (
            "[node]\nlabel = { a = 1 }",
            "node.label.a (ratchet.toml:2): unknown key",
        ),
        ("store = 5", "store (ratchet.toml:1): unknown key"),
    ];
    for (file, part) in table {
        let error = refused(text(file));
        assert_eq!(error.problems().len(), 1, "{error}");
        assert!(
            error.to_string().contains(part),
            "expected a problem that contains `{part}`, \
             found: {error}"
        );
    }
}

#[test]
fn what_does_not_exist_is_refused_by_name_without_its_value() {
    let error = refused(
        text("[cluster]\ntll = 'hunter2'\n[stroe]\nurl = 'hunter2'\n[store]\npostgress.schema = 'hunter2'\n")
            .variables([
                ("RATCHET_NODE__LABLE", "hunter2"),
                ("RATCHET_WORKER__POOLS__GPU__SLOTS", "hunter2"),
                // Ratchet ignores these variables, because their names contain no section and key
                // of it.
                ("RATCHET_TEST_POSTGRES_URL", "hunter2"),
                ("RATCHET_REQUIRE", "hunter2"),
                ("RATCHET_NODE_LABEL", "hunter2"),
                ("RATCHET_TEST__URL", "hunter2"),
                ("OTHER_STORE__URL", "hunter2"),
            ]),
    );
    let lines: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    let unknown: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains(": unknown "))
        .collect();
    let starts = [
        "cluster.tll (ratchet.toml:2): unknown key; did you mean `cluster.ttl`?",
        "stroe.url (ratchet.toml:4): unknown key; did you mean `store.url`?",
        "store.postgress.schema (ratchet.toml:6): unknown key; did you mean `store.postgres.schema`?",
        "node.lable (RATCHET_NODE__LABLE): unknown variable; did you mean `RATCHET_NODE__LABEL`?",
        "worker.pools.gpu.slots (RATCHET_WORKER__POOLS__GPU__SLOTS): unknown variable",
    ];
    assert_eq!(unknown.len(), starts.len(), "{error}");
    for (line, start) in unknown.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn everything_is_told_at_once_with_its_line() {
    let error = refused(text(
        "[cluster]\nttl = '9s'\nbad\nfence_timeout =\n[worker]\nconcurrency = 'many'\nprefetch_ttl = '0s'\n[cluster]\n",
    ));
    let problems = error.to_string();
    for part in [
        "ratchet.toml:3: invalid TOML",
        "ratchet.toml:8: invalid TOML",
        "worker.concurrency = \"many\" (ratchet.toml:6): expected a whole number",
        "worker.prefetch_ttl = \"0s\" (ratchet.toml:7): prefetch_ttl is zero",
        "ratchet.toml:4: invalid TOML",
    ] {
        assert!(
            problems.contains(part),
            "expected a problem that contains `{part}`, found: \
             {problems}"
        );
    }
    let json = serde_json::to_value(error.problems()).unwrap();
    assert!(
        json.as_array().unwrap().iter().any(|problem| {
            problem["places"][0]["key"] == "worker.prefetch_ttl"
                && problem["places"][0]["origin"] == "ratchet.toml:7"
                && problem["rule"] == "prefetch_ttl is zero"
        }),
        "{json}"
    );
}

#[test]
fn secrets_may_stand_in_files_of_their_own_but_not_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("url");
    fs::write(&file, " postgres://me:hunter2@db/jobs \nmore\n").unwrap();
    let (shown, empty) = (file.display(), dir.path().join("empty"));
    let config = text(&format!(
        "[store]\nurl_file = '{shown}'\npostgres.schema = 'a'"
    ));
    let config = config.load().unwrap();
    assert_eq!(
        config.store.url.as_ref().unwrap().expose(),
        "postgres://me:hunter2@db/jobs"
    );
    assert_eq!(config.origin("store.url").to_string(), "ratchet.toml:2");
    assert!(
        config.redacted().contains("postgres://me:***@db/jobs"),
        "{}",
        config.redacted()
    );

    let both = named(&format!("[store]\nurl = 'memory:'\nurl_file = '{shown}'"));
    assert_eq!(both, [["store.url", "store.url_file"]]);
    let both = named("[node]\ncapabilities = ['a']\ncapabilities_file = '/x'");
    assert!(both.contains(&vec![
        "node.capabilities".to_owned(),
        "node.capabilities_file".to_owned()
    ]));
    fs::write(&empty, "\n").unwrap();
    let problem = refused(text(&format!("[http]\ntoken_file = '{}'", empty.display())));
    assert!(
        problem.to_string().contains("has an empty first line"),
        "{problem}"
    );
    let problem = refused(text("[http]\ntoken_file = '/no such file'"));
    assert!(
        problem
            .to_string()
            .contains("http.token_file = \"/no such file\" (ratchet.toml:2): cannot be read"),
        "{problem}"
    );
}

#[test]
fn a_url_that_wins_leaves_what_is_of_another_database_aside() {
    let file = || {
        text("[store]\nurl_file = '/no such file'\nmax_connections = 3\npostgres.schema = 'a'\n")
    };
    let config = file()
        .set("store.url", "sqlite://x", "--url")
        .load()
        .unwrap();
    assert_eq!(config.store.max_connections, None);
    assert_eq!(
        (&config.store.url_file, &config.store.postgres.schema),
        (&None, &None)
    );
    assert!(
        !config.redacted().contains("schema"),
        "{}",
        config.redacted()
    );
    let config = file()
        .set("store.url", "postgres://h/d", "--url")
        .load()
        .unwrap();
    assert_eq!(config.store.postgres.schema.as_deref(), Some("a"));
    // The URL and a setting of the same origin must be for the same backend.
    let error = refused(file().variables([
        ("RATCHET_STORE__URL", "memory:"),
        ("RATCHET_STORE__SQLITE__MAX_PAGES", "1"),
    ]));
    assert!(
        error.to_string().contains("applies to sqlite URLs only"),
        "{error}"
    );
}

#[test]
fn a_variable_finds_the_pool_of_the_file_whatever_its_signs() {
    let file = text("[worker.pools.\"big-Jobs\"]\nkinds = ['x']\nconcurrency = 1\n");
    let config = file.variables([("RATCHET_WORKER__POOLS__BIG_JOBS__CONCURRENCY", "3")]);
    let config = config.load().unwrap();
    let pools: BTreeMap<&str, Option<usize>> = config
        .worker
        .pools
        .iter()
        .map(|(name, pool)| (name.as_str(), pool.concurrency))
        .collect();
    assert_eq!(pools, BTreeMap::from([("big-Jobs", Some(3))]));
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.toml");
    let named = || Config::loader().file(&path).variables(NONE);
    let error = refused(named());
    assert!(
        error.to_string().contains("other.toml cannot be read"),
        "{error}"
    );
    let variable = || Config::loader().variables([("RATCHET_CONFIG", path.as_os_str())]);
    let error = refused(variable());
    assert!(
        error
            .to_string()
            .contains("other.toml (RATCHET_CONFIG) cannot be read"),
        "{error}"
    );
    fs::write(&path, "[poll]\nmax = '2s'\n").unwrap();
    for loader in [named(), variable()] {
        let config = loader.load().unwrap();
        assert_eq!(config.file(), Some(path.as_path()));
        assert_eq!(config.poll.max, Some(Duration::from_secs(2)));
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_named() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let value = OsString::from_vec(vec![0x80]);
    let error = refused(text("").variables([(OsString::from("RATCHET_NODE__LABEL"), value)]));
    assert_eq!(
        error.problems()[0].to_string(),
        "node.label (RATCHET_NODE__LABEL): is not Unicode"
    );
}

#[test]
fn another_url_is_another_database_in_all_that_leads_to_one() {
    let production = "[store]\nurl = 'postgres://h/d'\n\
                      postgres.direct_url = 'postgres://direct/d'\npostgres.schema = 's'\n";
    let config = text(production)
        .set("store.url", "postgres://test/d", "--url")
        .load()
        .unwrap();
    assert!(config.store.postgres.direct_url.is_none());
    assert_eq!(config.store.postgres.schema.as_deref(), Some("s"));
    let absent = production.replace("direct_url =", "direct_url_file =");
    let variable = [("RATCHET_STORE__URL", "postgres://test/d")];
    let config = text(&absent).variables(variable).load().unwrap();
    assert!(config.store.postgres.direct_url_file.is_none());
    let config = text("[store]\nurl = 'mongodb://h/d'\nmongo.database = 'production'\n")
        .set("store.url", "mongodb://test/d", "--url")
        .load()
        .unwrap();
    assert!(config.store.mongo.database.is_none());
    // A direct URL is kept if its origin has at least the rank of the URL's origin.
    let config = text(production).load().unwrap();
    assert!(config.store.postgres.direct_url.is_some());
    let config = text(production)
        .variables(variable)
        .set("store.postgres.direct_url", "postgres://past/d", "--direct")
        .load()
        .unwrap();
    assert!(config.store.postgres.direct_url.is_some());
}

#[test]
fn resources_have_the_names_of_the_file_and_reach_the_node() {
    let file = "[permits]\ncard-gateway = 4\n\"Größe\" = 1\n";
    let variables = [
        ("RATCHET_PERMITS__CARD_GATEWAY", "5"),
        ("RATCHET_PERMITS__DISK", "7"),
    ];
    let config = Config::loader()
        .text("ratchet.toml", file)
        .variables(variables);
    let config = config.load().unwrap();
    let expected = [("Größe", 1), ("card-gateway", 5), ("disk", 7)];
    let expected = expected.map(|(name, max)| (name.to_owned(), max));
    assert_eq!(config.permits, BTreeMap::from(expected));
    assert!(config.redacted().contains("[permits]\n\"Größe\" = 1"));
    // The engine's problem names the key.
    let bad = text("[permits]\n\"\" = 1\n").load().unwrap_err();
    assert!(bad.to_string().contains("permits"), "{bad}");
    let bad = text("[permits]\napi = -1\n").load().unwrap_err();
    assert!(bad.to_string().contains("permits.api"), "{bad}");
}
