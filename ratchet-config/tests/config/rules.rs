//! Checks the rules between settings, and those of the node and the server that they configure.

use std::sync::Arc;

use ratchet_config::Place;
use ratchet_core::{Job, JobContext, JobResult, MemoryStore, Ratchet};

use crate::settings::{named, refused, text};

#[derive(serde::Serialize, serde::Deserialize)]
struct Nothing;

impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        Ok(())
    }
}

#[test]
fn capabilities_may_come_from_the_program() {
    let pool = "[worker.pools.a]\nqueues = ['media']\nuntagged = false\nconcurrency = 1";
    for file in ["[worker]\nuntagged = false", pool] {
        let config = text(file).load().unwrap();
        let builder = || {
            let store = Arc::new(MemoryStore::new());
            config.apply(Ratchet::builder(store).register::<Nothing>())
        };
        let error = builder().build().unwrap_err();
        assert!(error.to_string().contains("has no capability"), "{error}");
        builder().capabilities(["gpu"]).build().unwrap();
    }
}

#[test]
fn every_invariant_names_its_keys() {
    let table: [(&str, &[&str]); 28] = [
        (
            "[cluster]\nmeasured_queues = ['']",
            &["cluster.measured_queues"],
        ),
        ("[worker]\nconcurrency = 0", &["worker.concurrency"]),
        ("[worker]\nprefetch_ttl = '0s'", &["worker.prefetch_ttl"]),
        (
            "[worker]\nprefetch_ttl = '3m'",
            &["cluster.start_timeout", "worker.prefetch_ttl"],
        ),
        ("[worker]\nqueues = []", &["worker.queues"]),
        ("[worker]\nqueues = ['a', '']", &["worker.queues"]),
        (
            "[worker]\nprefetch = 100000",
            &[
                "worker.concurrency",
                "worker.system_concurrency",
                "worker.prefetch",
            ],
        ),
        (
            "[worker.pools.a]\nkinds = ['x']",
            &["worker.pools.a.concurrency"],
        ),
        (
            "[worker.pools.a]\nkinds = ['x']\nqueues = ['y']\nconcurrency = 1",
            &[
                "worker.pools.a.concurrency",
                "worker.pools.a.kinds",
                "worker.pools.a.queues",
            ],
        ),
        (
            "[worker.pools.a]\ncapabilities = ['gpu']\nconcurrency = 1",
            &["worker.pools.a.capabilities"],
        ),
        ("[poll]\nmin = '2s'", &["poll.min", "poll.max"]),
        ("[poll]\nmin = '0s'", &["poll.min"]),
        (
            "[poll]\nreclaim_interval = '0s'",
            &["poll.reclaim_interval"],
        ),
        (
            "[poll]\nrecurring_interval = '0s'",
            &["poll.recurring_interval"],
        ),
        (
            "[poll]\nmaintenance_interval = '11years'",
            &["poll.maintenance_interval"],
        ),
        (
            "[cluster]\nheartbeat_interval = '6s'",
            &["cluster.dead_after", "cluster.heartbeat_interval"],
        ),
        (
            "[cluster]\nheartbeat_max = '61m'",
            &["cluster.heartbeat_max"],
        ),
        (
            "[cluster]\nheartbeat_max = '1s'",
            &["cluster.heartbeat_interval", "cluster.heartbeat_max"],
        ),
        (
            "[cluster]\ntakeover_delay = '11years'",
            &["cluster.takeover_delay"],
        ),
        (
            "[cluster]\nleader_heartbeat = '6s'",
            &[
                "cluster.leader_heartbeat",
                "cluster.renew_timeout",
                "cluster.fence_timeout",
            ],
        ),
        (
            "[cluster]\nttl = '9s'",
            &["cluster.fence_timeout", "cluster.teardown", "cluster.ttl"],
        ),
        ("[cluster]\nttl = '25h'", &["cluster.ttl"]),
        (
            "[cluster.retention]\nfailed = '11years'",
            &["cluster.retention.failed"],
        ),
        (
            "[cluster.retention]\nfailed = 'archive after 2d'\narchive = '1d'",
            &["cluster.retention.failed", "cluster.retention.archive"],
        ),
        ("[node]\nlabel = ''", &["node.label"]),
        ("[node]\nstore_deadline = '0s'", &["node.store_deadline"]),
        (
            "[node]\nactive_passive = 'primary'\npromotable = false",
            &["node.roles", "node.promotable", "node.active_passive"],
        ),
        (
            "[node]\ncapabilities_file = '/no such file'",
            &["node.capabilities_file"],
        ),
    ];
    for (file, keys) in table {
        let (mut found, mut keys) = (named(file), keys.to_vec());
        found.iter_mut().for_each(|keys| keys.sort());
        keys.sort_unstable();
        assert_eq!(found, [keys], "{file}\n{}", refused(text(file)));
    }
}

