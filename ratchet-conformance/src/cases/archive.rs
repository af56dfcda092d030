//! The archive: archiving jobs, finding archived jobs, and deleting them permanently.

use ratchet_core::store::ArchiveStore;

use super::prelude::*;

fn archive(node: &TestNode) -> &dyn ArchiveStore {
    (node.store.archive()).expect(
        "the store should have an archive, because the case requires the \
         power Archive",
    )
}

async fn put_away(node: &TestNode, state: JobState, older_than: Duration, limit: usize) -> u64 {
    let request = PurgeRequest::new(state, older_than, limit);
    landed(ok(archive(node).archive(&request).await))
}

async fn archived(node: &TestNode, id: JobId) -> Option<ArchivedJob> {
    let mut found = ok(archive(node).archived(&[id]).await);
    assert_eq!(found.len(), 1, "expected one answer per id");
    found.remove(0)
}

async fn purge_archive(node: &TestNode, older_than: Duration, limit: usize) -> u64 {
    let request = ArchivePurge::new(older_than, limit);
    landed(ok(archive(node).purge_archive(&request).await))
}

/// Returns all archived jobs, oldest first.
async fn everything(node: &TestNode) -> Vec<ArchivedJob> {
    let page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
    ok(archive(node)
        .list_archived(&ArchiveFilter::all(), &page)
        .await)
    .jobs
}

async fn stored_ids(node: &TestNode) -> Vec<JobId> {
    node.everything().await.iter().map(|job| job.id).collect()
}

fn archived_ids(jobs: &[ArchivedJob]) -> Vec<JobId> {
    jobs.iter().map(|one| one.job.id).collect()
}

/// Returns all archived jobs that match `filter`. Reads them in pages of at most `limit` jobs.
async fn walk(
    node: &TestNode,
    filter: &ArchiveFilter,
    order: JobOrder,
    limit: usize,
) -> Vec<ArchivedJob> {
    let (mut visited, mut walk) = (Vec::new(), Walk::new());
    let mut page = PageRequest::first(limit).order(order);
    loop {
        let read = ok(archive(node).list_archived(filter, &page).await);
        assert!(read.jobs.len() <= limit);
        visited.extend(read.jobs);
        let Some(next) = walk.on(read.next) else {
            return visited;
        };
        assert_eq!(Some(next), visited.last().map(|one| one.job.id));
        page = page.after(Some(next));
    }
}

/// Stores jobs of several kinds in several queues. Ends a third of them with success, a third with
/// failure and a third by cancellation. Returns their ids.
async fn ended(node: &TestNode) -> Vec<JobId> {
    let mut all = Vec::new();
    for number in 0..18 {
        let new = NewJob::new(&format!("kind {}", number % 2), &number);
        let id = node.add(new.queue(&format!("queue {}", number % 3))).await;
        let token = node.take().await;
        match number / 6 {
            0 => node.succeed(token).await,
            1 => node.fail(token).await,
            _ => assert_eq!(
                node.settle(token, Outcome::Cancelled).await,
                Fenced::Applied
            ),
        }
        all.push(id);
    }
    all
}

