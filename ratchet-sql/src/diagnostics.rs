//! The diagnostics that every dialect shares.

use ratchet_core::model::{Finding, Findings};

use crate::dialect::{Dialect, Row as _, Run as _};
use crate::failure::{Failure, Result};
use crate::migrations::{Schema, Step};
use crate::store::SqlStore;

/// Adds the findings of one check to `findings`. If the check failed and a retry cannot help, adds
/// a finding that says that `what` could not be examined.
///
/// # Errors
/// Returns the failure of the check if a retry may help.
pub fn add_finding(findings: &mut Findings, what: &str, found: Result<Vec<Finding>>) -> Result<()> {
    findings.add(what, found, |failure: &Failure| failure.kind)
}

impl<D: Dialect> SqlStore<D> {
    /// Examines the migrations, the tables, the indexes and the routes of jobs. Returns the
    /// findings, and the number of applied migration steps.
    ///
    /// If the number of applied steps cannot be read, returns the number of all steps. Later checks
    /// then expect the tables and indexes of all steps.
    ///
    /// # Errors
    /// Returns the first failure of a check for which a retry may help.
    pub async fn begin_findings(&self, steps: &[Step]) -> Result<(Findings, usize)> {
        let mut findings = Findings::default();
        let applied = self.applied().await;
        let known = applied.as_ref().map_or(steps.len(), |applied| *applied);
        let version =
            applied.map(|applied| vec![Finding::schema(applied as u64, steps.len() as u64)]);
        add_finding(&mut findings, "the migrations", version)?;
        let missing = self.missing(steps, known).await;
        add_finding(&mut findings, "the tables and indexes", missing)?;
        add_finding(
            &mut findings,
            "the routes of the jobs",
            self.lost_routes().await,
        )?;
        Ok((findings, known))
    }

    async fn applied(&self) -> Result<usize> {
        let applied = self.sql().applied_migrations.query();
        Ok(self.lease().await?.rows(applied).await?.len())
    }

    async fn missing(&self, steps: &[Step], applied: usize) -> Result<Vec<Finding>> {
        let schema = Schema {
            name: self.schema(),
            steps,
            sql: self.sql(),
        };
        let own = schema.own_objects(&mut self.lease().await?).await?;
        let missing = schema.missing(applied, &own);
        Ok(missing.iter().map(|name| Finding::missing(name)).collect())
    }

    async fn lost_routes(&self) -> Result<Vec<Finding>> {
        let find = self.sql().lost_routes.query();
        let mut lost = Vec::new();
        for row in self.lease().await?.rows(find).await? {
            let count = row.try_get::<i64>(1)?.unsigned_abs();
            lost.push((row.try_get::<i32>(0)?.into(), count));
        }
        let table = |name: &str| D::table(self.schema(), name);
        let (jobs, routes) = (table("jobs"), table("routes"));
        let repair = format!("UPDATE {jobs} SET route = (its id in {routes}) WHERE route = N");
        Ok(Finding::lost_routes(&lost, &repair).into_iter().collect())
    }

    /// Runs a statement and returns the findings that `read` finds in its rows. Leases a connection
    /// only for this statement, so a failure does not affect other checks.
    ///
    /// # Errors
    /// Returns the failure of the statement, or the first failure of `read`.
    pub async fn found(
        &self,
        query: D::Query,
        read: impl Fn(&D::Row) -> Result<Vec<Finding>>,
    ) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for row in self.lease().await?.rows(query).await? {
            findings.extend(read(&row)?);
        }
        Ok(findings)
    }
}
