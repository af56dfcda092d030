//! What an enqueue does with the unfinished job that has its unique key.

use JobState::{Blocked, Cancelled, Paused, Pending, Running};
use ratchet_core::OnConflict;

use super::prelude::*;

/// The values other than `Keep`.
const CHANGING: [OnConflict; 3] = [
    OnConflict::Replace,
    OnConflict::Debounce {
        max_delay: Duration::from_secs(25),
    },
    OnConflict::Restart,
];

/// Returns a new job with the unique key `k` and a number as its payload.
fn keyed(number: u32) -> NewJob {
    NewJob::new("kind", &number).unique_key("k")
}

/// Returns a new job with the unique key `k` that changes the holder of the key. A debounce waits
/// for 10 s.
fn changing(how: OnConflict, number: u32) -> NewJob {
    match how {
        OnConflict::Debounce { max_delay } => keyed(number).debounce(10 * SECOND, max_delay),
        how => keyed(number).on_conflict(how),
    }
}

fn replacing(number: u32) -> NewJob {
    changing(OnConflict::Replace, number)
}

fn debounced(number: u32) -> NewJob {
    changing(CHANGING[1], number)
}

async fn payload(node: &TestNode, job: JobId) -> String {
    node.get(job).await.spec.payload.as_str().to_owned()
}

