//! Which documents and index entries the server reads to execute calls.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use ratchet_conformance::kit::{job, request_all};
use ratchet_core::model::{
    Among, ClaimRequest, Heartbeat, JobFilter, JobOrder, JobSelector, NodeStatus, NodeSweep,
    Outcome, PageRequest, PurgeRequest, RateRequest, ReclaimRequest, Report, ReportKind,
    Settlement, Signal, SignalTarget,
};
use ratchet_core::store::{
    ArchiveStore, Checked, IfKnown, JobStore, NodeStore, PermitStore, QueueStore, RateStore,
    SignalStore,
};
use ratchet_core::{
    BatchId, JobAction, JobState, Json, Name, NewJob, NodeId, Priority, Rate, Selection,
};
use ratchet_store_mongo::MongoStore;

use crate::links::{done, running};
use crate::passes::{all, children, ended};
use crate::server::Space;

/// Runs work while the server profiles it, and returns the profiled statements on the jobs.
pub(crate) async fn profile(space: &Space, work: impl Future<Output = ()>) -> Vec<Document> {
    profile_of(space, "jobs", work).await
}

/// Runs work while the server profiles it, and returns the profiled statements on this collection.
/// The database must not be shared with other tests, because the profile contains their statements
/// too.
pub(crate) async fn profile_of(
    space: &Space,
    collection: &str,
    work: impl Future<Output = ()>,
) -> Vec<Document> {
    let level = |level: i32| doc! { "profile": level };
    space.database.run_command(level(2)).await.unwrap();
    work.await;
    space.database.run_command(level(0)).await.unwrap();
    let namespace = format!("{}.{}", space.database.name(), space.name(collection));
    let profiled = space.database.collection::<Document>("system.profile");
    let mut cursor = profiled.find(doc! { "ns": namespace }).await.unwrap();
    let mut all = Vec::new();
    while cursor.advance().await.unwrap() {
        all.push(Document::try_from(cursor.current()).unwrap());
    }
    profiled.drop().await.unwrap();
    assert!(!all.is_empty(), "expected the profiler to record a command");
    all
}

pub(crate) fn number(row: &Document, field: &str) -> i64 {
    match row.get(field) {
        Some(Bson::Int32(number)) => (*number).into(),
        Some(Bson::Int64(number)) => *number,
        _ => 0,
    }
}

/// Creates a separate database.
pub(crate) async fn own(space: &Space) -> (Space, Checked<MongoStore>) {
    let name = format!("ratchet_test_{}", space.prefix.trim_end_matches('.'));
    let own = Space {
        url: space.url.clone(),
        prefix: String::new(),
        database: space.database.client().database(&name),
        slot: None,
    };
    let store = MongoStore::builder(&space.url).database(&name).prefix("");
    (own, store.connect().await.unwrap())
}

/// Creates a separate database with this many jobs of five priorities.
async fn filled(space: &Space, count: usize) -> (Space, Checked<MongoStore>) {
    let (own, store) = own(space).await;
    let jobs: Vec<NewJob> = (0..count)
        .map(|number| job().priority(Priority::ALL[number % 5]))
        .collect();
    for jobs in jobs.chunks(1_000) {
        store.enqueue(jobs).await.unwrap();
    }
    (own, store)
}

pub(crate) async fn candidates_come_from_the_index_alone(space: Arc<Space>) {
    let (own, store) = filled(&space, 500).await;
    // More routes than fit into one range.
    let kinds = (0..180).map(|n| NewJob::new(&format!("k{n}"), &()));
    let jobs: Vec<NewJob> = kinds.collect();
    store.enqueue(&jobs).await.unwrap();
    let rows = profile(&own, async {
        store
            .claim_next_batch(&request_all().limit(50))
            .await
            .unwrap();
    })
    .await;
    own.database.drop().await.unwrap();
    let is_range = |row: &&Document| {
        let text = row.to_string();
        text.contains("\"priority\"") && text.contains("aggregate")
    };
    let candidates: Vec<&Document> = rows.iter().filter(is_range).collect();
    assert!(!candidates.is_empty(), "{rows:#?}");
    for row in candidates {
        assert_eq!(number(row, "docsExamined"), 0, "{row:#?}");
        assert!(!row.get_bool("hasSortStage").unwrap_or(false), "{row:#?}");
    }
}

