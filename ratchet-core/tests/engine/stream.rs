//! Tests of `Client::enqueue_stream`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use ratchet_core::memory::Fault;
use ratchet_core::model::JobFilter;
use ratchet_core::{Client, MemoryStore, NewJob, Ratchet, StoreErrorKind};

/// Returns a client and a counter of its enqueue calls. The call with the number `failing` fails;
/// numbers start at 1.
fn counted(failing: usize) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let store = MemoryStore::new().with_faults({
        let calls = Arc::clone(&calls);
        move |operation| match operation {
            "enqueue" if calls.fetch_add(1, Ordering::SeqCst) + 1 == failing => {
                Fault::Failure(StoreErrorKind::Corrupt)
            }
            _ => Fault::None,
        }
    });
    (Ratchet::client(Arc::new(store)), calls)
}

fn job(number: usize) -> NewJob {
    NewJob::new("kind", &number)
}

#[tokio::test]
async fn a_stream_is_enqueued_in_calls_of_bounded_size() {
    let (client, calls) = counted(0);
    let keyed = (0..2_500).map(|number| job(number).idempotency_key(&(number % 2_000).to_string()));
    let counts = client.enqueue_stream(stream::iter(keyed)).await.unwrap();
    assert_eq!((counts.created, counts.duplicates), (2_000, 500));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    // One call takes about 4 MiB of payloads, which 21 of these jobs exceed. So 30 jobs need two
    // calls.
    let large = (0..30).map(|_| NewJob::new("kind", &"x".repeat(200_000)));
    client.enqueue_stream(stream::iter(large)).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 5);
    let none = client.enqueue_stream(stream::empty()).await.unwrap();
    assert_eq!((none.created, calls.load(Ordering::SeqCst)), (0, 5));
}

#[tokio::test]
async fn a_stream_that_fails_says_how_far_it_came() {
    let (client, _) = counted(2);
    let error = client
        .enqueue_stream(stream::iter((0..3_000).map(job)))
        .await
        .unwrap_err();
    assert_eq!(error.before.created, 1_000);
    assert_eq!(error.source.kind(), StoreErrorKind::Corrupt);
    assert!(
        error.to_string().contains("stopped after 1000 jobs: "),
        "{error}"
    );
    let stored = client.count(&JobFilter::all()).await.unwrap();
    assert_eq!(stored.values().sum::<u64>(), 1_000);
}
