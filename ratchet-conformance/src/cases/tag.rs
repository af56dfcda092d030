//! Tags: finding, counting and acting on jobs by tag.

use std::collections::BTreeSet;

use ratchet_core::limits::MAX_TAGS;

use super::prelude::*;

fn tagged(tags: &[&str]) -> NewJob {
    tags.iter().fold(job(), |job, tag| job.tag(tag))
}

fn set<const N: usize>(tags: [&str; N]) -> BTreeSet<Name> {
    names(tags).into_iter().collect()
}

fn by(tag: &str) -> JobFilter {
    JobFilter::all().tag(name(tag))
}

/// Returns the ids of the jobs with the tag `tag`, oldest first.
async fn found(node: &TestNode, tag: &str) -> Vec<JobId> {
    let page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
    let page = node.list(&by(tag), &page).await;
    page.jobs.iter().map(|job| job.id).collect()
}

async fn count(node: &TestNode, filter: &JobFilter) -> StateCounts {
    ok(node.jobs().count_jobs(filter).await)
}

cases! {
    "tag" on Cx;

    #[proves("tag.set", "get.whole")]
    #[needs(Tags, Lanes)]
    async fn a_job_has_the_tags_it_was_given_to_the_letter(cx: &Cx) {
        let node = cx.node().await;
        let odd = tagged(&["tenant:7", "Tenant:7", "größe", "%_'\"\\", "tenant:7"]);
        let many: Vec<String> = (0..MAX_TAGS).map(|number| format!("{number:0128}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let batch = [odd, job(), tagged(&many), tagged(&["a"]).lane("l").unique_key("u")];
        let all = node.add_all(&batch).await;
        for (id, new) in all.iter().zip(&batch) {
            assert_eq!(node.get(*id).await.spec.tags, new.spec().tags);
        }
        let first = set(["tenant:7", "Tenant:7", "größe", "%_'\"\\"]);
        assert_eq!(node.get(all[0]).await.spec.tags, first);
        for tag in &first {
            assert_eq!(found(&node, tag.as_str()).await, all[..1]);
        }
        for absent in ["tenant", "TENANT:7", "%", "tenant:7 8"] {
            assert_eq!(found(&node, absent).await, []);
        }
    }

    #[proves("tag.set", "enqueue.atomic")]
    #[needs(Tags)]
    async fn too_many_tags_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let many: Vec<String> = (0..=MAX_TAGS).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let batch = [tagged(&["0"]), tagged(&many)];
        assert_refused(node.jobs().enqueue(&batch).await, "tag");
        assert_refused(node.jobs().enqueue(&[tagged(&[""])]).await, "tag");
        assert_eq!(found(&node, "0").await, []);
    }

    #[proves("tag.set", "enqueue.repeat", "keys.unique")]
    #[needs(Tags)]
    async fn what_is_not_stored_has_no_tags(cx: &Cx) {
        let node = cx.node().await;
        let first = tagged(&["a", "b"]).unique_key("u");
        let id = node.add(first.clone()).await;
        let duplicate = tagged(&["a", "c"]).unique_key("u");
        cx.proving(["keys.unique"]);
        assert_eq!(node.offer(&duplicate).await, Enqueued::Duplicate(id));
        cx.proving(["enqueue.repeat"]);
        assert_eq!(node.offer(&first).await, Enqueued::Created(id));
        let same = job().tag("d");
        let other = node.add(same.clone()).await;
        assert_eq!(node.offer(&same.tag("e")).await, Enqueued::Created(other));
        let expected = [("a", vec![id]), ("b", vec![id]), ("d", vec![other])];
        cx.proving(["tag.set"]);
        for (tag, ids) in expected {
            assert_eq!(found(&node, tag).await, ids, "{tag}");
            assert_eq!(count(&node, &by(tag)).await.values().sum::<u64>(), 1, "{tag}");
        }
        for tag in ["c", "e"] {
            assert_eq!(found(&node, tag).await, [], "{tag}");
        }
        assert_eq!(node.get(other).await.spec.tags, set(["d"]));
    }

    #[proves("tag.set", "claim.match")]
    #[needs(Tags)]
    async fn a_job_keeps_its_tags_while_it_lives(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(tagged(&["a"])).await;
        node.settle(node.take().await, retry(Duration::ZERO)).await;
        node.fail(node.take().await).await;
        node.act(id, JobAction::Requeue).await;
        node.succeed(node.take().await).await;
        assert_eq!(found(&node, "a").await, [id]);
        assert_eq!(node.get(id).await.spec.tags, set(["a"]));
    }

    #[proves("purge.old", "delete.job", "tag.set")]
    #[needs(Clock, Tags)]
    async fn tags_go_with_their_job(cx: &Cx) {
        let node = cx.node().await;
        let bare = [job(), job()];
        for new in &bare {
            let id = node.add(new.clone().tag("a").tag("b")).await;
            node.act(id, JobAction::Cancel).await;
        }
        cx.advance(HOUR).await;
        cx.proving(["delete.job", "purge.old"]);
        node.act(bare[0].id(), JobAction::Delete).await;
        assert_eq!(node.purge(JobState::Cancelled, MINUTE, 10).await, 1);
        assert_eq!(count(&node, &by("a")).await, StateCounts::new());
        cx.proving(["tag.set"]);
        for new in bare {
            // Enqueues the same id again with another tag. The earlier tags must not return.
            let id = node.add(new.tag("c")).await;
            assert_eq!(node.get(id).await.spec.tags, set(["c"]));
        }
        assert_eq!(found(&node, "a").await, []);
    }

    #[proves("act.select", "page.filter")]
    #[needs(Tags)]
    async fn an_action_by_tag_changes_no_other_job(cx: &Cx) {
        let node = cx.node().await;
        let batch = [
            tagged(&["a"]),
            tagged(&["a", "b"]),
            tagged(&["A"]),
            tagged(&["a"]).queue("other"),
            tagged(&["ab"]),
            job(),
        ];
        let all = node.add_all(&batch).await;
        let filter = by("a").queue(name("default"));
        let selector = JobSelector::matching(filter, 10);
        let acted = node.act_on(&selector, JobAction::Cancel).await;
        let acted: Vec<JobId> = acted.iter().map(|one| one.job).collect();
        assert_eq!(acted, all[..2]);
        assert_eq!(node.claim_ids(10).await, all[2..]);
    }

    #[proves("page.filter", "page.walk", "count.filter")]
    #[needs(Tags)]
    async fn listings_and_counts_by_tag_are_exact(cx: &Cx) {
        let node = cx.node().await;
        let mut random = fastrand::Rng::with_seed(11);
        let tags = ["a", "b", "c", "A"];
        let batch: Vec<NewJob> = (0..80)
            .map(|number| {
                let new = NewJob::new(&format!("kind {}", random.u8(0..2)), &number)
                    .queue(&format!("queue {}", random.u8(0..2)));
                let chosen = tags.into_iter().filter(|_| random.u8(0..3) == 0);
                chosen.fold(new, NewJob::tag)
            })
            .collect();
        let all = node.add_all(&batch).await;
        for id in all.iter().step_by(5) {
            node.act(*id, JobAction::Pause).await;
        }
        for (number, claimed) in node.claim(40).await.into_iter().enumerate() {
            match number % 4 {
                0 => node.succeed(claimed.claim.token).await,
                1 => node.fail(claimed.claim.token).await,
                2 => node.release(claimed.claim.token).await,
                _ => {}
            }
        }
        let everything = node.everything().await;
        for round in 0..60 {
            let mut filter = JobFilter::all();
            if round % 3 > 0 {
                filter = filter.tag(name(random.choice(["a", "b", "c", "A", "none"]).unwrap_or("a")));
            }
            if random.bool() {
                filter = filter.queue(name(&format!("queue {}", random.u8(0..3))));
            }
            if random.u8(0..3) == 0 {
                filter = filter.kind(name(&format!("kind {}", random.u8(0..3))));
            }
            for _ in 0..random.u8(0..3) {
                filter = filter.state(random.choice(JobState::ALL).unwrap_or(JobState::Failed));
            }
            let matching: Vec<&JobRecord> =
                everything.iter().filter(|job| filter.matches(job)).collect();
            let mut expected: Vec<JobId> = matching.iter().map(|job| job.id).collect();
            let mut counts = StateCounts::new();
            for job in matching {
                *counts.entry(job.state).or_default() += 1;
            }
            assert_eq!(count(&node, &filter).await, counts, "{filter:?}");
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                let mut page = PageRequest::first(random.usize(1..30)).order(order);
                let (mut visited, mut walk) = (Vec::new(), Walk::new());
                loop {
                    let read = node.list(&filter, &page).await;
                    visited.extend(read.jobs.iter().map(|job| job.id));
                    let Some(next) = walk.on(read.next) else {
                        break;
                    };
                    page = page.after(Some(next));
                }
                assert_eq!(visited, expected, "{order:?} {filter:?}");
                expected.reverse();
            }
        }
    }
}
