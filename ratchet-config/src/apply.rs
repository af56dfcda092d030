//! From the settings to the engine's builder, and from what it refuses back to the keys.

use std::time::Duration;

use ratchet_core::SettingProblem;
use ratchet_core::{Aging, NodeBuilder, Pool};

use crate::config::Config;
use crate::sections::{PoolConfig, WorkerConfig};

/// Calls a setter of the builder for each value that is set.
macro_rules! set {
    ($builder:ident, $section:expr, $($name:ident),*) => {
        $(if let Some(value) = $section.$name {
            $builder = $builder.$name(value);
        })*
    };
}

impl Config {
    /// Sets on the builder what the configuration sets, and nothing else: what nobody configured
    /// stays as the program has it. Pools are added behind those of the program.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet_config::Config;
    /// # use ratchet_core::{MemoryStore, Ratchet};
    /// let config = Config::loader().text("ratchet.toml", "[poll]\nmax = '2s'\n").load()?;
    /// let builder = config.apply(Ratchet::builder(Arc::new(MemoryStore::new())));
    /// # let _ = builder;
    /// # Ok::<(), ratchet_config::ConfigError>(())
    /// ```
    pub fn apply(&self, builder: NodeBuilder) -> NodeBuilder {
        let builder = self.apply_node(builder);
        let builder = self.apply_cluster(builder);
        let builder = self.apply_poll(builder);
        apply_worker(&self.worker, builder)
    }

    fn apply_node(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let node = &self.node;
        if let Some(label) = &node.label {
            builder = builder.label(label);
        }
        if let Some(names) = &node.capabilities {
            builder = builder.capabilities(texts(names));
        }
        if let Some(path) = &node.capabilities_file {
            builder = builder.capabilities_from_file(path);
        }
        if let Some(roles) = &node.roles {
            builder = builder.roles(texts(roles));
        }
        if let Some(role) = &node.active_passive {
            builder = builder.active_passive(role);
        }
        set!(builder, node, promotable, drain_grace, store_deadline);
        builder
    }

    fn apply_cluster(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let cluster = &self.cluster;
        if let Some(queues) = &cluster.measured_queues {
            builder = builder.measured_queues(texts(queues));
        }
        set!(
            builder,
            cluster,
            heartbeat_interval,
            heartbeat_max,
            dead_after,
            start_timeout,
            max_crashes,
            takeover_delay,
            retire_recurring
        );
        let mut timings = builder.current_leader_timings();
        for (value, set) in [
            (&mut timings.heartbeat, cluster.leader_heartbeat),
            (&mut timings.renew_timeout, cluster.renew_timeout),
            (&mut timings.fence_timeout, cluster.fence_timeout),
            (&mut timings.teardown, cluster.teardown),
            (&mut timings.ttl, cluster.ttl),
        ] {
            *value = set.unwrap_or(*value);
        }
        builder = builder.leader_timings(timings);
        let mut retention = builder.current_retention().clone();
        set!(retention, cluster.retention, succeeded, failed, cancelled);
        if let Some(age) = cluster.retention.archive {
            retention = retention.archive(Some(age));
        }
        builder.retention(retention)
    }

    fn apply_poll(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let poll = &self.poll;
        set!(
            builder,
            poll,
            reclaim_interval,
            recurring_interval,
            maintenance_interval
        );
        let (min, max): (Duration, Duration) = builder.current_poll_interval();
        builder.poll_interval(poll.min.unwrap_or(min), poll.max.unwrap_or(max))
    }

    /// The keys of the settings that the engine refuses.
    pub(crate) fn keys_of(&self, problem: &SettingProblem) -> Vec<String> {
        let key = |setting: &str| -> Vec<String> {
            if let Some(pool) = setting.strip_prefix("pool.") {
                return self.keys_of_pool(pool);
            }
            let sections = self.sections();
            let sections = sections
                .iter()
                .filter(|(path, _)| !path.starts_with("worker.pools."));
            let keys = sections.flat_map(|(_, section)| section.keys());
            keys.filter(|key| key.setting == setting && !key.section.starts_with("store"))
                .map(crate::Key::path)
                .collect()
        };
        problem.settings().flat_map(key).collect()
    }

    /// `NAME` or `NAME/SETTING`, of a pool.
    fn keys_of_pool(&self, pool: &str) -> Vec<String> {
        let (name, setting) = pool.rsplit_once('/').unwrap_or((pool, ""));
        let path = format!("worker.pools.{name}");
        match setting {
            "" => {
                let prefix = format!("{path}.");
                let set = self.origins.keys().filter(|key| key.starts_with(&prefix));
                set.cloned().collect()
            }
            setting => vec![format!("{path}.{setting}")],
        }
    }
}

fn apply_worker(worker: &WorkerConfig, mut builder: NodeBuilder) -> NodeBuilder {
    if let Some(queues) = &worker.queues {
        builder = builder.queues(texts(queues));
    }
    set!(
        builder,
        worker,
        concurrency,
        system_concurrency,
        untagged,
        prefetch,
        prefetch_ttl,
        lazy_payloads
    );
    if let Some(interval) = worker.aging {
        builder = builder.aging(Aging::every(interval));
    }
    let pools = worker.pools.iter();
    pools.fold(builder, |builder, (name, config)| {
        builder.pool(pool(name, config))
    })
}

fn pool(name: &str, config: &PoolConfig) -> Pool {
    let mut pool = Pool::new(name).concurrency(config.concurrency.unwrap_or(0));
    if let Some(queues) = &config.queues {
        pool = pool.queues(texts(queues));
    }
    if let Some(kinds) = &config.kinds {
        pool = pool.kinds(texts(kinds));
    }
    if let Some(capabilities) = &config.capabilities {
        pool = pool.capabilities(texts(capabilities));
    }
    if let Some(untagged) = config.untagged {
        pool = pool.untagged(untagged);
    }
    match config.prefetch {
        Some(claims) => pool.prefetch(claims),
        None => pool,
    }
}

fn texts(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str)
}
