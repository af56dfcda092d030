//! Claims that a reclaim pass gave up, because their jobs had crashed too often: what later passes,
//! reports and the history return for these claims, before and after they are settled.

use super::prelude::*;

/// Enqueues a job, claims it on `node`, and marks the node as dead. Then runs a reclaim pass that
/// allows no crashes and therefore gives up the claim. Returns the token of the claim.
async fn given_up_on(node: &TestNode) -> ClaimToken {
    node.beat().await;
    node.add(job()).await;
    let token = node.take().await;
    node.alive(token).await;
    node.die().await;
    let pass = node.reclaim(&reclaim().max_crashes(0)).await;
    assert_eq!(pass, [exhausted(token)]);
    token
}

/// Returns the entry that every reclaim pass returns for a claim that was given up after the job's
/// first crash.
fn exhausted(token: ClaimToken) -> Reclaimed {
    Reclaimed::new(token, ReclaimReason::OwnerLost, 1, true)
}

cases! {
    "given_up" on Cx;

    #[proves("reclaim.exhausted")]
    async fn a_claim_that_was_given_up_stays_so_if_a_later_pass_allows_more_crashes(cx: &Cx) {
        let node = cx.node().await;
        let token = given_up_on(&node).await;
        for crashes in [0, 1, 5] {
            let request = reclaim().max_crashes(crashes);
            assert_eq!(node.reclaim(&request).await, [exhausted(token)], "{crashes} allowed");
            let stored = node.get(token.job).await;
            assert_eq!((stored.state, stored.crash_count), (JobState::Running, 1));
            assert_eq!(node.history(token.job).await, []);
        }
        node.fail(token.disowned()).await;
        assert_eq!(node.reclaim(&reclaim().max_crashes(5)).await, []);
    }

    #[proves("reclaim.given_up", "report.token", "claim.load")]
    async fn a_report_on_a_claim_that_was_given_up_is_kept_and_saves_it_from_no_pass(cx: &Cx) {
        let node = cx.node().await;
        let token = given_up_on(&node).await;
        let left = token.disowned();
        let half = || ReportKind::Progress {
            percent: 50,
            message: "half".to_owned(),
        };
        assert_eq!(node.report(token, half()).await, Reported::Stale);
        assert_eq!(node.get(token.job).await.progress, None);
        let kept = Reported::Applied {
            cancel_requested: false,
        };
        assert_eq!(node.report(left, half()).await, kept);
        assert_eq!(node.report(left, ReportKind::Checkpoint(json("1"))).await, kept);
        let stored = node.get(token.job).await;
        assert_eq!(stored.progress.map(|progress| progress.percent), Some(50));
        let inputs = node.inputs(&[token, left]).await;
        let checkpoints: Vec<_> = (inputs.into_iter())
            .map(|input| input.map(|input| input.checkpoint))
            .collect();
        assert_eq!(checkpoints, [None, Some(Some(json("1")))]);
        assert_eq!(node.reclaim(&reclaim()).await, [exhausted(token)]);
    }

    #[proves("reclaim.given_up", "settle.history")]
    async fn the_history_of_a_claim_that_was_given_up_names_no_node(cx: &Cx) {
        let node = cx.node().await;
        let token = given_up_on(&node).await;
        node.fail(token.disowned()).await;
        let history = node.history(token.job).await;
        let named: Vec<_> = history.iter().map(|one| (one.seq, one.node)).collect();
        assert_eq!(named, [(1, None)]);
        assert_eq!(history[0].claimed_at, token.claimed_at);
    }

    #[proves("reclaim.limit", "reclaim.exhausted")]
    async fn claims_that_were_given_up_keep_no_others_waiting(cx: &Cx) {
        let node = cx.node().await;
        let given_up = given_up_on(&node).await;
        let other = cx.node().await;
        other.beat().await;
        other.add_all(&jobs(3)).await;
        let mut expected = Vec::new();
        for claimed in other.claim(3).await {
            let token = claimed.claim.token;
            other.alive(token).await;
            expected.push(Reclaimed::new(token, ReclaimReason::OwnerLost, 1, false));
        }
        other.die().await;
        let mut taken = Vec::new();
        for _ in 0..2 {
            let pass = node.reclaim(&reclaim().limit(1)).await;
            assert_eq!(pass.len(), 1);
            taken.extend(pass);
        }
        // A pass with a larger limit returns the remaining claim and the claim that was given up.
        let pass = node.reclaim(&reclaim().limit(3)).await;
        assert_eq!(pass.len(), 2);
        assert_eq!(pass[0], exhausted(given_up));
        taken.push(pass[1]);
        taken.sort_by_key(|one| one.token);
        assert_eq!(taken, expected);
        assert_eq!(node.reclaim(&reclaim().limit(1)).await, [exhausted(given_up)]);
    }
}
