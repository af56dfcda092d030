//! Settling: how a claim ends, and what the store then writes.

use ratchet_core::limits::MAX_RESULT_BYTES;

use super::prelude::*;

/// Enqueues a job, claims it, and returns the token of the claim.
async fn running(node: &TestNode) -> ClaimToken {
    let id = node.add(job()).await;
    let token = node.take().await;
    assert_eq!(token.job, id);
    token
}

cases! {
    "settle" on Cx;

    #[proves("settle.effect")]
    async fn a_success_ends_the_job_with_its_result(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        node.report(token, ReportKind::Checkpoint(json("7"))).await;
        let before = node.get(token.job).await;
        let outcome = result(r#"{"pages": [1, 2], "name": "größe 🦀 \u0000"}"#);
        let earliest = node.now().await;
        assert_eq!(node.settle(token, outcome.clone()).await, Fenced::Applied);
        let after = node.get(token.job).await;
        let finished_at = after.finished_at.expect("an ended job should have the time of its end");
        assert!(earliest <= finished_at && finished_at <= node.now().await);
        let mut expected = before;
        let Outcome::Succeeded { result } = outcome else {
            unreachable!("the outcome of this case is a success");
        };
        expected.state = JobState::Succeeded;
        expected.result = result;
        expected.attempts = 1;
        expected.node = None;
        expected.claimed_at = None;
        expected.finished_at = Some(finished_at);
        assert_eq!(after, expected);
    }

    #[proves("settle.effect")]
    async fn a_success_may_have_no_result(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        node.succeed(token).await;
        assert_eq!(node.get(token.job).await.result, None);
    }

    #[proves("settle.effect", "time.clock")]
    #[needs(Clock)]
    async fn a_retry_is_due_after_its_delay_from_the_settlement(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        cx.advance(10 * MINUTE).await;
        assert_eq!(
            node.settle(token, retry(30 * SECOND)).await,
            Fenced::Applied
        );
        let stored = node.get(token.job).await;
        assert_eq!(stored.state, JobState::Pending);
        assert_eq!(stored.run_at, time::add(node.now().await, 30 * SECOND));
        assert_eq!(stored.last_error.as_deref(), Some("it failed"));
        assert_eq!((stored.attempts, stored.crash_count), (1, 0));
        assert_eq!(
            (stored.node, stored.claimed_at, stored.finished_at),
            (None, None, None)
        );
        cx.advance(30 * SECOND - MILLI).await;
        assert!(node.claim(1).await.is_empty());
        cx.advance(MILLI).await;
        assert_eq!(node.claim_one().await.claim.attempts, 1);
    }

    #[proves("settle.effect")]
    async fn a_failure_is_a_dead_letter_with_its_error(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        node.fail(token).await;
        let stored = node.get(token.job).await;
        assert_eq!((stored.state, stored.attempts), (JobState::Failed, 1));
        assert_eq!(stored.last_error.as_deref(), Some("it failed"));
        assert!(stored.finished_at.is_some());
        assert!(node.claim(1).await.is_empty());
    }

    #[proves("settle.effect")]
    #[needs(Clock)]
    async fn a_snooze_costs_no_attempt(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        cx.advance(SECOND).await;
        node.settle(token, Outcome::Snoozed { delay: MINUTE }).await;
        let stored = node.get(token.job).await;
        assert_eq!((stored.state, stored.attempts), (JobState::Pending, 0));
        assert_eq!(stored.run_at, time::add(node.now().await, MINUTE));
        assert_eq!(stored.last_error, None);
    }

    #[proves("settle.effect")]
    async fn a_snooze_of_no_time_is_due_at_once(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        node.settle(
            token,
            Outcome::Snoozed {
                delay: Duration::ZERO,
            },
        )
        .await;
        let claimed = node.claim_one().await;
        assert_eq!((claimed.claim.token.seq, claimed.claim.attempts), (2, 0));
        let outcomes: Vec<_> = node
            .history(token.job)
            .await
            .iter()
            .map(|one| one.outcome)
            .collect();
        assert_eq!(outcomes, [AttemptOutcome::Snoozed]);
    }

    #[proves("settle.effect")]
    #[needs(Clock)]
    async fn a_release_changes_nothing_but_the_claim_number(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let mut expected = node.get(id).await;
        cx.advance(MINUTE).await;
        node.release(node.take().await).await;
        expected.claim_seq = 1;
        assert_eq!(node.get(id).await, expected);
    }

    #[proves("settle.effect")]
    async fn a_body_may_end_its_job_as_cancelled(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        node.settle(token, Outcome::Cancelled).await;
        let stored = node.get(token.job).await;
        assert_eq!((stored.state, stored.attempts), (JobState::Cancelled, 1));
        assert!(stored.finished_at.is_some());
    }

    #[proves("settle.effect")]
    async fn a_body_that_never_ran_counts_no_attempt(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        let error = "unknown kind".to_owned();
        let settlement = Settlement::new(token, Outcome::Failed { error }).without_attempt();
        assert_eq!(node.settle_all(&[settlement]).await, [Fenced::Applied]);
        let stored = node.get(token.job).await;
        assert_eq!((stored.state, stored.attempts), (JobState::Failed, 0));
    }

    #[proves("settle.effect")]
    async fn the_last_error_stays_until_another_replaces_it(cx: &Cx) {
        let node = cx.node().await;
        let delay = Duration::ZERO;
        let mut token = running(&node).await;
        for error in ["first", "second"] {
            let outcome = Outcome::Retry {
                delay,
                error: error.to_owned(),
            };
            node.settle(token, outcome).await;
            assert_eq!(node.get(token.job).await.last_error.as_deref(), Some(error));
            token = node.take().await;
        }
        node.settle(token, Outcome::Snoozed { delay }).await;
        assert_eq!(
            node.get(token.job).await.last_error.as_deref(),
            Some("second")
        );
        node.succeed(node.take().await).await;
        let stored = node.get(token.job).await;
        assert_eq!(stored.last_error.as_deref(), Some("second"));
        assert_eq!((stored.state, stored.attempts), (JobState::Succeeded, 3));
    }

    #[proves("settle.effect")]
    async fn an_error_text_is_kept_up_to_two_thousand_characters(cx: &Cx) {
        let node = cx.node().await;
        for letter in ["x", "ä", "日", "🦀"] {
            let token = running(&node).await;
            let error = letter.repeat(2_500);
            node.settle(token, Outcome::Failed { error }).await;
            let stored = node.get(token.job).await.last_error;
            assert_eq!(stored, Some(letter.repeat(2_000)));
            assert_eq!(node.history(token.job).await[0].error, stored);
        }
    }

    #[proves("settle.effect", "settle.validate")]
    async fn a_result_is_taken_up_to_its_limit_and_not_beyond(cx: &Cx) {
        let node = cx.node().await;
        let sized = |bytes: usize| result(&format!("\"{}\"", "x".repeat(bytes - 2)));
        let token = running(&node).await;
        assert_eq!(
            node.settle(token, sized(MAX_RESULT_BYTES)).await,
            Fenced::Applied
        );
        let stored = node.get(token.job).await.result;
        assert_eq!(
            stored.map(|json| json.as_str().len()),
            Some(MAX_RESULT_BYTES)
        );
        let others = [running(&node).await, running(&node).await];
        let batch = [
            Settlement::new(others[0], Outcome::Succeeded { result: None }),
            Settlement::new(others[1], sized(MAX_RESULT_BYTES + 1)),
        ];
        assert_refused(node.jobs().settle(&batch).await, "result");
        for token in others {
            assert_eq!(
                node.state(token.job).await,
                JobState::Running,
                "nothing was applied"
            );
        }
    }

    #[proves("settle.mixed")]
    async fn one_call_ends_claims_in_every_way(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(&jobs(8)).await;
        let tokens: Vec<ClaimToken> = node
            .claim(8)
            .await
            .iter()
            .map(|job| job.claim.token)
            .collect();
        let stale = node.token(tokens[2].job, 9).await;
        let unknown = node.token(JobId::new(), 1).await;
        let error = || "it failed".to_owned();
        let batch = [
            Settlement::new(tokens[0], result("1")),
            Settlement::new(stale, result("2")),
            Settlement::new(tokens[1], retry(MINUTE)),
            Settlement::new(tokens[3], Outcome::Failed { error: error() }),
            Settlement::new(unknown, Outcome::Released),
            Settlement::new(tokens[4], Outcome::Snoozed { delay: MINUTE }),
            Settlement::new(tokens[5], Outcome::Released),
            Settlement::new(tokens[6], Outcome::Cancelled),
        ];
        let (yes, no) = (Fenced::Applied, Fenced::Stale);
        assert_eq!(
            node.settle_all(&batch).await,
            [yes, no, yes, yes, no, yes, yes, yes]
        );
        let ids: Vec<JobId> = tokens.iter().map(|token| token.job).collect();
        let states: Vec<JobState> = node
            .get_all(&ids)
            .await
            .into_iter()
            .flatten()
            .map(|job| job.state)
            .collect();
        let expected = [
            JobState::Succeeded,
            JobState::Pending,
            JobState::Running,
            JobState::Failed,
            JobState::Pending,
            JobState::Pending,
            JobState::Cancelled,
            JobState::Running,
        ];
        assert_eq!(states, expected);
    }

    #[proves("settle.mixed", "settle.repeat")]
    async fn of_two_ends_in_one_call_the_first_counts(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        let batch = [
            Settlement::new(token, result("1")),
            Settlement::new(token, Outcome::Cancelled),
        ];
        assert_eq!(
            node.settle_all(&batch).await,
            [Fenced::Applied, Fenced::Applied]
        );
        let stored = node.get(token.job).await;
        assert_eq!(
            (stored.state, stored.result),
            (JobState::Succeeded, Some(json("1")))
        );
        assert_eq!(node.history(token.job).await.len(), 1);
    }

    #[proves("settle.mixed")]
    async fn settling_nothing_does_nothing(cx: &Cx) {
        let node = cx.node().await;
        let token = running(&node).await;
        assert_eq!(node.settle_all(&[]).await, []);
        assert_eq!(node.state(token.job).await, JobState::Running);
    }

    #[proves("settle.cancel")]
    async fn a_requested_cancel_wins_over_every_outcome(cx: &Cx) {
        let node = cx.node().await;
        let error = "it failed".to_owned();
        let delay = Duration::ZERO;
        let table = [
            (result("\"dropped\""), 1),
            (
                Outcome::Retry {
                    delay,
                    error: error.clone(),
                },
                1,
            ),
            (Outcome::Failed { error }, 1),
            (Outcome::Snoozed { delay }, 0),
            (Outcome::Released, 0),
            (Outcome::Undelivered, 0),
            (Outcome::Cancelled, 1),
        ];
        for (outcome, attempts) in table {
            let token = running(&node).await;
            let acted = node.act(token.job, JobAction::Cancel).await;
            assert_eq!(acted, ActionOutcome::CancelRequested);
            assert_eq!(node.settle(token, outcome.clone()).await, Fenced::Applied);
            let stored = node.get(token.job).await;
            assert_eq!(stored.state, JobState::Cancelled, "{outcome:?}");
            assert_eq!(
                (stored.result, stored.last_error),
                (None, None),
                "{outcome:?}"
            );
            assert_eq!(stored.attempts, attempts, "{outcome:?}");
            assert!(!stored.cancel_requested && stored.finished_at.is_some());
            let history = node.history(token.job).await;
            let ended = (history[0].outcome, history[0].error.as_deref());
            assert_eq!(ended, (AttemptOutcome::Cancelled, None), "{outcome:?}");
        }
    }

    #[proves("settle.keys")]
    async fn a_key_is_free_in_the_moment_its_job_ends(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..10 {
            let key = format!("key {round}");
            nodes[0].add(job().unique_key(&key)).await;
            let token = nodes[0].take().await;
            nodes[0].succeed(token).await;
            let next = nodes[1].add(job().unique_key(&key)).await;
            nodes[1].act(next, JobAction::Cancel).await;
        }
    }

    #[proves("settle.history", "history.order")]
    #[needs(Clock)]
    async fn every_end_adds_one_entry_to_the_history(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        let delay = Duration::ZERO;
        let error = "no luck".to_owned();
        let ends = [
            (Outcome::Snoozed { delay }, AttemptOutcome::Snoozed, None),
            (
                Outcome::Retry {
                    delay,
                    error: error.clone(),
                },
                AttemptOutcome::Retried,
                Some(&error),
            ),
            (Outcome::Released, AttemptOutcome::Released, None),
            (Outcome::Undelivered, AttemptOutcome::Undelivered, None),
            (result("1"), AttemptOutcome::Succeeded, None),
        ];
        let mut expected = Vec::new();
        for (seq, (outcome, recorded, error)) in (1..).zip(ends) {
            cx.advance(SECOND).await;
            let node = if seq % 2 == 0 { &a } else { &b };
            let token = node.take().await;
            let claimed_at = node.now().await;
            cx.advance(250 * MILLI).await;
            let settlement = Settlement::new(token, outcome).ran_for(seq * 10 * MILLI);
            node.settle_all(&[settlement]).await;
            let ended_at = node.now().await;
            let mut entry = Attempt::new(seq.into(), Some(node.id), claimed_at, ended_at, recorded);
            entry.ran_for = Some(seq * 10 * MILLI);
            entry.error = error.cloned();
            expected.push(entry);
            assert_eq!(node.history(id).await, expected);
        }
    }

    #[proves("settle.effect", "settle.history", "node.claims")]
    #[needs(Clock)]
    async fn a_claim_that_its_node_never_received_goes_back_at_no_cost(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job().delay(SECOND)).await;
        a.beat().await;
        cx.advance(MINUTE).await;
        let before = a.get(id).await;
        drop(a.claim(1).await);
        cx.proving(["node.claims"]);
        let listed = a.beat().await.claims;
        let [lost] = listed[..] else {
            panic!("expected one claim in the heartbeat's list, found {listed:?}")
        };
        cx.proving(["settle.effect"]);
        for _ in 0..2 {
            let settled = a.settle(lost.token, Outcome::Undelivered).await;
            assert_eq!(settled, Fenced::Applied);
        }
        let after = a.get(id).await;
        assert_eq!((after.state, after.run_at), (JobState::Pending, before.run_at));
        assert_eq!((after.attempts, after.crash_count), (0, 0));
        cx.proving(["settle.history"]);
        let outcomes: Vec<AttemptOutcome> =
            a.history(id).await.iter().map(|entry| entry.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::Undelivered]);
        cx.proving(["settle.effect"]);
        let next = b.take().await;
        // Repeats the settlement of the first claim, as after a lost reply. The new claim must not
        // change.
        a.settle(lost.token, Outcome::Undelivered).await;
        b.succeed(next).await;
    }

    #[proves("settle.effect", "lane.hold", "permit.free")]
    #[needs(Permits, Lanes)]
    async fn a_claim_that_its_node_never_received_frees_its_lane_and_its_permit(cx: &Cx) {
        let node = cx.node().await;
        let resource = Name::new("permit", "api").expect("the name should be valid");
        let permits = node.store.permits().expect("the store should support permits, because the case requires the power Permits");
        ok(permits.set_permits(&resource, 1, IfKnown::Change).await);
        let jobs = [job().lane("x").permit("api"), job().lane("x").permit("api")];
        let ids = node.add_all(&jobs).await;
        let lost = node.take().await;
        node.settle(lost, Outcome::Undelivered).await;
        for id in ids {
            let token = node.take().await;
            assert_eq!(token.job, id);
            node.succeed(token).await;
        }
    }

    #[proves("history.order")]
    async fn the_history_of_a_job_without_ended_claims_is_empty(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.history(JobId::new()).await, []);
        let id = node.add(job()).await;
        assert_eq!(node.history(id).await, []);
        node.take().await;
        assert_eq!(node.history(id).await, []);
    }

    #[proves("history.order")]
    async fn a_long_history_is_told_first_to_last(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let other = node.add(job().queue("other")).await;
        let request = node.request(1).queues(Selection::Only(names(["default"])));
        for _ in 0..30 {
            node.release(node.claim_with(&request).await[0].claim.token)
                .await;
        }
        let numbers: Vec<u64> = node
            .history(id)
            .await
            .iter()
            .map(|entry| entry.seq)
            .collect();
        assert_eq!(numbers, (1..=30).collect::<Vec<u64>>());
        assert_eq!(node.history(other).await, []);
    }
}
