//! Claim tokens: only settlements and reports with the token of the current claim change a job.

use super::prelude::*;

/// Returns one value of each variant of [`Outcome`].
fn outcomes() -> [Outcome; 7] {
    let error = "too late".to_owned();
    let delay = SECOND;
    [
        result("\"too late\""),
        Outcome::Retry {
            delay,
            error: error.clone(),
        },
        Outcome::Failed { error },
        Outcome::Snoozed { delay },
        Outcome::Released,
        Outcome::Undelivered,
        Outcome::Cancelled,
    ]
}

/// Checks that the store rejects every settlement and every report with `token` as stale, and that
/// the job does not change.
async fn assert_stale(cx: &Cx, node: &TestNode, token: ClaimToken) {
    let before = (node.get(token.job).await, node.history(token.job).await);
    cx.proving(["settle.token"]);
    for outcome in outcomes() {
        let answer = node.settle(token, outcome.clone()).await;
        assert_eq!(answer, Fenced::Stale, "{outcome:?} with {token:?}");
    }
    let told = [
        ReportKind::Alive,
        ReportKind::Progress {
            percent: 99,
            message: "too late".to_owned(),
        },
        ReportKind::Checkpoint(json("\"too late\"")),
    ];
    cx.proving(["report.token"]);
    for kind in told {
        let answer = node.report(token, kind.clone()).await;
        assert_eq!(answer, Reported::Stale, "{kind:?} with {token:?}");
    }
    cx.proving([]);
    assert_eq!(node.inputs(&[token]).await, [None]);
    let after = (node.get(token.job).await, node.history(token.job).await);
    assert_eq!(
        after, before,
        "expected a stale write to leave the job unchanged"
    );
}

