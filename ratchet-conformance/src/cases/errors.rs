//! Errors: refused input differs from a failing store, and an unreadable row affects no other row.

use super::prelude::*;

cases! {
    "errors" on Cx;

    #[proves("errors.kind")]
    async fn a_refused_call_says_which_call_and_why_in_one_line(cx: &Cx) {
        let node = cx.node().await;
        let error = node.jobs().enqueue(&[job().queue("")]).await;
        let error = error.expect_err("an empty queue name should be refused");
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
        assert!(!error.is_transient());
        let line = error.to_string();
        assert!(
            line.contains("enqueue") && line.contains("queue is empty"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }

    #[proves("errors.kind", "keys.race", "settle.token")]
    async fn losing_a_race_is_never_an_error(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job().unique_key("k")).await;
        cx.proving(["keys.race", "errors.kind"]);
        assert_eq!(
            b.offer(&job().unique_key("k")).await,
            Enqueued::Duplicate(id)
        );
        cx.proving(["errors.kind"]);
        let token = a.take().await;
        assert!(b.claim(1).await.is_empty());
        a.succeed(token).await;
        let later = a.token(id, token.seq + 1).await;
        cx.proving(["settle.token", "errors.kind"]);
        assert_eq!(b.settle(later, Outcome::Released).await, Fenced::Stale);
        cx.proving(["errors.kind"]);
        let refused = ActionOutcome::Refused(JobState::Succeeded);
        assert_eq!(b.act(id, JobAction::Pause).await, refused);
        a.acquire("lock", MINUTE).await;
        assert!(matches!(b.acquire("lock", MINUTE).await, Acquired::Held(_)));
    }

    #[proves("errors.kind")]
    async fn a_refused_call_leaves_the_store_as_it_was(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        let before = node.everything().await;
        let large = json(&format!("\"{}\"", "x".repeat(70_000)));
        let end = Settlement::new(
            token,
            Outcome::Succeeded {
                result: Some(large),
            },
        );
        assert_refused(node.jobs().settle(&[end]).await, "result");
        let told = Report::new(
            token,
            ReportKind::Progress {
                percent: 101,
                message: String::new(),
            },
        );
        assert_refused(node.jobs().report(&[told]).await, "progress");
        assert_refused(
            node.jobs().enqueue(&[job(), job().queue("")]).await,
            "queue",
        );
        assert_eq!(node.everything().await, before);
        node.succeed(token).await;
    }

    #[proves("errors.kind", "enqueue.atomic", "link.missing")]
    #[needs(Workflows)]
    async fn a_refused_call_among_others_at_once_leaves_nothing(cx: &Cx) {
        const CALLERS: usize = 12;
        // All calls use one handle, which may combine the calls of several callers in one
        // transaction.
        let node = cx.node().await;
        for round in 0..10 {
            let batches: Vec<Vec<NewJob>> = (0..CALLERS)
                .map(|caller| {
                    let key = format!("{round} {caller}");
                    let mut batch = vec![job(), cx.tagged(job().unique_key(&key), &key)];
                    if caller % 2 == 0 {
                        batch.push(job().after(JobId::new(), Condition::Ended));
                    }
                    batch
                })
                .collect();
            let stored = race(CALLERS, |caller| {
                let (node, batch) = (node.sibling(), batches[caller].clone());
                async move { node.jobs().enqueue(&batch).await.is_ok() }
            })
            .await;
            for (caller, batch) in batches.iter().enumerate() {
                let good = caller % 2 == 1;
                assert_eq!(stored[caller], good, "round {round}, caller {caller}: unexpected result of the enqueue");
                let ids: Vec<JobId> = batch.iter().map(NewJob::id).collect();
                let found = node.get_all(&ids).await;
                let all = found.iter().all(|job| job.is_some() == good);
                assert!(all, "round {round}, caller {caller}: expected all jobs or none to be stored, found {found:?}");
                if !good {
                    // The refused call has not taken the unique key of its job.
                    node.add(batch[1].another()).await;
                }
            }
        }
    }

    #[proves("errors.poison", "claim.exclusive")]
    #[needs(Vandal)]
    async fn an_unreadable_row_does_not_stop_the_claims_of_others(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(9)).await;
        let bad = all[4];
        ok_vandal(cx.vandal().spoil(bad).await);
        let mut claimed = Vec::new();
        // However the store skips the unreadable row, a few claims must return all other jobs.
        for _ in 0..4 {
            claimed.extend(ids(&node.claim(5).await));
        }
        claimed.retain(|id| *id != bad);
        let good: Vec<JobId> = all.into_iter().filter(|id| *id != bad).collect();
        assert_eq!(claimed, good);
    }

    #[proves("claim.damaged", "settle.keys", "settle.history")]
    #[needs(Vandal)]
    async fn a_claim_ends_a_job_that_cannot_be_read(cx: &Cx) {
        let node = cx.node().await;
        let keyed = || job().unique_key("u");
        let bad = node.add(keyed()).await;
        ok_vandal(cx.vandal().spoil(bad).await);
        assert_eq!(node.claim_ids(10).await, []);
        let ended = node.get(bad).await;
        assert_eq!((ended.state, ended.claim_seq), (JobState::Failed, 1));
        let error = ended.last_error.unwrap_or_default();
        assert!(error.contains("cannot be read"), "{error:?}");
        let history = node.history(bad).await;
        assert_eq!(history.len(), 1);
        assert_eq!(history[0].outcome, AttemptOutcome::Failed);
        let next = node.add(keyed()).await;
        assert_eq!(node.claim_ids(10).await, [next]);
    }

    #[proves("errors.poison", "claim.optimized")]
    #[needs(Vandal)]
    async fn an_unreadable_row_does_not_stop_the_optimized_claim(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(9)).await;
        let bad = all[0];
        ok_vandal(cx.vandal().spoil(bad).await);
        let mut claimed = Vec::new();
        for _ in 0..4 {
            let batch = node.claim_lean(&node.request(5)).await;
            claimed.extend(
                batch
                    .iter()
                    .map(|claim| claim.token)
                    .filter(|token| token.job != bad),
            );
        }
        let got: Vec<JobId> = claimed.iter().map(|token| token.job).collect();
        assert_eq!(got, all[1..]);
        assert!(node.inputs(&claimed).await.iter().all(Option::is_some));
    }

    #[proves("errors.poison", "get.whole", "page.walk")]
    #[needs(Vandal)]
    async fn an_unreadable_row_does_not_hide_others_from_readers(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(7)).await;
        let bad = all[3];
        ok_vandal(cx.vandal().spoil(bad).await);
        cx.proving(["errors.poison", "get.whole"]);
        let found = node.get_all(&all).await;
        assert_eq!(found.len(), 7, "expected one answer per id");
        let good: Vec<JobId> = all.iter().copied().filter(|id| *id != bad).collect();
        let ids = |jobs: &[JobRecord]| -> Vec<JobId> {
            jobs.iter()
                .map(|job| job.id)
                .filter(|id| *id != bad)
                .collect()
        };
        assert_eq!(ids(&found.into_iter().flatten().collect::<Vec<_>>()), good);
        cx.proving(["errors.poison", "page.walk"]);
        for limit in [1, 2, 10] {
            let mut visited = Vec::new();
            let mut page = PageRequest::first(limit).order(JobOrder::OldestFirst);
            // There are at most as many pages as jobs.
            for _ in 0..=all.len() {
                let read = node.list(&JobFilter::all(), &page).await;
                visited.extend(ids(&read.jobs));
                page = page.after(read.next);
                if read.next.is_none() {
                    break;
                }
            }
            assert_eq!(visited, good, "unexpected jobs in pages of {limit}");
        }
    }

    #[proves("errors.poison", "settle.mixed")]
    #[needs(Vandal)]
    async fn an_unreadable_row_does_not_stop_the_work_of_others(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        let all = node.add_all(&jobs(6)).await;
        ok_vandal(cx.vandal().spoil(all[5]).await);
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let batch = node.claim(5).await;
            let good = batch
                .iter()
                .map(|job| job.claim.token)
                .filter(|token| token.job != all[5]);
            tokens.extend(good);
        }
        assert_eq!(tokens.len(), 5);
        node.succeed(tokens[0]).await;
        node.act(all[1], JobAction::Cancel).await;
        assert_eq!(node.beat().await.cancel_requested(), [tokens[1]]);
        node.release(tokens[2]).await;
        assert_eq!(node.claim_ids(1).await, [all[2]]);
        node.die().await;
        let mut lost: Vec<JobId> = node
            .reclaim(&reclaim())
            .await
            .iter()
            .map(|one| one.token.job)
            .collect();
        lost.retain(|id| *id != all[5]);
        lost.sort();
        assert_eq!(lost, all[1..5]);
        node.queues().await;
    }
}

fn ok_vandal(spoiled: Result<(), crate::BoxError>) {
    if let Err(error) = spoiled {
        panic!("the fixture could not damage the row: {error}");
    }
}
