use std::path::PathBuf;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// The identity of the node and its part in the cluster.
    pub struct NodeConfig in "node" {
        /// The name of the node for operators. It must be unique among live nodes, because a node
        /// that starts with the label of another one displaces that node. If unset, the label is
        /// made from the node's random id.
        label: Option<String>, example "\"media-1\"";

        /// The capabilities of the node. It also runs jobs that require one of them.
        capabilities: Option<Vec<String>>, example "[\"gpu\", \"ffmpeg\"]", setting "capability";

        /// A file with the capabilities, separated by commas or line breaks; `#` begins a comment.
        /// It cannot be set together with `capabilities`.
        capabilities_file: Option<PathBuf>, example "\"/etc/ratchet/capabilities\"";

        /// The only roles in which the node takes part: `worker` runs jobs, `maintenance` maintains
        /// the cluster, and the others are defined by the program. If unset, the node takes part in
        /// all roles.
        roles: Option<Vec<String>>, example "[\"worker\"]", setting "role";

        /// Whether the node may lead in any role. A cluster needs at least one node that may lead.
        promotable: Option<bool>, default true;

        /// A role. The node claims jobs only while it leads in this role, so one node of the
        /// cluster works and the others are on standby.
        active_passive: Option<String>, example "\"primary\"";

        /// How long a drain waits for running bodies.
        drain_grace: Option<Duration> as "duration", default "30s";

        /// An interval from 1 min to 1 h at which an idle node calls the database, for databases
        /// that suspend while they get no queries. It sets `heartbeat_max`, the timings of
        /// leadership and the intervals of `[poll]`, unless these are set, and turns off wakeups
        /// between processes.
        idle_interval: Option<Duration> as "duration", example "\"10m\"";

        /// The timeout of one store call by the engine.
        store_deadline: Option<Duration> as "duration", default "10s";
    }
}
