//! Jobs in transactions of the application.

use Condition::{Ended, Failed, Succeeded};
use JobState::{Blocked, Cancelled, Pending, Running};
use futures_util::future::join;
use ratchet_core::Condition;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::store::AppConnection;

use super::prelude::*;
use crate::app::Transaction;

/// Text that a driver must escape.
const TEXT: &str = "it's \\ \"x\" 🦀";

fn after(parent: JobId) -> NewJob {
    job().after(parent, Ended)
}

/// Enqueues a child of each parent in a transaction, which stays open. So the transaction has
/// locked the parents.
async fn hold<'a, const N: usize>(
    (node, application): &'a (TestNode, Box<dyn crate::Application>),
    parents: [JobId; N],
) -> (Transaction<'a>, [JobId; N]) {
    let mut tx = Transaction::begin(node, &**application).await;
    let children = parents.map(after);
    tx.enqueue(&children).await;
    (tx, children.map(|child| child.id()))
}

/// Returns two running jobs.
async fn two_running(node: &TestNode) -> [ClaimToken; 2] {
    node.add_all(&jobs(2)).await;
    let claimed = node.claim(2).await;
    let tokens: Vec<_> = claimed.iter().map(|job| job.claim.token).collect();
    tokens.try_into().expect("both jobs should be claimed")
}

fn success(token: ClaimToken) -> Settlement {
    Settlement::new(token, Outcome::Succeeded { result: None })
}

