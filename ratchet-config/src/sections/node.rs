use std::path::PathBuf;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// The identity of the node and its part in the cluster.
    pub struct NodeConfig in "node" {
        /// Name of the node that operators see. No two live nodes should have the same label: a
        /// node that starts with the label of a live node displaces that node. If unset, the label
        /// is made from the node's random id.
        label: Option<String>, example "\"media-1\"";

        /// Capabilities of the node. The node also runs jobs that require one of these
        /// capabilities.
        capabilities: Option<Vec<String>>, example "[\"gpu\", \"ffmpeg\"]", setting "capability";

        /// File with the capabilities of the node, separated by commas or line breaks. `#` begins a
        /// comment. Cannot be set together with `capabilities`.
        capabilities_file: Option<PathBuf>, example "\"/etc/ratchet/capabilities\"";

        /// Roles in which the node takes part. The role `worker` runs jobs, and the role
        /// `maintenance` maintains the cluster. The program defines all other roles. If unset, the
        /// node takes part in all roles.
        roles: Option<Vec<String>>, example "[\"worker\"]", setting "role";

        /// Whether the node may become a leader, in any role. A cluster needs at least one node
        /// that may become a leader.
        promotable: Option<bool>, default true;

        /// Name of a role. If set, the node claims jobs only while it leads in this role. So one
        /// node of the cluster runs jobs, and the other nodes are on standby.
        active_passive: Option<String>, example "\"primary\"";

        /// Maximum time that a node that drains waits for its running bodies to end.
        drain_grace: Option<Duration> as "duration", default "30s";

        /// Interval at which an idle node calls the database, from 1 min to 1 h. Use it for a
        /// database that suspends while it gets no queries. This setting is the default of
        /// `heartbeat_max`, of the timings of leadership and of the intervals of `[poll]`. It also
        /// turns off wakeups between processes.
        idle_interval: Option<Duration> as "duration", example "\"10m\"";

        /// Timeout of each store call that the engine makes.
        store_deadline: Option<Duration> as "duration", default "10s";
    }
}
