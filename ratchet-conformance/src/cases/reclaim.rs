//! Reclaiming: which claims are reclaimed, when, and whether a reclaim counts as a crash of the
//! job.

use super::prelude::*;

/// Sends a heartbeat of `node`, enqueues a job, and claims the job on that node. Returns the token
/// of the claim.
async fn claim_on(node: &TestNode, new: NewJob) -> ClaimToken {
    node.beat().await;
    let id = node.add(new).await;
    let token = node.take().await;
    assert_eq!(token.job, id);
    token
}

/// Enqueues a job, claims it on `node`, and reports that its body runs. Returns the token of the
/// claim.
async fn begun_on(node: &TestNode, new: NewJob) -> ClaimToken {
    let token = claim_on(node, new).await;
    node.alive(token).await;
    token
}

/// Returns the entry that a reclaim pass returns for a lost claim whose job is requeued.
fn lost(token: ClaimToken, reason: ReclaimReason, crash_count: u32) -> Reclaimed {
    Reclaimed::new(token, reason, crash_count, false)
}

const DEAD_AFTER: Duration = Duration::from_secs(15);

cases! {
    "reclaim" on Cx;

    #[proves("reclaim.dead", "time.clock")]
    #[needs(Clock)]
    async fn a_silent_nodes_claim_is_taken_after_its_patience(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let token = begun_on(&a, job()).await;
        cx.advance(DEAD_AFTER).await;
        assert_eq!(b.reclaim(&reclaim()).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            b.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::OwnerLost, 1)]
        );
    }

    #[proves("reclaim.silence")]
    #[needs(Clock)]
    async fn after_an_outage_silence_counts_against_no_node(cx: &Cx) {
        let (known, unknown, left) = (cx.node().await, cx.node().await, cx.node().await);
        begun_on(&known, job()).await;
        unknown.add(job()).await;
        let orphan = unknown.take().await;
        unknown.alive(orphan).await;
        let gone = begun_on(&left, job().stall_timeout(DEAD_AFTER)).await;
        let stalled = begun_on(&known, job().stall_timeout(DEAD_AFTER)).await;
        left.beat_with(&left.heartbeat(NodeStatus::Left)).await;
        cx.advance(HOUR).await;
        let outage = reclaim().silence_counts(false);
        assert_eq!(
            known.reclaim(&outage).await,
            [lost(gone, ReclaimReason::OwnerLeft, 0)],
            "expected the claim of a node that left to be reclaimed even during an outage"
        );
        known.beat().await;
        assert_eq!(known.reclaim(&outage).await, []);
        let taken = known.reclaim(&reclaim()).await;
        let mut expected = [
            lost(orphan, ReclaimReason::OwnerLost, 1),
            lost(stalled, ReclaimReason::Stalled, 1),
        ];
        expected.sort_by_key(|one| one.token);
        assert_eq!(taken, expected);
    }

    #[proves("reclaim.silence")]
    #[needs(Clock)]
    async fn while_silence_does_not_count_no_claim_of_a_live_node_is_too_old(cx: &Cx) {
        let node = cx.node().await;
        let waiting = claim_on(&node, job()).await;
        let stalled = begun_on(&node, job().stall_timeout(SECOND)).await;
        let overdue = begun_on(&node, job().timeout(SECOND)).await;
        cx.advance(HOUR).await;
        node.beat().await;
        assert_eq!(node.reclaim(&reclaim().silence_counts(false)).await, []);
        let mut expected = [
            lost(waiting, ReclaimReason::NotStarted, 0),
            lost(stalled, ReclaimReason::Stalled, 1),
            lost(overdue, ReclaimReason::Overdue, 1),
        ];
        expected.sort_by_key(|one| one.token);
        assert_eq!(node.reclaim(&reclaim()).await, expected);
    }

    #[proves("reclaim.step", "time.clock")]
    #[needs(Clock)]
    async fn what_a_step_of_the_clock_makes_look_late_is_not(cx: &Cx) {
        let (live, silent, unknown) = (cx.node().await, cx.node().await, cx.node().await);
        let waiting = claim_on(&live, job()).await;
        let stalled = begun_on(&live, job().stall_timeout(MINUTE)).await;
        let overdue = begun_on(&live, job().timeout(MINUTE)).await;
        let alone = begun_on(&silent, job()).await;
        unknown.add(job()).await;
        let orphan = unknown.take().await;
        let before = live.now().await;
        cx.advance(HOUR).await;
        let clock = ClockTrust::FULL.stepped(before, HOUR);
        let request = reclaim()
            .start_timeout(MINUTE)
            .overdue_after(MINUTE)
            .clock(clock);
        // A claim made after the clock stepped ages as usual.
        let late = cx.node().await;
        let after = begun_on(&late, job()).await;
        let passes: [(Duration, &[Reclaimed]); 4] = [
            (Duration::ZERO, &[]),
            (
                DEAD_AFTER,
                &[
                    lost(alone, ReclaimReason::OwnerLost, 1),
                    lost(orphan, ReclaimReason::OwnerLost, 1),
                    lost(after, ReclaimReason::OwnerLost, 1),
                ],
            ),
            (
                MINUTE,
                &[
                    lost(waiting, ReclaimReason::NotStarted, 0),
                    lost(stalled, ReclaimReason::Stalled, 1),
                ],
            ),
            (3 * MINUTE, &[lost(overdue, ReclaimReason::Overdue, 1)]),
        ];
        let mut passed = Duration::ZERO;
        for (age, expected) in passes {
            cx.advance(age - passed).await;
            live.beat().await;
            assert_eq!(live.reclaim(&request).await, [], "{age:?}");
            cx.advance(MILLI).await;
            passed = age + MILLI;
            let mut expected = expected.to_vec();
            expected.sort_by_key(|one| one.token);
            assert_eq!(live.reclaim(&request).await, expected, "{age:?}");
        }
    }

    #[proves("reclaim.step", "reclaim.silence")]
    #[needs(Clock)]
    async fn a_pass_that_meets_a_step_takes_only_from_the_ended(cx: &Cx) {
        let (silent, ended) = (cx.node().await, cx.node().await);
        let silenced = begun_on(&silent, job()).await;
        let gone = begun_on(&ended, job()).await;
        ended.beat_with(&ended.heartbeat(NodeStatus::Left)).await;
        let latest = silent.now().await;
        cx.advance(HOUR).await;
        let clock = ClockTrust::FULL.until(latest);
        let taken = silent.reclaim(&reclaim().clock(clock)).await;
        assert_eq!(taken, [lost(gone, ReclaimReason::OwnerLeft, 0)]);
        let clock = ClockTrust::FULL.until(silent.now().await);
        let taken = silent.reclaim(&reclaim().clock(clock)).await;
        assert_eq!(taken, [lost(silenced, ReclaimReason::OwnerLost, 1)]);
    }

    #[proves("reclaim.dead")]
    #[needs(Clock)]
    async fn a_node_with_a_long_interval_is_given_three_of_them(cx: &Cx) {
        let node = cx.node().await;
        let mut slow = node.heartbeat(NodeStatus::Active);
        slow.interval = MINUTE;
        node.beat_with(&slow).await;
        node.add(job()).await;
        let token = node.take().await;
        node.alive(token).await;
        cx.advance(3 * MINUTE).await;
        assert_eq!(node.reclaim(&reclaim()).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::OwnerLost, 1)]
        );
    }

    #[proves("reclaim.dead", "time.precision")]
    #[needs(Clock)]
    async fn patience_below_a_second_is_honoured(cx: &Cx) {
        let node = cx.node().await;
        let mut quick = node.heartbeat(NodeStatus::Active);
        quick.interval = 50 * MILLI;
        node.beat_with(&quick).await;
        node.add(job()).await;
        let token = node.take().await;
        let request = reclaim().dead_after(200 * MILLI);
        cx.advance(200 * MILLI).await;
        assert_eq!(node.reclaim(&request).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&request).await,
            [lost(token, ReclaimReason::OwnerLost, 1)]
        );
    }

    #[proves("reclaim.dead", "reclaim.left")]
    async fn the_claims_of_an_ended_node_are_taken_at_once(cx: &Cx) {
        let other = cx.node().await;
        for (status, reason, crashes) in [
            (NodeStatus::Left, ReclaimReason::OwnerLeft, 0),
            (NodeStatus::Dead, ReclaimReason::OwnerLost, 1),
        ] {
            let node = cx.node().await;
            let token = begun_on(&node, job()).await;
            other.set_status(node.id, status).await;
            let taken = other.reclaim(&reclaim()).await;
            assert_eq!(
                taken,
                [lost(token, reason, crashes)],
                "{status:?}"
            );
            let next = other.take().await;
            other.beat().await;
            other.succeed(next).await;
        }
    }

    #[proves("reclaim.left")]
    async fn the_claims_of_a_node_that_says_it_left_are_taken_at_once(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job()).await;
        node.beat_with(&node.heartbeat(NodeStatus::Left)).await;
        let taken = node.reclaim(&reclaim()).await;
        assert_eq!(taken, [lost(token, ReclaimReason::OwnerLeft, 0)]);
    }

    #[proves("reclaim.left", "node.silent", "node.label")]
    #[needs(Clock)]
    async fn a_node_that_drained_and_fell_silent_costs_its_jobs_no_crash(cx: &Cx) {
        let other = cx.node().await;
        for end in ["reclaimed", "swept", "displaced"] {
            let node = cx.node().await;
            let token = begun_on(&node, job()).await;
            node.beat_with(&node.heartbeat(NodeStatus::Draining)).await;
            if end == "displaced" {
                let mut successor = cx.node().await;
                successor.label = node.label.clone();
                successor.join().await;
            } else {
                cx.advance(DEAD_AFTER + MILLI).await;
                other.beat().await;
            }
            if end == "swept" {
                let swept = other.sweep(DEAD_AFTER, HOUR).await;
                assert!(swept.died.contains(&node.id), "{swept:?}");
            }
            let taken = other.reclaim(&reclaim()).await;
            assert_eq!(taken, [lost(token, ReclaimReason::OwnerLeft, 0)], "{end}");
            let status = other.node(node.id).await.map(|row| row.status);
            let expected = match end {
                "reclaimed" => NodeStatus::Draining,
                _ => NodeStatus::Left,
            };
            assert_eq!(status, Some(expected), "{end}");
            other.succeed(other.take().await).await;
        }
    }

    #[proves("reclaim.dead", "node.label")]
    async fn a_restarted_node_gets_its_own_back_at_once(cx: &Cx) {
        let old = cx.node().await;
        let token = begun_on(&old, job()).await;
        let mut new = cx.node().await;
        new.label = old.label.clone();
        new.join().await;
        assert_eq!(
            new.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::OwnerLost, 1)]
        );
        new.beat().await;
        new.succeed(new.take().await).await;
    }

    #[proves("reclaim.unknown")]
    #[needs(Clock)]
    async fn where_all_nodes_lost_their_rows_each_has_time_to_register_again(cx: &Cx) {
        let (living, dead, other) = (cx.node().await, cx.node().await, cx.node().await);
        let mut tokens = Vec::new();
        for node in [&living, &dead] {
            node.add(job()).await;
            let token = node.take().await;
            node.alive(token).await;
            tokens.push(token);
        }
        cx.advance(HOUR).await;
        // `other` is the first node that has a row again.
        other.beat().await;
        assert_eq!(other.reclaim(&reclaim()).await, []);
        cx.advance(DEAD_AFTER).await;
        other.beat().await;
        assert_eq!(other.reclaim(&reclaim()).await, []);
        living.beat().await;
        cx.advance(MILLI).await;
        let lost = lost(tokens[1], ReclaimReason::OwnerLost, 1);
        assert_eq!(other.reclaim(&reclaim()).await, [lost]);
        living.succeed(tokens[0]).await;
    }

    #[proves("reclaim.unknown")]
    #[needs(Clock)]
    async fn a_claim_whose_node_has_no_row_is_taken_when_it_is_old(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        node.alive(token).await;
        cx.advance(DEAD_AFTER).await;
        assert_eq!(node.reclaim(&reclaim()).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::OwnerLost, 1)]
        );
    }

    #[proves("reclaim.live")]
    #[needs(Clock)]
    async fn a_long_job_on_a_live_node_is_never_taken(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let token = begun_on(&a, job()).await;
        for _ in 0..30 {
            cx.advance(DAY).await;
            a.beat().await;
            assert_eq!(b.reclaim(&reclaim()).await, []);
        }
        a.succeed(token).await;
    }

    #[proves("reclaim.live")]
    #[needs(Clock)]
    async fn joining_and_draining_nodes_keep_their_claims(cx: &Cx) {
        for status in [NodeStatus::Joining, NodeStatus::Draining] {
            let node = cx.node().await;
            let token = begun_on(&node, job()).await;
            cx.advance(HOUR).await;
            node.beat_with(&node.heartbeat(status)).await;
            assert_eq!(node.reclaim(&reclaim()).await, [], "{status:?}");
            node.succeed(token).await;
        }
    }

    #[proves("reclaim.start")]
    #[needs(Clock)]
    async fn a_claim_that_does_not_begin_goes_back_at_no_cost(cx: &Cx) {
        let node = cx.node().await;
        let token = claim_on(&node, job().timeout(SECOND).stall_timeout(SECOND)).await;
        let request = reclaim().start_timeout(MINUTE);
        cx.advance(MINUTE).await;
        node.beat().await;
        assert_eq!(node.reclaim(&request).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&request).await,
            [lost(token, ReclaimReason::NotStarted, 0)]
        );
        let stored = node.get(token.job).await;
        assert_eq!(
            (stored.state, stored.attempts, stored.crash_count),
            (JobState::Pending, 0, 0)
        );
    }

    #[proves("reclaim.start")]
    #[needs(Clock)]
    async fn not_beginning_is_never_exhausted(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for _ in 0..10 {
            node.beat().await;
            let token = node.take().await;
            cx.advance(HOUR).await;
            node.beat().await;
            let taken = node.reclaim(&reclaim().max_crashes(0)).await;
            assert_eq!(taken, [lost(token, ReclaimReason::NotStarted, 0)]);
        }
        assert_eq!(node.get(id).await.crash_count, 0);
    }

    #[proves("reclaim.stall")]
    #[needs(Clock)]
    async fn a_silent_body_is_taken_after_its_stall_timeout(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job().stall_timeout(MINUTE)).await;
        cx.advance(MINUTE).await;
        node.beat().await;
        assert_eq!(node.reclaim(&reclaim()).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::Stalled, 1)]
        );
    }

    #[proves("reclaim.stall", "reclaim.live")]
    #[needs(Clock)]
    async fn a_body_without_a_stall_timeout_may_be_silent(cx: &Cx) {
        let node = cx.node().await;
        begun_on(&node, job()).await;
        cx.advance(365 * DAY).await;
        node.beat().await;
        assert_eq!(node.reclaim(&reclaim()).await, []);
    }

    #[proves("reclaim.overdue")]
    #[needs(Clock)]
    async fn a_body_far_beyond_its_timeout_is_taken_from_a_live_node(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job().timeout(10 * SECOND)).await;
        let request = reclaim().start_timeout(MINUTE).overdue_after(5 * SECOND);
        cx.advance(75 * SECOND).await;
        node.beat().await;
        node.alive(token).await;
        assert_eq!(node.reclaim(&request).await, []);
        cx.advance(MILLI).await;
        assert_eq!(
            node.reclaim(&request).await,
            [lost(token, ReclaimReason::Overdue, 1)]
        );
    }

    #[proves("reclaim.overdue", "reclaim.live")]
    #[needs(Clock)]
    async fn a_job_without_a_timeout_is_never_overdue(cx: &Cx) {
        let node = cx.node().await;
        begun_on(&node, job()).await;
        let request = reclaim().start_timeout(MILLI).overdue_after(MILLI);
        cx.advance(365 * DAY).await;
        node.beat().await;
        assert_eq!(node.reclaim(&request).await, []);
    }

    #[proves("reclaim.requeue", "settle.history")]
    #[needs(Clock)]
    async fn a_taken_job_waits_again_as_before_with_one_crash_more(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        let id = node.add(job().priority(Priority::High).timeout(HOUR)).await;
        let mut expected = node.get(id).await;
        cx.advance(SECOND).await;
        let token = node.take().await;
        let claimed_at = node.now().await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        expected.crash_count = 1;
        expected.claim_seq = 1;
        assert_eq!(node.get(id).await, expected);
        let ended_at = node.now().await;
        let entry = Attempt::new(1, Some(node.id), claimed_at, ended_at, AttemptOutcome::Lost);
        assert_eq!(node.history(id).await, [entry]);
        assert_eq!(node.settle(token, Outcome::Released).await, Fenced::Stale);
    }

    #[proves("reclaim.requeue")]
    #[needs(Clock)]
    async fn a_taken_job_keeps_its_attempts_and_its_checkpoint(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job()).await;
        node.settle(token, retry(Duration::ZERO)).await;
        let token = node.take().await;
        node.report(token, ReportKind::Checkpoint(json("[9]")))
            .await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        let claimed = node.claim_one().await;
        assert_eq!((claimed.claim.attempts, claimed.claim.crash_count), (1, 1));
        assert_eq!(input(&claimed).checkpoint, Some(json("[9]")));
    }

    #[proves("reclaim.requeue")]
    #[needs(Clock)]
    async fn a_taken_job_that_was_to_be_cancelled_is_cancelled(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job()).await;
        node.act(token.job, JobAction::Cancel).await;
        cx.advance(HOUR).await;
        let taken = node.reclaim(&reclaim()).await;
        assert_eq!(taken, [lost(token, ReclaimReason::OwnerLost, 1)]);
        let stored = node.get(token.job).await;
        assert_eq!(stored.state, JobState::Cancelled);
        assert_eq!(stored.finished_at, Some(node.now().await));
        assert!(!stored.cancel_requested);
        assert_eq!(
            node.history(token.job).await[0].outcome,
            AttemptOutcome::Lost
        );
        assert!(node.claim(1).await.is_empty());
    }

    #[proves("reclaim.requeue")]
    #[needs(Clock)]
    async fn the_next_claim_begins_its_start_timeout_anew(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job().stall_timeout(SECOND)).await;
        cx.advance(HOUR).await;
        node.beat().await;
        assert_eq!(
            node.reclaim(&reclaim()).await,
            [lost(token, ReclaimReason::Stalled, 1)]
        );
        node.take().await;
        cx.advance(MINUTE).await;
        node.beat().await;
        assert_eq!(
            node.reclaim(&reclaim()).await,
            [],
            "expected no reclaim: the new body has not begun, so it has not stalled"
        );
    }

    #[proves("reclaim.requeue")]
    #[needs(Clock)]
    async fn a_job_that_crashed_before_is_blamed_only_if_its_body_had_begun(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for (begins, crashes) in [(false, 1), (false, 1), (true, 2), (false, 2)] {
            let token = node.take().await;
            if begins {
                node.alive(token).await;
            }
            cx.advance(HOUR).await;
            let taken = node.reclaim(&reclaim()).await;
            assert_eq!(taken, [lost(token, ReclaimReason::OwnerLost, crashes)]);
            assert_eq!(node.get(id).await.crash_count, crashes);
        }
    }

    #[proves("reclaim.exhausted")]
    #[needs(Clock)]
    async fn a_crash_beyond_the_budget_is_left_to_be_settled(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let request = reclaim().max_crashes(2);
        for crash in 1..=2 {
            let token = node.take().await;
            node.alive(token).await;
            cx.advance(HOUR).await;
            let taken = node.reclaim(&request).await;
            assert_eq!(taken, [lost(token, ReclaimReason::OwnerLost, crash)]);
        }
        let token = node.take().await;
        node.alive(token).await;
        cx.advance(HOUR).await;
        let given_up = Reclaimed::new(token, ReclaimReason::OwnerLost, 3, true);
        for _ in 0..3 {
            assert_eq!(node.reclaim(&request).await, [given_up]);
            let stored = node.get(id).await;
            assert_eq!((stored.state, stored.node), (JobState::Running, None));
            assert_eq!((stored.crash_count, stored.claim_seq), (3, 3));
            assert!(node.claim(1).await.is_empty());
        }
        let error = "crashed 3 times".to_owned();
        assert_eq!(node.settle(token, Outcome::Released).await, Fenced::Stale);
        let failed = Outcome::Failed { error };
        let failed = Settlement::new(given_up.token, failed).without_attempt();
        for round in ["first", "repeated"] {
            let answer = node.settle_all(std::slice::from_ref(&failed)).await;
            assert_eq!(answer, [Fenced::Applied], "{round}");
        }
        assert_eq!(node.reclaim(&request).await, []);
        let stored = node.get(id).await;
        assert_eq!(
            (stored.state, stored.attempts, stored.crash_count),
            (JobState::Failed, 0, 3)
        );
        let outcomes: Vec<_> = node
            .history(id)
            .await
            .iter()
            .map(|one| one.outcome)
            .collect();
        assert_eq!(
            outcomes,
            [
                AttemptOutcome::Lost,
                AttemptOutcome::Lost,
                AttemptOutcome::Failed
            ]
        );
    }

    #[proves("reclaim.exhausted")]
    async fn a_budget_of_no_crashes_gives_up_at_the_first(cx: &Cx) {
        let node = cx.node().await;
        let token = begun_on(&node, job()).await;
        node.die().await;
        let taken = node.reclaim(&reclaim().max_crashes(0)).await;
        assert_eq!(
            taken,
            [Reclaimed::new(token, ReclaimReason::OwnerLost, 1, true)]
        );
    }

    #[proves("reclaim.once")]
    async fn concurrent_passes_take_each_claim_once(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let owner = cx.node().await;
        owner.beat().await;
        let all = owner.add_all(&jobs(100)).await;
        assert_eq!(owner.claim(100).await.len(), 100);
        owner.die().await;
        let passes = race(4, |racer| {
            let node = nodes[racer].clone();
            async move { node.reclaim(&reclaim()).await }
        })
        .await;
        let mut taken: Vec<JobId> = passes.iter().flatten().map(|one| one.token.job).collect();
        taken.sort();
        assert_eq!(taken, all);
        for stored in owner.everything().await {
            assert_eq!((stored.state, stored.crash_count), (JobState::Pending, 1));
        }
    }

    #[proves("reclaim.once")]
    async fn a_second_pass_finds_nothing(cx: &Cx) {
        let node = cx.node().await;
        begun_on(&node, job()).await;
        node.die().await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(node.reclaim(&reclaim()).await, []);
    }

    #[proves("reclaim.limit")]
    async fn a_pass_takes_at_most_its_limit(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        let all = node.add_all(&jobs(10)).await;
        node.claim(10).await;
        node.die().await;
        let mut taken = Vec::new();
        for expected in [4, 4, 2, 0] {
            let pass = node.reclaim(&reclaim().limit(4)).await;
            assert_eq!(pass.len(), expected);
            taken.extend(pass.iter().map(|one| one.token.job));
        }
        taken.sort();
        assert_eq!(taken, all);
    }

    #[proves("reclaim.limit", "reclaim.live")]
    #[needs(Clock)]
    async fn a_pass_looks_past_the_claims_that_stay(cx: &Cx) {
        let (live, dead) = (cx.node().await, cx.node().await);
        dead.beat().await;
        live.beat().await;
        live.add_all(&jobs(100)).await;
        for claimed in live.claim(100).await {
            live.alive(claimed.claim.token).await;
        }
        let token = begun_on(&dead, job()).await;
        cx.advance(HOUR).await;
        live.beat().await;
        let taken = live.reclaim(&reclaim().limit(1)).await;
        assert_eq!(taken, [lost(token, ReclaimReason::OwnerLost, 1)]);
    }

    #[proves("reclaim.limit")]
    async fn a_pass_without_a_limit_is_refused(cx: &Cx) {
        let node = cx.node().await;
        assert_refused(node.jobs().reclaim(&reclaim().limit(0)).await, "limit");
        assert_refused(node.jobs().reclaim(&reclaim().limit(10_001)).await, "limit");
    }

    #[proves("reclaim.order")]
    async fn lost_claims_are_returned_in_order_of_their_tokens(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        // Each job has a higher priority than the one before, so the last job is claimed first.
        for (number, new) in jobs(5).into_iter().enumerate() {
            node.add(new.priority(Priority::ALL[number])).await;
        }
        let mut claimed: Vec<ClaimToken> = Vec::new();
        for _ in 0..5 {
            claimed.push(node.take().await);
        }
        claimed.sort();
        node.die().await;
        let taken = node.reclaim(&reclaim()).await;
        let tokens: Vec<ClaimToken> = taken.iter().map(|one| one.token).collect();
        assert_eq!(tokens, claimed);
    }
}