cases! {
    "within" on Cx;

    #[proves("within.commit")]
    #[needs(Transactions, Lanes, Tags)]
    async fn jobs_exist_from_the_commit_on(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let mut tx = Transaction::begin(&node, &*application).await;
        let mut jobs = vec![job().lane(TEXT), job().tag(TEXT), job().unique_key(TEXT), job()];
        jobs.push(job().expires_in(MINUTE));
        jobs.extend(cx.has(Power::FairKeys).then(|| job().fair_key(TEXT)));
        assert_eq!(tx.enqueue(&[]).await, []);
        let created: Vec<_> = jobs.iter().map(|job| Enqueued::Created(job.id())).collect();
        assert_eq!(tx.enqueue(&jobs).await, created);
        for job in &jobs {
            assert_eq!(node.find(job.id()).await, None, "before the commit");
        }
        tx.commit().await;
        let claimed = node.claim(10).await;
        assert_eq!(claimed.len(), jobs.len());
        let lane = claimed.iter().find_map(|job| job.claim.lane.clone());
        assert_eq!(lane, Some(name(TEXT)));
        let expiry = claimed.iter().find_map(|job| job.claim.expires_at);
        let stored = node.get(jobs[4].id()).await;
        assert_eq!(expiry, Some(time::add(stored.created_at, MINUTE)));
    }

    #[proves("within.rollback")]
    #[needs(Transactions, Residue, Lanes, Tags, IdempotencyKeys, Workflows, Signals)]
    async fn nothing_remains_of_jobs_that_were_rolled_back(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let parent = node.add(job()).await;
        let batch = node.batch().await;
        let before = cx.rows_of_jobs().await;
        let keyed = job().unique_key("u").idempotency_key("i").tag("t");
        let linked = job().after(parent, Succeeded).after_batch(batch, BatchCondition::Ended);
        let mut jobs = vec![
            keyed.clone(),
            job().lane("l"),
            job().lane("l").unique_key("v"),
            linked.wait_for("s", MINUTE),
            job().in_batch(batch),
            job().expires_in(MINUTE),
        ];
        jobs.extend(cx.has(Power::FairKeys).then(|| job().fair_key("f")));
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(&jobs).await;
        tx.enqueue(&[job().lane("l")]).await;
        tx.roll_back().await;
        for job in &jobs {
            assert_eq!(node.find(job.id()).await, None);
        }
        assert_eq!(cx.rows_of_jobs().await, before);
        assert_eq!(node.counts(batch).await, [0; 4]);
        // The keys and the lane are free.
        let again = [keyed.another(), job().lane("l")];
        let again = node.add_all(&again).await;
        assert_eq!(node.state(again[1]).await, Pending);
        // The parent has no children, and can end.
        node.end(parent, Outcome::Succeeded { result: None }).await;
    }

    #[proves("within.enqueue", "lane.head", "keys.unique")]
    #[needs(Transactions, Lanes)]
    async fn the_calls_of_a_transaction_see_each_other(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let first = [job().lane("l"), job().unique_key("u")];
        let holder = first[1].id();
        let second = [job().lane("l"), job().unique_key("u")];
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(&first).await;
        let answers = tx.enqueue(&second).await;
        let expected = [Enqueued::Created(second[0].id()), Enqueued::Duplicate(holder)];
        assert_eq!(answers, expected);
        tx.commit().await;
        let states = node.states([first[0].id(), holder, second[0].id()]).await;
        assert_eq!(states, [Pending, Pending, Blocked]);
        assert_eq!(node.find(second[1].id()).await, None);
    }

    #[proves("within.enqueue", "link.decide")]
    #[needs(Transactions, Workflows)]
    async fn a_parent_may_be_new_in_the_same_transaction(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let parent = job();
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(std::slice::from_ref(&parent)).await;
        let children = [Succeeded, Failed].map(|when| job().after(parent.id(), when));
        tx.enqueue(&children).await;
        tx.commit().await;
        let [good, bad] = children.map(|child| child.id());
        assert_eq!(node.states([good, bad]).await, [Blocked, Blocked]);
        node.end(parent.id(), Outcome::Succeeded { result: None }).await;
        assert_eq!(node.states([good, bad]).await, [Pending, Cancelled]);
    }

    #[proves("within.enqueue", "link.enqueue", "batch.count")]
    #[needs(Transactions, Workflows)]
    async fn links_to_ended_jobs_are_decided_in_the_transaction(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let parent = node.add(job()).await;
        node.act(parent, JobAction::Cancel).await;
        let batch = node.batch().await;
        let children = [Ended, Succeeded].map(|when| job().after(parent, when).in_batch(batch));
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(&children).await;
        tx.commit().await;
        assert_eq!(node.states(children.map(|child| child.id())).await, [Pending, Cancelled]);
        assert_eq!(node.counts(batch).await, [2, 0, 0, 1]);
    }

    #[proves("within.enqueue", "keys.unique", "keys.idempotency")]
    #[needs(Transactions, IdempotencyKeys)]
    async fn a_key_that_others_have_is_a_duplicate_in_a_transaction(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let holder = node.add(job().unique_key("u").idempotency_key("i")).await;
        let jobs = [job().unique_key("u"), job().idempotency_key("i"), job().unique_key("v")];
        let mut tx = Transaction::begin(&node, &*application).await;
        let duplicate = Enqueued::Duplicate(holder);
        let answers = tx.enqueue(&jobs).await;
        assert_eq!(answers, [duplicate, duplicate, Enqueued::Created(jobs[2].id())]);
        let more = job();
        tx.enqueue(std::slice::from_ref(&more)).await;
        tx.commit().await;
        assert_eq!(node.find(jobs[0].id()).await, None);
        assert_eq!(node.states([jobs[2].id(), more.id()]).await, [Pending, Pending]);
    }

    #[proves("within.refused", "enqueue.atomic")]
    #[needs(Transactions, Residue, Lanes, Workflows)]
    async fn a_refused_call_leaves_the_transaction_as_it_was(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let (closed, batch) = (node.batch().await, node.batch().await);
        node.close(closed).await;
        let [before, behind] = [job().in_batch(batch), job().lane("l")];
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(std::slice::from_ref(&before)).await;
        let refused = [
            ("parent", [job().in_batch(batch).lane("l"), after(JobId::new())]),
            ("batch", [job().unique_key("u"), job().in_batch(closed)]),
            ("queue", [job().unique_key("u"), job().queue("")]),
        ];
        for (field, jobs) in &refused {
            assert_refused(tx.try_enqueue(jobs).await, field);
        }
        tx.enqueue(std::slice::from_ref(&behind)).await;
        tx.commit().await;
        assert_eq!(node.states([before.id(), behind.id()]).await, [Pending, Pending]);
        for job in refused.iter().flat_map(|(_, jobs)| jobs) {
            assert_eq!(node.find(job.id()).await, None);
        }
        assert_eq!(node.counts(batch).await, [1, 0, 0, 0]);
        node.add(job().unique_key("u")).await;
    }

    #[proves("within.driver")]
    #[needs(Transactions)]
    async fn a_connection_of_another_driver_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let transactions = node.store.transactions().expect("the suite lists Transactions");
        let jobs = [job()];
        let mut nothing = 0_u8;
        for shared in [true, false] {
            let connection = match shared {
                true => AppConnection::Shared(&7_u8),
                false => AppConnection::Exclusive(&mut nothing),
            };
            let enqueued = transactions.enqueue_on(connection, jobs.to_vec(), JobWakeups::none());
            assert_refused(enqueued.await, "transaction");
        }
        assert_eq!(node.find(jobs[0].id()).await, None);
    }

    #[proves("within.apart", "link.decide")]
    #[needs(Transactions, RowLocks, Workflows)]
    async fn a_held_job_keeps_no_other_from_ending(cx: &Cx) {
        let open = cx.node_of_application().await;
        let node = &open.0;
        let [held, free] = two_running(node).await;
        let (tx, [child]) = hold(&open, [held.job]).await;
        let settlements = [success(held), success(free)];
        let settling = node.settle_all(&settlements);
        let committing = async {
            node.until(free.job, JobState::Succeeded).await;
            assert_eq!(node.state(held.job).await, Running);
            tx.commit().await;
        };
        let (answers, ()) = join(settling, committing).await;
        assert_eq!(answers, [Fenced::Applied; 2]);
        assert_eq!(node.states([held.job, child]).await, [JobState::Succeeded, Pending]);
    }

    #[proves("within.apart", "report.progress")]
    #[needs(Transactions, RowLocks, Workflows)]
    async fn a_held_job_keeps_no_other_from_being_reported(cx: &Cx) {
        let open = cx.node_of_application().await;
        let node = &open.0;
        let [held, free] = two_running(node).await;
        let (tx, _) = hold(&open, [held.job]).await;
        let half = |token| {
            let (percent, message) = (50, "half".to_owned());
            Report::new(token, ReportKind::Progress { percent, message })
        };
        let reports = [half(held), half(free)];
        let reporting = async { ok(node.jobs().report(&reports).await) };
        let committing = async {
            while node.get(free.job).await.progress.is_none() {
                tokio::task::yield_now().await;
            }
            tx.commit().await;
        };
        let (answers, ()) = join(reporting, committing).await;
        let cancel_requested = false;
        assert_eq!(answers, [Reported::Applied { cancel_requested }; 2]);
        assert!(node.get(held.job).await.progress.is_some());
    }

    #[proves("within.apart", "reclaim.requeue")]
    #[needs(Clock, Transactions, RowLocks, Workflows)]
    async fn a_held_job_keeps_no_other_from_being_taken_back(cx: &Cx) {
        let open = cx.node_of_application().await;
        let node = &open.0;
        let [held, free] = two_running(node).await.map(|token| token.job);
        // Another job already waits for `awaited`.
        let awaited = node.add(job()).await;
        node.add(after(awaited)).await;
        node.take().await;
        let all = JobSelector::Ids(vec![held, free, awaited]);
        node.act_on(&all, JobAction::Cancel).await;
        cx.advance(HOUR).await;
        let (tx, _) = hold(&open, [held, awaited]).await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        let states = node.states([held, free, awaited]).await;
        assert_eq!(states, [Running, Cancelled, Running]);
        tx.roll_back().await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 2);
        assert_eq!(node.states([held, free, awaited]).await, [Cancelled; 3]);
    }

    #[proves("within.apart", "expiry.pass", "expiry.limit")]
    #[needs(Clock, Transactions, RowLocks, Workflows, Lanes)]
    async fn a_held_job_keeps_no_other_from_expiring(cx: &Cx) {
        let open = cx.node_of_application().await;
        let node = &open.0;
        let batch = node.batch().await;
        let late = |seconds| job().expires_in(seconds * SECOND);
        // The transaction holds the jobs that are the longest overdue: as a parent, and by their
        // lane and batch.
        let mut held = Vec::new();
        for new in [late(1), late(2).lane("l"), late(3).in_batch(batch)] {
            held.push(node.add(new).await);
        }
        let free = node.add_all(&[late(4), late(5)]).await;
        cx.advance(MINUTE).await;
        let (mut tx, _) = hold(&open, [held[0]]).await;
        tx.enqueue(&[job().lane("l"), job().in_batch(batch)]).await;
        assert_eq!(node.expire_jobs(1).await, [free[0]]);
        assert_eq!(node.expire_jobs(10).await, [free[1]]);
        for id in &held {
            assert_eq!(node.state(*id).await, Pending);
        }
        tx.roll_back().await;
        held.sort_unstable();
        assert_eq!(node.expire_jobs(10).await, held);
    }

    #[proves("within.apart", "expiry.limit")]
    #[needs(Clock, Transactions, RowLocks, Workflows)]
    async fn a_held_batch_keeps_no_job_of_another_from_expiring_for_ever(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let (batch, other) = (node.batch().await, node.batch().await);
        let late = |seconds: u32, batch| job().expires_in(seconds * SECOND).in_batch(batch);
        let mut held = node.add_all(&[1, 2, 3].map(|seconds| late(seconds, batch))).await;
        let mut free = node.add_all(&[4, 5].map(|seconds| late(seconds, other))).await;
        cx.advance(MINUTE).await;
        let mut tx = Transaction::begin(&node, &*application).await;
        tx.enqueue(&[job().in_batch(batch)]).await;
        // A pass may wait for each job of the held batch, and so end before it gets further. The
        // next one must not do the same.
        let mut ended = Vec::new();
        for _ in 0..3 {
            ended.extend(node.expire_jobs(10).await);
        }
        ended.sort_unstable();
        free.sort_unstable();
        assert_eq!(ended, free);
        tx.roll_back().await;
        held.sort_unstable();
        assert_eq!(node.expire_jobs(10).await, held);
    }

    #[proves("within.apart", "permit.max")]
    #[needs(Transactions, RowLocks, Workflows, Permits)]
    async fn a_held_job_keeps_no_permit_from_the_next(cx: &Cx) {
        let open = cx.node_of_application().await;
        let node = &open.0;
        let permits = node.store.permits().expect("the suite lists Permits");
        ok(permits.set_permits(&name("api"), 1, IfKnown::Change).await);
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(node.add(job().permit("api")).await);
        }
        let (tx, _) = hold(&open, [waiting[0]]).await;
        let claimed = node.claim(10).await;
        let claimed: Vec<_> = claimed.iter().map(|job| job.claim.token.job).collect();
        // A store that does not lock parents claims the first job.
        assert_eq!(claimed.len(), 1);
        assert!(waiting[..2].contains(&claimed[0]), "{claimed:?}");
        tx.commit().await;
    }

    #[proves("within.apart", "lane.promote")]
    #[needs(Transactions, RowLocks, Lanes)]
    async fn a_lane_held_by_a_transaction_holds_up_no_other(cx: &Cx) {
        let (node, application) = cx.node_of_application().await;
        let mut heads = Vec::new();
        for lane in ["a", "b", "c"] {
            heads.push(node.add(job().lane(lane)).await);
        }
        let next = node.add(job().lane("b")).await;
        let ends: Vec<_> = node.claim(3).await.iter().map(|job| success(job.claim.token)).collect();
        let mut tx = Transaction::begin(&node, &*application).await;
        let behind = job().lane("a");
        tx.enqueue(std::slice::from_ref(&behind)).await;
        let committing = async {
            node.until(heads[1], JobState::Succeeded).await;
            node.until(heads[2], JobState::Succeeded).await;
            assert_eq!(node.states([next, heads[0]]).await, [Pending, Running]);
            tx.commit().await;
        };
        let (answers, ()) = join(node.settle_all(&ends), committing).await;
        assert_eq!(answers, [Fenced::Applied; 3]);
        // The settlement of the head saw the job that entered the lane while it waited.
        assert_eq!(node.state(behind.id()).await, Pending);
    }
}
