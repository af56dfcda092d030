//! How jobs are stored in documents.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use ratchet_conformance::TestClock;
use ratchet_conformance::kit::{enqueue, job, request_all};
use ratchet_core::model::{
    AttemptOutcome, Detail, Fenced, JobFilter, JobOrder, JobSelector, Outcome, PageRequest,
    PurgeRequest, Report, ReportKind, Settlement,
};
use ratchet_core::store::{Checked, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, Json, Name, NewJob};
use ratchet_store_mongo::MongoStore;

use crate::open;
use crate::server::Space;

const TEXTS: [&str; 6] = [
    "$$NOW",
    "$payload",
    "{\"$literal\": 1}",
    "a.b",
    "$",
    "\u{fffd}\u{1f980}",
];

pub(crate) async fn payloads_that_look_like_commands_are_kept(space: Arc<Space>) {
    let store = open(&space).await;
    for text in [
        r#"{"$set": {"state": 4}, "a.b": 1, "": 2, "$": [], "z": 0, "a": 0, "a": 1}"#,
        r#"{"key\u0000with NUL": "\u0000"}"#,
        r#""$$ROOT""#,
        r#"{"_id": {"$oid": "000000000000000000000000"}, "n": 12345678901234567890.10e5}"#,
    ] {
        let payload = Json::parse("payload", text).unwrap();
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
        let id = enqueue(&store, NewJob::new("kind", &raw)).await;
        let found = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(found.spec.payload, payload);
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        assert_eq!(claimed[0].input.as_ref().unwrap().payload, payload);
    }
}

pub(crate) async fn texts_that_look_like_expressions_are_kept(space: Arc<Space>) {
    let store = open(&space).await;
    for text in TEXTS {
        let json = Json::encode("result", text).unwrap();
        let named = job()
            .queue(text)
            .lane(text)
            .unique_key(text)
            .idempotency_key(text);
        let id = enqueue(&store, named).await;
        let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
            .claim
            .token;
        let message = text.to_owned();
        let progress = ReportKind::Progress {
            percent: 5,
            message,
        };
        let checkpoint = ReportKind::Checkpoint(json.clone());
        let reports = [Report::new(token, progress), Report::new(token, checkpoint)];
        store.report(&reports).await.unwrap();
        let error = text.to_owned();
        let failed = Settlement::new(token, Outcome::Failed { error });
        store.settle(&[failed]).await.unwrap();
        let found = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(found.progress.unwrap().message, text);
        assert_eq!(found.checkpoint, Some(json.clone()));
        assert_eq!(found.last_error.as_deref(), Some(text));
        let selected = JobSelector::Ids(vec![id]);
        store.act(&selected, JobAction::Requeue).await.unwrap();
        let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
            .claim
            .token;
        let result = Some(json.clone());
        let done = Settlement::new(token, Outcome::Succeeded { result });
        store.settle(&[done]).await.unwrap();
        let found = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(found.result, Some(json));
        assert_eq!(
            store.history(id).await.unwrap()[0].error.as_deref(),
            Some(text)
        );
        let name = Name::new("lock", text).unwrap();
        let hour = Duration::from_secs(3_600);
        store.acquire(&name, &name, hour).await.unwrap();
        let held = store.inspect(&name).await.unwrap().unwrap().holder.unwrap();
        assert_eq!(held.owner, name);
    }
}

async fn snooze(store: &Checked<MongoStore>, times: usize) {
    for _ in 0..times {
        let token = store.claim_next_batch(&request_all()).await.unwrap()[0]
            .claim
            .token;
        let delay = Duration::ZERO;
        let again = Settlement::new(token, Outcome::Snoozed { delay });
        store.settle(&[again]).await.unwrap();
    }
}

pub(crate) async fn a_long_history_moves_out_of_the_job(space: Arc<Space>) {
    let store = open(&space).await;
    let id = enqueue(&store, job()).await;
    snooze(&store, 120).await;
    let attempts = store.history(id).await.unwrap();
    let seqs: Vec<u64> = attempts.iter().map(|attempt| attempt.seq).collect();
    assert_eq!(seqs, (1..=120).collect::<Vec<u64>>());
    assert!(
        attempts
            .iter()
            .all(|one| one.outcome == AttemptOutcome::Snoozed)
    );
    let row = space
        .of_majority("jobs")
        .find_one(doc! {})
        .await
        .unwrap()
        .unwrap();
    assert!(
        row.get_array("history").unwrap().len() <= 50,
        "expected at most 50 attempts in the job's document"
    );
    let moved = space.of_majority("attempts").count_documents(doc! {}).await;
    assert!(moved.unwrap() >= 70);
}

