//! Tests of the jobs that gather while others are stored.

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::*;
use crate::model::Enqueued;
use crate::store::checked::gather::{LARGEST, PATIENCE};

const SOON: Duration = Duration::from_millis(10);

/// The number of enqueues that have reached the inner store.
type Count = Arc<Mutex<usize>>;

/// Returns a door whose inner store delays its n-th enqueue, counted from 0, by `delay(n)`.
fn door(delay: impl Fn(usize) -> Duration + Send + Sync + 'static) -> (Checked<Probe>, Count) {
    faulty_door(move |call| Fault::Delay(delay(call)))
}

/// Returns a door whose inner store has the fault `fault(n)` in its n-th enqueue.
fn faulty_door(fault: impl Fn(usize) -> Fault + Send + Sync + 'static) -> (Checked<Probe>, Count) {
    let calls = Count::default();
    let seen = Arc::clone(&calls);
    let memory = MemoryStore::new().with_faults(move |operation| {
        if operation != "enqueue" {
            return Fault::None;
        }
        let mut seen = seen.lock().unwrap();
        *seen += 1;
        fault(*seen - 1)
    });
    let probe = Probe {
        memory,
        policy: CallPolicy::default().gathers(true),
        timed_out: Arc::default(),
    };
    (Checked::new(probe), calls)
}

fn job() -> NewJob {
    NewJob::new("kind", &1)
}

fn enqueue(store: &Checked<Probe>, job: &NewJob) -> JoinHandle<Result<Vec<Enqueued>>> {
    let (store, job) = (store.clone(), [job.clone()]);
    tokio::spawn(async move { store.enqueue(&job).await })
}

async fn assert_stored(store: &Checked<Probe>, jobs: &[NewJob]) {
    let ids: Vec<_> = jobs.iter().map(NewJob::id).collect();
    let found = store.get(&ids, Detail::Outline).await.unwrap();
    assert!(found.iter().all(Option::is_some), "{found:?}");
}

/// Enqueues jobs concurrently, each with a call of its own.
async fn enqueue_each(store: &Checked<Probe>, jobs: &[NewJob]) -> Vec<Result<Vec<Enqueued>>> {
    let calls = jobs.iter().map(|job| enqueue(store, job));
    let answers = join_all(calls).await.into_iter();
    answers.map(|answer| answer.unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn jobs_of_concurrent_calls_are_stored_together() {
    let (store, calls) = door(|_| SOON);
    let jobs: Vec<_> = (0..10).map(|_| job()).collect();
    let answers = enqueue_each(&store, &jobs).await;
    for (job, answer) in jobs.iter().zip(answers) {
        assert_eq!(answer.unwrap(), [Enqueued::Created(job.id())]);
    }
    assert_stored(&store, &jobs).await;
    assert_eq!(*calls.lock().unwrap(), 2);
    // The next call need not wait.
    store.enqueue(&[job()]).await.unwrap();
    assert_eq!(*calls.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_group_that_is_refused_are_stored_alone() {
    let (store, calls) = faulty_door(|call| match call {
        0 => Fault::Delay(SOON),
        // The group, and one of its jobs.
        1 | 3 => Fault::Failure(StoreErrorKind::Invalid),
        _ => Fault::None,
    });
    let jobs: Vec<_> = (0..5).map(|_| job()).collect();
    let answers = enqueue_each(&store, &jobs).await;
    let stored = jobs.iter().zip(&answers);
    let stored = stored.filter(|(_, answer)| answer.is_ok());
    let stored: Vec<_> = stored.map(|(job, _)| job.clone()).collect();
    assert_eq!(stored.len(), 4, "{answers:?}");
    assert_stored(&store, &stored).await;
    assert_eq!(*calls.lock().unwrap(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_no_job_with_it() {
    let (store, _) = door(|_| SOON);
    for given_up_after in [SOON / 2, SOON + SOON / 2] {
        let jobs = [job(), job(), job(), job()];
        let calls: Vec<_> = jobs.iter().map(|job| enqueue(&store, job)).collect();
        tokio::time::sleep(given_up_after).await;
        // This caller waits for its turn, and then stores the group.
        calls[1].abort();
        for (place, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.is_err(), place == 1);
        }
        assert_stored(&store, &[&jobs[..1], &jobs[2..]].concat()).await;
        let began = time::monotonic();
        store.enqueue(&[job()]).await.unwrap();
        assert_eq!(began.elapsed(), SOON, "the place is free again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_that_hangs_holds_up_no_other() {
    let (store, _) = door(|call| match call {
        0 => Duration::from_secs(5),
        _ => Duration::ZERO,
    });
    let hanging = enqueue(&store, &job());
    tokio::task::yield_now().await;
    let began = time::monotonic();
    store.enqueue(&[job()]).await.unwrap();
    assert_eq!(began.elapsed(), PATIENCE);
    hanging.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_group_time_out_together() {
    let (store, calls) = door(|call| match call {
        0 => SOON,
        _ => Duration::from_secs(60),
    });
    let began = time::monotonic();
    let answers = enqueue_each(&store, &[job(), job(), job()]).await;
    for answer in answers.into_iter().skip(1) {
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Timeout);
    }
    assert_eq!(began.elapsed(), SOON + store.call_policy().deadline);
    assert_eq!(*calls.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_polled_holds_up_no_other_for_ever() {
    let (store, calls) = door(|_| SOON);
    let first = enqueue(&store, &job());
    tokio::task::yield_now().await;
    let own = [job()];
    let mut stalled = Box::pin(store.enqueue(&own));
    assert!(futures_util::poll!(&mut stalled).is_pending());
    let began = time::monotonic();
    let follower = enqueue(&store, &job());
    first.await.unwrap().unwrap();
    // The call of the group begins here, and is never polled again.
    assert!(futures_util::poll!(&mut stalled).is_pending());
    assert_eq!(*calls.lock().unwrap(), 2);
    let error = follower.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    let limit = store.call_policy().deadline + PATIENCE;
    assert_eq!(began.elapsed(), limit);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_may_be_as_long_as_a_duration_can_be() {
    let probe = Probe {
        memory: MemoryStore::new(),
        policy: CallPolicy::within(Duration::MAX).gathers(true),
        timed_out: Arc::default(),
    };
    Checked::new(probe).enqueue(&[job()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_at_once_leave_the_place_free() {
    let (store, calls) = door(|_| SOON);
    let first = enqueue(&store, &job());
    tokio::task::yield_now().await;
    let many: Vec<_> = (0..20_000).map(|_| enqueue(&store, &job())).collect();
    tokio::task::yield_now().await;
    many.iter().for_each(JoinHandle::abort);
    join_all(many).await;
    first.await.unwrap().unwrap();
    store.enqueue(&[job()]).await.unwrap();
    assert_eq!(*calls.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_is_not_in_the_group_of_the_first() {
    let (store, calls) = door(|_| SOON);
    let twice = job();
    for answer in enqueue_each(&store, &[job(), twice.clone(), twice]).await {
        answer.unwrap();
    }
    assert_eq!(*calls.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn jobs_with_keys_and_large_jobs_are_stored_by_their_own_calls() {
    let (store, calls) = door(|_| SOON);
    let large = NewJob::new("kind", &"x".repeat(LARGEST));
    for (kind, job) in [job().unique_key("u"), job().idempotency_key("i"), large]
        .iter()
        .enumerate()
    {
        for answer in enqueue_each(&store, &[job.another(), job.another(), job.another()]).await {
            answer.unwrap();
        }
        assert_eq!(*calls.lock().unwrap(), (kind + 1) * 3);
    }
}