cases! {
    "conflict" on Cx;

    #[proves("keys.replace", "link.release")]
    #[needs(Workflows)]
    async fn a_job_waits_for_the_holder_that_its_parent_replaces(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let replacing = replacing(2);
        let child = job().after(replacing.id(), Condition::Ended);
        let answers = node.enqueue(&[replacing, child.clone()]).await;
        assert_eq!(answers, [Enqueued::Replaced(holder), Enqueued::Created(child.id())]);
        assert_eq!(node.state(child.id()).await, Blocked);
        let token = node.take().await;
        assert_eq!(token.job, holder);
        node.settle(token, Outcome::Succeeded { result: None }).await;
        assert_eq!(node.state(child.id()).await, Pending);
    }

    #[proves("keys.replace")]
    #[needs(Workflows)]
    async fn a_waiting_job_gets_the_new_payload_and_keeps_everything_else(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        for how in CHANGING {
            for state in [Pending, Paused, Blocked] {
                let mut holder = keyed(1).delay(HOUR).payload_version(2).priority(Priority::High);
                if state == Blocked {
                    holder = holder.after(parent, Condition::Succeeded);
                }
                let holder = node.add(holder).await;
                if state == Paused {
                    node.act(holder, JobAction::Pause).await;
                }
                let mut expected = node.get(holder).await;
                let new = changing(how, 2).payload_version(3).priority(Priority::Low);
                assert_eq!(node.offer(&new).await, Enqueued::Replaced(holder), "{how:?} {state:?}");
                expected.spec.payload = json("2");
                expected.spec.payload_version = 3;
                assert_eq!(node.get(holder).await, expected, "{how:?} {state:?}");
                assert_eq!(node.find(new.id()).await, None);
                // The first version is stored in another way.
                let new = changing(how, 3);
                assert_eq!(node.offer(&new).await, Enqueued::Replaced(holder));
                expected.spec.payload = json("3");
                expected.spec.payload_version = 1;
                assert_eq!(node.get(holder).await, expected);
                node.act(holder, JobAction::Cancel).await;
            }
        }
    }

    #[proves("keys.replace", "claim.whole")]
    #[needs(Workflows)]
    async fn a_claim_has_the_new_payload_and_no_notes_of_the_old_one(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let token = node.take().await;
        node.report(token, ReportKind::Checkpoint(json("7"))).await;
        let (percent, message) = (50, "half".to_owned());
        node.report(token, ReportKind::Progress { percent, message }).await;
        node.settle(token, retry(Duration::ZERO)).await;
        assert_eq!(node.offer(&replacing(2)).await, Enqueued::Replaced(holder));
        let stored = node.get(holder).await;
        assert_eq!((stored.checkpoint, stored.progress), (None, None));
        assert_eq!((stored.attempts, stored.last_error), (1, Some("it failed".to_owned())));
        let claimed = node.claim_one().await;
        assert_eq!(claimed.claim.token.job, holder);
        assert_eq!((claimed.claim.token.seq, claimed.claim.attempts), (2, 1));
        let (payload, checkpoint) = (json("2"), None);
        let new = JobInput { payload, checkpoint };
        assert_eq!(claimed.input, Some(new.clone()));
        assert_eq!(node.inputs(&[claimed.claim.token]).await, [Some(new)]);
    }

    #[proves("keys.replace")]
    #[needs(Workflows, IdempotencyKeys)]
    async fn a_job_that_replaces_a_payload_does_not_use_up_its_idempotency_key(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let new = replacing(2).idempotency_key("i");
        assert_eq!(node.offer(&new).await, Enqueued::Replaced(holder));
        let first = node.add(job().idempotency_key("i")).await;
        // The idempotency key decides first.
        let new = replacing(3).idempotency_key("i");
        assert_eq!(node.offer(&new).await, Enqueued::Duplicate(first));
        assert_eq!(payload(&node, holder).await, "2");
    }

    #[proves("keys.debounce")]
    #[needs(Workflows, Clock)]
    async fn a_debounced_job_is_due_after_the_last_enqueue_up_to_its_maximum(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(debounced(0)).await;
        let enqueued = node.get(first).await.created_at;
        for (number, due) in [(1, 16), (2, 22), (3, 25), (4, 25)] {
            cx.advance(6 * SECOND).await;
            assert_eq!(node.offer(&debounced(number)).await, Enqueued::Replaced(first));
            let stored = node.get(first).await;
            assert_eq!(stored.run_at, enqueued + due * SECOND, "{number}");
            assert_eq!(stored.spec.payload, json(&number.to_string()));
            assert_eq!(stored.created_at, enqueued);
        }
        cx.advance(SECOND - MILLI).await;
        assert!(node.claim(1).await.is_empty());
        cx.advance(MILLI).await;
        assert_eq!(node.claim_ids(1).await, [first]);
    }

    #[proves("keys.debounce")]
    #[needs(Workflows, Clock)]
    async fn a_debounce_never_makes_a_job_due_earlier(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(debounced(0)).await;
        let due = node.get(first).await.run_at;
        let sooner = keyed(1).debounce(SECOND, MINUTE);
        assert_eq!(node.offer(&sooner).await, Enqueued::Replaced(first));
        assert_eq!(node.get(first).await.run_at, due);
        // The wait for a retry is longer than the maximum.
        cx.advance(10 * SECOND).await;
        let token = node.take().await;
        node.settle(token, retry(HOUR)).await;
        let due = node.get(first).await.run_at;
        assert_eq!(node.offer(&debounced(2)).await, Enqueued::Replaced(first));
        assert_eq!(node.get(first).await.run_at, due);
        // The other values leave the due time as it is.
        for how in [OnConflict::Replace, OnConflict::Restart] {
            let new = changing(how, 3).delay(2 * HOUR);
            assert_eq!(node.offer(&new).await, Enqueued::Replaced(first));
            assert_eq!(node.get(first).await.run_at, due);
        }
    }

    #[proves("keys.follow", "keys.restart", "link.wait")]
    #[needs(Workflows)]
    async fn after_a_running_job_the_new_one_runs(cx: &Cx) {
        let node = cx.node().await;
        for how in [OnConflict::Replace, CHANGING[1], OnConflict::Keep] {
            let holder = node.add(keyed(1)).await;
            let token = node.take().await;
            if how == OnConflict::Keep {
                assert_eq!(node.offer(&keyed(2)).await, Enqueued::Duplicate(holder));
                node.succeed(token).await;
                continue;
            }
            let new = changing(how, 2);
            assert_eq!(node.offer(&new).await, Enqueued::Created(new.id()));
            let running = node.get(holder).await;
            assert_eq!((running.state, running.cancel_requested), (Running, false));
            assert_eq!(running.spec.payload, json("1"));
            assert_eq!(running.spec.unique_key, None);
            let stored = node.get(new.id()).await;
            assert_eq!(stored.state, Blocked);
            assert_eq!(stored.spec.unique_key, Some(name("k")));
            let after = After::Job { parent: holder, condition: Condition::Ended };
            assert_eq!(stored.spec.after, [after]);
            // The new job waits, so a third one replaces its payload.
            assert_eq!(node.offer(&changing(how, 3)).await, Enqueued::Replaced(new.id()));
            assert!(node.claim(10).await.is_empty());
            node.succeed(token).await;
            assert_eq!(node.state(new.id()).await, Pending);
            assert_eq!(payload(&node, new.id()).await, "3");
            assert_eq!(node.offer(&keyed(4)).await, Enqueued::Duplicate(new.id()));
            node.act(new.id(), JobAction::Cancel).await;
            // The key is free.
            let next = node.add(keyed(5)).await;
            node.act(next, JobAction::Cancel).await;
        }
    }

    #[proves("keys.follow", "requeue.key")]
    #[needs(Workflows)]
    async fn a_job_that_has_lost_its_key_does_not_get_it_back(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let token = node.take().await;
        let new = replacing(2);
        assert_eq!(node.offer(&new).await, Enqueued::Created(new.id()));
        // While it waits for a retry, the new job still waits for it, and has the key.
        node.settle(token, retry(Duration::ZERO)).await;
        assert_eq!(node.states([holder, new.id()]).await, [Pending, Blocked]);
        assert_eq!(node.offer(&replacing(3)).await, Enqueued::Replaced(new.id()));
        assert_eq!(payload(&node, holder).await, "1");
        node.fail(node.take().await).await;
        assert_eq!(node.state(new.id()).await, Pending);
        let outcome = node.act(holder, JobAction::Requeue).await;
        assert_eq!(outcome, ActionOutcome::Became(Pending));
        assert_eq!(node.offer(&keyed(4)).await, Enqueued::Duplicate(new.id()));
    }

    #[proves("keys.follow", "link.enqueue")]
    #[needs(Workflows)]
    async fn a_job_that_runs_after_the_holder_keeps_its_own_parents(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let token = node.take().await;
        let parent = job().delay(HOUR);
        let new = replacing(2).after(parent.id(), Condition::Ended);
        let child = job().after(new.id(), Condition::Succeeded);
        let batch = [child.clone(), new.clone(), parent.clone()];
        node.add_all(&batch).await;
        let parents: Vec<Parent> = node.parents_of(new.id()).await.iter()
            .map(|link| link.after.parent())
            .collect();
        assert_eq!(parents, [Parent::Job(parent.id()), Parent::Job(holder)]);
        node.succeed(token).await;
        assert_eq!(node.state(new.id()).await, Blocked);
        node.act(parent.id(), JobAction::Cancel).await;
        assert_eq!(node.states([new.id(), child.id()]).await, [Pending, Blocked]);
    }

    #[proves("keys.restart", "cancel.running")]
    #[needs(Workflows)]
    async fn a_restart_cancels_the_running_job_and_then_the_new_one_runs(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let token = node.take().await;
        let new = changing(OnConflict::Restart, 2);
        assert_eq!(node.offer(&new).await, Enqueued::Created(new.id()));
        let claims = node.beat().await.claims;
        assert_eq!(claims, [OwnedClaim::new(token, true)]);
        let again = changing(OnConflict::Restart, 3);
        assert_eq!(node.offer(&again).await, Enqueued::Replaced(new.id()));
        assert!(node.claim(1).await.is_empty());
        node.settle(token, retry(SECOND)).await;
        assert_eq!(node.states([holder, new.id()]).await, [Cancelled, Pending]);
        let claimed = node.claim_one().await;
        assert_eq!(claimed.claim.token.job, new.id());
        assert_eq!(claimed.input.map(|input| input.payload), Some(json("3")));
    }

    #[proves("keys.kind")]
    #[needs(Workflows)]
    async fn a_job_of_another_kind_changes_nothing(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        for state in [Pending, Running] {
            let expected = node.get(holder).await;
            assert_eq!(expected.state, state);
            for how in CHANGING {
                let kind = NewJob::new("other", &2).unique_key("k").on_conflict(how);
                let new = match how {
                    OnConflict::Debounce { .. } => kind.delay(SECOND),
                    _ => kind,
                };
                assert_eq!(node.offer(&new).await, Enqueued::Duplicate(holder), "{how:?}");
            }
            assert_eq!(node.get(holder).await, expected);
            node.claim(1).await;
        }
    }

    #[proves("enqueue.repeat", "keys.replace")]
    #[needs(Workflows)]
    async fn a_repeated_enqueue_does_not_replace_a_later_payload(cx: &Cx) {
        let node = cx.node().await;
        let first = replacing(1);
        assert_eq!(node.offer(&first).await, Enqueued::Created(first.id()));
        assert_eq!(node.offer(&replacing(2)).await, Enqueued::Replaced(first.id()));
        assert_eq!(node.offer(&first).await, Enqueued::Created(first.id()));
        assert_eq!(payload(&node, first.id()).await, "2");
    }

    #[proves("keys.replace", "enqueue.repeat")]
    #[needs(Workflows)]
    async fn a_repeated_enqueue_that_replaced_a_payload_replaces_it_again(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let new = replacing(2);
        for newer in [3, 4] {
            assert_eq!(node.offer(&new).await, Enqueued::Replaced(holder));
            assert_eq!(payload(&node, holder).await, "2");
            assert_eq!(node.offer(&replacing(newer)).await, Enqueued::Replaced(holder));
        }
        // The payload of a running job does not change, so the job is stored now.
        let token = node.take().await;
        assert_eq!(node.offer(&new).await, Enqueued::Created(new.id()));
        assert_eq!(node.states([holder, new.id()]).await, [Running, Blocked]);
        node.succeed(token).await;
        assert_eq!(node.offer(&new).await, Enqueued::Created(new.id()));
        assert_eq!(node.claim_ids(2).await, [new.id()]);
    }

    #[proves("keys.all")]
    #[needs(Workflows)]
    async fn a_withheld_job_changes_no_holder(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(keyed(1)).await;
        let running = node.add(NewJob::new("kind", &1).unique_key("running")).await;
        let token = node.take_job(running).await;
        let blocker = node.add(job().unique_key("taken")).await;
        let restarts = NewJob::new("kind", &2)
            .unique_key("running")
            .on_conflict(OnConflict::Restart);
        let batch = [replacing(2), restarts, job().unique_key("taken").all_or_nothing()];
        let expected = [
            Enqueued::Withheld(batch[0].id()),
            Enqueued::Withheld(batch[1].id()),
            Enqueued::Duplicate(blocker),
        ];
        assert_eq!(node.enqueue(&batch).await, expected);
        assert_eq!(payload(&node, holder).await, "1");
        let running = node.get(running).await;
        assert!(!running.cancel_requested && running.spec.unique_key.is_some());
        node.succeed(token).await;
    }

    #[proves("keys.replace", "keys.follow", "keys.race")]
    #[needs(Workflows)]
    async fn racing_enqueues_and_claims_agree_on_every_payload(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let answers = race(32, |racer| {
            let node = nodes[racer % nodes.len()].clone();
            async move {
                if racer % 4 < 2 {
                    let how = [OnConflict::Replace, OnConflict::Restart][racer % 2];
                    let new = changing(how, u32::try_from(racer).unwrap_or(0));
                    return Some(node.offer(&new).await);
                }
                for claimed in node.claim(1).await {
                    // The payload of a running job never changes, and a claim never has an old one.
                    let token = claimed.claim.token;
                    let stored = node.get(token.job).await.spec.payload;
                    assert_eq!(claimed.input.map(|input| input.payload), Some(stored));
                    node.settle(token, Outcome::Succeeded { result: None }).await;
                }
                None
            }
        })
        .await;
        let duplicate = |answer: &Enqueued| matches!(answer, Enqueued::Duplicate(_));
        assert!(!answers.iter().flatten().any(duplicate), "{answers:?}");
        // At most one unfinished job has the key, and no other job waits.
        while let [claimed] = &nodes[0].claim(10).await[..] {
            nodes[0].succeed(claimed.claim.token).await;
        }
        let stored = nodes[0].everything().await;
        let created = answers.iter().flatten().filter(|answer| matches!(answer, Enqueued::Created(_)));
        assert_eq!(created.count(), stored.len());
        assert!(stored.iter().all(|job| job.state.is_terminal()), "{stored:?}");
    }
}
