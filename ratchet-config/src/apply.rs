//! Applies the settings to the engine's builder, and finds the keys of settings that the engine
//! refuses.

use std::time::Duration;

use ratchet_core::SettingProblem;
use ratchet_core::{Aging, NodeBuilder, Pool};

use crate::config::Config;
use crate::sample::{POOL, keys};
use crate::section::{ANY, Key};
use crate::sections::{PoolConfig, WorkerConfig};

/// Calls a setter of the builder for each setting that the configuration sets. Converts the value
/// with `$form` first.
macro_rules! set {
    ($builder:ident, $section:expr, $form:expr; $($name:ident),*) => {
        $(if let Some(value) = &$section.$name {
            $builder = $builder.$name($form(value));
        })*
    };
}

impl Config {
    /// Applies the configuration to the builder. A setting that the configuration does not set
    /// keeps the builder's value. The pools of the configuration are added after the pools of the
    /// program.
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
        let builder = self
            .permits
            .iter()
            .fold(builder, |builder, (resource, max)| {
                builder.permits(resource, *max)
            });
        apply_worker(&self.worker, builder)
    }

    fn apply_node(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let node = &self.node;
        set!(builder, node, String::as_str; label, active_passive);
        set!(builder, node, Clone::clone; idle_interval);
        set!(builder, node, texts; capabilities, roles);
        set!(builder, node, Clone::clone; promotable, drain_grace, store_deadline);
        match &node.capabilities_file {
            Some(path) => builder.capabilities_from_file(path),
            None => builder,
        }
    }

    fn apply_cluster(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let cluster = &self.cluster;
        set!(builder, cluster, texts; measured_queues);
        set!(builder, cluster, Clone::clone; heartbeat_interval, heartbeat_max, dead_after);
        set!(builder, cluster, Clone::clone; start_timeout, max_crashes, takeover_delay);
        set!(builder, cluster, Clone::clone; retire_recurring);
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
        set!(retention, cluster.retention, Clone::clone; succeeded, failed, cancelled);
        set!(retention, cluster.retention, |age: &Duration| Some(*age); archive);
        builder.retention(retention)
    }

    fn apply_poll(&self, mut builder: NodeBuilder) -> NodeBuilder {
        let poll = &self.poll;
        set!(builder, poll, Clone::clone; reclaim_interval, recurring_interval);
        set!(builder, poll, Clone::clone; maintenance_interval);
        let (min, max): (Duration, Duration) = builder.current_poll_interval();
        builder.poll_interval(poll.min.unwrap_or(min), poll.max.unwrap_or(max))
    }

    /// Returns the configuration keys of the settings that `problem` is about.
    pub(crate) fn keys_of(&self, problem: &SettingProblem) -> Vec<String> {
        let key = |setting: &str| -> Vec<String> {
            if let Some(pool) = setting.strip_prefix("pool.") {
                return self.keys_of_pool(pool);
            }
            let of_engine = |key: &&Key| !key.section.starts_with("store") && key.section != POOL;
            let keys = keys().filter(of_engine);
            let keys = keys.filter(|key| key.setting == setting);
            keys.flat_map(|key| match key.name {
                ANY => self.set_in(key.section),
                _ => vec![key.path()],
            })
            .collect()
        };
        problem.settings().flat_map(key).collect()
    }

    /// Returns all keys of a section that the configuration sets.
    fn set_in(&self, section: &str) -> Vec<String> {
        let prefix = format!("{section}.");
        let set = self.set.keys().filter(|key| key.starts_with(&prefix));
        set.cloned().collect()
    }

    /// Returns the keys for `pool`, which is the engine's name for a pool (`NAME`) or for a setting
    /// of a pool (`NAME/SETTING`). For a pool, returns all of its keys that are set.
    fn keys_of_pool(&self, pool: &str) -> Vec<String> {
        let (name, setting) = pool.rsplit_once('/').unwrap_or((pool, ""));
        let path = format!("worker.pools.{name}");
        match setting {
            "" => self.set_in(&path),
            setting => vec![format!("{path}.{setting}")],
        }
    }
}

fn apply_worker(worker: &WorkerConfig, mut builder: NodeBuilder) -> NodeBuilder {
    set!(builder, worker, texts; queues);
    set!(builder, worker, Clone::clone; concurrency, system_concurrency, untagged);
    set!(builder, worker, Clone::clone; prefetch, prefetch_ttl, lazy_payloads);
    set!(builder, worker, |interval: &Duration| Aging::every(*interval); aging);
    let pools = worker.pools.iter();
    pools.fold(builder, |builder, (name, config)| {
        builder.pool(pool(name, config))
    })
}

fn pool(name: &str, config: &PoolConfig) -> Pool {
    let mut pool = Pool::new(name).concurrency(config.concurrency.unwrap_or(0));
    set!(pool, config, texts; queues, kinds, capabilities);
    set!(pool, config, Clone::clone; untagged, prefetch);
    pool
}

fn texts(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str)
}
