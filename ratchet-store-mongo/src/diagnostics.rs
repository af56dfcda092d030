//! [`DiagnosticStore`] on MongoDB.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ratchet_core::model::{Finding, Findings, Severity};
use ratchet_core::store::DiagnosticStore;
use ratchet_core::{JobState, Result};

use crate::coordinator;
use crate::error::{Failure, Result as Inner, UNAUTHORIZED};
use crate::members;
use crate::open;
use crate::pipelines::code;
use crate::store::MongoStore;

#[async_trait]
impl DiagnosticStore for MongoStore {
    async fn findings(&self) -> Result<Vec<Finding>> {
        self.call("findings", || self.look_at_all()).await
    }
}

impl MongoStore {
    async fn look_at_all(&self) -> Inner<Vec<Finding>> {
        let side = self.live();
        let mut findings = Findings::default();
        let mut add =
            |what: &str, found| findings.add(what, found, |failure: &Failure| failure.kind);
        add("the version of the collections", open::version(side).await)?;
        add("the indexes", open::missing(side).await)?;
        add("the routes of the jobs", self.lost_routes().await)?;
        add(
            "the clocks of the members",
            members::clocks(self.clients()).await,
        )?;
        if self.has_transactions() {
            add(
                "the change stream",
                wakeups(coordinator::open(side, None).await),
            )?;
        }
        let alone = standalone(self.has_transactions());
        add("the kind of the server", Ok(alone.into_iter().collect()))?;
        let plain = self
            .plaintext_host()
            .and_then(|host| Finding::plaintext(host, "set tls=true in the URL"));
        add(
            "the encryption of the connections",
            Ok(plain.into_iter().collect()),
        )?;
        Ok(findings.into_sorted())
    }
}

impl MongoStore {
    /// Returns a finding if waiting jobs name a route that is not stored.
    async fn lost_routes(&self) -> Inner<Vec<Finding>> {
        let mut jobs: BTreeMap<i64, u64> = BTreeMap::new();
        let counted = self.count_routes().await?;
        self.routes().refresh(self.main()).await?;
        for one in counted {
            let route = self.routes().get(one.route.into(), one.queue.as_deref());
            if one.state == code(JobState::Pending) && route.is_none() {
                *jobs.entry(one.route.into()).or_default() += one.jobs;
            }
        }
        let lost: Vec<(i64, u64)> = jobs.into_iter().collect();
        let repair = "updateMany({route: N}, {$set: {route: R}}) on the collection of jobs, where R is the route number that you found";
        Ok(Finding::lost_routes(&lost, repair).into_iter().collect())
    }
}

/// Returns a finding if the user lacks the privilege to open the change stream for wakeups.
fn wakeups(opened: Inner<coordinator::Stream>) -> Inner<Vec<Finding>> {
    match opened {
        Ok(_) => Ok(Vec::new()),
        Err(failure) if failure.code == UNAUTHORIZED => {
            let summary = "the user is not allowed to open a change stream, so nodes get no \
                wakeups and find jobs only by polling";
            let finding = Finding::new("no_wakeups", Severity::Warning, summary);
            let remedy = "grant the action changeStream on the collection of wakeups";
            Ok(vec![finding.detail(failure.to_string()).remedy(remedy)])
        }
        Err(failure) => Err(failure),
    }
}

/// Returns a finding if the server is a standalone. There is no finding about write concerns,
/// because the store rejects a URL whose write concern is weaker than `majority` (see `checks.rs`).
fn standalone(has_transactions: bool) -> Option<Finding> {
    let summary = "the server is not in a replica set, so it has no transactions and no wakeups; \
        lanes, fair keys, links, signals, permits, the archive and recurring jobs need transactions";
    let remedy = "start the server as a replica set; one member is enough";
    (!has_transactions)
        .then(|| Finding::new("standalone", Severity::Warning, summary).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_transactions_is_named() {
        assert_eq!(standalone(true), None);
        let found = standalone(false).unwrap();
        assert_eq!(
            (found.code, found.severity),
            ("standalone", Severity::Warning)
        );
        assert!(
            found
                .remedy
                .is_some_and(|remedy| remedy.contains("replica set"))
        );
    }
}
