//! [`PermitStore`] on SQLite, and what claims and enqueues need of permits.

use async_trait::async_trait;
use ratchet_core::model::{NewJob, PermitInfo};
use ratchet_core::permit::Budget;
use ratchet_core::store::{Changed, PermitStore};
use ratchet_core::{InvalidInput, Name, Result, Route};
use rusqlite::{Connection, params};

use crate::error::{Failure, Result as Inner};
use crate::queue::Urgency;
use crate::queues::changed;
use crate::request::Work;
use crate::row;
use crate::statements;
use crate::store::SqliteStore;

#[async_trait]
impl PermitStore for SqliteStore {
    async fn set_permits(&self, resource: &Name, max: u32) -> Result<Changed> {
        let resource = resource.clone();
        self.write("set_permits", Urgency::Normal, move |work| {
            let mut set = work.conn.prepare_cached(statements::SET_PERMITS)?;
            Ok(changed(set.execute(params![resource.as_str(), max])?))
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.read("permits", |work| read(work.conn, None)).await
    }
}

/// One resource, or all of them, with their holders.
fn read(conn: &Connection, resource: Option<&Name>) -> Inner<Vec<PermitInfo>> {
    let mut statement = conn.prepare_cached(statements::HELD_PERMITS)?;
    let mut rows = statement.query([resource.map(Name::as_str)])?;
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

/// What is left of the permits that jobs of these routes need. Inside a writing transaction nobody
/// else can take any of it.
pub(crate) fn budget<'a>(
    conn: &Connection,
    routes: impl Iterator<Item = &'a Route>,
) -> Inner<Budget> {
    let mut resources: Vec<&Name> = routes.filter_map(|route| route.permit.as_ref()).collect();
    resources.sort_unstable();
    resources.dedup();
    let mut permits = Vec::with_capacity(resources.len());
    for resource in resources {
        permits.extend(read(conn, Some(resource))?);
    }
    Ok(Budget::new(permits))
}

/// Refuses jobs that need a permit of a resource that was never set.
pub(crate) fn require(work: &Work<'_>, jobs: &[NewJob]) -> Inner<()> {
    jobs.iter()
        .try_for_each(|job| require_one(work, &job.spec().route))
}

/// Refuses a route that needs a permit of a resource that was never set.
pub(crate) fn require_one(work: &Work<'_>, route: &Route) -> Inner<()> {
    let Some(resource) = &route.permit else {
        return Ok(());
    };
    // A route that is stored was checked then, and no resource is ever deleted.
    if work.routes.is_known(route) {
        return Ok(());
    }
    let mut find = work.conn.prepare_cached(statements::FIND_PERMIT)?;
    if find.exists([resource.as_str()])? {
        return Ok(());
    }
    Err(Failure::refused(InvalidInput::unknown_permit(resource)))
}