pub(crate) async fn calls_on_shared_queues_read_an_index(space: Arc<Space>) {
    let (own, _) = own(&space).await;
    let builder = MongoStore::builder(&own.url).database(own.database.name());
    let store = builder.prefix("").own_queues(0).connect().await.unwrap();
    let jobs: Vec<NewJob> = (0..4_000)
        .map(|n| {
            job()
                .queue(&format!("q{}", n % 20))
                .priority(Priority::ALL[n / 20 % 5])
        })
        .collect();
    for jobs in jobs.chunks(1_000) {
        store.enqueue(jobs).await.unwrap();
    }
    let queue = |text: &str| Name::new("queue", text).unwrap();
    let rows = profile(&own, async {
        assert_eq!(store.due_routes(Duration::ZERO).await.unwrap().len(), 20);
        assert_eq!(store.count_due(&queue("q5"), 20).await.unwrap(), 20);
        let one = request_all().limit(1);
        for queues in [
            Selection::Only(vec![queue("q7")]),
            Selection::Only(vec![queue("q8"), queue("q9"), queue("q10")]),
            Selection::Except(vec![queue("q3")]),
        ] {
            let request = one.clone().queues(queues);
            assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 1);
        }
        // The claim has marked the queue that it excludes.
        assert_eq!(store.separate_queues(10).await.unwrap(), 10);
    })
    .await;
    let kinds = (0..60).map(|n| NewJob::new(&format!("k{n}"), &()).queue(&format!("of{n}")));
    store.enqueue(&kinds.collect::<Vec<_>>()).await.unwrap();
    let due = profile(&own, async {
        assert_eq!(store.due_routes(Duration::ZERO).await.unwrap().len(), 80);
    })
    .await;
    own.database.drop().await.unwrap();
    // Each of the 61 kinds is in few of the 80 queues.
    assert!(due.len() <= 8, "{} commands", due.len());
    for row in rows {
        assert!(number(&row, "docsExamined") <= 30, "{row:#?}");
        assert!(number(&row, "keysExamined") <= 400, "{row:#?}");
    }
}

pub(crate) async fn a_claim_of_a_long_queue_reads_only_what_it_takes(space: Arc<Space>) {
    let (own, store) = filled(&space, 5_000).await;
    let rows = profile(&own, async {
        let claimed = store
            .claim_next_batch(&request_all().limit(50))
            .await
            .unwrap();
        assert_eq!(claimed.len(), 50);
    })
    .await;
    own.database.drop().await.unwrap();
    let keys: i64 = rows.iter().map(|row| number(row, "keysExamined")).sum();
    let documents: i64 = rows.iter().map(|row| number(row, "docsExamined")).sum();
    // The claim reads fifty candidates of each of the five priorities, and then writes and reads
    // fifty jobs, with two keys each.
    assert!(keys <= 5 * 50 + 2 * 100 + 20, "{keys} keys: {rows:#?}");
    assert!(documents <= 2 * 60, "{documents} documents: {rows:#?}");
}

pub(crate) async fn no_statement_of_a_loop_reads_all_jobs(space: Arc<Space>) {
    let (own, store) = filled(&space, 3_000).await;
    let api = Name::new("permit", "api").unwrap();
    store.set_permits(&api, 1, IfKnown::Change).await.unwrap();
    let needy = || job().permit("api").delay(Duration::from_secs(3_600));
    let needy: Vec<NewJob> = (0..500).map(|_| needy()).collect();
    store.enqueue(&needy).await.unwrap();
    store.enqueue(&[job().tag("rare")]).await.unwrap();
    let store = &store;
    let rows = profile(&own, async move {
        let (node, label) = (NodeId::new(), Name::new("label", "n").unwrap());
        let second = Duration::from_secs(1);
        let beat = |status| Heartbeat::new(node, label.clone(), status, second);
        store.heartbeat(&beat(NodeStatus::Joining)).await.unwrap();
        store.heartbeat(&beat(NodeStatus::Active)).await.unwrap();
        let request = ClaimRequest::new(node, 10);
        let claimed = store.claim_next_batch(&request).await.unwrap();
        let tokens: Vec<_> = claimed.iter().map(|job| job.claim.token).collect();
        let alive = tokens
            .iter()
            .map(|token| Report::new(*token, ReportKind::Alive));
        store.report(&alive.collect::<Vec<_>>()).await.unwrap();
        let done = |token: &_| Settlement::new(*token, Outcome::Succeeded { result: None });
        let done: Vec<_> = tokens[..5].iter().map(done).collect();
        store.settle(&done).await.unwrap();
        store.settle(&done).await.unwrap();
        store.reclaim(&ReclaimRequest::new()).await.unwrap();
        store
            .sweep_nodes(&NodeSweep::new(second, second))
            .await
            .unwrap();
        let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 10);
        store.purge(&purge).await.unwrap();
        store.expire(10).await.unwrap();
        let nobody = SignalTarget::Key(label.clone());
        let signal = Signal::new(nobody, Json::encode("payload", &1).unwrap());
        store.deliver(&signal).await.unwrap();
        let children = JobFilter::all().batch(BatchId::new());
        store
            .list(&children, &PageRequest::first(10))
            .await
            .unwrap();
        ArchiveStore::archive(store, &purge).await.unwrap();
        let rare = JobFilter::all().tag(Name::new("tag", "rare").unwrap());
        let page = PageRequest::first(10);
        assert_eq!(store.list(&rare, &page).await.unwrap().jobs.len(), 1);
        assert_eq!(store.count_jobs(&rare).await.unwrap().len(), 1);
        let one = ClaimRequest::new(NodeId::new(), 1);
        assert_eq!(store.claim_next_batch(&one).await.unwrap().len(), 1);
        assert_eq!(store.permits().await.unwrap()[0].held, 0);
        let queue = job().spec().route.queue.clone();
        assert_eq!(store.count_due(&queue, 20).await.unwrap(), 20);
    })
    .await;
    own.database.drop().await.unwrap();
    for row in rows {
        assert!(number(&row, "docsExamined") <= 60, "{row:#?}");
        assert!(number(&row, "keysExamined") <= 120, "{row:#?}");
    }
}

