//! Lanes: nodes run the jobs of one lane one at a time and in order, and do not wait between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::{JobError, JobState, RetryPolicy};
use tokio::time::{sleep, timeout};

use crate::kit::{Started, World, stop_all};

const MILLI: Duration = Duration::from_millis(1);

/// The starts and ends of the bodies in each lane.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<BTreeMap<String, Bodies>>>);

type Bodies = Vec<(usize, bool)>;

impl Log {
    fn note(&self, lane: &str, number: usize, begins: bool) {
        let mut log = self.0.lock().unwrap();
        log.entry(lane.to_owned())
            .or_default()
            .push((number, begins));
    }
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_lane_run_one_at_a_time_and_in_order_on_whatever_node() {
    const LANES: usize = 5;
    const EACH: usize = 20;
    let world = World::new();
    let log = Log::default();
    let mut all = Vec::new();
    for number in 0..EACH {
        for lane in 0..LANES {
            let (log, lane) = (log.clone(), format!("lane {lane}"));
            let job = world.job(&format!("{lane}, {number}"), {
                let lane = lane.clone();
                move |ctx| {
                    let (log, lane) = (log.clone(), lane.clone());
                    async move {
                        assert_eq!(ctx.lane().map(ToString::to_string), Some(lane.clone()));
                        log.note(&lane, number, true);
                        // Earlier jobs take longer. So a job that is claimed too soon would
                        // end before them.
                        let length = u32::try_from(EACH - number).unwrap();
                        sleep(length * MILLI).await;
                        log.note(&lane, number, false);
                        if number % 7 == 3 && ctx.attempt() == 1 {
                            return Err(JobError::from("again"));
                        }
                        Ok(())
                    }
                }
            });
            let retry = RetryPolicy::fixed(3, 50 * MILLI);
            all.push(world.enqueue(job.lane(&lane).retry(retry)).await);
        }
    }
    let nodes: Vec<Started> = (0..3)
        .map(|_| Started::new(world.builder().concurrency(8).build().unwrap()))
        .collect();
    for id in all {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    stop_all(nodes).await;
    let mut expected = Vec::new();
    for number in 0..EACH {
        let attempts = if number % 7 == 3 { 2 } else { 1 };
        expected.extend([(number, true), (number, false)].repeat(attempts));
    }
    let log = log.0.lock().unwrap();
    assert_eq!(log.len(), LANES);
    for (lane, bodies) in log.iter() {
        assert_eq!(bodies, &expected, "{lane}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_of_a_lane_does_not_wait_for_a_poll() {
    let world = World::new();
    let mut last = None;
    for number in 0..100 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = Some(world.enqueue(job.lane("l")).await);
    }
    let _node = world.start();
    // Waiting a poll interval for each job would take ten seconds.
    let ended = timeout(Duration::from_secs(1), world.ended(last.unwrap()));
    ended.await.unwrap();
}
