//! Keeping what running bodies tell.

use std::collections::{BTreeMap, HashMap};

use mongodb::bson::doc;
use mongodb::options::FindOptions;
use ratchet_core::model::{Report, ReportKind, Reported};
use ratchet_core::{ClaimToken, JobId, JobState, Json};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::error::Result;
use crate::pipelines::{self, literal};
use crate::row;
use crate::store::MongoStore;

/// The last of each kind that the reports of one claim tell.
#[derive(Default)]
struct Told<'a> {
    progress: Option<(u8, &'a str)>,
    checkpoint: Option<&'a Json>,
}

impl Told<'_> {
    /// [report.life] [report.progress] [report.token]
    fn statement(&self, token: ClaimToken, now: Now) -> Statement {
        let mut set = doc! { "last_report": now.expression() };
        let mut bytes = 0;
        if let Some((percent, message)) = self.progress {
            bytes += message.len();
            let progress = doc! { "percent": i32::from(percent), "message": literal(message) };
            set.insert("progress", progress);
        }
        if let Some(checkpoint) = self.checkpoint {
            bytes += checkpoint.as_str().len();
            set.insert("checkpoint", literal(checkpoint.as_str()));
        }
        Statement {
            filter: pipelines::held(token),
            pipeline: vec![doc! { "$set": set }],
            bytes,
        }
    }
}

impl MongoStore {
    pub(crate) async fn keep_reports(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let mut told: BTreeMap<ClaimToken, Told<'_>> = BTreeMap::new();
        for report in reports {
            if i64::try_from(report.token.seq).is_err() {
                continue;
            }
            let told = told.entry(report.token).or_default();
            match &report.kind {
                ReportKind::Progress { percent, message } => {
                    told.progress = Some((*percent, message));
                }
                ReportKind::Checkpoint(checkpoint) => told.checkpoint = Some(checkpoint),
                // A kind this version does not know says at least that the body lives.
                _ => {}
            }
        }
        let side = self.main();
        let now = self.now(side).await?;
        let statements = told.iter();
        let statements = statements.map(|(token, told)| told.statement(*token, now));
        let mut on = side.plain();
        let matched = on.bulk(&side.jobs, statements.collect()).await?;
        // If all matched, all are kept, whatever has become of the claims since.
        let all = usize::try_from(matched) == Ok(told.len());
        let jobs: Vec<JobId> = told.keys().map(|token| token.job).collect();
        let filter = doc! { "_id": { "$in": pipelines::ids(&jobs) } };
        let options = FindOptions::builder()
            .projection(doc! { "state": 1, "claim_seq": 1, "node": 1, "claimed_at": 1, "cancel_requested": 1 })
            .build();
        let mut held: HashMap<ClaimToken, bool> = HashMap::new();
        for row in on.find(&side.jobs, filter, options).await? {
            let token = row::token(&row)?;
            if row::int(&row, "state")? == i64::from(pipelines::code(JobState::Running)) {
                held.insert(token, row::flag(&row, "cancel_requested"));
            }
        }
        let answer = |report: &Report| match held.get(&report.token) {
            Some(cancel_requested) => Reported::Applied {
                cancel_requested: *cancel_requested,
            },
            None if all && told.contains_key(&report.token) => Reported::Applied {
                cancel_requested: false,
            },
            None => Reported::Stale,
        };
        Ok(reports.iter().map(answer).collect())
    }
}