pub(crate) async fn counts_read_no_documents_but_those_of_running_jobs(space: Arc<Space>) {
    let (own, store) = filled(&space, 2_000).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let done: Vec<_> = claimed[..90].iter().map(done).collect();
    store.settle(&done).await.unwrap();
    let rows = profile(&own, async {
        let counts = store.count_jobs(&JobFilter::all()).await.unwrap();
        let expected = [
            (JobState::Pending, 1_900),
            (JobState::Running, 10),
            (JobState::Succeeded, 90),
        ];
        assert_eq!(counts, expected.into());
        let queues = store.queues().await.unwrap();
        assert_eq!(queues[0].counts, expected.into());
    })
    .await;
    own.database.drop().await.unwrap();
    assert!(read(&rows) <= 2 * 10, "{rows:#?}");
}

pub(crate) async fn a_listing_of_few_among_many_reads_the_front_and_them(space: Arc<Space>) {
    let (own, store) = filled(&space, 4_000).await;
    let request = request_all().limit(5);
    assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 5);
    let rows = profile(&own, async {
        let page = PageRequest::first(10).order(JobOrder::NewestFirst);
        for (state, count) in [(JobState::Paused, 0), (JobState::Running, 5)] {
            let few = JobFilter::all().state(state);
            assert_eq!(store.list(&few, &page).await.unwrap().jobs.len(), count);
        }
    })
    .await;
    own.database.drop().await.unwrap();
    let front = i64::try_from(2 * Among::front(11)).unwrap();
    assert!(read(&rows) <= front + 20, "{rows:#?}");
}

fn read(rows: &[Document]) -> i64 {
    rows.iter().map(|row| number(row, "docsExamined")).sum()
}

pub(crate) async fn a_pass_reads_one_page_of_many_children(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let parent = ended(&store, 1).await[0];
    children(&store, parent, 2_500).await;
    ended(&store, 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    for collection in ["links", "jobs"] {
        let rows = profile_of(&own, collection, async {
            store.purge(&all(1)).await.unwrap();
        })
        .await;
        assert!(read(&rows) <= 1_020, "{rows:#?}");
    }
    own.database.drop().await.unwrap();
}

pub(crate) async fn an_end_reads_only_the_open_links_of_its_job(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let first = running(&store, &[job()]).await;
    let (token, error) = (first[0].claim.token, "no".to_owned());
    let failed = Settlement::new(token, Outcome::Failed { error });
    store.settle(&[failed]).await.unwrap();
    let parent = token.job;
    // The parent has ended, so the links of these children are decided as soon as they are stored.
    children(&store, parent, 500).await;
    let again = JobSelector::Ids(vec![parent]);
    store.act(&again, JobAction::Requeue).await.unwrap();
    children(&store, parent, 3).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(claimed[0].claim.token.job, parent);
    let rows = profile_of(&own, "links", async {
        store.settle(&[done(&claimed[0])]).await.unwrap();
    })
    .await;
    own.database.drop().await.unwrap();
    // Each of the three links is read by its parent, by its child, and by the update that decides
    // it.
    assert!(read(&rows) <= 3 * 3, "{rows:#?}");
}

pub(crate) async fn idle_rates_come_from_an_index(space: Arc<Space>) {
    let (own, store) = own(&space).await;
    let rate = Rate::new(1, Duration::from_secs(7_200));
    let take = |number| {
        let key = Name::new("key", format!("k{number}")).unwrap();
        RateRequest::new(key, rate)
    };
    store
        .take(&(0..300).map(take).collect::<Vec<_>>())
        .await
        .unwrap();
    let rows = profile_of(&own, "rates", async {
        assert_eq!(store.forget_idle(100).await.unwrap(), 0);
    })
    .await;
    own.database.drop().await.unwrap();
    assert_eq!(read(&rows), 0, "{rows:#?}");
}
