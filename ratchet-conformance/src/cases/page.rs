//! Reading by id, by page and by filter, and deleting old jobs.

use ratchet_core::limits::MAX_BATCH;

use super::prelude::*;

/// Returns the ids of all jobs that match `filter`, read in pages of up to `limit` jobs. If there
/// is a `writer`, it enqueues two jobs before each of the first five pages is read.
async fn walk(
    node: &TestNode,
    filter: &JobFilter,
    order: JobOrder,
    limit: usize,
    writer: Option<&TestNode>,
) -> Vec<JobId> {
    let mut visited = Vec::new();
    let mut page = PageRequest::first(limit).order(order);
    let mut walk = Walk::new();
    for number in 0.. {
        if let Some(writer) = writer.filter(|_| number < 5) {
            writer.add_all(&jobs(2)).await;
        }
        let read = node.list(filter, &page).await;
        assert!(read.jobs.len() <= limit);
        visited.extend(read.jobs.iter().map(|job| job.id));
        let Some(next) = walk.on(read.next) else {
            break;
        };
        assert_eq!(Some(next), visited.last().copied());
        page = page.after(Some(next));
    }
    visited
}

cases! {
    "page" on Cx;

    #[proves("get.whole")]
    async fn every_id_is_answered_in_order(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        let asked = [all[2], JobId::new(), all[0], all[2], all[1]];
        let found: Vec<Option<JobId>> = node
            .get_all(&asked)
            .await
            .iter()
            .map(|job| job.as_ref().map(|job| job.id))
            .collect();
        assert_eq!(
            found,
            [Some(all[2]), None, Some(all[0]), Some(all[2]), Some(all[1])]
        );
        assert_eq!(node.get_all(&[]).await, []);
    }

    #[proves("select.page")]
    async fn a_selection_has_the_ids_of_the_page(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(5)).await;
        node.act(all[2], JobAction::Pause).await;
        let pending = JobFilter::all().state(JobState::Pending);
        for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
            for after in [None, Some(all[1]), Some(all[3])] {
                let page = PageRequest::first(2).order(order).after(after);
                let selected = ok(node.jobs().select(&pending, &page).await);
                let listed = node.list(&pending, &page).await.jobs;
                let listed: Vec<JobId> = listed.iter().map(|job| job.id).collect();
                assert_eq!(selected, listed, "{order:?} after {after:?}");
            }
        }
    }

    #[proves("select.page")]
    #[needs(Vandal)]
    async fn a_job_that_cannot_be_shown_is_selected_and_can_be_deleted(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(2)).await;
        node.act_on(&JobSelector::Ids(all.clone()), JobAction::Cancel).await;
        if let Err(error) = cx.vandal().spoil_ended(all[0]).await {
            panic!("the fixture could not damage the row: {error}");
        }
        let page = PageRequest::first(10).order(JobOrder::OldestFirst);
        let ended = JobFilter::all().state(JobState::Cancelled);
        assert_eq!(node.list(&ended, &page).await.jobs.len(), 1);
        assert_eq!(ok(node.jobs().select(&ended, &page).await), all);
        let selector = JobSelector::matching(ended, 10);
        let deleted = node.act_on(&selector, JobAction::Delete).await;
        let deleted: Vec<JobId> = deleted.iter().map(|one| one.job).collect();
        assert_eq!(deleted, all);
        assert_eq!(ok(node.jobs().select(&JobFilter::all(), &page).await), []);
    }

    #[proves("page.order")]
    async fn a_listing_is_by_creation_in_either_direction(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(5)).await;
        let newest = node.list(&JobFilter::all(), &PageRequest::first(3)).await;
        let listed: Vec<JobId> = newest.jobs.iter().map(|job| job.id).collect();
        assert_eq!(listed, [all[4], all[3], all[2]]);
        assert_eq!(newest.next, Some(all[2]));
        let oldest = PageRequest::first(3).order(JobOrder::OldestFirst);
        let oldest = node.list(&JobFilter::all(), &oldest).await;
        let listed: Vec<JobId> = oldest.jobs.iter().map(|job| job.id).collect();
        assert_eq!(listed, all[..3]);
    }

    #[proves("page.order", "get.whole")]
    async fn a_listing_has_whole_jobs(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().unique_key("k").timeout(HOUR)).await;
        let token = node.take().await;
        node.report(token, ReportKind::Checkpoint(json("1"))).await;
        node.settle(token, result("2")).await;
        let page = node.list(&JobFilter::all(), &PageRequest::first(1)).await;
        assert_eq!(page.jobs, [node.get(id).await]);
    }

    #[proves("page.order", "page.walk")]
    #[needs(Clock)]
    async fn ended_jobs_are_listed_by_creation_whatever_the_order_of_their_ends(cx: &Cx) {
        use JobState::{Cancelled, Failed, Succeeded};
        let node = cx.node().await;
        let all = node.add_all(&jobs(9)).await;
        let claimed = node.claim(9).await;
        for number in [8, 3, 1, 6, 4, 0, 7, 2, 5] {
            let token = claimed[number].claim.token;
            match number % 3 {
                0 => node.succeed(token).await,
                1 => node.fail(token).await,
                _ => drop(node.settle(token, Outcome::Cancelled).await),
            }
            cx.advance(SECOND).await;
        }
        let ends = [Succeeded, Failed, Cancelled];
        for states in [&ends[..1], &ends[1..2], &ends[2..], &ends[1..], &ends[..]] {
            let mut filter = JobFilter::all();
            filter.states = states.to_vec();
            let ended = (0..9).filter(|number| states.contains(&ends[number % 3]));
            let mut expected: Vec<JobId> = ended.map(|number| all[number]).collect();
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                for limit in [1, 2, 9] {
                    let visited = node.walk(&filter, order, limit).await;
                    assert_eq!(visited, expected, "unexpected pages of {states:?} with {order:?} and limit {limit}");
                }
                expected.reverse();
            }
        }
    }

    #[proves("page.walk", "page.filter")]
    async fn unfinished_jobs_with_many_ended_ones_between_are_listed(cx: &Cx) {
        // A store may read the first 1,000 jobs, and four times the page, before it uses another
        // index.
        const ENDED: usize = 1_100;
        let node = cx.node().await;
        let all = node.add_all(&jobs(ENDED + 6)).await;
        let (first, rest) = all.split_at(2);
        let (between, last) = rest.split_at(ENDED);
        let ended = JobSelector::Ids(between.to_vec());
        node.act_on(&ended, JobAction::Cancel).await;
        node.act(first[1], JobAction::Pause).await;
        let filter = JobFilter::all().state(JobState::Pending).state(JobState::Paused);
        let paused = JobFilter::all().state(JobState::Paused).queue(name("default"));
        let mut expected = [first, last].concat();
        for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
            for limit in [1, 3, 10] {
                let visited = node.walk(&filter, order, limit).await;
                assert_eq!(visited, expected, "{order:?} by {limit}");
            }
            assert_eq!(node.walk(&paused, order, 1).await, first[1..]);
            expected.reverse();
        }
    }

    #[proves("get.outline", "page.outline")]
    async fn an_outline_has_all_but_what_may_be_large(cx: &Cx) {
        let node = cx.node().await;
        let spec = cx.tagged(job().unique_key("k").timeout(HOUR), "t");
        let ended = node.add(spec).await;
        let token = node.take().await;
        node.report(token, ReportKind::Checkpoint(json("1"))).await;
        node.settle(token, result("2")).await;
        let failed = node.add(job()).await;
        let token = node.take().await;
        let progress = ReportKind::Progress {
            percent: 7,
            message: "seven".to_owned(),
        };
        node.report(token, progress).await;
        node.report(token, ReportKind::Checkpoint(json("3"))).await;
        node.fail(token).await;
        let all = [failed, JobId::new(), ended];
        let outlines: Vec<Option<JobRecord>> = node
            .get_all(&all)
            .await
            .into_iter()
            .map(|job| job.map(JobRecord::outline))
            .collect();
        assert_eq!(ok(node.jobs().get(&all, Detail::Outline).await), outlines);
        let page = PageRequest::first(2).detail(Detail::Outline);
        let listed = node.list(&JobFilter::all(), &page).await;
        let outlines: Vec<JobRecord> = outlines.into_iter().flatten().collect();
        assert_eq!(listed.jobs, outlines);
        assert!(outlines.iter().all(|job| job.spec.payload.is_null()));
    }

    #[proves("page.walk")]
    async fn the_last_page_says_that_it_is_the_last(cx: &Cx) {
        let node = cx.node().await;
        let empty = node.list(&JobFilter::all(), &PageRequest::first(4)).await;
        assert!(empty.jobs.is_empty() && empty.next.is_none());
        let all = node.add_all(&jobs(4)).await;
        let exact = node.list(&JobFilter::all(), &PageRequest::first(4)).await;
        assert_eq!((exact.jobs.len(), exact.next), (4, None));
        let behind = PageRequest::first(4).after(Some(all[0]));
        assert!(node.list(&JobFilter::all(), &behind).await.jobs.is_empty());
    }

    #[proves("page.walk")]
    async fn a_walk_visits_every_job_once_in_both_orders(cx: &Cx) {
        let node = cx.node().await;
        let mut all = node.add_all(&jobs(23)).await;
        for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
            for limit in [1, 7, 22, 23, 24] {
                let visited = walk(&node, &JobFilter::all(), order, limit, None).await;
                assert_eq!(visited, all, "{order:?} by {limit}");
            }
            all.reverse();
        }
    }

    #[proves("page.walk")]
    async fn a_walk_misses_nothing_while_jobs_are_added(cx: &Cx) {
        let (reader, writer) = (cx.node().await, cx.node().await);
        let before = reader.add_all(&jobs(20)).await;
        for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
            let visited = walk(&reader, &JobFilter::all(), order, 3, Some(&writer)).await;
            let mut once = visited.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), visited.len(), "expected every job once, found one twice");
            assert!(
                before.iter().all(|id| visited.contains(id)),
                "expected every job in the pages, found one missing"
            );
        }
    }

    #[proves("page.walk")]
    #[needs(Clock)]
    async fn a_walk_goes_on_behind_a_job_that_was_purged(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(6)).await;
        let page = PageRequest::first(2).order(JobOrder::OldestFirst);
        let next = node.list(&JobFilter::all(), &page).await.next;
        assert_eq!(next, Some(all[1]));
        for id in &all[..3] {
            node.act(*id, JobAction::Cancel).await;
        }
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Cancelled, MINUTE, 10).await, 3);
        let rest = node.list(&JobFilter::all(), &page.after(next)).await;
        let rest: Vec<JobId> = rest.jobs.iter().map(|job| job.id).collect();
        assert_eq!(rest, all[3..5]);
    }

    #[proves("page.filter")]
    async fn a_filter_lists_exactly_what_it_matches(cx: &Cx) {
        let node = cx.node().await;
        let mut random = fastrand::Rng::with_seed(7);
        let batch: Vec<NewJob> = (0..80)
            .map(|number| {
                NewJob::new(&format!("kind {}", random.u8(0..3)), &number)
                    .queue(&format!("queue {}", random.u8(0..3)))
            })
            .collect();
        let all = node.add_all(&batch).await;
        for ids in all.chunks(5) {
            node.act(ids[0], JobAction::Pause).await;
            node.act(ids[1], JobAction::Cancel).await;
        }
        for (number, claimed) in node.claim(40).await.into_iter().enumerate() {
            let token = claimed.claim.token;
            match number % 5 {
                0 => node.succeed(token).await,
                1 => node.fail(token).await,
                2 => node.release(token).await,
                3 => drop(node.settle(token, Outcome::Cancelled).await),
                _ => {}
            }
        }
        let everything = node.everything().await;
        for _ in 0..60 {
            let mut filter = JobFilter::all();
            if random.bool() {
                filter = filter.queue(name(&format!("queue {}", random.u8(0..4))));
            }
            if random.bool() {
                filter = filter.kind(name(&format!("kind {}", random.u8(0..4))));
            }
            for _ in 0..random.u8(0..4) {
                filter = filter.state(random.choice(JobState::ALL).expect("there are states"));
            }
            let matching = everything.iter().filter(|job| filter.matches(job));
            let mut expected: Vec<JobId> = matching.map(|job| job.id).collect();
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                let limit = random.usize(1..30);
                let visited = walk(&node, &filter, order, limit, None).await;
                assert_eq!(visited, expected, "{order:?} {filter:?}");
                expected.reverse();
            }
        }
    }

    #[proves("page.order", "limits.batch")]
    async fn a_page_without_a_limit_is_refused(cx: &Cx) {
        let node = cx.node().await;
        for limit in [0, MAX_BATCH + 1] {
            let page = PageRequest::first(limit);
            assert_refused(node.jobs().list(&JobFilter::all(), &page).await, "limit");
        }
        node.list(&JobFilter::all(), &PageRequest::first(MAX_BATCH))
            .await;
    }
}
