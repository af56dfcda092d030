//! Signals: jobs that wait for an external event.

use JobState::{Blocked, Cancelled, Failed, Pending, Running, Succeeded};

use super::prelude::*;

fn failed() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

/// Returns a new job that waits for the signal `key`, for at most `timeout`.
fn waiter(key: &str, timeout: Duration) -> NewJob {
    job().wait_for(key, timeout)
}

cases! {
    "signal" on Cx;

    #[proves("signal.wait", "signal.deliver", "signal.once", "get.whole", "get.outline")]
    #[needs(Clock, Signals)]
    async fn a_job_runs_when_its_signal_has_come_and_can_read_it(cx: &Cx) {
        let node = cx.node().await;
        let new = waiter("Größe", MINUTE);
        let spec = new.spec().clone();
        let id = node.add(new).await;
        let created = node.now().await;
        cx.proving(["signal.wait", "get.whole"]);
        let record = node.get(id).await;
        let deadline = time::add(created, MINUTE);
        assert_eq!((record.state, &record.spec), (Blocked, &spec));
        assert_eq!(record.signal, Some(SignalRecord::new(deadline)));
        assert_eq!(node.claim_ids(10).await, []);
        cx.advance(MINUTE - MILLI).await;
        cx.proving(["signal.deliver"]);
        let first = node.signal("Größe", r#"{"by": "é"}"#).await;
        assert_eq!(first, Delivered::To(vec![id]));
        cx.proving(["signal.once"]);
        assert_eq!(node.signal("Größe", "2").await, Delivered::Already);
        let by_id = node.deliver(SignalTarget::Job(id), "3").await;
        assert_eq!(by_id, Delivered::Already);
        cx.proving(["signal.deliver", "get.whole"]);
        let now = node.now().await;
        let record = node.get(id).await;
        assert_eq!((record.state, record.run_at), (Pending, now));
        let had = SignalRecord::new(deadline).delivered(now, json(r#"{"by": "é"}"#));
        assert_eq!(record.signal, Some(had.clone()));
        cx.proving(["signal.wait", "signal.deliver"]);
        // The job is no longer overdue, and keeps the payload.
        cx.advance(HOUR).await;
        assert_eq!(node.expire().await, []);
        let token = node.take().await;
        node.succeed(token).await;
        cx.proving(["get.whole"]);
        let whole = node.get(id).await;
        assert_eq!(whole.signal, Some(had));
        cx.proving(["get.outline"]);
        let outlines = ok(node.jobs().get(&[id], Detail::Outline).await);
        assert_eq!(outlines, [Some(whole.outline())]);
        cx.proving(["signal.once"]);
        assert_eq!(node.signal("Größe", "4").await, Delivered::Already);
    }

    #[proves("signal.deliver", "signal.answer")]
    #[needs(Clock, Signals)]
    async fn a_name_reaches_all_who_wait_and_an_id_one(cx: &Cx) {
        let node = cx.node().await;
        let mut all = Vec::new();
        for key in ["a", "b", "a", "A", "a"] {
            all.push(node.add(waiter(key, HOUR).delay(MINUTE)).await);
        }
        let plain = node.add(job()).await;
        let one = node.deliver(SignalTarget::Job(all[2]), "1").await;
        assert_eq!(one, Delivered::To(vec![all[2]]));
        let rest = node.signal("a", "2").await;
        assert_eq!(rest, Delivered::To(vec![all[0], all[4]]));
        let payload = async |id| {
            let signal = node.get(id).await.signal.expect("it waits");
            signal.delivered.map(|delivery| delivery.payload)
        };
        assert_eq!(payload(all[2]).await, Some(json("1")));
        assert_eq!(payload(all[4]).await, Some(json("2")));
        assert_eq!(payload(all[1]).await, None);
        // The job's delay still applies.
        assert_eq!(node.state(all[0]).await, Pending);
        assert_eq!(node.claim_ids(10).await, [plain]);
        assert_eq!(node.states([all[1], all[3]]).await, [Blocked, Blocked]);
        // A job enqueued later waits for the next signal.
        let later = node.add(waiter("a", HOUR)).await;
        assert_eq!(node.state(later).await, Blocked);
        assert_eq!(node.signal("a", "3").await, Delivered::To(vec![later]));
    }

    #[proves("signal.answer", "signal.late")]
    #[needs(Clock, Signals)]
    async fn a_signal_without_a_receiver_says_why(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.signal("nobody", "1").await, Delivered::NotFound);
        let unknown = node.deliver(SignalTarget::Job(JobId::new()), "1").await;
        assert_eq!(unknown, Delivered::NotFound);
        let plain = node.add(job()).await;
        let cancelled = node.add(waiter("s", MINUTE)).await;
        node.act(cancelled, JobAction::Cancel).await;
        let late = node.add(waiter("t", MINUTE)).await;
        cx.advance(MINUTE).await;
        for (id, state) in [(plain, Pending), (cancelled, Cancelled), (late, Blocked)] {
            let answer = node.deliver(SignalTarget::Job(id), "1").await;
            assert_eq!(answer, Delivered::NotWaiting(state));
        }
        for key in ["s", "t"] {
            assert_eq!(node.signal(key, "1").await, Delivered::NotFound);
        }
        node.end(plain, failed()).await;
        let answer = node.deliver(SignalTarget::Job(plain), "1").await;
        assert_eq!(answer, Delivered::NotWaiting(Failed));
        assert_eq!(node.expire().await, [late]);
        let answer = node.deliver(SignalTarget::Job(late), "1").await;
        assert_eq!(answer, Delivered::NotWaiting(Failed));
        let large = Signal::new(SignalTarget::Job(late), json(&format!("\"{}\"", "x".repeat(65_536))));
        assert_refused(node.signals().deliver(&large).await, "payload");
    }

    #[proves("signal.expire", "signal.limit", "signal.late", "settle.keys")]
    #[needs(Clock, Signals)]
    async fn a_job_whose_signal_does_not_come_fails_at_its_deadline(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(waiter("s", MINUTE).unique_key("u")).await;
        let mut others = Vec::new();
        for seconds in [3, 1, 2, 4] {
            others.push(node.add(waiter("s", MINUTE + seconds * SECOND)).await);
        }
        cx.advance(MINUTE - MILLI).await;
        cx.proving(["signal.expire"]);
        assert_eq!(node.expire().await, []);
        cx.advance(MILLI).await;
        assert_eq!(node.expire().await, [first]);
        let record = node.get(first).await;
        let error = record.last_error.expect("the job should have an error");
        assert_eq!(error, "the signal `s` did not arrive within 60s");
        assert_eq!((record.state, record.attempts, record.claim_seq), (Failed, 0, 0));
        assert_eq!(record.finished_at, Some(node.now().await));
        assert_eq!(node.history(first).await, []);
        cx.proving(["settle.keys"]);
        node.add(job().unique_key("u")).await;
        cx.proving(["signal.late"]);
        assert_eq!(node.signal("s", "1").await, Delivered::To({
            let mut waiting = others.clone();
            waiting.sort_unstable();
            waiting
        }));
        cx.proving(["signal.limit"]);
        // A call expires the jobs that are overdue the longest, and no more jobs than its limit.
        let mut all = Vec::new();
        for seconds in [3, 1, 2] {
            all.push(node.add(waiter("t", seconds * SECOND)).await);
        }
        cx.advance(HOUR).await;
        let pass = async |limit| ok(node.signals().expire(limit).await);
        assert_eq!(pass(2).await, [all[1], all[2]]);
        assert_eq!(pass(2).await, [all[0]]);
        assert_eq!(pass(2).await, []);
        assert_refused(node.signals().expire(0).await, "limit");
    }

    #[proves("link.requeue", "signal.wait", "signal.expire", "requeue.fresh")]
    #[needs(Clock, Signals)]
    async fn a_requeued_job_waits_anew_for_a_signal_that_did_not_come(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(waiter("s", MINUTE)).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.expire().await, [id]);
        cx.advance(HOUR).await;
        for comes in [false, true] {
            let became = ActionOutcome::Became(Blocked);
            assert_eq!(node.act(id, JobAction::Requeue).await, became);
            let deadline = time::add(node.now().await, MINUTE);
            let record = node.get(id).await;
            assert_eq!(record.state, Blocked);
            assert_eq!(record.signal, Some(SignalRecord::new(deadline)));
            assert_eq!(node.claim_ids(10).await, []);
            cx.advance(MINUTE - MILLI).await;
            assert_eq!(node.expire().await, []);
            if comes {
                assert_eq!(node.signal("s", "1").await, Delivered::To(vec![id]));
            }
            cx.advance(MILLI).await;
            let (expired, state) = if comes { (vec![], Pending) } else { (vec![id], Failed) };
            assert_eq!(node.expire().await, expired);
            assert_eq!(node.state(id).await, state);
        }
        assert_eq!(node.claim_ids(10).await, [id]);
    }

    #[proves("signal.expire", "link.decide", "batch.count", "batch.callback")]
    #[needs(Clock, Signals, Workflows)]
    async fn a_missed_signal_is_an_end_like_any_other(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let waiting = node.add(waiter("s", MINUTE).in_batch(batch)).await;
        let good = node.add(job().after(waiting, Condition::Succeeded)).await;
        let bad = node.add(job().after(waiting, Condition::Failed)).await;
        let done = node.add(job().after_batch(batch, BatchCondition::Failed)).await;
        node.close(batch).await;
        cx.advance(MINUTE).await;
        cx.proving(["signal.expire"]);
        assert_eq!(node.expire().await, [waiting]);
        cx.proving(["link.decide", "batch.callback"]);
        assert_eq!(node.states([good, bad, done]).await, [Cancelled, Pending, Pending]);
        cx.proving(["batch.count"]);
        assert_eq!(node.counts(batch).await, [1, 0, 1, 0]);
    }

    #[proves("signal.wait", "signal.deliver", "link.wait", "link.release", "link.cancel")]
    #[needs(Clock, Signals, Workflows)]
    async fn a_job_may_wait_for_a_signal_and_for_others(cx: &Cx) {
        let node = cx.node().await;
        let parents = node.add_all(&jobs(4)).await;
        let mut all = Vec::new();
        for parent in &parents {
            let both = waiter("s", HOUR).after(*parent, Condition::Succeeded);
            all.push(node.add(both).await);
        }
        let all: [JobId; 4] = all.try_into().expect("four");
        // The jobs in order: the parent of the first job ends before the signal arrives. The second
        // job's parent ends after the signal. The third job's parent is cancelled after the signal.
        // The fourth job's parent fails.
        node.end(parents[0], Outcome::Succeeded { result: None }).await;
        node.end(parents[3], failed()).await;
        cx.proving(["link.wait", "link.cancel"]);
        assert_eq!(node.states(all).await, [Blocked, Blocked, Blocked, Cancelled]);
        cx.proving(["signal.deliver", "signal.wait"]);
        assert_eq!(node.signal("s", "1").await, Delivered::To(all[..3].to_vec()));
        assert_eq!(node.states(all).await, [Pending, Blocked, Blocked, Cancelled]);
        cx.proving(["link.release", "link.cancel"]);
        node.end(parents[1], Outcome::Succeeded { result: None }).await;
        node.act(parents[2], JobAction::Cancel).await;
        assert_eq!(node.states(all).await, [Pending, Pending, Cancelled, Cancelled]);
        cx.proving(["signal.deliver", "signal.wait"]);
        cx.advance(DAY).await;
        assert_eq!(node.expire().await, []);
        let answer = node.deliver(SignalTarget::Job(all[3]), "1").await;
        assert_eq!(answer, Delivered::NotWaiting(Cancelled));
    }

    #[proves("signal.wait", "signal.expire", "purge.old", "keys.unique")]
    #[needs(Clock, Signals)]
    async fn what_is_not_stored_or_gone_waits_for_nothing(cx: &Cx) {
        let node = cx.node().await;
        let held = node.add(job().unique_key("u")).await;
        let twin = waiter("s", MINUTE).unique_key("u");
        cx.proving(["keys.unique"]);
        assert_eq!(node.offer(&twin).await, Enqueued::Duplicate(held));
        let gone = node.add(waiter("s", MINUTE)).await;
        node.act(gone, JobAction::Cancel).await;
        cx.advance(HOUR).await;
        cx.proving(["signal.wait"]);
        assert_eq!(node.signal("s", "1").await, Delivered::NotFound);
        cx.proving(["signal.expire"]);
        assert_eq!(node.expire().await, []);
        cx.proving(["purge.old"]);
        assert_eq!(node.purge(Cancelled, MINUTE, 10).await, 1);
        cx.proving(["signal.wait"]);
        let answer = node.deliver(SignalTarget::Job(gone), "1").await;
        assert_eq!(answer, Delivered::NotFound);
        // A repeated enqueue does not restart the timeout.
        let waiting = waiter("s", MINUTE);
        node.add(waiting.clone()).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.offer(&waiting).await, Enqueued::Created(waiting.id()));
        cx.proving(["signal.expire"]);
        assert_eq!(node.expire().await, [waiting.id()]);
    }

    #[proves("signal.once", "signal.deliver", "signal.late", "signal.expire")]
    #[needs(Clock, Signals)]
    async fn of_signals_at_once_each_job_takes_one(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        cx.proving(["signal.once", "signal.deliver"]);
        for round in 0..15 {
            let waiting: Vec<NewJob> = (0..3).map(|_| waiter("s", HOUR)).collect();
            let all = nodes[0].add_all(&waiting).await;
            let answers = race(8, |racer| {
                let node = nodes[racer % 4].sibling();
                let one = all[racer % 3];
                async move {
                    let payload = racer.to_string();
                    let answer = match racer % 4 {
                        0 => node.deliver(SignalTarget::Job(one), &payload).await,
                        1 => node.signal("s", &payload).await,
                        2 => Delivered::To(node.expire().await),
                        _ => {
                            node.act(one, JobAction::Cancel).await;
                            Delivered::NotFound
                        }
                    };
                    (racer, answer)
                }
            })
            .await;
            for id in &all {
                let had: Vec<String> = answers
                    .iter()
                    .filter(|(_, answer)| matches!(answer, Delivered::To(to) if to.contains(id)))
                    .map(|(racer, _)| racer.to_string())
                    .collect();
                let job = nodes[0].get(*id).await;
                let delivered = job.signal.as_ref().expect("it waited").delivered.as_ref();
                let payload = delivered.map(|one| one.payload.as_str().to_owned());
                assert_eq!(had, payload.into_iter().collect::<Vec<_>>(), "round {round}");
                assert!(matches!(job.state, Pending | Cancelled), "round {round}: {job:?}");
            }
            let selector = JobSelector::Ids(all);
            nodes[0].act_on(&selector, JobAction::Cancel).await;
        }
        // After the deadline only the timeout ends the wait, and before the deadline only the
        // signal. Each job is in the answer of exactly one call.
        cx.proving(["signal.late", "signal.expire", "signal.once"]);
        for round in 0..10 {
            let all = nodes[0].add_all(&[waiter("t", SECOND), waiter("t", SECOND)]).await;
            if round % 2 == 0 {
                cx.advance(SECOND).await;
            }
            let answers = race(6, |racer| {
                let node = nodes[racer % 4].sibling();
                async move {
                    if racer % 2 == 0 {
                        node.expire().await
                    } else {
                        match node.signal("t", "1").await {
                            Delivered::To(had) => had,
                            _ => Vec::new(),
                        }
                    }
                }
            })
            .await;
            let mut had = answers.concat();
            had.sort_unstable();
            assert_eq!(had, all, "round {round}");
            let expected = if round % 2 == 0 { Failed } else { Pending };
            assert_eq!(nodes[0].states([all[0], all[1]]).await, [expected; 2]);
            cx.advance(SECOND).await;
            assert_eq!(nodes[0].expire().await, []);
        }
        let running = nodes[0].claim(100).await;
        assert!(running.iter().all(|job| job.claim.token.seq == 1));
        let first = running[0].claim.token;
        assert_eq!(nodes[0].state(first.job).await, Running);
        nodes[0].succeed(first).await;
        assert_eq!(nodes[0].state(first.job).await, Succeeded);
    }
}
