//! A database that lacks newer data, as after a failover or a restore.

use std::collections::BTreeMap;

use super::prelude::*;

/// How a job of the case is stored. Each way has its own kind, named like the way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Alone,
    WithAnother,
    WithUniqueKey,
    WithTag,
    InLane,
    Fired,
}

impl Way {
    /// Returns the ways that the store supports.
    fn all(cx: &Cx) -> Vec<Self> {
        let mut ways = vec![Self::Alone, Self::WithAnother, Self::WithUniqueKey];
        let optional = [
            (Self::WithTag, cx.has(Power::Tags)),
            (Self::InLane, cx.has(Power::Lanes)),
            (
                Self::Fired,
                cx.has(Power::Recurring) && cx.has(Power::Clock),
            ),
        ];
        ways.extend(optional.iter().filter(|one| one.1).map(|one| one.0));
        ways
    }

    fn kind(self) -> String {
        format!("{self:?}")
    }

    /// Stores a job in this way. Uses keys, lanes and definitions of this name. Returns the stored
    /// jobs with their kinds.
    async fn store(self, cx: &Cx, node: &TestNode, named: &str) -> Vec<(JobId, String)> {
        let mine = NewJob::new(&self.kind(), &());
        let jobs = match self {
            Self::Alone => vec![mine],
            Self::WithAnother => vec![first(), mine],
            Self::WithUniqueKey => vec![mine.unique_key(named)],
            Self::WithTag => vec![mine.tag(named)],
            Self::InLane => vec![mine.lane(named)],
            Self::Fired => {
                cx.advance(HOUR).await;
                let fired = node.fire(&node.plan_one().await).await;
                assert!(node.delete_definition(named).await == Changed::Changed);
                let Fired::Applied(stored) = fired else {
                    panic!("the definition should be fired");
                };
                return vec![(stored[0].id(), self.kind())];
            }
        };
        let ids = node.add_all(&jobs).await;
        let kinds = jobs.iter().map(|job| job.spec().route.kind.to_string());
        ids.into_iter().zip(kinds).collect()
    }
}

fn first() -> NewJob {
    NewJob::new("first", &())
}

cases! {
    "rewind" on Cx;

    /// Each writer has cached the id of the route of its kind when the database loses the route. In
    /// the second round, routes of other kinds get these ids before the writers store their jobs.
    #[proves("claim.route")]
    #[needs(Vandal)]
    async fn no_job_runs_as_another_kind_after_routes_were_lost(cx: &Cx) {
        let ways = Way::all(cx);
        let writers = cx.nodes(ways.len()).await;
        let (reader, other) = (cx.node().await, cx.node().await);
        for are_taken in [false, true] {
            let named = format!("taken: {are_taken}");
            for (writer, way) in writers.iter().zip(&ways) {
                writer.add_all(&[first(), NewJob::new(&way.kind(), &())]).await;
                if *way == Way::Fired {
                    let hourly = Recurring::every(HOUR).job(NewJob::new(&way.kind(), &()));
                    writer.define(hourly.named(&named)).await;
                }
            }
            assert_eq!(reader.claim(100).await.len(), 2 * ways.len());
            if let Err(error) = cx.vandal().lose_routes().await {
                panic!("the fixture could not delete the routes: {error}");
            }
            let mut stored = BTreeMap::new();
            if are_taken {
                for way in &ways {
                    let kind = format!("other than {way:?}");
                    stored.insert(other.add(NewJob::new(&kind, &())).await, kind);
                }
                let lost = ways.iter().map(|way| name(&way.kind()));
                let lost = reader.request(100).kinds(Selection::Only(lost.collect()));
                assert_eq!(ids(&reader.claim_with(&lost).await), []);
                for (id, kind) in &stored {
                    assert_eq!(reader.get(*id).await.spec.route.kind, kind.as_str());
                }
            }
            for (writer, way) in writers.iter().zip(&ways) {
                stored.extend(way.store(cx, writer, &named).await);
            }
            let claimed = reader.claim(100).await.into_iter().map(|job| job.claim);
            let claimed = claimed.map(|claim| (claim.token.job, claim.route.kind.to_string()));
            assert_eq!(claimed.collect::<BTreeMap<_, _>>(), stored, "{named}");
        }
    }
}
