//! Claiming: which jobs are claimed, how many of them, and what a claim returns.

use ratchet_core::limits::{MAX_BATCH, MAX_PAYLOAD_VERSION};

use super::prelude::*;

cases! {
    "claim" on Cx;

    #[proves("claim.limit")]
    async fn an_empty_store_yields_nothing(cx: &Cx) {
        assert!(cx.node().await.claim(10).await.is_empty());
    }

    #[proves("claim.exclusive")]
    async fn a_claimed_job_is_not_claimed_by_another_node(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job()).await;
        a.take().await;
        assert!(b.claim(10).await.is_empty());
        assert!(b.claim_lean(&b.request(10)).await.is_empty());
    }

    #[proves("claim.exclusive")]
    async fn a_claimed_job_is_not_claimed_again_by_its_node(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        node.take().await;
        assert!(node.claim(10).await.is_empty());
    }

    #[proves("claim.exclusive")]
    async fn an_ended_job_is_not_claimed_again(cx: &Cx) {
        let node = cx.node().await;
        let error = "it failed".to_owned();
        let ends = [
            Outcome::Succeeded { result: None },
            Outcome::Failed { error },
            Outcome::Cancelled,
        ];
        for end in ends {
            node.add(job()).await;
            let token = node.take().await;
            node.settle(token, end).await;
            assert!(node.claim(10).await.is_empty());
        }
    }

    #[proves("claim.exclusive", "claim.match")]
    async fn a_name_said_twice_does_not_double_the_claim(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().queue("q").capability("c")).await;
        let request = node
            .request(10)
            .queues(Selection::Only(names(["q", "q"])))
            .kinds(Selection::Only(names(["kind", "kind"])))
            .capabilities(names(["c", "c"]));
        assert_eq!(ids(&node.claim_with(&request).await), [id]);
    }

    #[proves("claim.due", "time.clock", "time.precision")]
    #[needs(Clock)]
    async fn a_job_is_claimed_from_the_millisecond_it_is_due(cx: &Cx) {
        let node = cx.node().await;
        let delayed = node.add(job().delay(MINUTE)).await;
        let at = node
            .add(job().run_at(time::add(node.now().await, MINUTE)))
            .await;
        cx.advance(MINUTE - MILLI).await;
        assert!(node.claim(10).await.is_empty());
        cx.advance(MILLI).await;
        assert_eq!(node.claim_ids(10).await, [delayed, at]);
    }

    #[proves("claim.due")]
    async fn a_job_that_is_due_later_does_not_hide_those_that_are_due(cx: &Cx) {
        let node = cx.node().await;
        let later: Vec<NewJob> = jobs(50)
            .into_iter()
            .map(|job| job.priority(Priority::Critical).delay(HOUR))
            .collect();
        node.add_all(&later).await;
        let due = node.add(job().priority(Priority::Lowest)).await;
        assert_eq!(node.claim_ids(10).await, [due]);
    }

    #[proves("claim.limit")]
    async fn a_limit_of_zero_claims_nothing(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        assert!(node.claim(0).await.is_empty());
        assert!(node.claim_lean(&node.request(0)).await.is_empty());
        assert_eq!(node.get(id).await.claim_seq, 0);
    }

    #[proves("claim.limit")]
    async fn a_claim_gives_as_many_as_asked_while_there_are_so_many(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(25)).await;
        assert_eq!(node.claim_ids(1).await, all[..1]);
        assert_eq!(node.claim_ids(10).await, all[1..11]);
        assert_eq!(node.claim_ids(14).await, all[11..]);
        assert!(node.claim(10).await.is_empty());
    }

    #[proves("claim.limit")]
    async fn a_claim_gives_the_rest_when_there_are_fewer(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        assert_eq!(node.claim_ids(1_000).await, all);
    }

    #[proves("claim.limit")]
    async fn a_claim_is_filled_across_queues_kinds_and_levels(cx: &Cx) {
        let node = cx.node().await;
        let mut batch = Vec::new();
        for number in 0..60 {
            let new = NewJob::new(&format!("kind {}", number % 3), &number)
                .queue(&format!("queue {}", number % 4))
                .priority(Priority::ALL[number % 5]);
            batch.push(if number % 2 == 0 {
                new
            } else {
                new.capability("gpu")
            });
        }
        node.add_all(&batch).await;
        let request = node.request(60).capabilities(names(["gpu"]));
        assert_eq!(node.claim_with(&request.clone().limit(59)).await.len(), 59);
        assert_eq!(node.claim_with(&request).await.len(), 1);
    }

    #[proves("claim.limit", "claim.match")]
    async fn many_jobs_for_others_in_front_do_not_empty_the_batch(cx: &Cx) {
        let node = cx.node().await;
        let urgent = |new: NewJob| new.priority(Priority::Critical);
        let mut batch = Vec::new();
        for number in 0..100 {
            batch.push(urgent(NewJob::new("foreign kind", &number)));
            batch.push(urgent(job().queue("foreign queue")));
            batch.push(urgent(job().capability("foreign")));
            batch.push(urgent(job().queue("paused")));
        }
        node.add_all(&batch).await;
        node.pause_queue("paused").await;
        let own = node.add_all(&jobs(20)).await;
        let request = node
            .request(20)
            .queues(Selection::Only(names(["default", "paused"])))
            .kinds(Selection::Only(names(["kind"])));
        assert_eq!(ids(&node.claim_with(&request).await), own);
    }

    #[proves("claim.limit", "limits.batch")]
    async fn a_limit_above_the_maximum_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let request = node.request(MAX_BATCH + 1);
        assert_refused(node.jobs().claim_next_batch(&request).await, "limit");
        assert_refused(
            node.jobs().claim_next_batch_optimized(&request).await,
            "limit",
        );
        assert_eq!(node.state(id).await, JobState::Pending);
    }

    #[proves("claim.match")]
    async fn only_the_polled_queues_are_claimed_from(cx: &Cx) {
        let node = cx.node().await;
        let batch = [job().queue("a"), job().queue("b"), job().queue("c")];
        let all = node.add_all(&batch).await;
        let only = |queues| node.request(10).queues(Selection::Only(queues));
        assert!(node.claim_with(&only(vec![])).await.is_empty());
        assert!(node.claim_with(&only(names(["A", "d"]))).await.is_empty());
        assert_eq!(
            ids(&node.claim_with(&only(names(["c", "a"]))).await),
            [all[0], all[2]]
        );
        assert_eq!(node.claim_ids(10).await, [all[1]]);
    }

    #[proves("claim.match")]
    async fn kinds_without_a_handler_are_left_to_other_nodes(cx: &Cx) {
        let node = cx.node().await;
        let all = node
            .add_all(&[NewJob::new("known", &()), NewJob::new("unknown", &())])
            .await;
        let only = |kinds| node.request(10).kinds(Selection::Only(kinds));
        assert!(node.claim_with(&only(vec![])).await.is_empty());
        assert_eq!(
            ids(&node.claim_with(&only(names(["known", "else"]))).await),
            [all[0]]
        );
        assert_eq!(node.state(all[1]).await, JobState::Pending);
    }

    #[proves("claim.match", "claim.optimized")]
    async fn a_request_may_leave_queues_and_kinds_out(cx: &Cx) {
        let node = cx.node().await;
        let routes = [("a", "k"), ("a", "l"), ("b", "k"), ("b", "l"), ("c", "k")];
        let batch = routes.map(|(queue, kind)| NewJob::new(kind, &()).queue(queue));
        let all = node.add_all(&batch).await;
        let except = |texts: &[&str]| Selection::Except(texts.iter().map(|text| name(text)).collect());
        let nothing = node.request(10).queues(except(&["a", "b", "c"]));
        assert!(node.claim_with(&nothing).await.is_empty());
        let nothing = node.request(10).kinds(except(&["l", "k", "m"]));
        assert!(node.claim_lean(&nothing).await.is_empty());
        let request = node.request(10).queues(except(&["c", "a", "d"])).kinds(except(&["l"]));
        assert_eq!(ids(&node.claim_with(&request).await), [all[2]]);
        // The route of this job is new: no stored job had it at the first claim.
        let new = node.add(NewJob::new("k", &()).queue("later")).await;
        let request = node.request(10).queues(except(&["a"])).kinds(except(&["l"]));
        let claimed = node.claim_lean(&request).await;
        let claimed: Vec<JobId> = claimed.iter().map(|claim| claim.token.job).collect();
        assert_eq!(claimed, [all[4], new]);
        let everything = node.request(10).queues(except(&[])).kinds(except(&[]));
        assert_eq!(ids(&node.claim_with(&everything).await), [all[0], all[1], all[3]]);
    }

    #[proves("claim.match")]
    async fn a_request_may_name_a_hundred_queues_kinds_and_capabilities(cx: &Cx) {
        let node = cx.node().await;
        let many = |prefix: &str| -> Vec<Name> {
            (0..100)
                .map(|number| name(&format!("{prefix} {number}")))
                .collect()
        };
        let batch: Vec<NewJob> = (0..100)
            .map(|number| {
                NewJob::new(&format!("k {}", 99 - number), &())
                    .queue(&format!("q {number}"))
                    .capability(&format!("c {}", (number * 7) % 100))
            })
            .collect();
        let all = node.add_all(&batch).await;
        let request = node
            .request(1_000)
            .queues(Selection::Only(many("q")))
            .kinds(Selection::Only(many("k")))
            .capabilities(many("c"));
        assert_eq!(ids(&node.claim_with(&request).await), all);
    }

    #[proves("claim.paused")]
    async fn a_paused_queue_gives_nothing_while_others_do(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.add(job().queue("stopped").priority(Priority::Critical))
            .await;
        let free = a.add(job().queue("free")).await;
        a.pause_queue("stopped").await;
        assert_eq!(b.claim_ids(10).await, [free]);
        let named = b.request(10).queues(Selection::Only(names(["stopped"])));
        assert!(b.claim_with(&named).await.is_empty());
        assert!(b.claim_lean(&named).await.is_empty());
    }

    #[proves("claim.running")]
    async fn a_claimed_job_is_running_for_its_node(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        for (seq, node) in (1..).zip([&a, &b, &a]) {
            let before = a.now().await;
            let token = node.take().await;
            let after = a.now().await;
            assert_eq!(token, node.token(id, seq).await);
            let stored = b.get(id).await;
            assert_eq!(stored.state, JobState::Running);
            assert_eq!((stored.node, stored.claim_seq), (Some(node.id), seq));
            let claimed_at = stored.claimed_at.expect("a running job should have the time of its claim");
            assert!(before <= claimed_at && claimed_at <= after);
            node.release(token).await;
        }
    }

    #[proves("claim.whole")]
    async fn a_claim_has_everything_the_body_needs(cx: &Cx) {
        let node = cx.node().await;
        let trace = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
            .expect("a valid trace");
        let new = NewJob::new("kind", &("payload", 1))
            .queue("q")
            .capability("c")
            .priority(Priority::Low)
            .retry(RetryPolicy::fixed(9, 2 * SECOND))
            .timeout(HOUR)
            .stall_timeout(MINUTE)
            .trace(trace.clone());
        let id = node.add(new.clone()).await;
        let request = node.request(1).capabilities(names(["c"]));
        let claimed = node.claim_with(&request).await.remove(0);
        let stored = node.get(id).await;
        let mut expected = Claim::new(
            node.token(id, 1).await,
            new.spec().route.clone(),
            Priority::Low,
            stored.run_at,
        );
        expected.retry = RetryPolicy::fixed(9, 2 * SECOND);
        expected.timeout = Some(HOUR);
        expected.stall_timeout = Some(MINUTE);
        expected.trace = Some(trace);
        assert_eq!(claimed.claim, expected);
        assert_eq!(input(&claimed).payload, new.spec().payload);
        assert_eq!(input(&claimed).checkpoint, None);
    }

    #[proves("claim.version", "claim.optimized", "enqueue.created", "get.whole")]
    async fn the_version_of_a_payload_comes_with_every_claim(cx: &Cx) {
        let node = cx.node().await;
        let versions = [1, 2, 7, MAX_PAYLOAD_VERSION];
        let with = |version: u32| job().payload_version(version);
        // For each version, jobs are enqueued alone, with a key, in a lane, and together with other
        // jobs.
        cx.proving(["enqueue.created", "get.whole"]);
        let mut all = Vec::new();
        for version in versions {
            all.push((node.add(with(version)).await, version));
            let key = format!("key {version}");
            all.push((node.add(with(version).unique_key(&key)).await, version));
            if cx.has(Power::Lanes) {
                all.push((node.add(with(version).lane(&key)).await, version));
            }
        }
        let batch = node.add_all(&versions.map(with)).await;
        all.extend(batch.into_iter().zip(versions));
        for (id, version) in &all {
            assert_eq!(node.get(*id).await.spec.payload_version, *version);
        }
        cx.proving(["claim.version"]);
        let claimed = node.claim(100).await;
        let tokens = |claims: &[Claim]| -> Vec<(JobId, u32)> {
            let told = |claim: &Claim| (claim.token.job, claim.payload_version);
            claims.iter().map(told).collect()
        };
        let claims: Vec<Claim> = claimed.into_iter().map(|job| job.claim).collect();
        assert_eq!(tokens(&claims), all);
        for claim in claims {
            node.release(claim.token).await;
        }
        cx.proving(["claim.version", "claim.optimized"]);
        assert_eq!(tokens(&node.claim_lean(&node.request(100)).await), all);
    }

    #[proves("claim.whole")]
    #[needs(Clock)]
    async fn a_claim_says_what_happened_before(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        let token = node.take().await;
        node.settle(token, retry(Duration::ZERO)).await;
        let token = node.take().await;
        let saved = json(r#"{"at": 17}"#);
        node.report(token, ReportKind::Checkpoint(saved.clone()))
            .await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        let claimed = node.claim_one().await;
        assert_eq!((claimed.claim.attempts, claimed.claim.crash_count), (1, 1));
        assert_eq!(claimed.claim.token.seq, 3);
        assert_eq!(input(&claimed).checkpoint, Some(saved));
    }

    #[proves("claim.optimized")]
    #[needs(Clock)]
    async fn the_optimized_claim_takes_exactly_the_same(cx: &Cx) {
        let batch: Vec<NewJob> = (0..40)
            .map(|number| {
                NewJob::new(&format!("kind {}", number % 3), &number)
                    .queue(&format!("queue {}", number % 2))
                    .priority(Priority::ALL[(number * 7) % 5])
                    .delay(MINUTE * u32::from(number % 4 == 1))
            })
            .collect();
        let mut rounds = Vec::new();
        for optimized in [false, true] {
            let other = cx.another().await;
            let node = other.node().await;
            node.add_all(&batch).await;
            let request = node
                .request(7)
                .kinds(Selection::Only(names(["kind 0", "kind 2"])));
            let mut claims: Vec<(JobId, u64)> = Vec::new();
            let place = |token: ClaimToken| (token.job, token.seq);
            for _ in 0..5 {
                if optimized {
                    claims.extend(
                        node.claim_lean(&request)
                            .await
                            .iter()
                            .map(|claim| place(claim.token)),
                    );
                } else {
                    claims.extend(
                        node.claim_with(&request)
                            .await
                            .iter()
                            .map(|job| place(job.claim.token)),
                    );
                }
            }
            rounds.push(claims);
            drop(node);
            cx.close(other).await;
        }
        assert!(!rounds[0].is_empty());
        assert_eq!(rounds[0], rounds[1]);
    }

    #[proves("claim.optimized", "claim.load")]
    async fn the_optimized_claim_leaves_only_the_inputs_out(cx: &Cx) {
        let node = cx.node().await;
        let new = NewJob::new("kind", "the payload")
            .timeout(HOUR)
            .priority(Priority::High);
        node.add(new.clone()).await;
        let whole = node.claim_one().await;
        let saved = json("[1, 2]");
        node.report(whole.claim.token, ReportKind::Checkpoint(saved.clone()))
            .await;
        node.release(whole.claim.token).await;
        let request = node.request(1).payloads(false);
        let lean = node.claim_with(&request).await.remove(0);
        let mut expected = whole.claim;
        expected.token.seq = 2;
        expected.token.claimed_at = lean.claim.token.claimed_at;
        let token = expected.token;
        let (claim, input) = (expected, None);
        assert_eq!(lean, ClaimedJob { claim, input });
        let input = JobInput {
            payload: new.spec().payload.clone(),
            checkpoint: Some(saved),
        };
        assert_eq!(node.inputs(&[token]).await, [Some(input)]);
    }

    #[proves("claim.load", "limits.batch")]
    async fn inputs_are_answered_in_order_and_only_for_present_claims(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(&jobs(5)).await;
        let tokens: Vec<ClaimToken> = node
            .claim_lean(&node.request(4))
            .await
            .iter()
            .map(|claim| claim.token)
            .collect();
        node.succeed(tokens[1]).await;
        let pending = node.everything().await[4].id;
        let asked = [
            tokens[3],
            tokens[1],
            node.token(tokens[0].job, 2).await,
            node.token(tokens[0].job, 0).await,
            tokens[0],
            node.token(pending, 0).await,
            node.token(JobId::new(), 1).await,
            tokens[2],
            tokens[3],
        ];
        let numbers: Vec<Option<usize>> = node
            .inputs(&asked)
            .await
            .into_iter()
            .map(|input| input.and_then(|input| input.payload.decode().ok()))
            .collect();
        let expected = [
            Some(3),
            None,
            None,
            None,
            Some(0),
            None,
            None,
            Some(2),
            Some(3),
        ];
        assert_eq!(numbers, expected);
        assert_eq!(node.inputs(&[]).await, []);
    }

    #[proves("claim.live")]
    async fn only_an_active_node_gets_jobs(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for status in NodeStatus::ALL {
            let claimer = node.sibling();
            claimer.beat_with(&claimer.heartbeat(NodeStatus::Active)).await;
            claimer.beat_with(&claimer.heartbeat(status)).await;
            let claimed = claimer.claim(1).await;
            assert_eq!(
                claimed.len(),
                usize::from(status == NodeStatus::Active),
                "{status:?}"
            );
            for job in claimed {
                claimer.release(job.claim.token).await;
            }
        }
        assert_eq!(node.state(id).await, JobState::Pending);
    }

    #[proves("claim.live", "claim.optimized")]
    async fn a_node_that_was_told_to_drain_or_given_up_gets_nothing_more(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(&jobs(3)).await;
        for status in [NodeStatus::Draining, NodeStatus::Dead] {
            let claimer = node.sibling();
            claimer.beat().await;
            node.set_status(claimer.id, status).await;
            assert_eq!(claimer.claim(1).await, []);
            assert_eq!(claimer.claim_lean(&claimer.request(1)).await, []);
        }
        assert_eq!(node.claim(3).await.len(), 3);
    }
}