cases! {
    "archive" on Cx;

    #[proves("archive.move")]
    #[needs(Archive, Clock, IdempotencyKeys, Lanes, Tags)]
    async fn an_archived_job_is_whole_and_no_longer_among_the_jobs(cx: &Cx) {
        let node = cx.node().await;
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = TraceContext::new(parent).expect("the trace context should be well formed");
        let new = NewJob::new("kind", &("é\u{0}\"", 1.5))
            .queue("Größe")
            .capability("gpu")
            .priority(Priority::High)
            .retry(RetryPolicy::fixed(3, SECOND))
            .timeout(MINUTE)
            .stall_timeout(HOUR)
            .unique_key("u")
            .idempotency_key("i")
            .lane("l")
            .tag("tenant:7")
            .tag("b")
            .trace(trace);
        let id = node.add(new).await;
        let request = node.request(1).capabilities(names(["gpu"]));
        let first = node.claim_with(&request).await.remove(0).claim.token;
        let progress = ReportKind::Progress {
            percent: 40,
            message: "half".to_owned(),
        };
        node.report(first, progress).await;
        node.report(first, ReportKind::Checkpoint(json("[1, 2.0]"))).await;
        node.settle(first, retry(Duration::ZERO)).await;
        let second = node.claim_with(&request).await.remove(0).claim.token;
        let success = Settlement::new(second, result("{ \"a\": 1 }")).ran_for(MINUTE);
        node.settle_all(&[success]).await;
        let (job, history) = (node.get(id).await, node.history(id).await);
        assert_eq!(history.len(), 2);
        cx.advance(HOUR).await;
        let now = node.now().await;
        assert_eq!(put_away(&node, JobState::Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.find(id).await, None);
        assert_eq!(node.history(id).await, []);
        assert!(node.everything().await.is_empty());
        assert_eq!(node.act(id, JobAction::Requeue).await, ActionOutcome::NotFound);
        let found = archived(&node, id).await.expect("the job should be in the archive");
        assert_eq!((found.job, found.history, found.archived_at), (job, history, now));
    }

    #[proves("archive.awaited")]
    #[needs(Archive, Clock, Workflows)]
    async fn a_parent_is_archived_when_its_last_child_has_ended(cx: &Cx) {
        let node = cx.node().await;
        let (parent, plain) = (node.add(job()).await, node.add(job()).await);
        let child = node.add(job().after(parent, Condition::Ended)).await;
        for id in [parent, plain] {
            node.end(id, Outcome::Succeeded { result: Some(json("7")) }).await;
        }
        cx.advance(HOUR).await;
        // The parent is older and cannot be archived yet. The plain job is archived nevertheless.
        let request = PurgeRequest::new(JobState::Succeeded, MINUTE, 1);
        assert_eq!(landed(ok(archive(&node).archive(&request).await)), 1);
        assert_eq!(landed(ok(archive(&node).archive(&request).await)), 0);
        assert_eq!(archived_ids(&everything(&node).await), [plain]);
        let result = node.get(parent).await.result;
        assert_eq!(result, Some(json("7")));
        node.end(child, Outcome::Cancelled).await;
        assert_eq!(landed(ok(archive(&node).archive(&request).await)), 1);
        assert_eq!(archived_ids(&everything(&node).await), [parent, plain]);
    }

    #[proves("archive.awaited")]
    #[needs(Archive, Clock, Workflows)]
    async fn a_parent_is_not_archived_while_a_child_runs_or_is_to_run_again(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let child = node.add(job().after(parent, Condition::Ended)).await;
        node.end(parent, Outcome::Succeeded { result: None }).await;
        // Each pass also has an old job without links. So a store that checks beforehand whether
        // there is anything to archive cannot skip the pass.
        let pass = async || {
            let plain = node.add(job()).await;
            node.end(plain, Outcome::Succeeded { result: None }).await;
            cx.advance(HOUR).await;
            let moved = put_away(&node, JobState::Succeeded, MINUTE, 10).await;
            assert!(archived(&node, plain).await.is_some());
            moved - 1
        };
        let token = node.take_job(child).await;
        assert_eq!(pass().await, 0);
        node.settle(token, retry(Duration::ZERO)).await;
        assert_eq!(pass().await, 0);
        node.act(child, JobAction::Pause).await;
        assert_eq!(pass().await, 0);
        node.act(child, JobAction::Resume).await;
        node.fail(node.take_job(child).await).await;
        node.act(child, JobAction::Requeue).await;
        assert_eq!(pass().await, 0);
        assert!(node.find(parent).await.is_some());
        node.end(child, Outcome::Cancelled).await;
        assert_eq!(pass().await, 1);
        assert!(archived(&node, parent).await.is_some());
    }

    #[proves("archive.old", "time.clock", "time.precision")]
    #[needs(Archive, Clock)]
    async fn a_job_is_archived_when_it_is_older_than_asked_and_not_before(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        node.succeed(node.take().await).await;
        cx.advance(HOUR).await;
        assert_eq!(put_away(&node, JobState::Succeeded, HOUR, 10).await, 0);
        assert!(node.find(id).await.is_some());
        cx.advance(MILLI).await;
        for state in [JobState::Failed, JobState::Cancelled] {
            assert_eq!(put_away(&node, state, HOUR, 10).await, 0);
        }
        assert_eq!(put_away(&node, JobState::Succeeded, HOUR, 10).await, 1);
        assert_eq!(put_away(&node, JobState::Succeeded, HOUR, 10).await, 0);
        assert!(archived(&node, id).await.is_some());
    }

    #[proves("archive.old")]
    #[needs(Archive, Clock)]
    async fn the_longest_finished_are_archived_first_and_at_most_the_limit(cx: &Cx) {
        let node = cx.node().await;
        let mut all = node.add_all(&jobs(5)).await;
        let mut claimed = node.claim(5).await;
        // The jobs finish in a different order than they were created in.
        claimed.rotate_left(2);
        all.rotate_left(2);
        for job in claimed {
            node.succeed(job.claim.token).await;
            cx.advance(SECOND).await;
        }
        cx.advance(HOUR).await;
        for gone in [2, 4, 5] {
            let before = node.everything().await.len();
            let moved = put_away(&node, JobState::Succeeded, MINUTE, 2).await;
            assert_eq!(usize::try_from(moved), Ok(before - node.everything().await.len()));
            for (number, id) in all.iter().enumerate() {
                assert_eq!(archived(&node, *id).await.is_some(), number < gone);
                assert_eq!(node.find(*id).await.is_some(), number >= gone);
            }
        }
    }

    #[proves("archive.old")]
    #[needs(Archive, Clock, Lanes)]
    async fn unfinished_jobs_are_never_archived(cx: &Cx) {
        let node = cx.node().await;
        let requeued = node.add(job()).await;
        node.fail(node.take().await).await;
        node.act(requeued, JobAction::Requeue).await;
        node.act(requeued, JobAction::Pause).await;
        let running = node.add(job()).await;
        node.take().await;
        let lane = node.add_all(&[job().lane("l"), job().lane("l")]).await;
        cx.advance(1_000 * DAY).await;
        for state in JobState::ALL.into_iter().filter(|state| state.is_terminal()) {
            assert_eq!(put_away(&node, state, Duration::ZERO, 10).await, 0);
        }
        assert_eq!(stored_ids(&node).await, [requeued, running, lane[0], lane[1]]);
    }

    #[proves("archive.keys", "archive.purge")]
    #[needs(Archive, Clock, IdempotencyKeys)]
    async fn an_idempotency_key_outlives_its_job_and_the_archive(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().idempotency_key("i").unique_key("u")).await;
        node.succeed(node.take().await).await;
        let holder = node.add(job().unique_key("u")).await;
        cx.advance(HOUR).await;
        assert_eq!(put_away(&node, JobState::Succeeded, MINUTE, 10).await, 1);
        let again = || job().idempotency_key("i");
        assert_eq!(node.offer(&again()).await, Enqueued::Duplicate(id));
        assert_eq!(node.offer(&job().unique_key("u")).await, Enqueued::Duplicate(holder));
        assert_eq!(purge_archive(&node, MINUTE, 10).await, 1);
        assert_eq!(archived(&node, id).await, None);
        assert_eq!(node.offer(&again()).await, Enqueued::Duplicate(id));
    }

    #[proves("archive.move")]
    #[needs(Archive, Clock, Tags)]
    async fn an_id_that_is_archived_again_is_there_once_as_it_was_last(cx: &Cx) {
        let node = cx.node().await;
        let new = job();
        for tag in ["first", "second"] {
            let id = node.add(new.clone().tag(tag)).await;
            node.act(id, JobAction::Cancel).await;
            cx.advance(HOUR).await;
            assert_eq!(put_away(&node, JobState::Cancelled, MINUTE, 10).await, 1);
        }
        let there = everything(&node).await;
        assert_eq!(there.len(), 1);
        let tags: Vec<&Name> = there[0].job.spec.tags.iter().collect();
        assert_eq!(tags, [&name("second")]);
    }

    #[proves("archive.get")]
    #[needs(Archive, Clock)]
    async fn every_id_is_answered_in_order_by_the_archive(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        for id in &all[..2] {
            node.act(*id, JobAction::Cancel).await;
        }
        cx.advance(HOUR).await;
        put_away(&node, JobState::Cancelled, MINUTE, 10).await;
        let asked = [all[1], JobId::new(), all[2], all[0], all[1]];
        let found = ok(archive(&node).archived(&asked).await);
        let found: Vec<Option<JobId>> =
            found.iter().map(|one| one.as_ref().map(|one| one.job.id)).collect();
        assert_eq!(found, [Some(all[1]), None, None, Some(all[0]), Some(all[1])]);
        assert_eq!(ok(archive(&node).archived(&[]).await), []);
    }

    #[proves("archive.list")]
    #[needs(Archive, Clock)]
    async fn a_walk_through_the_archive_visits_what_matches_once(cx: &Cx) {
        let node = cx.node().await;
        let all = ended(&node).await;
        cx.advance(HOUR).await;
        for state in JobState::ALL.into_iter().filter(|state| state.is_terminal()) {
            assert_eq!(put_away(&node, state, MINUTE, 10).await, 6);
        }
        let there = everything(&node).await;
        assert_eq!(archived_ids(&there), all);
        let filter = ArchiveFilter::all;
        let (failed, cancelled) = (JobState::Failed, JobState::Cancelled);
        let filters = [
            filter(),
            filter().state(failed),
            filter().state(failed).state(cancelled).kind(name("kind 1")),
            filter().queue(name("queue 2")),
            filter().queue(name("queue 0")).kind(name("kind 0")).state(JobState::Succeeded),
            filter().kind(name("none")),
            filter().state(JobState::Running),
        ];
        for filter in filters {
            let matching = there.iter().filter(|one| filter.matches(one));
            let mut expected: Vec<ArchivedJob> = matching.cloned().collect();
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                for limit in [1, 5, 6, 18] {
                    let visited = walk(&node, &filter, order, limit).await;
                    assert_eq!(visited, expected, "unexpected pages with {order:?}, limit {limit} and {filter:?}");
                }
                expected.reverse();
            }
        }
    }

    #[proves("archive.list")]
    #[needs(Archive, Clock)]
    async fn the_archive_is_listed_by_creation_whatever_the_order_of_the_ends(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(6)).await;
        for number in [4, 1, 5, 0, 3, 2] {
            node.act(all[number], JobAction::Cancel).await;
            cx.advance(SECOND).await;
        }
        cx.advance(HOUR).await;
        // Each pass archives the two jobs that ended longest ago. The archive nevertheless lists
        // the jobs in the order of their creation.
        for _ in 0..3 {
            assert_eq!(put_away(&node, JobState::Cancelled, MINUTE, 2).await, 2);
        }
        let cancelled = ArchiveFilter::all().state(JobState::Cancelled);
        for filter in [ArchiveFilter::all(), cancelled] {
            let mut expected = all.clone();
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                for limit in [1, 4, 6] {
                    let visited = walk(&node, &filter, order, limit).await;
                    assert_eq!(archived_ids(&visited), expected, "{order:?} by {limit}");
                }
                expected.reverse();
            }
        }
    }

    #[proves("archive.purge", "time.precision")]
    #[needs(Archive, Clock)]
    async fn the_archive_forgets_the_longest_finished_first(cx: &Cx) {
        let node = cx.node().await;
        let mut all = node.add_all(&jobs(4)).await;
        all.swap(0, 3);
        for id in &all {
            node.act(*id, JobAction::Cancel).await;
            cx.advance(SECOND).await;
        }
        let kept = node.add(job()).await;
        node.act(kept, JobAction::Cancel).await;
        cx.advance(HOUR - 4 * SECOND).await;
        // This archives all jobs except the last, which is too young.
        assert_eq!(put_away(&node, JobState::Cancelled, HOUR - 4 * SECOND, 10).await, 4);
        assert_eq!(purge_archive(&node, HOUR, 10).await, 0);
        cx.advance(MILLI).await;
        assert_eq!(purge_archive(&node, HOUR, 10).await, 1);
        cx.advance(HOUR).await;
        for gone in [3, 4, 4] {
            let before = everything(&node).await.len();
            let purged = purge_archive(&node, MINUTE, 2).await;
            assert_eq!(usize::try_from(purged), Ok(before - everything(&node).await.len()));
            for (number, id) in all.iter().enumerate() {
                assert_eq!(archived(&node, *id).await.is_some(), number >= gone);
            }
        }
        assert_eq!(stored_ids(&node).await, [kept]);
    }

    #[proves("guard.write", "archive.old", "archive.purge")]
    #[needs(Archive, Clock, Guards)]
    async fn a_deposed_leader_neither_archives_nor_empties_the_archive(cx: &Cx) {
        let (old, new) = (cx.node().await, cx.node().await);
        let tenure = |node: &TestNode, acquired| match acquired {
            Acquired::Acquired { fence } => Guard {
                lock: name("lock"),
                owner: node.label.clone(),
                fence,
            },
            Acquired::Held(held) => panic!("expected to acquire the free lock, found it held: {held:?}"),
        };
        let deposed = tenure(&old, old.acquire("lock", MINUTE).await);
        let ids = old.add_all(&jobs(2)).await;
        for id in &ids {
            old.act(*id, JobAction::Cancel).await;
        }
        cx.advance(HOUR).await;
        assert_eq!(put_away(&old, JobState::Cancelled, MINUTE, 1).await, 1);
        let guard = tenure(&new, new.acquire("lock", MINUTE).await);
        let request = PurgeRequest::new(JobState::Cancelled, MINUTE, 10);
        let purge = ArchivePurge::new(MINUTE, 10);
        cx.proving(["guard.write"]);
        let stale = request.clone().guarded(Some(deposed.clone()));
        assert_eq!(ok(archive(&old).archive(&stale).await), Guarded::Stale);
        let stale = purge.clone().guarded(Some(deposed));
        assert_eq!(ok(archive(&old).purge_archive(&stale).await), Guarded::Stale);
        assert_eq!(stored_ids(&old).await, ids[1..]);
        assert_eq!(archived_ids(&everything(&old).await), ids[..1]);
        cx.proving(["archive.old"]);
        let request = request.guarded(Some(guard.clone()));
        assert_eq!(ok(archive(&new).archive(&request).await), Guarded::Done(1));
        cx.proving(["archive.purge"]);
        let purge = purge.guarded(Some(guard));
        assert_eq!(ok(archive(&new).purge_archive(&purge).await), Guarded::Done(2));
    }

    #[proves("archive.race", "requeue.fresh")]
    #[needs(Archive, Clock)]
    async fn an_archive_pass_and_an_action_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..20 {
            let action = [JobAction::Requeue, JobAction::Delete][round % 2];
            let id = nodes[0].add(job()).await;
            nodes[0].fail(nodes[0].take().await).await;
            cx.advance(HOUR).await;
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move {
                    if racer == 0 {
                        (put_away(&node, JobState::Failed, MINUTE, 10).await, None)
                    } else {
                        (0, Some(node.act(id, action).await))
                    }
                }
            })
            .await;
            let (moved, acted) = (answers[0].0, answers[1].1);
            let expected = match (moved, action) {
                (1, _) => ActionOutcome::NotFound,
                (_, JobAction::Delete) => ActionOutcome::Deleted,
                _ => ActionOutcome::Became(JobState::Pending),
            };
            assert_eq!(acted, Some(expected), "{action:?}");
            assert_eq!(archived(&nodes[0], id).await.is_some(), moved == 1);
            let pending = nodes[0].find(id).await.map(|job| job.state);
            let requeued = moved == 0 && action == JobAction::Requeue;
            assert_eq!(pending, requeued.then_some(JobState::Pending));
            nodes[0].act(id, JobAction::Cancel).await;
        }
    }

    #[proves("archive.move", "archive.race")]
    #[needs(Archive, Clock)]
    async fn many_passes_at_once_archive_each_job_once_and_no_reader_misses_one(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let all = nodes[0].add_all(&jobs(120)).await;
        nodes[0].act_on(&JobSelector::Ids(all.clone()), JobAction::Cancel).await;
        cx.advance(HOUR).await;
        let moved = race(4, |racer| {
            let (node, all) = (nodes[racer].clone(), all.clone());
            async move {
                let mut moved = 0;
                loop {
                    if racer == 3 {
                        // This racer only reads. It reads the jobs before the archive, because a
                        // job may be archived between the two reads.
                        let stored = node.get_all(&all).await;
                        let archived = ok(archive(&node).archived(&all).await);
                        for (stored, archived) in stored.iter().zip(&archived) {
                            assert!(stored.is_some() || archived.is_some(), "expected every job among the jobs or in the archive");
                        }
                        if stored.iter().all(Option::is_none) {
                            return moved;
                        }
                        continue;
                    }
                    moved += put_away(&node, JobState::Cancelled, MINUTE, 7).await;
                    if node.everything().await.is_empty() {
                        return moved;
                    }
                }
            }
        })
        .await;
        assert_eq!(moved.iter().sum::<u64>(), 120);
        assert_eq!(archived_ids(&everything(&nodes[0]).await), all);
    }

    #[proves("archive.poison", "errors.poison")]
    #[needs(Archive, Clock, Vandal, Tags)]
    async fn a_job_that_is_damaged_is_archived_with_the_others(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&[job().tag("a"), job(), job()]).await;
        if let Err(error) = cx.vandal().spoil(all[1]).await {
            panic!("the fixture could not damage the row: {error}");
        }
        for id in &all {
            node.act(*id, JobAction::Cancel).await;
        }
        let before = node.get_all(&all).await;
        cx.advance(HOUR).await;
        assert_eq!(put_away(&node, JobState::Cancelled, MINUTE, 10).await, 3);
        let after = ok(archive(&node).archived(&all).await);
        let after: Vec<Option<JobRecord>> =
            after.into_iter().map(|one| one.map(|one| one.job)).collect();
        assert_eq!(after, before);
        assert!(after.iter().all(Option::is_some));
    }

    #[proves("archive.poison", "errors.poison")]
    #[needs(Archive, Clock, Vandal)]
    async fn an_unreadable_job_keeps_none_that_ended_in_the_same_millisecond(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(5)).await;
        node.act_on(&JobSelector::Ids(all.clone()), JobAction::Cancel).await;
        for id in &all[..2] {
            if let Err(error) = cx.vandal().spoil_ended(*id).await {
                panic!("the fixture could not damage the row: {error}");
            }
        }
        cx.advance(HOUR).await;
        for archived in [2, 1, 0] {
            let moved = put_away(&node, JobState::Cancelled, MINUTE, 2).await;
            assert_eq!(moved, archived);
        }
        let found = ok(archive(&node).archived(&all).await);
        let found: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(found, [false, false, true, true, true]);
    }

    #[proves("archive.old", "archive.list", "archive.purge", "limits.batch")]
    #[needs(Archive)]
    async fn the_archive_refuses_living_jobs_and_passes_without_a_limit(cx: &Cx) {
        let node = cx.node().await;
        let there = archive(&node);
        cx.proving(["archive.old"]);
        let living = JobState::ALL.into_iter().filter(|state| !state.is_terminal());
        for state in living {
            let request = PurgeRequest::new(state, HOUR, 10);
            assert_refused(there.archive(&request).await, "state");
        }
        for limit in [0, 10_001] {
            let request = PurgeRequest::new(JobState::Failed, HOUR, limit);
            cx.proving(["archive.old"]);
            assert_refused(there.archive(&request).await, "limit");
            cx.proving(["archive.purge"]);
            assert_refused(there.purge_archive(&ArchivePurge::new(HOUR, limit)).await, "limit");
            cx.proving(["archive.list"]);
            let page = PageRequest::first(limit);
            assert_refused(there.list_archived(&ArchiveFilter::all(), &page).await, "limit");
        }
        cx.proving(["limits.batch"]);
        assert_refused(there.archived(&vec![JobId::new(); 10_001]).await, "ids");
    }
}
