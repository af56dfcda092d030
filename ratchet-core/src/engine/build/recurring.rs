//! Setters for recurring jobs.

use std::time::Duration;

use super::builder::NodeBuilder;
use crate::model::Recurring;

impl NodeBuilder {
    /// Declares a recurring job. Whenever the node starts, the declaration replaces the stored
    /// definition of the same name. Any node of the cluster fires the definition, and any node that
    /// has the kind runs its jobs.
    ///
    /// During a deploy of different versions of a program, the version that starts last wins. A
    /// definition that is no longer declared stays, unless the node
    /// [retires](Self::retire_recurring) it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{MemoryStore, NewJob, Ratchet, Recurring};
    /// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).recurring(
    ///     Recurring::cron("0 3 * * *")
    ///         .zone("Europe/Berlin")
    ///         .job(NewJob::new("report", &()))
    ///         .named("nightly"),
    /// );
    /// # let _ = builder;
    /// ```
    pub fn recurring(mut self, recurring: Recurring) -> Self {
        let of = match recurring.name() {
            Some(name) => format!("the recurring job {name}"),
            None => "a recurring job without a name".to_owned(),
        };
        match recurring.check() {
            Ok(definition) => {
                let name = definition.name();
                if self.declared.iter().any(|other| other.name() == name) {
                    self.problems.push(format!("{of} is declared twice").into());
                }
                self.declared.push(definition);
            }
            Err(problem) => self.problems.push(format!("{of}: {problem}").into()),
        }
        self
    }

    /// Sets whether the node, when it starts, deletes the definitions that another node declared
    /// before this node started and that this program does not declare. The default is `false`.
    /// Definitions that were stored at run time stay.
    ///
    /// Use it only in clusters in which all nodes run the same program, because a node cannot know
    /// what another program declares. A node that restarts with an older version deletes the
    /// definitions that a newer version has added, until a node of the newer version starts again.
    pub fn retire_recurring(mut self, retire: bool) -> Self {
        self.config.retire_recurring = retire;
        self
    }

    /// Sets the longest time before the node looks for recurring definitions that another process
    /// has stored or changed without a wakeup. While beacons of the leader arrive, this time is at
    /// least 30 s for the leader and 60 s for other nodes. The node always wakes up in time for the
    /// slots of the definitions that it has read. The default is 5 s.
    pub fn recurring_interval(mut self, interval: Duration) -> Self {
        self.config.recurring_interval = interval;
        self
    }
}
