//! Sizes of batches: batches of every size up to the limit work, and larger ones are refused.

use ratchet_core::limits::MAX_BATCH;

use super::prelude::*;

cases! {
    "limits" on Cx;

    #[proves("limits.batch", "claim.limit", "settle.mixed")]
    async fn the_largest_batch_goes_through_every_call(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(MAX_BATCH)).await;
        let claimed = node.claim(MAX_BATCH).await;
        assert_eq!(ids(&claimed), all);
        let tokens: Vec<ClaimToken> = claimed.iter().map(|job| job.claim.token).collect();
        assert!(node.inputs(&tokens).await.iter().all(Option::is_some));
        let alive: Vec<Report> = tokens
            .iter()
            .map(|token| Report::new(*token, ReportKind::Alive))
            .collect();
        let told = ok(node.jobs().report(&alive).await);
        let kept = Reported::Applied {
            cancel_requested: false,
        };
        assert!(told.len() == MAX_BATCH && told.iter().all(|answer| *answer == kept));
        let ends: Vec<Settlement> = tokens
            .iter()
            .map(|token| {
                Settlement::new(
                    *token,
                    Outcome::Failed {
                        error: String::new(),
                    },
                )
            })
            .collect();
        let settled = node.settle_all(&ends).await;
        assert!(
            settled.len() == MAX_BATCH && settled.iter().all(|answer| *answer == Fenced::Applied)
        );
        let acted = node
            .act_on(&JobSelector::Ids(all.clone()), JobAction::Requeue)
            .await;
        let became = ActionOutcome::Became(JobState::Pending);
        assert!(acted.iter().all(|one| one.outcome == became));
        let found = node.get_all(&all).await;
        assert!(found.len() == MAX_BATCH && found.iter().all(Option::is_some));
        let page = node
            .list(&JobFilter::all(), &PageRequest::first(MAX_BATCH))
            .await;
        assert_eq!((page.jobs.len(), page.next), (MAX_BATCH, None));
    }

    #[proves("limits.batch", "enqueue.atomic")]
    async fn more_than_the_largest_enqueue_is_refused(cx: &Cx) {
        let node = cx.node().await;
        assert_refused(node.jobs().enqueue(&jobs(MAX_BATCH + 1)).await, "jobs");
        assert!(node.everything().await.is_empty());
    }

    #[proves("limits.batch")]
    async fn more_than_the_largest_batch_is_refused_everywhere(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        let many = MAX_BATCH + 1;
        let ends = vec![Settlement::new(token, Outcome::Cancelled); many];
        assert_refused(node.jobs().settle(&ends).await, "settlements");
        let told = vec![Report::new(token, ReportKind::Checkpoint(json("1"))); many];
        assert_refused(node.jobs().report(&told).await, "reports");
        assert_refused(node.jobs().load_inputs(&vec![token; many]).await, "tokens");
        assert_refused(node.jobs().get(&vec![token.job; many], Detail::Whole).await, "ids");
        let stored = node.get(token.job).await;
        assert_eq!((stored.state, stored.checkpoint), (JobState::Running, None));
    }

    #[proves("limits.batch", "reclaim.limit")]
    async fn a_whole_batch_of_claims_can_be_lost_at_once(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        node.add_all(&jobs(2_000)).await;
        assert_eq!(node.claim(MAX_BATCH).await.len(), 2_000);
        node.die().await;
        assert_eq!(node.reclaim(&reclaim().limit(MAX_BATCH)).await.len(), 2_000);
        assert_eq!(node.sibling().claim(MAX_BATCH).await.len(), 2_000);
    }

    #[proves("limits.batch", "get.whole")]
    async fn batches_of_every_size_around_the_usual_bounds_work(cx: &Cx) {
        // A store may split a large batch into several statements. It must combine their results
        // correctly.
        let node = cx.node().await;
        for size in [
            1, 2, 99, 100, 101, 127, 128, 129, 255, 256, 257, 499, 500, 501, 999, 1_000, 1_001,
        ] {
            let all = node.add_all(&jobs(size)).await;
            let claimed = node.claim(size).await;
            assert_eq!(ids(&claimed), all);
            let found = node.get_all(&all).await;
            let found: Vec<JobId> = found.iter().flatten().map(|job| job.id).collect();
            assert_eq!(found, all);
            let ends: Vec<Settlement> = claimed
                .iter()
                .map(|job| Settlement::new(job.claim.token, result("1")))
                .collect();
            assert_eq!(node.settle_all(&ends).await, vec![Fenced::Applied; size]);
        }
    }

    #[proves("limits.batch", "enqueue.created")]
    async fn a_batch_of_large_payloads_is_stored_whole(cx: &Cx) {
        let node = cx.node().await;
        let batch: Vec<NewJob> = (0..40)
            .map(|number| NewJob::new("kind", &format!("{number}{}", "x".repeat(200_000))))
            .collect();
        node.add_all(&batch).await;
        let claimed = node.claim(40).await;
        for (new, claimed) in batch.iter().zip(claimed) {
            assert!(
                new.spec().payload == input(&claimed).payload,
                "a payload changed"
            );
        }
    }
}
