//! Idempotency keys, which create at most one job ever, and unique keys, which at most one
//! unfinished job holds.

use super::prelude::*;

/// Returns a new job with the idempotency key `key`.
fn once(key: &str) -> NewJob {
    job().idempotency_key(key)
}

/// Returns a new job with the unique key `key`.
fn unique(key: &str) -> NewJob {
    job().unique_key(key)
}

cases! {
    "keys" on Cx;

    #[proves("keys.idempotency")]
    #[needs(IdempotencyKeys)]
    async fn a_second_job_with_an_idempotency_key_is_the_first(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let first = a.add(once("k")).await;
        assert_eq!(b.offer(&once("k")).await, Enqueued::Duplicate(first));
        assert_eq!(a.everything().await.len(), 1);
    }

    #[proves("keys.idempotency")]
    #[needs(IdempotencyKeys)]
    async fn an_idempotency_key_stays_used_when_the_job_has_ended(cx: &Cx) {
        let node = cx.node().await;
        for outcome in [Outcome::Succeeded { result: None }, Outcome::Cancelled] {
            let key = format!("{outcome:?}");
            let first = node.add(once(&key)).await;
            let token = node.take().await;
            node.settle(token, outcome).await;
            assert_eq!(node.offer(&once(&key)).await, Enqueued::Duplicate(first));
        }
        assert!(node.claim(1).await.is_empty());
    }

    #[proves("keys.idempotency", "purge.keys")]
    #[needs(Clock, IdempotencyKeys)]
    async fn an_idempotency_key_stays_used_when_the_job_was_purged(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(once("k")).await;
        node.succeed(node.take().await).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.find(first).await, None);
        assert_eq!(node.offer(&once("k")).await, Enqueued::Duplicate(first));
        assert!(node.everything().await.is_empty());
    }

    #[proves("keys.idempotency")]
    #[needs(IdempotencyKeys)]
    async fn an_idempotency_key_counts_inside_one_batch(cx: &Cx) {
        let node = cx.node().await;
        let batch = [job(), once("k"), job(), once("k"), once("other"), once("k")];
        let id = |index: usize| batch[index].id();
        let expected = [
            Enqueued::Created(id(0)),
            Enqueued::Created(id(1)),
            Enqueued::Created(id(2)),
            Enqueued::Duplicate(id(1)),
            Enqueued::Created(id(4)),
            Enqueued::Duplicate(id(1)),
        ];
        assert_eq!(node.enqueue(&batch).await, expected);
        assert_eq!(node.everything().await.len(), 4);
    }

    #[proves("keys.unique")]
    async fn a_unique_key_is_taken_while_its_job_is_unfinished(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(unique("k")).await;
        let taken = Enqueued::Duplicate(first);
        assert_eq!(node.offer(&unique("k")).await, taken, "pending");
        node.act(first, JobAction::Pause).await;
        assert_eq!(node.offer(&unique("k")).await, taken, "paused");
        node.act(first, JobAction::Resume).await;
        let token = node.take().await;
        assert_eq!(node.offer(&unique("k")).await, taken, "running");
        node.act(first, JobAction::Cancel).await;
        assert_eq!(node.offer(&unique("k")).await, taken, "expected a duplicate of the running job, although its cancellation was requested");
        node.succeed(token).await;
        node.add(unique("k")).await;
    }

    #[proves("keys.unique", "settle.keys")]
    async fn a_unique_key_is_free_in_every_terminal_state(cx: &Cx) {
        let node = cx.node().await;
        let error = "it failed".to_owned();
        let ends = [
            Outcome::Succeeded { result: None },
            Outcome::Failed { error },
            Outcome::Cancelled,
        ];
        for end in ends {
            node.add(unique("k")).await;
            let token = node.take().await;
            assert_eq!(node.settle(token, end).await, Fenced::Applied);
        }
        let last = node.add(unique("k")).await;
        let acted = node.act(last, JobAction::Cancel).await;
        assert_eq!(acted, ActionOutcome::Became(JobState::Cancelled));
        node.add(unique("k")).await;
    }

    #[proves("keys.unique")]
    async fn a_unique_key_stays_taken_when_the_job_goes_back(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(unique("k")).await;
        let delay = Duration::ZERO;
        for back in [retry(delay), Outcome::Snoozed { delay }, Outcome::Released] {
            let token = node.take().await;
            assert_eq!(node.settle(token, back).await, Fenced::Applied);
            assert_eq!(node.offer(&unique("k")).await, Enqueued::Duplicate(first));
        }
    }

    #[proves("keys.unique")]
    async fn a_settled_batch_frees_and_keeps_the_right_keys(cx: &Cx) {
        let node = cx.node().await;
        let batch = [unique("a"), unique("b"), unique("c"), unique("d")];
        let ids = node.add_all(&batch).await;
        let claimed = node.claim(4).await;
        let token = |index: usize| claimed[index].claim.token;
        let stale = node.token(ids[3], 7).await;
        let settled = [
            Settlement::new(token(0), Outcome::Succeeded { result: None }),
            Settlement::new(token(1), retry(MINUTE)),
            Settlement::new(token(2), Outcome::Cancelled),
            Settlement::new(stale, Outcome::Cancelled),
        ];
        node.settle_all(&settled).await;
        node.add(unique("a")).await;
        assert_eq!(node.offer(&unique("b")).await, Enqueued::Duplicate(ids[1]));
        node.add(unique("c")).await;
        assert_eq!(node.offer(&unique("d")).await, Enqueued::Duplicate(ids[3]));
    }

    #[proves("keys.unique")]
    async fn a_freed_unique_key_is_not_freed_again_by_its_old_job(cx: &Cx) {
        let node = cx.node().await;
        node.add(unique("k")).await;
        let token = node.take().await;
        node.succeed(token).await;
        let second = node.add(unique("k")).await;
        // Settles the first job again, and tries to cancel it, after the second job has taken the
        // key.
        node.succeed(token).await;
        let acted = node.act(token.job, JobAction::Cancel).await;
        assert_eq!(acted, ActionOutcome::Refused(JobState::Succeeded));
        assert_eq!(node.offer(&unique("k")).await, Enqueued::Duplicate(second));
    }

    #[proves("keys.unique")]
    async fn a_unique_key_counts_inside_one_batch(cx: &Cx) {
        let node = cx.node().await;
        let batch = [unique("k"), unique("k"), unique("l")];
        let expected = [
            Enqueued::Created(batch[0].id()),
            Enqueued::Duplicate(batch[0].id()),
            Enqueued::Created(batch[2].id()),
        ];
        assert_eq!(node.enqueue(&batch).await, expected);
    }

    #[proves("keys.unique")]
    async fn keys_hold_across_queues_and_kinds(cx: &Cx) {
        let node = cx.node().await;
        let elsewhere = || NewJob::new("other kind", &()).queue("other queue");
        let first = node.add(unique("k")).await;
        let offered = node.offer(&elsewhere().unique_key("k")).await;
        assert_eq!(offered, Enqueued::Duplicate(first));
        if cx.has(Power::IdempotencyKeys) {
            let first = node.add(once("k")).await;
            let offered = node.offer(&elsewhere().idempotency_key("k")).await;
            assert_eq!(offered, Enqueued::Duplicate(first));
        }
    }

    #[proves("keys.unique", "keys.idempotency")]
    #[needs(IdempotencyKeys)]
    async fn the_two_kinds_of_keys_do_not_meet(cx: &Cx) {
        let node = cx.node().await;
        node.add(unique("k")).await;
        node.add(once("k")).await;
    }

    #[proves("keys.unique", "keys.idempotency")]
    async fn keys_differ_by_every_byte(cx: &Cx) {
        let node = cx.node().await;
        let longest = "k".repeat(Name::MAX_BYTES);
        for key in ["k", "K", "ḱ", "k\u{301}", "k.", "k k", "ｋ", &longest] {
            node.add(unique(key)).await;
            node.add(cx.once(job(), key)).await;
        }
    }

    #[proves("keys.unique")]
    #[needs(IdempotencyKeys)]
    async fn a_unique_duplicate_does_not_use_up_its_idempotency_key(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(unique("u")).await;
        let both = || unique("u").idempotency_key("i");
        assert_eq!(node.offer(&both()).await, Enqueued::Duplicate(first));
        node.add(once("i")).await;
    }

    #[proves("keys.both")]
    #[needs(IdempotencyKeys)]
    async fn the_idempotency_key_is_looked_at_before_the_unique_key(cx: &Cx) {
        let node = cx.node().await;
        node.add(unique("u")).await;
        let first = node.add(once("i")).await;
        let both = unique("u").idempotency_key("i");
        assert_eq!(node.offer(&both).await, Enqueued::Duplicate(first));
        // Within one batch, the idempotency key takes precedence too.
        let batch = [unique("v"), once("j"), unique("v").idempotency_key("j")];
        let answers = node.enqueue(&batch).await;
        assert_eq!(answers[2], Enqueued::Duplicate(batch[1].id()));
        assert_eq!(node.everything().await.len(), 4);
    }

    #[proves("keys.expire", "purge.keys")]
    #[needs(Clock, IdempotencyKeys)]
    async fn an_idempotency_key_with_a_lifetime_is_free_at_its_end(cx: &Cx) {
        let node = cx.node().await;
        for purged in [false, true] {
            let lasting = || once("k").unique_for(MINUTE);
            let first = node.add(lasting()).await;
            let ever = node.add(once(&format!("ever {purged}"))).await;
            for claimed in node.claim(2).await {
                node.succeed(claimed.claim.token).await;
            }
            cx.advance(MINUTE - MILLI).await;
            let taken = Enqueued::Duplicate(first);
            assert_eq!(node.offer(&once("k")).await, taken);
            if purged {
                // A purge does not delete the key before it is free.
                node.purge(JobState::Succeeded, SECOND, 10).await;
                assert_eq!(node.offer(&lasting()).await, taken);
            }
            cx.advance(MILLI).await;
            if purged {
                node.purge(JobState::Succeeded, SECOND, 10).await;
            }
            // The lifetime of a key is that of the job which used the key first.
            let second = node.add(once("k").unique_for(SECOND)).await;
            assert_eq!(node.offer(&lasting()).await, Enqueued::Duplicate(second));
            cx.advance(SECOND).await;
            let ever = Enqueued::Duplicate(ever);
            assert_eq!(node.offer(&once(&format!("ever {purged}"))).await, ever);
            node.act(second, JobAction::Cancel).await;
        }
        // A key that is free can be used for ever, too.
        let last = node.add(once("k")).await;
        cx.advance(DAY).await;
        assert_eq!(node.offer(&once("k")).await, Enqueued::Duplicate(last));
    }

    #[proves("keys.expire", "keys.race")]
    #[needs(Clock, IdempotencyKeys)]
    async fn of_many_racers_with_a_key_that_is_free_again_one_creates(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let lasting = || once("k").unique_for(MINUTE);
        let first = nodes[0].add(lasting()).await;
        nodes[0].act(first, JobAction::Cancel).await;
        nodes[0].act(first, JobAction::Delete).await;
        cx.advance(MINUTE).await;
        let answers = race(32, |racer| {
            let node = nodes[racer % nodes.len()].clone();
            async move { node.offer(&lasting()).await }
        })
        .await;
        one_created(&nodes[0], &answers).await;
    }

    #[proves("keys.all", "enqueue.repeat")]
    async fn a_duplicate_that_asks_for_all_or_nothing_keeps_the_others_away(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(unique("k")).await;
        let batch = [job(), unique("k").all_or_nothing(), unique("other")];
        let expected = [
            Enqueued::Withheld(batch[0].id()),
            Enqueued::Duplicate(first),
            Enqueued::Withheld(batch[2].id()),
        ];
        for _ in 0..2 {
            assert_eq!(node.enqueue(&batch).await, expected);
            assert_eq!(node.everything().await.len(), 1);
        }
        // The key of a withheld job is free.
        let other = node.add(unique("other")).await;
        assert_eq!(node.offer(&batch[2]).await, Enqueued::Duplicate(other));
        // Only a duplicate that asks for it keeps others away.
        let batch = [job().all_or_nothing(), unique("k"), unique("new").all_or_nothing()];
        let expected = [
            Enqueued::Created(batch[0].id()),
            Enqueued::Duplicate(first),
            Enqueued::Created(batch[2].id()),
        ];
        assert_eq!(node.enqueue(&batch).await, expected);
        assert_eq!(node.everything().await.len(), 4);
        // A repetition finds the jobs that are stored, and no duplicates of them.
        let again = [batch[0].clone(), batch[2].clone(), unique("newer")];
        let created = again.each_ref().map(|job| Enqueued::Created(job.id()));
        assert_eq!(node.enqueue(&again).await, created);
    }

    #[proves("keys.all")]
    #[needs(IdempotencyKeys)]
    async fn all_or_nothing_also_holds_for_idempotency_keys_and_inside_one_batch(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(once("k")).await;
        node.succeed(node.take().await).await;
        let batch = [once("k").all_or_nothing(), once("other"), unique("u")];
        let withheld = |index: usize| Enqueued::Withheld(batch[index].id());
        let expected = [Enqueued::Duplicate(first), withheld(1), withheld(2)];
        assert_eq!(node.enqueue(&batch).await, expected);
        let batch = [once("other"), once("other").all_or_nothing()];
        let id = batch[0].id();
        let expected = [Enqueued::Withheld(id), Enqueued::Duplicate(id)];
        assert_eq!(node.enqueue(&batch).await, expected);
        assert_eq!(node.everything().await.len(), 1);
        node.add(once("other")).await;
    }

    #[proves("keys.all")]
    #[needs(Lanes)]
    async fn a_withheld_job_takes_no_place_in_its_lane(cx: &Cx) {
        let node = cx.node().await;
        node.add(unique("k")).await;
        node.take().await;
        let batch = [job().lane("l"), unique("k").all_or_nothing()];
        node.enqueue(&batch).await;
        let next = node.add(job().lane("l")).await;
        assert_eq!(node.state(next).await, JobState::Pending);
        assert_eq!(node.claim_ids(10).await, [next]);
    }

    #[proves("keys.unique", "reclaim.requeue")]
    #[needs(Clock)]
    async fn a_reclaimed_job_keeps_its_unique_key_unless_it_is_cancelled(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(unique("k")).await;
        node.take().await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(node.offer(&unique("k")).await, Enqueued::Duplicate(first));
        node.take().await;
        node.act(first, JobAction::Cancel).await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(node.state(first).await, JobState::Cancelled);
        node.add(unique("k")).await;
    }

    #[proves("keys.race")]
    #[needs(IdempotencyKeys)]
    async fn of_many_racers_with_an_idempotency_key_one_creates(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let answers = race(50, |racer| {
            let node = nodes[racer % nodes.len()].clone();
            async move { node.offer(&once("k")).await }
        })
        .await;
        one_created(&nodes[0], &answers).await;
    }

    #[proves("keys.race")]
    async fn of_many_racers_with_a_unique_key_one_creates(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let answers = race(32, |racer| {
            let node = nodes[racer % nodes.len()].clone();
            async move { node.offer(&unique("k")).await }
        })
        .await;
        one_created(&nodes[0], &answers).await;
    }

    #[proves("keys.race")]
    async fn racing_batches_share_their_keys_without_error(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let answers = race(8, |racer| {
            let node = nodes[racer % nodes.len()].clone();
            async move {
                // Every racer has the same keys in a different order, so that a store deadlocks
                // unless it locks them in one order.
                let key = |number: usize| format!("key {}", (number * (2 * racer + 1)) % 16);
                let batch: Vec<NewJob> = (0..16).map(|number| unique(&key(number))).collect();
                node.enqueue(&batch).await
            }
        })
        .await;
        let created = answers
            .iter()
            .flatten()
            .filter(|answer| matches!(answer, Enqueued::Created(_)));
        assert_eq!(created.count(), 16);
        assert_eq!(nodes[0].everything().await.len(), 16);
    }

    #[proves("keys.idempotency", "enqueue.repeat")]
    #[needs(Clock, IdempotencyKeys)]
    async fn a_purged_job_that_is_enqueued_again_is_a_duplicate_of_itself(cx: &Cx) {
        let node = cx.node().await;
        let batch = [once("k"), job()];
        node.add_all(&batch).await;
        for claimed in node.claim(2).await {
            node.succeed(claimed.claim.token).await;
        }
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 2);
        let [keyed, plain] = batch.each_ref().map(NewJob::id);
        let answers = node.enqueue(&batch).await;
        assert_eq!(answers, [Enqueued::Duplicate(keyed), Enqueued::Created(plain)]);
        assert_eq!(node.claim_ids(10).await, [plain]);
    }
}

/// Checks that the store contains exactly one job, that exactly one answer is `Created`, and that
/// every answer names the stored job.
async fn one_created(node: &TestNode, answers: &[Enqueued]) {
    let stored = node.everything().await;
    assert_eq!(stored.len(), 1);
    let created = Enqueued::Created(stored[0].id);
    let creators = answers.iter().filter(|answer| **answer == created);
    assert_eq!(creators.count(), 1);
    assert!(answers.iter().all(|answer| answer.id() == stored[0].id));
}
