//! Tests of workflows, batches and signals on running nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{BatchClosed, BatchRecord, Delivered, LinkState};
use ratchet_core::store::{
    Changed, IfKnown, JobStore, LockStore, NodeStore, PermitStore, QueueStore, Store, StoreInfo,
    VersionStore, WorkflowStore,
};
use ratchet_core::{
    BatchCondition, BatchId, Client, Condition, JobError, JobState, MemoryStore, Name, NewJob,
    Ratchet, Retain, Retention, RetryPolicy, StoreErrorKind, Workflow,
};
use tokio::time::{sleep, timeout};

use crate::kit::{Scripted, Scripts, Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

fn client(world: &World) -> Client {
    Ratchet::client(Arc::new(world.store.clone()))
}

fn once() -> RetryPolicy {
    RetryPolicy::fixed(1, SECOND)
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_diamond_read_what_those_before_them_returned() {
    let world = World::new();
    let fetch = world.job("fetch", |_| async { Ok(20) });
    let double = world.job("double", |ctx| async move {
        let parents = ctx.parents().await?;
        assert_eq!(parents[0].state(), Some(JobState::Succeeded));
        Ok(2 * parents[0].result::<i32>()?)
    });
    let half = world.job("half", |ctx| async move {
        Ok(ctx.parents().await?[0].result::<i32>()? / 2)
    });
    let sum = world.job("sum", |ctx| async move {
        let parents = ctx.parents().await?;
        let mut all = Vec::new();
        for parent in &parents {
            assert_eq!(parent.link.state, LinkState::Met);
            all.push(parent.result::<i32>()?);
        }
        assert!(parents[0].result::<String>().is_err(), "of another type");
        Ok(all)
    });
    let flow = Workflow::new();
    let fetch = flow.add(fetch);
    let double = flow.add(double).after(&fetch);
    let half = flow.add(half).after(&fetch);
    let sum = flow.add(sum).after_all([&half, &double]);
    let complain = flow.add(world.job("complain", |_| async { Ok(()) }));
    let complain = complain.after_failure(&fetch);
    let (sum, complain) = (sum.id(), complain.id());
    assert_eq!(client(&world).submit(flow).await.unwrap().len(), 5);
    let node = world.start();
    let ended = world.ended(sum).await;
    assert_eq!(ended.result.unwrap().as_str(), "[10,40]");
    assert_eq!(world.read(complain).await.state, JobState::Cancelled);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_cancels_what_waits_for_its_success_and_the_rest_goes_on() {
    let world = World::new();
    let fails = world.job("fails", |_| async { Err::<(), _>("no".into()) });
    let step = |name: &str| world.job(name, |_| async { Ok(()) });
    let flow = Workflow::new();
    let first = flow.add(fails.retry(RetryPolicy::fixed(2, SECOND)));
    let next = flow.add(step("next")).after(&first);
    let last = flow.add(step("last")).after(&next);
    let repair = flow.add(step("repair")).after_failure(&first);
    let cleanup = flow.add(step("cleanup")).after_end(&last);
    let report = flow.add(step("report"));
    let report = report.when(&repair, Condition::Succeeded).after(&cleanup);
    let ids = [&first, &next, &last, &repair, &cleanup, &report].map(|step| step.id());
    client(&world).submit(flow).await.unwrap();
    let _node = world.start();
    world.ended(ids[5]).await;
    let mut states = Vec::new();
    for id in ids {
        states.push(world.read(id).await.state);
    }
    let (ok, no) = (JobState::Succeeded, JobState::Cancelled);
    assert_eq!(states, [JobState::Failed, no, no, ok, ok, ok]);
    assert_eq!(world.read(ids[0]).await.attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn the_next_of_a_chain_does_not_wait_for_a_poll() {
    let world = World::new();
    let flow = Workflow::new();
    let mut last = flow.add(world.job("0", |_| async { Ok(()) }));
    for number in 1..100 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = flow.add(job).after(&last);
    }
    let last = last.id();
    client(&world).submit(flow).await.unwrap();
    let _node = world.start();
    // If each of the 100 jobs waited for a poll, the chain would take ten seconds.
    timeout(SECOND, world.ended(last)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_many_nodes_calls_back_once() {
    const CHILDREN: usize = 300;
    let world = World::new();
    let client = client(&world);
    let (calls, alarms) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counting = |name: &str, counter: &Arc<AtomicUsize>| {
        let counter = Arc::clone(counter);
        world.job(name, move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
    };
    let batch = client.create_batch().await.unwrap();
    let done = counting("done", &calls).after_batch(batch, BatchCondition::Ended);
    let alarm = BatchCondition::FailuresReach(10);
    let alarm = counting("alarm", &alarms).after_batch(batch, alarm);
    let (done, alarm) = (
        client.enqueue(done).await.unwrap().id(),
        client.enqueue(alarm).await.unwrap().id(),
    );
    let nodes: Vec<Started> = (0..3)
        .map(|_| Started::new(world.builder().concurrency(8).build().unwrap()))
        .collect();
    for chunk in 0..3 {
        let child = |number: usize| {
            let name = format!("{chunk}, {number}");
            let job = world.job(&name, move |_| async move {
                sleep(Duration::from_millis(number as u64 % 17)).await;
                match number % 10 {
                    0 => Err(JobError::discard("no")),
                    _ => Ok(()),
                }
            });
            job.in_batch(batch)
        };
        let jobs: Vec<NewJob> = (0..CHILDREN / 3).map(child).collect();
        client.enqueue_all(&jobs).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    world.ended(alarm).await;
    assert_eq!(world.read(done).await.state, JobState::Blocked);
    assert_eq!(
        client.close_batch(batch).await.unwrap(),
        BatchClosed::Closed
    );
    world.ended(done).await;
    let stands = client.batch(batch).await.unwrap().unwrap();
    let counts = [
        stands.total,
        stands.succeeded,
        stands.failed,
        stands.cancelled,
    ];
    assert_eq!(counts, [300, 270, 30, 0]);
    assert_eq!((stands.percent(), stands.ended_at.is_some()), (100, true));
    stop_all(nodes).await;
    assert_eq!(
        (calls.load(Ordering::SeqCst), alarms.load(Ordering::SeqCst)),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_ends_what_waits_and_tells_what_runs() {
    let world = World::new();
    let client = client(&world);
    let batch = client.create_batch().await.unwrap();
    let obeys = world.job("obeys", |ctx| async move {
        ctx.cancelled().await;
        Ok(())
    });
    let running = world.enqueue(obeys.in_batch(batch)).await;
    let node = world.start();
    world
        .until(running, |job| job.state == JobState::Running)
        .await;
    let later = world.job("later", |_| async { Ok(()) });
    let waiting: Vec<NewJob> = (0..1_200)
        .map(|_| later.another().in_batch(batch).delay(600 * SECOND))
        .collect();
    client.enqueue_all(&waiting).await.unwrap();
    let other = world.enqueue(later.another().delay(600 * SECOND)).await;
    let done = later.another().after_batch(batch, BatchCondition::Failed);
    let done = world.enqueue(done).await;
    assert_eq!(client.cancel_batch(batch).await.unwrap().total(), 1_201);
    world.ended(done).await;
    let stands = client.batch(batch).await.unwrap().unwrap();
    assert_eq!((stands.total, stands.cancelled), (1_201, 1_201));
    assert_eq!(world.read(running).await.state, JobState::Cancelled);
    assert_eq!(world.read(other).await.state, JobState::Pending);
    // The closed batch accepts no more jobs, and cancelling it again affects none.
    let late = client.enqueue(later.another().in_batch(batch)).await;
    assert_eq!(late.unwrap_err().kind(), StoreErrorKind::Invalid);
    assert_eq!(client.cancel_batch(batch).await.unwrap().total(), 0);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_reads_its_signal_and_one_that_is_missed_fails_the_job() {
    let world = World::new();
    let client = client(&world);
    let read = |ctx: ratchet_core::JobContext| async move {
        let said: Option<String> = ctx.signal().await?;
        Ok(said)
    };
    let approved = world
        .job("approved", read)
        .wait_for("approval", 3_600 * SECOND);
    let approved = world.enqueue(approved).await;
    let missed = world.job("missed", read).wait_for("other", 60 * SECOND);
    let missed = missed.retry(once());
    let after = world.job("after", |_| async { Ok(()) });
    let after = after.after(missed.id(), Condition::Failed);
    let [missed, after] = [missed, after].map(|job| (job.id(), job));
    client.enqueue_all(&[missed.1, after.1]).await.unwrap();
    let plain = world.job("plain", |ctx| async move {
        assert_eq!(ctx.signal::<String>().await?, None);
        assert!(ctx.parents().await?.is_empty());
        Ok(())
    });
    let plain = world.enqueue(plain).await;
    let node = world.start();
    assert_eq!(world.ended(plain).await.state, JobState::Succeeded);
    let answer = client.signal("approval", "yes").await.unwrap();
    assert_eq!(answer, Delivered::To(vec![approved]));
    let ended = timeout(SECOND, world.ended(approved)).await.unwrap();
    assert_eq!(ended.result.unwrap().as_str(), r#""yes""#);
    assert_eq!(
        client.signal("approval", "no").await.unwrap(),
        Delivered::Already
    );
    let answer = client.signal_job(plain, "no").await.unwrap();
    assert_eq!(answer, Delivered::NotWaiting(JobState::Succeeded));
    sleep(50 * SECOND).await;
    assert_eq!(world.read(missed.0).await.state, JobState::Blocked);
    let ended = world.ended(missed.0).await;
    assert_eq!(ended.state, JobState::Failed);
    assert!(ended.last_error.unwrap().contains("`other`"));
    // The search for overdue signals runs every few seconds, and wakes a node for the jobs that it
    // releases.
    timeout(SECOND, world.ended(after.0)).await.unwrap();
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn old_batches_are_deleted_with_the_retention() {
    let world = World::new();
    let client = client(&world);
    let (old, open) = (
        client.create_batch().await.unwrap(),
        client.create_batch().await.unwrap(),
    );
    client.close_batch(old).await.unwrap();
    let hour = 3_600 * SECOND;
    let node = Started::new(
        world
            .builder()
            .retention(Retention::all(Retain::Delete(hour)))
            .build()
            .unwrap(),
    );
    sleep(hour - 600 * SECOND).await;
    assert!(client.batch(old).await.unwrap().is_some());
    sleep(1_200 * SECOND).await;
    assert_eq!(client.batch(old).await.unwrap(), None);
    assert!(client.batch(open).await.unwrap().is_some());
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_id_was_kept_is_taken_up_again() {
    let world = World::new();
    let client = client(&world);
    let batch = BatchId::new();
    assert_eq!(client.open_batch(batch).await.unwrap(), Changed::Changed);
    let row = |row: u32| {
        let once = format!("{batch} {row}");
        NewJob::new("import", &row)
            .in_batch(batch)
            .idempotency_key(&once)
    };
    client.enqueue_all(&[row(1), row(2)]).await.unwrap();
    // Simulates a crash: the program opens the batch again and enqueues the rows from the
    // beginning.
    assert_eq!(client.open_batch(batch).await.unwrap(), Changed::Unchanged);
    let rows = [row(1), row(2), row(3)];
    client.enqueue_all(&rows).await.unwrap();
    client.close_batch(batch).await.unwrap();
    // Simulates a crash after the batch was closed. Rows that it contains can be enqueued again,
    // and a new row is rejected.
    assert_eq!(client.open_batch(batch).await.unwrap(), Changed::Unchanged);
    client.enqueue_all(&[row(1), row(3)]).await.unwrap();
    let error = client.enqueue_all(&[row(3), row(4)]).await.unwrap_err();
    assert_eq!(error.invalid_input().unwrap().field(), "batch");
    let stands = client.batch(batch).await.unwrap().unwrap();
    assert_eq!((stands.total, stands.closed), (3, true));
}

/// A store without the optional parts, such as those for workflows, signals and permits.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self.0.jobs()
    }

    fn queues(&self) -> &dyn QueueStore {
        Store::queues(&self.0)
    }

    fn nodes(&self) -> &dyn NodeStore {
        Store::nodes(&self.0)
    }

    fn locks(&self) -> &dyn LockStore {
        self.0.locks()
    }

    fn versions(&self) -> &dyn VersionStore {
        Store::versions(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_store_lacks_is_refused_by_name_and_nothing_is_stored() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(Plain(store.clone())));
    let parent = client.enqueue(NewJob::new("kind", &1)).await.unwrap().id();
    let batch = BatchId::new();
    store.create_batch(batch).await.unwrap();
    // The resource has a limit, so the error is about the missing part of the store.
    let api = Name::new("permit", "api").unwrap();
    store.set_permits(&api, 1, IfKnown::Change).await.unwrap();
    let job = || NewJob::new("kind", &2);
    for (refused, field) in [
        (job().after(parent, Condition::Ended), "parent"),
        (job().after_batch(batch, BatchCondition::Ended), "parent"),
        (job().in_batch(batch), "batch"),
        (job().wait_for("s", SECOND), "signal"),
        (job().permit("api"), "permit"),
    ] {
        let error = client.enqueue_all(&[job(), refused]).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
        assert_eq!(error.invalid_input().unwrap().field(), field);
    }
    let stands: Option<BatchRecord> = store.batches(&[batch]).await.unwrap().remove(0);
    assert_eq!(stands.unwrap().total, 0);
    let refused = |error: ratchet_core::StoreError| error.invalid_input().unwrap().field();
    assert_eq!(refused(client.create_batch().await.unwrap_err()), "batch");
    assert_eq!(
        refused(client.close_batch(batch).await.unwrap_err()),
        "batch"
    );
    assert_eq!(refused(client.signal("s", &1).await.unwrap_err()), "signal");
    let queues = client.queues().await.unwrap();
    assert_eq!(queues[0].counts.values().sum::<u64>(), 1);
    // A node still runs on this store.
    let node = Ratchet::builder(Arc::new(Plain(store)))
        .register::<Scripted>()
        .state(Scripts::default());
    let node = Started::new(node.build().unwrap());
    sleep(120 * SECOND).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_closed_again_when_the_answer_was_lost() {
    let calls = Arc::new(AtomicUsize::new(0));
    let world = World::new();
    let store = world.store.clone().with_faults({
        let calls = Arc::clone(&calls);
        move |operation| match operation {
            "close_batch" if calls.fetch_add(1, Ordering::SeqCst) == 0 => Fault::ErrorAfterCommit,
            _ => Fault::None,
        }
    });
    let client = Ratchet::client(Arc::new(store));
    let batch = client.create_batch().await.unwrap();
    let closed = client.close_batch(batch).await.unwrap();
    assert_eq!(closed, BatchClosed::Closed);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let again = client.close_batch(batch).await.unwrap();
    assert_eq!(again, BatchClosed::Already);
}

#[tokio::test(start_paused = true)]
async fn a_callback_reads_the_batches_it_waited_for() {
    let world = World::new();
    let client = Ratchet::client(Arc::new(world.store.clone()));
    let [first, second] = [
        client.create_batch().await.unwrap(),
        client.create_batch().await.unwrap(),
    ];
    let report = world.job("report", |ctx| async move {
        let batches = ctx.batches().await?;
        let seen = batches.iter().map(|batch| {
            let record = batch
                .record
                .as_ref()
                .map(|record| (record.succeeded, record.failed));
            (batch.id, record)
        });
        Ok(seen.collect::<Vec<_>>())
    });
    let report = report
        .after_batch(second, BatchCondition::Ended)
        .after_batch(first, BatchCondition::Ended);
    let report = world.enqueue(report).await;
    let good = world.job("good", |ctx| async move { Ok(ctx.batches().await?.len()) });
    let bad = world.job("bad", |_| async { Err::<(), _>(JobError::discard("no")) });
    let good = world.enqueue(good.in_batch(first)).await;
    world.enqueue(bad.in_batch(second)).await;
    for batch in [first, second] {
        client.close_batch(batch).await.unwrap();
    }
    let node = world.start();
    let said = world.ended(report).await.result.unwrap();
    let expected = [(second, Some((0, 1))), (first, Some((1, 0)))];
    assert_eq!(
        said.decode::<Vec<(BatchId, Option<(u64, u64)>)>>().unwrap(),
        expected
    );
    assert_eq!(world.ended(good).await.result.unwrap().as_str(), "0");
    node.stop().await.unwrap();
}
