//! [`PermitStore`] on SQLite, and the use of permits by claims and enqueues.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ratchet_core::model::{NewJob, PermitInfo};
use ratchet_core::permit::Budget;
use ratchet_core::store::{Changed, IfKnown, PermitStore};
use ratchet_core::{InvalidInput, Name, Result, Route};
use rusqlite::params;

use crate::error::{Failure, Result as Inner};
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::{Connection, SQL};
use crate::store::SqliteStore;

#[async_trait]
impl PermitStore for SqliteStore {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        let resource = resource.clone();
        self.write("set_permits", Urgency::Normal, move |work| {
            let mut set = work.conn.prepare_cached(&SQL.set_permits)?;
            let keep = if_known == IfKnown::Keep;
            let changed = set.execute(params![resource.as_str(), max, keep])?;
            Ok(Changed::when(changed > 0))
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.read("permits", |work| read(work.conn, None)).await
    }
}

/// Returns the limits of these resources, and how many of their permits are in use. `resources` is
/// a JSON array of names, and `None` means all resources.
fn read(conn: Connection<'_>, resources: Option<String>) -> Inner<Vec<PermitInfo>> {
    let mut statement = conn.prepare_cached(&SQL.held_permits)?;
    let mut rows = statement.query([resources])?;
    let mut permits = Vec::new();
    while let Some(row) = rows.next()? {
        let name = row::name(row, 0, "resource")?;
        permits.push(PermitInfo::new(
            name.ok_or_else(|| InvalidInput::new("resource", "is missing"))?,
            row::number(row, 1, "max_held")?,
            row::number(row, 2, "held")?,
        ));
    }
    Ok(permits)
}

/// Returns the number of free permits of each resource that jobs of these routes need. In a write
/// transaction, no other call can take one of these permits.
pub(crate) fn budget<'a>(
    conn: Connection<'_>,
    routes: impl Iterator<Item = &'a Route>,
) -> Inner<Budget> {
    let resources = routes.filter_map(|route| route.permit.as_ref());
    let resources: BTreeSet<&str> = resources.map(Name::as_str).collect();
    if resources.is_empty() {
        return Ok(Budget::default());
    }
    let resources = serde_json::to_string(&resources)
        .map_err(|error| InvalidInput::new("permit", error.to_string()))?;
    let permits = read(conn, Some(resources))?;
    Ok(Budget::new(permits))
}

/// Fails if a job needs a permit of a resource whose limit was never set.
pub(crate) fn require(work: &Work<'_>, jobs: &[NewJob]) -> Inner<()> {
    jobs.iter()
        .try_for_each(|job| require_one(work, &job.spec().route))
}

/// Fails if the route needs a permit of a resource whose limit was never set.
pub(crate) fn require_one(work: &Work<'_>, route: &Route) -> Inner<()> {
    let Some(resource) = &route.permit else {
        return Ok(());
    };
    let mut find = work.conn.prepare_cached(&SQL.find_permit)?;
    if find.exists([resource.as_str()])? {
        return Ok(());
    }
    Err(Failure::refused(InvalidInput::unknown_permit(resource)))
}
