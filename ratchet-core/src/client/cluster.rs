use super::Client;
use crate::cluster::{Leader, locks_of_roles};
use crate::error::Result;
use crate::limits::MAX_LISTED_LOCKS;
use crate::model::{DueRoute, NodeRecord};
use crate::name::Name;
use crate::store::LockInfo;
use crate::stranded;
use crate::time::Timestamp;
use std::time::Duration;

impl Client {
    /// Lists the first [`MAX_LISTED_LOCKS`] locks, ordered by name. Locks that are free at present
    /// are included.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn locks(&self) -> Result<Vec<(Name, LockInfo)>> {
        let calls = &self.0.calls;
        let list = calls.call("list_locks", |store| {
            store.locks().list_locks(None, MAX_LISTED_LOCKS)
        });
        list.await
    }

    /// Lists the roles that have ever had a leader, ordered by role, with their present leaders.
    ///
    /// The holder of a role's lock is its leader, unless `nodes` shows that the holder has ended
    /// ([`Leader::unless_ended`]). Pass node records that were read just before. With an empty
    /// list, every holder counts as a leader.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn leaders(&self, nodes: &[NodeRecord]) -> Result<Vec<Leader>> {
        let calls = &self.0.calls;
        let locks = locks_of_roles(async |after: Name, limit| {
            let list = calls.call("list_locks", |store| {
                store.locks().list_locks(Some(&after), limit)
            });
            list.await
        });
        let leaders = Leader::among(&locks.await?).into_iter();
        Ok(leaders.map(|leader| leader.unless_ended(nodes)).collect())
    }

    /// Lists the routes that have a due pending job, the longest overdue first. The cost depends on
    /// the number of routes, not on the number of jobs.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn due_routes(&self) -> Result<Vec<DueRoute>> {
        let calls = &self.0.calls;
        let list = calls.call("due_routes", |store| {
            store.queues().due_routes(Duration::ZERO)
        });
        list.await
    }

    /// Returns the due routes whose jobs no live node can run; see
    /// [`stranded`](stranded::stranded).
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn stranded(&self) -> Result<Vec<DueRoute>> {
        let due = self.due_routes().await?;
        if due.is_empty() {
            return Ok(due);
        }
        Ok(stranded::stranded(&due, &self.nodes().await?))
    }

    /// Reads the versions of these namespaces, in the order of `namespaces`. The version is 0 for a
    /// namespace that was never bumped.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        let calls = &self.0.calls;
        let read = calls.call("versions", |store| store.versions().versions(namespaces));
        read.await
    }

    /// Reads the database's clock.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn database_time(&self) -> Result<Timestamp> {
        let calls = &self.0.calls;
        let read = calls.call("database_time", |store| store.nodes().database_time());
        read.await
    }
}
