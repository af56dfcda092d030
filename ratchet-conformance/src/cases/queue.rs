//! Queues: pausing, resuming, and counts.

use ratchet_core::limits::MAX_REASON_BYTES;

use super::prelude::*;

/// Returns the number of jobs of `queue` in each state, without the states that have no jobs.
/// Panics if the queue is not listed.
fn counts(queues: &[QueueInfo], queue: &str) -> Vec<(JobState, u64)> {
    let found = queues.iter().find(|info| info.name == queue);
    let info = found.unwrap_or_else(|| panic!("the queue {queue:?} should be listed"));
    let counts = info.counts.iter();
    counts
        .map(|(state, count)| (*state, *count))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Returns a pending job of the kind `head`. If the store supports lanes, the job is the head of a
/// lane, and a second job of the kind `blocked` waits in this lane.
fn head_and_blocked(cx: &Cx, new: impl Fn(&str) -> NewJob) -> Vec<NewJob> {
    match cx.has(Power::Lanes) {
        true => vec![new("head").lane("lane"), new("blocked").lane("lane")],
        false => vec![new("head")],
    }
}

cases! {
    "queue" on Cx;

    #[proves("queue.pause", "claim.paused")]
    async fn no_handle_claims_from_a_paused_queue(cx: &Cx) {
        let nodes = cx.nodes(3).await;
        nodes[0].add(job().queue("q")).await;
        assert_eq!(nodes[1].pause_queue("q").await, Changed::Changed);
        for node in &nodes {
            assert!(node.claim(10).await.is_empty());
        }
        nodes[2].add(job().queue("q")).await;
        assert!(nodes[0].claim(10).await.is_empty(), "expected no claim, because the pause also applies to later jobs");
    }

    #[proves("queue.pause")]
    async fn a_pause_outlives_every_handle(cx: &Cx) {
        let node = cx.node().await;
        node.add(job().queue("q")).await;
        node.pause_queue("q").await;
        drop(node);
        let node = cx.node().await;
        assert!(node.claim(10).await.is_empty());
        assert!(node.queues().await[0].paused);
    }

    #[proves("queue.pause")]
    async fn a_queue_can_be_paused_before_it_has_jobs(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.pause_queue("q").await, Changed::Changed);
        node.add(job().queue("q")).await;
        assert!(node.claim(10).await.is_empty());
    }

    #[proves("queue.pause")]
    async fn running_jobs_of_a_paused_queue_go_on(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().queue("q")).await;
        let token = node.take().await;
        node.pause_queue("q").await;
        node.alive(token).await;
        node.settle(token, retry(Duration::ZERO)).await;
        assert!(node.claim(10).await.is_empty());
        assert_eq!(node.state(id).await, JobState::Pending);
    }

    #[proves("queue.pause", "claim.paused", "queue.resume")]
    async fn no_handle_claims_a_job_of_a_paused_kind(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let of = |kind: &str, queue: &str| NewJob::new(kind, &()).queue(queue);
        let paused = a
            .add_all(&[of("k", "q"), of("k", "other"), of("k", "q").priority(Priority::Critical)])
            .await;
        let other = a.add(of("K", "q")).await;
        assert_eq!(b.pause_kind("k").await, Changed::Changed);
        assert_eq!(a.claim_ids(10).await, [other]);
        let later = a.add(of("k", "new")).await;
        assert!(b.claim(10).await.is_empty(), "expected no claim, because the pause also applies to later jobs");
        assert!(b.queues().await.iter().all(|queue| !queue.paused));
        assert_eq!(a.resume_kind("k").await, Changed::Changed);
        assert_eq!(b.claim_ids(10).await, [paused[2], paused[0], paused[1], later]);
    }

    #[proves("queue.pause")]
    async fn a_kind_can_be_paused_before_it_has_jobs_and_its_running_jobs_go_on(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(NewJob::new("runs", &())).await;
        let token = node.take().await;
        for kind in ["runs", "new"] {
            assert_eq!(node.pause_kind(kind).await, Changed::Changed);
        }
        node.add(NewJob::new("new", &())).await;
        node.alive(token).await;
        node.settle(token, retry(Duration::ZERO)).await;
        drop(node);
        assert!(cx.node().await.claim(10).await.is_empty());
        assert_eq!(cx.node().await.state(id).await, JobState::Pending);
    }

    #[proves("queue.resume", "queue.again")]
    async fn a_queue_and_a_kind_of_one_name_are_paused_separately(cx: &Cx) {
        let node = cx.node().await;
        let both = node.add(NewJob::new("x", &()).queue("x")).await;
        let of_queue = node.add(NewJob::new("other", &()).queue("x")).await;
        let of_kind = node.add(NewJob::new("x", &()).queue("other")).await;
        assert_eq!(node.pause_queue("x").await, Changed::Changed);
        assert_eq!(node.resume_kind("x").await, Changed::Unchanged);
        assert_eq!(node.pause_kind("x").await, Changed::Changed);
        assert_eq!(node.pauses().await.len(), 2);
        assert!(node.claim(10).await.is_empty());
        assert_eq!(node.resume_queue("x").await, Changed::Changed);
        assert_eq!(node.claim_ids(10).await, [of_queue]);
        assert_eq!(node.pause_queue("x").await, Changed::Changed);
        assert_eq!(node.resume_kind("x").await, Changed::Changed);
        assert_eq!(node.claim_ids(10).await, [of_kind]);
        assert_eq!(node.resume_queue("x").await, Changed::Changed);
        assert_eq!(node.claim_ids(10).await, [both]);
        assert_eq!(node.pauses().await, []);
    }

    #[proves("queue.pauses", "queue.again")]
    #[needs(Clock)]
    async fn pauses_are_listed_with_their_time_operator_and_reason(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.pauses().await, []);
        let longest = "ä".repeat(MAX_REASON_BYTES / 2);
        let requests = [
            pause_of_kind("b").by("alice").reason("the provider's \"API\" is down: 50% errors; 'α' {β}"),
            pause_of_kind("B").reason(&longest),
            pause_of_queue("ä"),
            pause_of_queue("a").by("日本"),
            pause_of_kind("a").by("x".repeat(128)),
            pause_of_queue("b"),
        ];
        let mut expected = Vec::new();
        for request in &requests {
            cx.advance(SECOND).await;
            assert_eq!(node.pause(request).await, Changed::Changed);
            expected.push(request.at(node.now().await));
        }
        expected.sort_by(|a, b| a.scope.cmp(&b.scope));
        assert_eq!(node.pauses().await, expected);
        cx.advance(SECOND).await;
        for request in &requests {
            let again = request.clone().by("bob").reason("another");
            assert_eq!(node.pause(&again).await, Changed::Unchanged);
        }
        assert_eq!(node.pauses().await, expected, "expected the first pauses to be kept");
        node.resume_kind("b").await;
        expected.retain(|pause| pause.scope != PauseScope::Kind(name("b")));
        assert_eq!(cx.node().await.pauses().await, expected);
    }

    #[proves("queue.due", "queue.depth")]
    async fn a_due_route_says_that_its_kind_is_paused(cx: &Cx) {
        let node = cx.node().await;
        let of = |kind: &str| NewJob::new(kind, &()).queue("q");
        node.add_all(&[of("a"), of("b"), of("q")]).await;
        // The kinds whose route says that its queue is paused, and those whose kind is.
        let paused = async || -> [Vec<String>; 2] {
            let due = node.due_routes().await;
            assert_eq!(due.len(), 3);
            let of = |is_paused: fn(&DueRoute) -> bool| {
                let paused = due.iter().filter(|due| is_paused(due));
                let mut kinds: Vec<String> = paused.map(|due| due.route.kind.to_string()).collect();
                kinds.sort_unstable();
                kinds
            };
            [of(|due| due.queue_paused), of(|due| due.kind_paused)]
        };
        let none: [&str; 0] = [];
        node.pause_queue("a").await;
        assert_eq!(paused().await, [none, none]);
        node.pause_kind("a").await;
        assert_eq!(paused().await, [&none[..], &["a"]]);
        assert_eq!(node.count_due("q", 10).await, 3, "expected due jobs to be counted although their kind is paused");
        node.pause_queue("q").await;
        assert_eq!(paused().await, [&["a", "b", "q"][..], &["a"]]);
        node.resume_queue("q").await;
        node.resume_kind("a").await;
        assert_eq!(paused().await, [none, none]);
    }

    #[proves("queue.pause", "queue.resume")]
    #[needs(Lanes)]
    async fn a_lane_waits_for_its_head_of_a_paused_kind(cx: &Cx) {
        let node = cx.node().await;
        let of = |kind: &str| NewJob::new(kind, &()).lane("lane");
        let ids = node.add_all(&[of("paused"), of("other")]).await;
        node.pause_kind("paused").await;
        assert!(node.claim(10).await.is_empty());
        node.resume_kind("paused").await;
        assert_eq!(node.claim_ids(10).await, [ids[0]]);
    }

    #[proves("queue.again")]
    async fn pausing_or_resuming_again_is_unchanged(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.resume_queue("q").await, Changed::Unchanged);
        assert_eq!(node.pause_queue("q").await, Changed::Changed);
        assert_eq!(node.pause_queue("q").await, Changed::Unchanged);
        assert_eq!(node.resume_queue("q").await, Changed::Changed);
        assert_eq!(node.resume_queue("q").await, Changed::Unchanged);
        assert_eq!(node.pause_queue("q").await, Changed::Changed);
    }

    #[proves("queue.resume")]
    async fn a_resumed_queue_is_claimed_from_at_once_and_in_order(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let low = a.add(job().queue("q").priority(Priority::Low)).await;
        let other = a.add(job()).await;
        let high = a.add(job().queue("q").priority(Priority::High)).await;
        let elsewhere = a.add(job().queue("elsewhere")).await;
        a.pause_queue("q").await;
        a.pause_queue("elsewhere").await;
        assert_eq!(b.claim_ids(10).await, [other]);
        b.release(b.token(other, 1).await).await;
        a.resume_queue("q").await;
        assert_eq!(b.claim_ids(10).await, [high, other, low]);
        assert_eq!(b.state(elsewhere).await, JobState::Pending);
    }

    #[proves("queue.list")]
    async fn queues_are_listed_once_by_name(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.queues().await, []);
        let mut all = ["b", "a", "B", "ä", "a b", "日", "zz"];
        for queue in all {
            node.add_all(&[job().queue(queue), job().queue(queue)])
                .await;
        }
        node.pause_queue("b").await;
        node.pause_queue("empty").await;
        let listed = node.queues().await;
        let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
        all.sort_unstable();
        let mut expected = all.to_vec();
        expected.insert(
            expected
                .iter()
                .position(|name| *name > "empty")
                .unwrap_or(0),
            "empty",
        );
        assert_eq!(names, expected);
        for info in &listed {
            assert_eq!(info.paused, info.name == "b" || info.name == "empty");
        }
        assert_eq!(counts(&listed, "empty"), []);
    }

    #[proves("queue.list")]
    async fn the_counts_add_up_to_the_jobs(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(
            &jobs(10)
                .into_iter()
                .map(|job| job.queue("q"))
                .collect::<Vec<_>>(),
        )
        .await;
        let elsewhere = node.add(job().queue("other").delay(HOUR)).await;
        let claimed = node.claim(6).await;
        let token = |index: usize| claimed[index].claim.token;
        node.succeed(token(0)).await;
        node.succeed(token(1)).await;
        node.fail(token(2)).await;
        node.release(token(3)).await;
        node.settle(token(4), Outcome::Cancelled).await;
        let waiting = node.everything().await[8].id;
        node.act(waiting, JobAction::Pause).await;
        let listed = node.queues().await;
        let expected = [
            (JobState::Pending, 4),
            (JobState::Paused, 1),
            (JobState::Running, 1),
            (JobState::Succeeded, 2),
            (JobState::Failed, 1),
            (JobState::Cancelled, 1),
        ];
        assert_eq!(counts(&listed, "q"), expected);
        assert_eq!(counts(&listed, "other"), [(JobState::Pending, 1)]);
        node.act(elsewhere, JobAction::Cancel).await;
        assert_eq!(
            counts(&node.queues().await, "other"),
            [(JobState::Cancelled, 1)]
        );
    }

    #[proves("queue.list")]
    #[needs(Clock)]
    async fn a_queue_without_jobs_is_not_listed(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().queue("q")).await;
        node.act(id, JobAction::Cancel).await;
        cx.advance(HOUR).await;
        node.purge(JobState::Cancelled, MINUTE, 10).await;
        assert_eq!(node.queues().await, []);
        node.pause_queue("q").await;
        assert_eq!(node.queues().await.len(), 1);
        node.resume_queue("q").await;
        assert_eq!(node.queues().await, []);
    }
    #[proves("queue.due")]
    #[needs(Clock)]
    async fn routes_are_due_from_the_millisecond_their_first_job_is(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.due_routes().await, []);
        let tagged = |delay: Duration| job().queue("q").capability("gpu").delay(delay);
        let early = tagged(SECOND).priority(Priority::Lowest);
        let late = tagged(MINUTE).priority(Priority::Critical);
        let route = early.spec().route.clone();
        let early = node.add(early).await;
        let late = node.add(late).await;
        cx.advance(999 * MILLI).await;
        assert_eq!(node.due_routes().await, []);
        cx.advance(MILLI).await;
        let due = |paused, overdue| {
            let overdue = time::duration_millis(overdue);
            [DueRoute::at(route.clone(), paused, 0, overdue)]
        };
        assert_eq!(node.due_routes().await, due(false, Duration::ZERO));
        cx.advance(HOUR).await;
        assert_eq!(node.due_routes().await, due(false, HOUR));
        node.pause_queue("q").await;
        assert_eq!(node.due_routes().await, due(true, HOUR));
        node.act(early, JobAction::Cancel).await;
        let left = HOUR + SECOND - MINUTE;
        assert_eq!(node.due_routes().await, due(true, left));
        node.resume_queue("q").await;
        assert_eq!(node.due_routes().await, due(false, left));
        node.act(late, JobAction::Cancel).await;
        assert_eq!(node.due_routes().await, []);
    }

    #[proves("queue.due")]
    #[needs(Clock)]
    async fn a_route_that_comes_due_in_the_given_time_is_listed_with_what_is_left(cx: &Cx) {
        let node = cx.node().await;
        let new = |queue: &str, delay| job().queue(queue).delay(delay);
        node.add_all(&[new("late", MINUTE), new("early", SECOND), new("due", MILLI)])
            .await;
        cx.advance(MILLI).await;
        let listed = async |within| -> Vec<(String, Duration)> {
            let routes = node.due_routes_within(within).await;
            let routes = routes.into_iter();
            routes
                .map(|due| (due.route.queue.to_string(), due.due_in))
                .collect()
        };
        let due = ("due".to_owned(), Duration::ZERO);
        let early = ("early".to_owned(), SECOND - MILLI);
        let late = ("late".to_owned(), MINUTE - MILLI);
        assert_eq!(listed(SECOND - 2 * MILLI).await, std::slice::from_ref(&due));
        assert_eq!(listed(SECOND - MILLI).await, [due.clone(), early.clone()]);
        for within in [MINUTE, Duration::MAX] {
            assert_eq!(listed(within).await, [due.clone(), early.clone(), late.clone()]);
        }
        let overdue = |due: &DueRoute| due.overdue;
        let overdue: Vec<Duration> = node.due_routes_within(MINUTE).await.iter().map(overdue).collect();
        assert_eq!(overdue, [Duration::ZERO; 3]);
    }

    #[proves("queue.due")]
    #[needs(Clock)]
    async fn due_routes_come_longest_overdue_first_and_then_by_name(cx: &Cx) {
        let node = cx.node().await;
        let routes = [("b", "k"), ("a", "K"), ("a", "k"), ("ä", "k"), ("B", "k")];
        let of = |(queue, kind): (&str, &str)| NewJob::new(kind, &()).queue(queue);
        for route in routes {
            node.add_all(&[of(route), of(route)]).await;
        }
        cx.advance(SECOND).await;
        node.add(of(("a", "younger"))).await;
        let all = node.due_routes().await;
        let found: Vec<(&str, &str)> = all
            .iter()
            .map(|due| (due.route.queue.as_str(), due.route.kind.as_str()))
            .collect();
        let expected = [
            ("B", "k"),
            ("a", "K"),
            ("a", "k"),
            ("b", "k"),
            ("ä", "k"),
            ("a", "younger"),
        ];
        assert_eq!(found, expected);
        let overdue: Vec<Duration> = all.iter().map(|due| due.overdue).collect();
        assert_eq!(overdue[..5], [SECOND; 5]);
        assert_eq!(overdue[5], Duration::ZERO);
    }

    #[proves("queue.due")]
    async fn only_pending_jobs_make_a_route_due(cx: &Cx) {
        let node = cx.node().await;
        let paused = node.add(NewJob::new("paused", &())).await;
        node.act(paused, JobAction::Pause).await;
        let ended = node.add(NewJob::new("ended", &())).await;
        node.act(ended, JobAction::Cancel).await;
        node.add_all(&head_and_blocked(cx, |kind| NewJob::new(kind, &()))).await;
        let kinds = async || -> Vec<String> {
            let due = node.due_routes().await;
            due.iter().map(|due| due.route.kind.to_string()).collect()
        };
        assert_eq!(kinds().await, ["head"]);
        let token = node.take().await;
        assert_eq!(kinds().await, [""; 0], "expected no due job while the head of the lane runs");
        node.succeed(token).await;
        let mut due = if cx.has(Power::Lanes) { vec!["blocked"] } else { vec![] };
        assert_eq!(kinds().await, due);
        node.act(paused, JobAction::Resume).await;
        due.push("paused");
        let mut found = kinds().await;
        found.sort_unstable();
        assert_eq!(found, due);
    }

    #[proves("queue.depth")]
    #[needs(Clock)]
    async fn due_jobs_of_a_queue_are_counted_up_to_a_limit(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.count_due("q", 10).await, 0);
        let of = |kind: &str, queue: &str| NewJob::new(kind, &()).queue(queue);
        let tagged = of("a", "q").capability("gpu").priority(Priority::Lowest);
        let later = of("a", "q").delay(SECOND).priority(Priority::Critical);
        node.add_all(&[of("a", "q"), of("b", "q"), tagged, later, of("a", "other")])
            .await;
        assert_eq!(node.count_due("q", 10).await, 3);
        cx.advance(999 * MILLI).await;
        assert_eq!(node.count_due("q", 10).await, 3);
        cx.advance(MILLI).await;
        for (limit, counted) in [(0, 0), (1, 1), (3, 3), (4, 4), (10, 4), (u64::MAX, 4)] {
            assert_eq!(node.count_due("q", limit).await, counted, "up to {limit}");
        }
        assert_eq!(node.count_due("other", 10).await, 1);
        node.pause_queue("q").await;
        assert_eq!(node.count_due("q", 10).await, 4, "expected due jobs to be counted although the queue is paused");
    }

    #[proves("queue.depth")]
    async fn only_pending_jobs_count_as_due(cx: &Cx) {
        let node = cx.node().await;
        let of = |kind: &str| NewJob::new(kind, &()).queue("q");
        let paused = node.add(of("paused")).await;
        node.act(paused, JobAction::Pause).await;
        let ended = node.add(of("ended")).await;
        node.act(ended, JobAction::Cancel).await;
        assert_eq!(node.count_due("q", 10).await, 0);
        node.add_all(&head_and_blocked(cx, of)).await;
        assert_eq!(node.count_due("q", 10).await, 1);
        let token = node.take().await;
        assert_eq!(node.count_due("q", 10).await, 0, "expected no due job while the head of the lane runs");
        node.succeed(token).await;
        let promoted = u64::from(cx.has(Power::Lanes));
        assert_eq!(node.count_due("q", 10).await, promoted);
        node.act(paused, JobAction::Resume).await;
        assert_eq!(node.count_due("q", 10).await, promoted + 1);
    }
}
