//! Stores the reports of running jobs.

use std::collections::HashMap;

use mongodb::bson::doc;
use ratchet_core::model::{LastReport, Report, Reported};
use ratchet_core::{ClaimToken, JobId, JobState};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::error::Result;
use crate::pipelines::{self, literal};
use crate::row;
use crate::store::MongoStore;

/// Returns the statement that stores the last reports of one claim. The job has begun, so it no
/// longer expires. [report.life] [report.progress] [report.token] [expiry.begun]
fn statement(token: ClaimToken, last: LastReport<'_>, now: Now) -> Statement {
    let mut set = doc! { "last_report": now.expression() };
    let mut bytes = 0;
    if let Some((percent, message)) = last.progress {
        bytes += message.len();
        let progress = doc! { "percent": i32::from(percent), "message": literal(message) };
        set.insert("progress", progress);
    }
    if let Some(checkpoint) = last.checkpoint {
        bytes += checkpoint.as_str().len();
        set.insert("checkpoint", literal(checkpoint.as_str()));
    }
    let report = vec![doc! { "$set": set }, doc! { "$unset": "expires_at" }];
    Statement::new(pipelines::held(token), report).bytes(bytes)
}

impl MongoStore {
    pub(crate) async fn keep_reports(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let mut told = Report::last_of_each(reports);
        // A token whose number does not fit the database belongs to no claim.
        told.retain(|token, _| i64::try_from(token.seq).is_ok());
        let side = self.main();
        let now = self.now(side).await?;
        let statements = told.iter();
        let statements = statements.map(|(token, last)| statement(*token, *last, now));
        let mut on = side.plain();
        let matched = on.bulk(&side.jobs, statements.collect()).await?;
        // If all statements matched, all reports are stored, even if claims have ended since.
        let all = usize::try_from(matched) == Ok(told.len());
        let jobs: Vec<JobId> = told.keys().map(|token| token.job).collect();
        let filter = doc! { "_id": { "$in": pipelines::ids(&jobs) } };
        let options = row::fields(
            doc! { "state": 1, "claim_seq": 1, "node": 1, "claimed_at": 1, "cancel_requested": 1 },
        );
        let mut held: HashMap<ClaimToken, bool> = HashMap::new();
        for row in on.find(&side.jobs, filter, options).await? {
            let token = row::token(&row)?;
            if row::int(&row, "state")? == i64::from(pipelines::code(JobState::Running)) {
                held.insert(token, row::flag(&row, "cancel_requested"));
            }
        }
        Ok(Report::answers(reports, |token| {
            let kept = all && told.contains_key(&token);
            held.get(&token).copied().or(kept.then_some(false))
        }))
    }
}
