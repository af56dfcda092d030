//! Tests of suspects: jobs that were running when their node died, one of which may have killed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::JobState;
use tokio::time::sleep;

use crate::kit::{Started, World};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_process_uses_up_its_own_crash_budget_only() {
    let world = World::new();
    let killed = Arc::new(AtomicBool::new(false));
    let killer = world.job("killer", {
        let killed = Arc::clone(&killed);
        move |_| {
            let killed = Arc::clone(&killed);
            async move {
                sleep(2 * SECOND).await;
                killed.store(true, Ordering::SeqCst);
                sleep(3_600 * SECOND).await;
                Ok(())
            }
        }
    });
    let mut innocent = Vec::new();
    for number in 0..20 {
        let job = world.job(&number.to_string(), |_| async {
            sleep(5 * SECOND).await;
            Ok(())
        });
        innocent.push(world.enqueue(job).await);
    }
    let killer = world.enqueue(killer).await;
    while !world.read(killer).await.state.is_terminal() {
        let node = Started::new(world.builder().label("fragile").build().unwrap());
        while !killed.swap(false, Ordering::SeqCst) {
            sleep(Duration::from_millis(100)).await;
            if world.read(killer).await.state.is_terminal() {
                break;
            }
        }
        node.kill().await;
    }
    assert_eq!(world.read(killer).await.state, JobState::Failed);
    let _node = Started::new(world.builder().label("fragile").build().unwrap());
    for id in innocent {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn suspects_run_one_at_a_time_and_delay_no_other_job() {
    let world = World::new();
    let mut slow = Vec::new();
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    for number in 0..4 {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let job = world.job(&number.to_string(), move |_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(60 * SECOND).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        slow.push(world.enqueue(job).await);
    }
    let build = || {
        world
            .builder()
            .label("fragile")
            .concurrency(4)
            .prefetch(0)
            .build()
            .unwrap()
    };
    for claims in 1..=2 {
        let node = Started::new(build());
        for id in &slow {
            world.until(*id, |job| job.claim_seq == claims).await;
        }
        // Within this time, the node reports to the store that the bodies have begun.
        sleep(5 * SECOND).await;
        node.kill().await;
    }
    let (killed, before) = (
        running.swap(0, Ordering::SeqCst),
        most.swap(0, Ordering::SeqCst),
    );
    assert_eq!(
        (killed, before),
        (8, 8),
        "expected all 8 jobs to run together until they were suspects"
    );
    let _node = Started::new(build());
    for id in &slow {
        world.until(*id, |job| job.claim_seq == 3).await;
    }
    let other = world.job("other", |_| async { Ok(()) });
    let other = world.enqueue(other).await;
    sleep(5 * SECOND).await;
    assert_eq!(world.read(other).await.state, JobState::Succeeded);
    for id in slow {
        world.ended(id).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1, "suspects ran together");
}
