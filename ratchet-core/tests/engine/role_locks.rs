//! Tests nodes that are candidates for many roles, and so read the locks of all roles at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::MemoryStore;
use ratchet_core::cluster::LeaderTimings;
use ratchet_core::memory::Fault;
use ratchet_core::time::monotonic;
use tokio::time::sleep;

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);
const ROLES: usize = 20;

fn candidate(world: &World, store: MemoryStore) -> Started {
    let roles = (0..ROLES).map(|role| format!("role {role}"));
    let builder = roles.fold(world.builder_on(store), |builder, role| builder.role(&role));
    Started::new(builder.build().unwrap())
}

/// Two candidates. The first leads in all roles.
struct Pair {
    first: Started,
    second: Started,
    /// Delays each list of locks of the second candidate by this number of seconds.
    slow: Arc<AtomicUsize>,
    /// The number of single locks that the second candidate has read.
    reads: Arc<AtomicUsize>,
}

async fn pair(world: &World) -> Pair {
    let first = candidate(world, world.store.clone());
    sleep(SECOND).await;
    let (slow, reads) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let faults = {
        let (slow, reads) = (Arc::clone(&slow), Arc::clone(&reads));
        move |operation: &'static str| match (operation, slow.load(Ordering::SeqCst)) {
            ("list_locks", seconds) if seconds > 0 => {
                Fault::Delay(Duration::from_secs(seconds as u64))
            }
            ("inspect", _) => {
                reads.fetch_add(1, Ordering::SeqCst);
                Fault::None
            }
            _ => Fault::None,
        }
    };
    let second = candidate(world, world.store.clone().with_faults(faults));
    sleep(60 * SECOND).await;
    Pair {
        first,
        second,
        slow,
        reads,
    }
}

/// Waits until the node leads in all roles. Panics after `bound`.
async fn leads_within(node: &Started, bound: Duration) {
    let began = monotonic();
    for role in (0..ROLES).map(|role| format!("role {role}")) {
        let leads = || {
            let leadership = node.node.leadership(&role);
            leadership.is_some_and(|leadership| leadership.is_leader())
        };
        while !leads() {
            assert!(
                began.elapsed() <= bound,
                "no takeover of {role} within {bound:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A list of locks that hangs shows that jobs use all connections.
#[tokio::test(start_paused = true)]
async fn a_list_of_locks_that_hangs_delays_no_takeover() {
    let world = World::new();
    let pair = pair(&world).await;
    pair.slow.store(60, Ordering::SeqCst);
    pair.first.kill().await;
    let timings = LeaderTimings::default();
    leads_within(&pair.second, timings.ttl + timings.heartbeat).await;
    pair.second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_is_followed_although_the_list_of_locks_hangs() {
    let world = World::new();
    let pair = pair(&world).await;
    pair.slow.store(60, Ordering::SeqCst);
    sleep(60 * SECOND).await;
    pair.first.stop().await.unwrap();
    // A candidate reads its own lock at every second turn.
    leads_within(
        &pair.second,
        2 * LeaderTimings::default().heartbeat + SECOND,
    )
    .await;
    pair.second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_list_of_locks_does_not_lead_to_more_reads() {
    let world = World::new();
    let pair = pair(&world).await;
    pair.slow.store(1, Ordering::SeqCst);
    pair.reads.store(0, Ordering::SeqCst);
    sleep(60 * SECOND).await;
    let turns = (60 * SECOND).div_duration_f64(LeaderTimings::default().heartbeat);
    let reads = pair.reads.load(Ordering::SeqCst);
    assert!(
        (reads as f64) < turns * ROLES as f64 * 0.6,
        "found {reads} reads of single locks"
    );
    stop_all([pair.first, pair.second]).await;
}