#[test]
fn a_value_that_cannot_be_read_clashes_with_nothing() {
    // The default of `fence_timeout` would make this `ttl` invalid. But the configured
    // `fence_timeout` is unreadable, so only that problem is reported.
    let keys = named("[cluster]\nfence_timeout = 'short'\nttl = '9s'");
    assert_eq!(keys, [["cluster.fence_timeout"]]);
}

#[test]
fn settings_of_another_backend_than_the_urls_are_refused() {
    let table: [(&str, &[&str]); 6] = [
        (
            "url = 'memory:'\nsqlite.max_pages = 1",
            &["store.sqlite.max_pages", "store.url"],
        ),
        (
            "url = 'sqlite://x'\npostgres.schema = 'a'",
            &["store.postgres.schema", "store.url"],
        ),
        (
            "url = 'sqlite://x'\nmax_connections = 4",
            &["store.max_connections", "store.url"],
        ),
        (
            "url = 'postgres://h/d'\nmongo.prefix = 'a'",
            &["store.mongo.prefix", "store.url"],
        ),
        ("url = 'oracle://h/d'", &["store.url"]),
        ("url = 'hunter2'", &["store.url"]),
    ];
    for (file, keys) in table {
        assert_eq!(named(&format!("[store]\n{file}")), [keys], "{file}");
    }
    for url in ["postgres", "postgresql"] {
        let file =
            format!("[store]\nurl = '{url}://h/d'\npostgres.schema = 'a'\nmax_connections = 1");
        text(&file).load().unwrap();
    }
}

#[test]
fn what_a_node_is_not_built_for_is_explained_by_key() {
    let config =
        text("[node]\nroles = ['pricing']\n[worker.pools.a]\nkinds = ['x']\nconcurrency = 1");
    let config = config.load().unwrap();
    let builder = Ratchet::builder(Arc::new(MemoryStore::new()));
    let error = config.apply(builder).build().unwrap_err();
    let explained = config.explain(&error);
    let keys: Vec<Vec<&str>> = explained
        .problems()
        .iter()
        .map(|problem| {
            problem
                .places
                .iter()
                .map(|place: &Place| place.key.as_str())
                .collect()
        })
        .collect();
    assert_eq!(
        keys,
        [vec![], vec!["node.roles"], vec!["worker.pools.a.kinds"]],
        "{explained}"
    );
}

#[test]
fn what_nothing_can_be_served_with_is_refused() {
    let table = [
        ("max_body = 0", "http.max_body"),
        ("max_page = 0", "http.max_page"),
        ("max_page = 100000", "http.max_page"),
        ("max_clients = 0", "http.max_clients"),
        ("max_connections = 0", "http.max_connections"),
        (
            "max_connections_per_peer = 0",
            "http.max_connections_per_peer",
        ),
        ("hosts = ['http://a']", "http.hosts"),
        ("hosts = ['ops.example.com:8080']", "http.hosts"),
        ("hosts = ['2001:db8::1']", "http.hosts"),
        ("proxies = ['nginx']", "http.proxies"),
        ("writes_per_second = 0", "http.writes_per_second"),
        ("request_timeout = '0s'", "http.request_timeout"),
        ("token = ''", "http.token"),
        ("token = ' hunter2'", "http.token"),
    ];
    for (line, key) in table {
        let error = text(&format!("[http]\n{line}\n")).load().unwrap_err();
        let error = error.to_string();
        assert!(error.contains(key), "{line}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