cases! {
    "token" on Cx;

    #[proves("settle.token", "report.token")]
    #[needs(Clock)]
    async fn the_token_of_a_reclaimed_job_is_stale(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job()).await;
        let old = a.take().await;
        cx.advance(HOUR).await;
        assert_eq!(b.reclaim(&reclaim()).await.len(), 1);
        assert_stale(cx, &a, old).await;
        let new = b.take().await;
        assert_stale(cx, &a, old).await;
        b.succeed(new).await;
        assert_stale(cx, &a, old).await;
    }

    #[proves("settle.token", "report.token")]
    #[needs(Clock)]
    async fn an_older_claim_of_the_same_node_is_stale(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let old = node.take().await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        let new = node.take().await;
        assert_eq!(new.seq, old.seq + 1);
        assert_stale(cx, &node, old).await;
        node.succeed(new).await;
    }

    #[proves("settle.token", "report.token", "claim.load", "settle.repeat")]
    async fn a_claim_of_the_same_number_by_another_node_is_stale(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        // Such a token exists if the database has lost an earlier claim by node `a`.
        let of_a = |token: ClaimToken| ClaimToken {
            node: Some(a.id),
            ..token
        };
        let first = b.take().await;
        assert_stale(cx, &a, of_a(first)).await;
        assert_stale(cx, &a, first.disowned()).await;
        b.release(first).await;
        assert_stale(cx, &a, of_a(first)).await;
        let second = b.take().await;
        assert_stale(cx, &a, of_a(first)).await;
        assert_stale(cx, &a, of_a(second)).await;
        cx.proving(["settle.repeat"]);
        assert_eq!(b.settle(first, Outcome::Released).await, Fenced::Applied, "repeated");
        b.succeed(second).await;
        assert_stale(cx, &a, of_a(second)).await;
        assert_eq!(b.settle(second, Outcome::Succeeded { result: None }).await, Fenced::Applied, "repeated");
        assert_eq!(b.state(id).await, JobState::Succeeded);
    }

    #[proves("settle.token", "report.token", "claim.load", "settle.repeat")]
    async fn a_claim_of_the_same_number_and_node_from_another_time_is_stale(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        // Such a token exists if the database has lost an earlier claim by the same node.
        let earlier = |token: ClaimToken| ClaimToken {
            claimed_at: token.claimed_at - MINUTE,
            ..token
        };
        let first = node.take().await;
        assert_stale(cx, &node, earlier(first)).await;
        node.release(first).await;
        assert_stale(cx, &node, earlier(first)).await;
        let second = node.take().await;
        assert_stale(cx, &node, earlier(first)).await;
        assert_stale(cx, &node, earlier(second)).await;
        cx.proving(["settle.repeat"]);
        assert_eq!(node.settle(first, Outcome::Released).await, Fenced::Applied, "repeated");
        node.succeed(second).await;
        assert_stale(cx, &node, earlier(second)).await;
        node.succeed(second).await;
        assert_eq!(node.state(id).await, JobState::Succeeded);
    }

    #[proves("settle.token", "report.token")]
    async fn a_token_that_was_never_given_is_stale(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for seq in [0, 1, u64::from(u32::MAX)] {
            assert_stale(cx, &node, node.token(id, seq).await).await;
        }
        node.take().await;
        for seq in [0, 2, u64::from(u32::MAX)] {
            assert_stale(cx, &node, node.token(id, seq).await).await;
        }
        node.release(node.token(id, 1).await).await;
        for seq in [0, 2] {
            assert_stale(cx, &node, node.token(id, seq).await).await;
        }
    }

    #[proves("settle.token", "report.token")]
    async fn the_token_of_a_job_that_does_not_exist_is_stale(cx: &Cx) {
        let node = cx.node().await;
        let token = node.token(JobId::new(), 1).await;
        for outcome in outcomes() {
            assert_eq!(node.settle(token, outcome).await, Fenced::Stale);
        }
        assert_eq!(node.report(token, ReportKind::Alive).await, Reported::Stale);
        assert_eq!(node.inputs(&[token]).await, [None]);
    }

    #[proves("settle.token", "report.token")]
    #[needs(Clock)]
    async fn the_token_of_a_purged_job_is_stale(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        node.succeed(token).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.settle(token, Outcome::Released).await, Fenced::Stale);
        assert_eq!(node.report(token, ReportKind::Alive).await, Reported::Stale);
        assert_eq!(node.find(token.job).await, None);
    }

    #[proves("report.token")]
    async fn a_report_after_the_end_is_stale(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        node.succeed(token).await;
        let ended = node.get(token.job).await;
        let progress = ReportKind::Progress {
            percent: 5,
            message: "late".to_owned(),
        };
        assert_eq!(node.report(token, progress).await, Reported::Stale);
        assert_eq!(node.get(token.job).await, ended);
    }

    #[proves("settle.token")]
    async fn any_node_may_end_a_claim_whose_token_it_has(cx: &Cx) {
        // Any node that has the token may settle the claim. For example, a node that reclaims jobs
        // settles the claims of a dead node.
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job()).await;
        let token = a.take().await;
        b.succeed(token).await;
        assert_eq!(a.history(token.job).await[0].node, Some(a.id));
    }

    #[proves("settle.repeat")]
    async fn an_end_told_twice_is_applied_once(cx: &Cx) {
        let node = cx.node().await;
        for outcome in outcomes() {
            let id = node.add(job()).await;
            let token = node.take().await;
            assert_eq!(token.job, id);
            assert_eq!(node.settle(token, outcome.clone()).await, Fenced::Applied);
            let ended = (node.get(id).await, node.history(id).await);
            for again in outcomes() {
                assert_eq!(
                    node.settle(token, again).await,
                    Fenced::Applied,
                    "{outcome:?}"
                );
                assert_eq!((node.get(id).await, node.history(id).await), ended);
            }
            node.act(id, JobAction::Cancel).await;
        }
    }

    #[proves("settle.repeat")]
    async fn an_end_told_again_leaves_the_next_claim_alone(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job()).await;
        let first = a.take().await;
        a.release(first).await;
        let second = b.take().await;
        let running = b.get(first.job).await;
        a.release(first).await;
        assert_eq!(b.get(first.job).await, running);
        b.succeed(second).await;
    }

    #[proves("settle.repeat", "settle.history", "settle.token", "report.token")]
    async fn an_end_told_again_is_applied_until_the_next_claim_is_settled(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        let first = a.take().await;
        assert_eq!(a.settle(first, retry(Duration::ZERO)).await, Fenced::Applied);
        let second = b.take().await;
        let running = (b.get(id).await, b.history(id).await);
        assert_eq!(running.1.len(), 1);
        for outcome in outcomes() {
            let again = a.settle(first, outcome.clone()).await;
            assert_eq!(again, Fenced::Applied, "{outcome:?}");
            assert_eq!((b.get(id).await, b.history(id).await), running);
        }
        b.release(second).await;
        assert_stale(cx, &a, first).await;
        b.release(second).await;
        assert_eq!(b.history(id).await.len(), 2);
    }

    #[proves("settle.repeat")]
    #[needs(Clock)]
    async fn an_end_told_again_after_the_next_claim_was_reclaimed_is_applied(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job()).await;
        let first = a.take().await;
        a.release(first).await;
        cx.advance(MILLI).await;
        b.take().await;
        cx.advance(HOUR).await;
        assert_eq!(a.reclaim(&reclaim()).await.len(), 1);
        let pending = (a.get(first.job).await, a.history(first.job).await);
        assert_eq!(a.settle(first, Outcome::Released).await, Fenced::Applied);
        assert_eq!((a.get(first.job).await, a.history(first.job).await), pending);
    }
}
