//! Conditions: one child may have several links on one parent, and each link is decided separately.

use LinkState::{Met, Open, Unmet};

use super::prelude::*;

cases! {
    "conditions" on Cx;

    #[proves("link.decide", "link.release", "link.cancel", "link.parents")]
    #[needs(Workflows)]
    async fn each_condition_on_one_parent_is_decided_separately(cx: &Cx) {
        let node = cx.node().await;
        let pairs = [
            [Condition::Ended, Condition::Succeeded],
            [Condition::Failed, Condition::Ended],
            [Condition::Succeeded, Condition::Failed],
            [Condition::Succeeded, Condition::result_is("/size", "large")],
            [Condition::Succeeded, Condition::result_is_not("/size", "large")],
            [
                Condition::result_compares("/n", Comparison::Less, &3),
                Condition::result_compares("/n", Comparison::Greater, &-1.5),
            ],
        ];
        let error = "it failed".to_owned();
        let ends = [
            result(r#"{"size": "large"}"#),
            result(r#"{"size": "small", "n": 1}"#),
            result(r#"{"size": "small", "n": 3}"#),
            Outcome::Failed { error },
            Outcome::Cancelled,
        ];
        for end in ends {
            let parent = node.add(job()).await;
            let mut children = Vec::new();
            for [first, second] in pairs.clone() {
                let child = job().after(parent, first).after(parent, second);
                children.push(node.add(child).await);
            }
            node.end(parent, end.clone()).await;
            let ended = node.get(parent).await;
            for (child, pair) in children.into_iter().zip(&pairs) {
                let decide = |condition: &Condition| {
                    let met = condition.met_by(ended.state, ended.result.as_ref());
                    if met { Met } else { Unmet }
                };
                let links: Vec<LinkState> = pair.iter().map(decide).collect();
                assert_eq!(node.links(child).await, links, "{end:?}, {pair:?}");
                let all = !links.contains(&Unmet);
                let state = if all { JobState::Pending } else { JobState::Cancelled };
                assert_eq!(node.state(child).await, state, "{end:?}, {pair:?}");
                if all {
                    node.succeed(node.take_job(child).await).await;
                }
            }
        }
    }

    #[proves("link.decide", "link.release", "link.cancel")]
    #[needs(Workflows)]
    async fn only_the_first_match_of_a_choice_runs(cx: &Cx) {
        let node = cx.node().await;
        for (end, runs) in [("12", 0), ("2", 1), ("0", 2), ("null", 2)] {
            let parent = node.add(job()).await;
            let choice = Condition::choice([
                Condition::result_compares("", Comparison::Greater, &10),
                Condition::result_compares("", Comparison::Greater, &1),
            ]);
            let jobs: Vec<NewJob> =
                choice.into_iter().map(|condition| job().after(parent, condition)).collect();
            let children = node.add_all(&jobs).await;
            node.end(parent, result(end)).await;
            for (place, child) in children.iter().enumerate() {
                let state = if place == runs { JobState::Pending } else { JobState::Cancelled };
                assert_eq!(node.state(*child).await, state, "{end}, child {place}");
            }
            node.succeed(node.take_job(children[runs]).await).await;
        }
    }

    #[proves("link.decide", "link.release", "batch.callback")]
    #[needs(Workflows)]
    async fn each_condition_on_one_batch_is_decided_when_it_can_be(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let members = node.add_all(&[job().in_batch(batch), job().in_batch(batch)]).await;
        let both = job()
            .after_batch(batch, BatchCondition::Ended)
            .after_batch(batch, BatchCondition::FailuresReach(1));
        let both = node.add(both).await;
        node.close(batch).await;
        node.fail(node.take_job(members[0]).await).await;
        assert_eq!(node.links(both).await, [Open, Met]);
        assert_eq!(node.state(both).await, JobState::Blocked);
        node.succeed(node.take_job(members[1]).await).await;
        assert_eq!(node.links(both).await, [Met, Met]);
        assert_eq!(node.state(both).await, JobState::Pending);
    }
}