pub(crate) async fn a_purged_job_takes_its_history_along(space: Arc<Space>) {
    let store = open(&space).await;
    let id = enqueue(&store, job()).await;
    snooze(&store, 60).await;
    let selected = JobSelector::Ids(vec![id]);
    store.act(&selected, JobAction::Cancel).await.unwrap();
    // The job must be older than the age in the purge request.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let purge = PurgeRequest::new(JobState::Cancelled, Duration::from_millis(1), 10);
    assert_eq!(store.purge(&purge).await.unwrap().done(), Some(1));
    assert_eq!(store.history(id).await.unwrap(), []);
    let left = space.of_majority("attempts").count_documents(doc! {}).await;
    assert_eq!(left.unwrap(), 0);
}

/// The conformance suite uses a test clock. This test uses the server's clock in every kind of
/// statement.
pub(crate) async fn the_servers_clock_is_what_counts(space: Arc<Space>) {
    let store = open(&space).await;
    let before = store.database_time().await.unwrap();
    let id = enqueue(&store, job().delay(Duration::from_millis(500))).await;
    assert!(
        store
            .claim_next_batch(&request_all())
            .await
            .unwrap()
            .is_empty()
    );
    let claimed = loop {
        let claimed = store.claim_next_batch(&request_all()).await.unwrap();
        if let Some(job) = claimed.into_iter().next() {
            break job;
        }
    };
    let at = claimed.claim.token.claimed_at;
    assert!(at >= claimed.claim.run_at && claimed.claim.run_at > before);
    let delay = Duration::from_secs(3_600);
    let error = "e".to_owned();
    let retry = Settlement::new(claimed.claim.token, Outcome::Retry { delay, error });
    store.settle(&[retry]).await.unwrap();
    let after = store.database_time().await.unwrap();
    let found = store
        .get(&[id], Detail::Whole)
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert!(found.run_at >= at + delay && found.run_at <= after + delay);
    let ended = store.history(id).await.unwrap()[0].ended_at;
    assert!(at <= ended && ended <= after);
}

pub(crate) async fn documents_of_others_are_on_no_page_and_stop_nothing(space: Arc<Space>) {
    let store = open_with_clock(&space).await;
    let mut ids = vec![enqueue(&store, job()).await];
    ids.push(enqueue(&store, job()).await);
    let rows = space.of_majority("jobs");
    for id in [Bson::Int32(7), "text".into(), ObjectId::new().into()] {
        let mut like = rows.find_one(doc! {}).await.unwrap().unwrap();
        like.insert("_id", id);
        rows.insert_one(like).await.unwrap();
    }
    for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
        for filter in [
            JobFilter::all(),
            JobFilter::all().state(JobState::Pending),
            JobFilter::all()
                .state(JobState::Pending)
                .kind(Name::new("kind", "kind").unwrap()),
        ] {
            let page = PageRequest::first(1).order(order);
            let first = store.list(&filter, &page).await.unwrap();
            let second = store.list(&filter, &page.after(first.next)).await.unwrap();
            let mut listed: Vec<JobId> = first
                .jobs
                .iter()
                .chain(&second.jobs)
                .map(|job| job.id)
                .collect();
            listed.sort_unstable();
            assert_eq!((listed, second.next), (ids.clone(), None));
        }
    }
    let all = JobSelector::matching(JobFilter::all(), 10);
    assert_eq!(store.act(&all, JobAction::Cancel).await.unwrap().len(), 2);
    // Adds a document of another program. It looks like a job that has children and that finished
    // after all other jobs.
    let mut like = rows.find_one(id_of(ids[0])).await.unwrap().unwrap();
    let ended = like.get_i64("finished_at").unwrap();
    like.extend(doc! { "_id": ObjectId::new(), "finished_at": ended + 1, "children": true });
    rows.insert_one(like).await.unwrap();
    space.advance(Duration::from_secs(60)).await;
    let old = PurgeRequest::new(JobState::Cancelled, Duration::ZERO, 10);
    assert_eq!(store.purge(&old).await.unwrap().done(), Some(2));
}

