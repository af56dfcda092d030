use std::path::PathBuf;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// The identity of the node and its part in the cluster.
    pub struct NodeConfig in "node" {
        /// What people call the node. It must be unique among live nodes: a node that starts with
        /// the label of another takes over from it. Unset, it is made from the node's random id.
        label: Option<String>, example "\"media-1\"";

        /// The node also runs jobs that require one of these capabilities.
        capabilities: Option<Vec<String>>, example "[\"gpu\", \"ffmpeg\"]", setting "capability";

        /// A file with the capabilities, separated by commas or new lines; `#` begins a comment.
        /// Not together with `capabilities`.
        capabilities_file: Option<PathBuf>, example "\"/etc/ratchet/capabilities\"";

        /// Takes part in these roles only: `worker` runs jobs, `maintenance` looks after the
        /// cluster, the others are those of the program. Unset, in all.
        roles: Option<Vec<String>>, example "[\"worker\"]", setting "role";

        /// Whether the node may lead at all. A cluster needs one node that may.
        promotable: Option<bool>, default true;

        /// Claims jobs only while the node leads in this role: one node of the cluster works, the
        /// others stand by.
        active_passive: Option<String>, example "\"primary\"";

        /// How long a drain waits for the bodies that run.
        drain_grace: Option<Duration> as "duration", default "30s";

        /// How long the engine waits for one call of the store.
        store_deadline: Option<Duration> as "duration", default "10s";
    }
}
