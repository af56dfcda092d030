//! Links whose parents and children are changed by several nodes at once.

use std::collections::BTreeSet;

use JobState::{Blocked, Cancelled, Pending};
use LinkState::{Met, Open, Unmet};

use super::link::{child, failed, follower, succeeded};
use super::prelude::*;

cases! {
    "link_race" on Cx;

    #[proves("link.release", "link.decide")]
    #[needs(Workflows)]
    async fn of_parents_that_end_at_once_exactly_one_releases_the_child(cx: &Cx) {
        const RACERS: usize = 8;
        let nodes = cx.nodes(4).await;
        for round in 0..10 {
            let parents = nodes[0].add_all(&jobs(RACERS)).await;
            let mut all = job();
            for parent in &parents {
                all = all.after(*parent, Condition::Ended);
            }
            let all = nodes[0].add(all).await;
            let fan_out = nodes[0].add(child(all)).await;
            let claimed = nodes[0].claim(RACERS).await;
            race(RACERS, |racer| {
                let node = nodes[racer % 4].sibling();
                let token = claimed[racer].claim.token;
                async move {
                    let outcome = if racer % 2 == 0 { succeeded() } else { failed() };
                    assert_eq!(node.settle(token, outcome).await, Fenced::Applied);
                }
            })
            .await;
            assert_eq!(nodes[1].links(all).await, vec![Met; RACERS], "round {round}");
            assert_eq!(nodes[1].states([all, fan_out]).await, [Pending, Blocked]);
            let had = race(4, |racer| {
                let node = nodes[racer].sibling();
                async move { node.claim_ids(10).await }
            })
            .await;
            assert_eq!(had.concat(), [all]);
            let token = nodes[0].present(all).await;
            nodes[0].succeed(token).await;
            assert_eq!(nodes[0].claim_ids(10).await, [fan_out]);
        }
    }

    #[proves("link.enqueue", "link.release", "link.cancel")]
    #[needs(Workflows)]
    async fn an_enqueue_that_meets_the_end_of_its_parent_misses_nothing(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..25 {
            let parent = nodes[0].add(job()).await;
            let token = nodes[0].take_job(parent).await;
            let batch: Vec<[NewJob; 2]> = (0..3).map(|_| [child(parent), follower(parent)]).collect();
            race(4, |racer| {
                let node = nodes[racer].sibling();
                let own = batch.get(racer).cloned();
                async move {
                    match own {
                        Some(jobs) => drop(node.add_all(&jobs).await),
                        None if round % 2 == 0 => node.fail(token).await,
                        None => node.succeed(token).await,
                    }
                }
            })
            .await;
            let expected = if round % 2 == 0 { Cancelled } else { Pending };
            for [good, follower] in &batch {
                let states = nodes[0].states([good.id(), follower.id()]).await;
                assert_eq!(states, [expected, Pending], "round {round}");
            }
            for job in nodes[0].claim(100).await {
                nodes[0].succeed(job.claim.token).await;
            }
        }
    }

    #[proves("link.release", "link.cancel", "link.once", "act.respond")]
    #[needs(Workflows)]
    async fn operators_and_nodes_meet_on_a_graph_and_nothing_is_left_waiting(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let mut all: Vec<NewJob> = Vec::new();
        for number in 0..60 {
            let mut new = job();
            for _ in 0..number % 4 {
                let parent = all[fastrand::usize(..all.len())].id();
                let conditions = [Condition::Ended, Condition::Ended, Condition::Succeeded];
                new = new.after(parent, conditions[fastrand::usize(..3)].clone());
            }
            all.push(new);
        }
        let all = nodes[0].add_all(&all).await;
        race(6, |racer| {
            let node = nodes[racer % 4].sibling();
            let all = all.clone();
            async move {
                for round in 0..15 {
                    let some = (0..3).map(|_| all[fastrand::usize(..all.len())]);
                    let some = JobSelector::Ids(some.collect());
                    match (racer + round) % 6 {
                        0 => drop(node.act_on(&some, JobAction::Cancel).await),
                        1 => drop(node.act_on(&some, JobAction::Requeue).await),
                        _ => {
                            for job in node.claim(4).await {
                                let outcome = if fastrand::bool() { failed() } else { succeeded() };
                                node.settle(job.claim.token, outcome).await;
                            }
                        }
                    }
                }
            }
        })
        .await;
        // All remaining jobs can run.
        loop {
            let claimed = nodes[0].claim(100).await;
            if claimed.is_empty() {
                break;
            }
            for job in claimed {
                nodes[0].succeed(job.claim.token).await;
            }
        }
        for job in nodes[0].everything().await {
            assert!(job.state.is_terminal(), "{job:?}");
            let links = nodes[0].links(job.id).await;
            let unmet = links.contains(&Unmet);
            assert!(!links.contains(&Open), "{job:?}: {links:?}");
            assert!(!unmet || job.state == Cancelled, "{job:?}: {links:?}");
        }
        let ids: BTreeSet<JobId> = all.into_iter().collect();
        assert_eq!(ids.len(), 60);
    }
}