pub(crate) async fn documents_of_others_hold_up_no_signal_and_no_lane(space: Arc<Space>) {
    let store = open_with_clock(&space).await;
    let rows = space.of_majority("jobs");
    let second = Duration::from_secs(1);
    let waiting = enqueue(&store, job().wait_for("approval", second)).await;
    let mut like = rows.find_one(id_of(waiting)).await.unwrap().unwrap();
    like.insert("_id", ObjectId::new());
    rows.insert_one(like).await.unwrap();
    space.advance(60 * second).await;
    let expired = store.signals().unwrap().expire(10).await.unwrap();
    assert_eq!(expired, [waiting]);

    let head = enqueue(&store, job().lane("l")).await;
    let next = enqueue(&store, job().lane("l")).await;
    let mut like = rows.find_one(id_of(next)).await.unwrap().unwrap();
    like.extend(doc! { "_id": ObjectId::new(), "lane_seq": -1_i64 });
    rows.insert_one(like).await.unwrap();
    let head = JobSelector::Ids(vec![head]);
    store.act(&head, JobAction::Cancel).await.unwrap();
    let jobs = store.get(&[next], Detail::Whole).await.unwrap();
    assert_eq!(jobs[0].as_ref().unwrap().state, JobState::Pending);
}

async fn open_with_clock(space: &Space) -> Checked<MongoStore> {
    let clock = space.name("clock");
    let builder = space.builder().clock_collection(&clock);
    builder.connect().await.unwrap()
}

pub(crate) fn id_of(job: JobId) -> Document {
    doc! { "_id": Bson::from(mongodb::bson::Uuid::from_bytes(*job.as_bytes())) }
}

pub(crate) async fn of_claims_that_would_end_alike_each_ends_as_it_must(space: Arc<Space>) {
    let store = open(&space).await;
    for number in 0..40 {
        let lane = |job: NewJob| if number == 0 { job.lane("l") } else { job };
        enqueue(&store, lane(job())).await;
    }
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let tokens: Vec<ClaimToken> = claimed.iter().map(|job| job.claim.token).collect();
    assert_eq!(tokens.len(), 40);
    let cancel = JobSelector::Ids(vec![tokens[1].job]);
    store.act(&cancel, JobAction::Cancel).await.unwrap();
    let released = Settlement::new(tokens[2], Outcome::Released);
    store.settle(&[released]).await.unwrap();
    let again = store.claim_next_batch(&request_all()).await.unwrap();
    assert_eq!(again.len(), 1);
    // The claim of the fourth job is unreadable.
    let rows = space.of_majority("jobs");
    let spoil = doc! { "$set": { "claim_seq": "spoiled" } };
    rows.update_one(id_of(tokens[3].job), spoil).await.unwrap();
    let end = |token: &ClaimToken| Settlement::new(*token, Outcome::Succeeded { result: None });
    let ends: Vec<Settlement> = tokens.iter().map(end).collect();
    let mut expected = vec![Fenced::Applied; 40];
    // The settlement of the unreadable fourth job is stale. The settlement of the third job counts
    // as a repetition: it is reported as applied and changes nothing.
    expected[3] = Fenced::Stale;
    assert_eq!(store.settle(&ends).await.unwrap(), expected);
    let ids = [0, 1, 2, 4].map(|place| tokens[place].job);
    let jobs = store.get(&ids, Detail::Whole).await.unwrap();
    let states: Vec<JobState> = jobs.into_iter().flatten().map(|job| job.state).collect();
    let [succeeded, cancelled] = [JobState::Succeeded, JobState::Cancelled];
    assert_eq!(states, [succeeded, cancelled, JobState::Running, succeeded]);
}

pub(crate) async fn claims_that_end_alike_keep_their_own_times(space: Arc<Space>) {
    let store = open(&space).await;
    for _ in 0..40 {
        enqueue(&store, job()).await;
    }
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let tokens = claimed.iter().map(|job| job.claim.token);
    let timed: Vec<_> = tokens.zip((1..).map(Duration::from_millis)).collect();
    let end = |(token, ran_for): &(ClaimToken, Duration)| {
        Settlement::new(*token, Outcome::Succeeded { result: None }).ran_for(*ran_for)
    };
    let ends: Vec<Settlement> = timed.iter().map(end).collect();
    assert_eq!(store.settle(&ends).await.unwrap(), [Fenced::Applied; 40]);
    for (token, ran_for) in timed {
        let history = store.history(token.job).await.unwrap();
        assert_eq!(history.len(), 1);
        assert_eq!(
            (history[0].seq, history[0].ran_for),
            (token.seq, Some(ran_for))
        );
    }
    assert_eq!(store.settle(&ends).await.unwrap(), [Fenced::Applied; 40]);
}
