//! The settings of recurring jobs.

use std::time::Duration;

use super::builder::NodeBuilder;
use crate::model::Recurring;

impl NodeBuilder {
    /// Declares a recurring job: it is put whenever the node starts, in place of what is stored
    /// under its name. Any node of the cluster fires it, and any that has the kind runs its jobs.
    ///
    /// While different versions of a program are being started, the one that started last has its
    /// way. What is not declared any more stays, unless the node
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

    /// Deletes, when the node starts, the definitions that a node declared before this one began
    /// and that this program does not declare. Definitions made at run time stay. No unless set.
    ///
    /// Only for clusters in which all nodes run the same program: a node cannot know what another
    /// program declares. A node that restarts with an older version deletes what a newer one has
    /// added, until a node of the newer version starts again.
    pub fn retire_recurring(mut self, retire: bool) -> Self {
        self.config.retire_recurring = retire;
        self
    }

    /// Sets how long at most the node sleeps before it looks for recurring definitions that another
    /// process has put; it wakes up in time for the slots it knows. Default 5 s.
    pub fn recurring_interval(mut self, interval: Duration) -> Self {
        self.config.recurring_interval = interval;
        self
    }
}
