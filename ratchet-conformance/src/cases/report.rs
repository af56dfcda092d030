//! Reports: what a running job sends to the store, and what the store replies.

use ratchet_core::limits::{MAX_MESSAGE_BYTES, MAX_RESULT_BYTES};

use super::prelude::*;

fn progress(percent: u8, message: &str) -> ReportKind {
    ReportKind::Progress {
        percent,
        message: message.to_owned(),
    }
}

const KEPT: Reported = Reported::Applied {
    cancel_requested: false,
};

cases! {
    "report" on Cx;

    #[proves("report.progress")]
    async fn progress_replaces_progress(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let token = node.take().await;
        assert_eq!(node.get(id).await.progress, None);
        for (percent, message) in [(0, ""), (40, "größe 🦀"), (100, "done"), (3, "again")] {
            assert_eq!(node.report(token, progress(percent, message)).await, KEPT);
            let expected = Progress {
                percent,
                message: message.to_owned(),
            };
            assert_eq!(node.get(id).await.progress, Some(expected));
        }
    }

    #[proves("report.progress")]
    async fn a_sign_of_life_changes_neither_progress_nor_checkpoint(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let token = node.take().await;
        node.report(token, progress(7, "seven")).await;
        node.report(token, ReportKind::Checkpoint(json("7"))).await;
        let before = node.get(id).await;
        assert_eq!(node.report(token, ReportKind::Alive).await, KEPT);
        assert_eq!(node.get(id).await, before);
        assert_eq!(before.checkpoint, Some(json("7")));
        assert_eq!(before.progress.map(|progress| progress.percent), Some(7));
    }

    #[proves("report.progress", "claim.whole")]
    async fn a_checkpoint_outlives_its_claim(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        let token = a.take().await;
        a.report(token, ReportKind::Checkpoint(json("[1]"))).await;
        a.report(
            token,
            ReportKind::Checkpoint(json(r#"{"line": "\u0000ü"}"#)),
        )
        .await;
        a.report(token, progress(50, "half")).await;
        a.settle(token, retry(Duration::ZERO)).await;
        let claimed = b.claim_one().await;
        assert_eq!(
            input(&claimed).checkpoint,
            Some(json(r#"{"line": "\u0000ü"}"#))
        );
        assert_eq!(
            b.get(id).await.progress.map(|progress| progress.percent),
            Some(50)
        );
        b.succeed(claimed.claim.token).await;
        assert_eq!(b.get(id).await.checkpoint, input(&claimed).checkpoint);
    }

    #[proves("report.progress", "report.token")]
    async fn a_batch_of_reports_is_answered_in_order(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        let claimed = node.claim(3).await;
        let token = |index: usize| claimed[index].claim.token;
        node.act(all[1], JobAction::Cancel).await;
        let batch = [
            Report::new(token(2), progress(1, "first")),
            Report::new(node.token(all[0], 2).await, progress(2, "stale")),
            Report::new(token(1), ReportKind::Alive),
            Report::new(token(2), progress(3, "second")),
            Report::new(token(2), ReportKind::Checkpoint(json("4"))),
        ];
        let told = Reported::Applied {
            cancel_requested: true,
        };
        let answers = ok(node.jobs().report(&batch).await);
        assert_eq!(answers, [KEPT, Reported::Stale, told, KEPT, KEPT]);
        let stored = node.get(all[2]).await;
        assert_eq!(stored.progress.map(|progress| progress.percent), Some(3));
        assert_eq!(stored.checkpoint, Some(json("4")));
        assert_eq!(node.get(all[0]).await.progress, None);
        assert_eq!(ok(node.jobs().report(&[]).await), []);
    }

    #[proves("report.cancel")]
    async fn a_report_learns_of_the_cancel(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        let token = a.take().await;
        assert_eq!(a.report(token, ReportKind::Alive).await, KEPT);
        b.act(id, JobAction::Cancel).await;
        let told = Reported::Applied {
            cancel_requested: true,
        };
        for kind in [
            ReportKind::Alive,
            progress(1, ""),
            ReportKind::Checkpoint(json("1")),
        ] {
            assert_eq!(a.report(token, kind).await, told);
        }
    }

    #[proves("report.validate")]
    async fn reports_that_cannot_be_stored_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let token = node.take().await;
        let before = node.get(id).await;
        let large = |bytes: usize| json(&format!("\"{}\"", "x".repeat(bytes - 2)));
        let long = "x".repeat(MAX_MESSAGE_BYTES + 1);
        let table = [
            (progress(101, ""), "progress"),
            (progress(1, &long), "progress message"),
            (progress(1, "nul \0"), "progress message"),
            (
                ReportKind::Checkpoint(large(MAX_RESULT_BYTES + 1)),
                "checkpoint",
            ),
        ];
        for (bad, field) in table {
            let batch = [
                Report::new(token, progress(9, "good")),
                Report::new(token, bad),
            ];
            assert_refused(node.jobs().report(&batch).await, field);
        }
        assert_eq!(node.get(id).await, before);
        let longest = "ä".repeat(MAX_MESSAGE_BYTES / 2);
        assert_eq!(node.report(token, progress(100, &longest)).await, KEPT);
        let largest = ReportKind::Checkpoint(large(MAX_RESULT_BYTES));
        assert_eq!(node.report(token, largest).await, KEPT);
        assert_eq!(
            node.get(id).await.progress.map(|progress| progress.message),
            Some(longest)
        );
    }

    #[proves("report.token", "reclaim.stall")]
    #[needs(Clock)]
    async fn a_stale_report_is_no_sign_of_life(cx: &Cx) {
        let (node, other) = (cx.node().await, cx.node().await);
        let id = node.add(job().stall_timeout(MINUTE)).await;
        let old = node.take().await;
        node.alive(old).await;
        node.release(old).await;
        let token = node.take().await;
        node.alive(token).await;
        cx.advance(MINUTE).await;
        let stale = [
            node.token(id, 1).await,
            other.token(id, 2).await,
            ClaimToken::new(id, 2, Some(node.id), old.claimed_at - MINUTE),
        ];
        for token in stale {
            assert_eq!(node.report(token, ReportKind::Alive).await, Reported::Stale);
        }
        cx.advance(MILLI).await;
        node.beat().await;
        let lost = node.reclaim(&reclaim()).await;
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!((lost[0].token, lost[0].reason), (token, ReclaimReason::Stalled));
    }

    #[proves("report.life")]
    #[needs(Clock)]
    async fn every_kind_of_report_says_that_the_body_has_begun(cx: &Cx) {
        let node = cx.node().await;
        let kinds = [
            ReportKind::Alive,
            progress(1, ""),
            ReportKind::Checkpoint(json("1")),
        ];
        for kind in kinds {
            node.add(job()).await;
            let token = node.take().await;
            node.report(token, kind).await;
        }
        let silent = node.add(job()).await;
        node.take().await;
        cx.advance(10 * MINUTE).await;
        node.beat().await;
        let lost = node.reclaim(&reclaim()).await;
        assert_eq!(lost.len(), 1);
        assert_eq!(
            (lost[0].token.job, lost[0].reason),
            (silent, ReclaimReason::NotStarted)
        );
    }

    #[proves("report.life")]
    #[needs(Clock)]
    async fn every_kind_of_report_restarts_the_stall_timeout(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().stall_timeout(MINUTE)).await;
        let token = node.take().await;
        let kinds = [
            ReportKind::Alive,
            progress(1, ""),
            ReportKind::Checkpoint(json("1")),
        ];
        for kind in kinds {
            node.report(token, kind).await;
            cx.advance(MINUTE).await;
            node.beat().await;
            assert_eq!(node.reclaim(&reclaim()).await, []);
        }
        cx.advance(MILLI).await;
        let lost = node.reclaim(&reclaim()).await;
        assert_eq!(
            (lost[0].token.job, lost[0].reason),
            (id, ReclaimReason::Stalled)
        );
    }
}
