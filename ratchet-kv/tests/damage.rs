//! Tests how the store handles rows that cannot be read.

#[allow(dead_code, reason = "each test uses only a part of this module")]
mod map;

use std::time::Duration;

use ratchet_conformance::kit::heartbeat;
use ratchet_core::memory::ManualClock;
use ratchet_core::model::{
    ClaimRequest, Condition, Detail, Enqueued, FairScope, Fenced, JobSelector, NodeStatus, Outcome,
    ReclaimRequest, Report, ReportKind, Reported, Settlement, StoredJob,
};
use ratchet_core::store::{
    Acquired, Changed, Checked, FairStore, IfKnown, JobStore, LockStore, NodeStore, PermitStore,
    QueueStore,
};
use ratchet_core::{
    ClaimToken, JobAction, JobId, JobState, Name, NewJob, NodeId, StoreErrorKind, time,
};
use ratchet_kv::{Access, Engine, KvStore, Transaction, testing};

use map::MapEngine;

#[tokio::test]
async fn jobs_that_cannot_be_read_do_not_keep_others_from_being_claimed() {
    let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
    let engine = MapEngine::new(clock);
    let store = KvStore::new(engine.clone());
    let jobs = [(); 3].map(|()| NewJob::new("mail", &1));
    store.enqueue(&jobs).await.unwrap();
    let mut transaction = engine.begin(Access::Write).await.unwrap();
    for job in &jobs[..2] {
        // The key of a job consists of the table number and the job's id.
        let key = [&[0], job.id().as_bytes().as_slice()].concat();
        assert!(transaction.get(&key).await.unwrap().is_some());
        transaction.put(key, b"{".to_vec()).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let mut claimed = Vec::new();
    for _ in 0..3 {
        let request = ClaimRequest::new(NodeId::new(), 1);
        claimed.extend(store.claim_next_batch(&request).await.unwrap());
    }
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].claim.token.job, jobs[2].id());
}

/// A job with a turn and a job without one leave their routes, although nothing of them can be
/// read.
#[tokio::test]
async fn jobs_with_a_fair_key_that_cannot_be_read_leave_no_due_route() {
    let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
    let engine = MapEngine::new(clock.clone());
    let store = KvStore::new(engine.clone());
    let job = || NewJob::new("mail", &1).fair_key("f");
    let jobs = [job(), job().delay(Duration::from_secs(1))];
    store.enqueue(&jobs).await.unwrap();
    let mut transaction = engine.begin(Access::Write).await.unwrap();
    for job in &jobs {
        let key = [&[0], job.id().as_bytes().as_slice()].concat();
        assert!(transaction.get(&key).await.unwrap().is_some());
        transaction.put(key, b"{".to_vec()).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let before = testing::rows_of_jobs(&store).await.unwrap();
    clock.advance(Duration::from_secs(2));
    let request = ClaimRequest::new(NodeId::new(), 9);
    assert_eq!(store.claim_next_batch(&request).await.unwrap(), []);
    assert_eq!(store.due_routes(Duration::MAX).await.unwrap(), []);
    let after = testing::rows_of_jobs(&store).await.unwrap();
    // The first loses its two entries with the turn and one more, the second two entries.
    assert_eq!(before - after, 5);
}

fn store() -> KvStore<MapEngine> {
    let clock = ManualClock::new(time::from_millis(1_790_000_000_123));
    KvStore::new(MapEngine::new(clock))
}

#[tokio::test]
async fn a_damaged_job_leaves_nothing_behind_whatever_the_field() {
    let job = || {
        let job = NewJob::new("mail", &1).lane("l").permit("api");
        let job = job.unique_key("u").tag("t").idempotency_key("i");
        job.fair_key("f")
    };
    let text = StoredJob::enqueued(&job(), 0);
    let text: serde_json::Value = serde_json::from_str(&text.encode().unwrap()).unwrap();
    for field in text.as_object().unwrap().keys() {
        if ["v", "id", "queue", "state"].contains(&&**field) {
            continue;
        }
        let store = store();
        store
            .set_permits(&name("api"), 1, IfKnown::Change)
            .await
            .unwrap();
        let bad = job();
        let next = NewJob::new("mail", &1).lane("l").permit("api");
        let next = next.fair_key("f");
        let both = [bad.clone(), next.clone()];
        store.enqueue(&both).await.unwrap();
        testing::spoil_field(&store, bad.id(), field).await.unwrap();
        let mut claimed = Vec::new();
        for _ in 0..2 {
            let request = ClaimRequest::new(NodeId::new(), 10);
            claimed.extend(store.claim_next_batch(&request).await.unwrap());
        }
        assert_eq!(claimed.len(), 1, "{field}");
        assert_eq!(claimed[0].claim.token.job, next.id(), "{field}");
        let again = NewJob::new("mail", &1).unique_key("u");
        let answers = store.enqueue(std::slice::from_ref(&again)).await.unwrap();
        assert!(matches!(answers[0], Enqueued::Created(_)), "{field}");
        let store = Checked::new(store);
        let ended = JobSelector::Ids(vec![bad.id()]);
        let shown = store.get(&[bad.id()], Detail::Whole).await.unwrap();
        let shown = shown[0].as_ref().map(|job| job.state);
        assert_eq!(shown, Some(JobState::Failed), "{field}");
        store.act(&ended, JobAction::Delete).await.unwrap();
        let others = JobSelector::Ids(vec![again.id()]);
        store.act(&others, JobAction::Cancel).await.unwrap();
        store.act(&others, JobAction::Delete).await.unwrap();
        let held = store.permits().await.unwrap();
        assert_eq!(held[0].held, 1, "{field}");
        // Only the running job is left: its row, and its entries in the indexes of running jobs, of
        // those of its fair key, of permits, of its lane, and of all jobs.
        assert_eq!(testing::rows_of_jobs(&store).await.unwrap(), 6, "{field}");
    }
}

/// Returns fields of the document of a job. If `unreadable` is true, these are the fields without
/// which the job is too damaged to be read. Otherwise, they are all other fields.
fn fields(unreadable: bool) -> Vec<String> {
    let job = NewJob::new("mail", &1).lane("l").permit("api");
    let job = job.unique_key("u").tag("t").idempotency_key("i");
    let job = job.after(JobId::new(), Condition::Succeeded);
    let mut stored = StoredJob::enqueued(&job, 0);
    stored.link(job.spec().after.clone());
    stored.has_children = true;
    let document: serde_json::Value =
        serde_json::from_str(&stored.encode().expect("a document")).expect("JSON");
    let fields = document.as_object().expect("an object").keys().cloned();
    let required = |field: &String| ["v", "id", "queue", "state"].contains(&&**field);
    fields
        .filter(|field| required(field) == unreadable)
        .collect()
}

fn name(text: &str) -> Name {
    Name::new("name", text).expect("a name")
}

async fn claim(store: &Checked<KvStore<MapEngine>>) -> Vec<ClaimToken> {
    let mut tokens = Vec::new();
    // Claims twice, because the first claim may return no job if it ends a damaged one.
    for _ in 0..2 {
        let request = ClaimRequest::new(NodeId::new(), 10);
        let claimed = store
            .claim_next_batch(&request)
            .await
            .expect("the store should answer");
        tokens.extend(claimed.iter().map(|job| job.claim.token));
    }
    tokens
}

async fn settle(store: &Checked<KvStore<MapEngine>>, token: ClaimToken, outcome: Outcome) {
    let settled = store.settle(&[Settlement::new(token, outcome)]).await;
    assert_eq!(settled.expect("the store should answer"), [Fenced::Applied]);
}

async fn state(store: &Checked<KvStore<MapEngine>>, job: &NewJob) -> Option<JobState> {
    let found = store
        .get(&[job.id()], Detail::Whole)
        .await
        .expect("the store should answer");
    found[0].as_ref().map(|job| job.state)
}

async fn act(store: &Checked<KvStore<MapEngine>>, job: &NewJob, action: JobAction) {
    let jobs = JobSelector::Ids(vec![job.id()]);
    store
        .act(&jobs, action)
        .await
        .expect("the store should answer");
}

fn success() -> Outcome {
    Outcome::Succeeded { result: None }
}

fn failure() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

#[tokio::test]
async fn a_damaged_job_never_runs_although_a_child_or_an_operator_changes_it() {
    for field in fields(false) {
        let store = Checked::new(store());
        let parent = NewJob::new("mail", &1);
        store.enqueue(std::slice::from_ref(&parent)).await.unwrap();
        testing::spoil_field(&store, parent.id(), &field)
            .await
            .unwrap();
        let child = NewJob::new("mail", &2).after(parent.id(), Condition::Succeeded);
        store.enqueue(std::slice::from_ref(&child)).await.unwrap();
        assert_eq!(
            state(&store, &child).await,
            Some(JobState::Cancelled),
            "{field}"
        );
        for _ in 0..2 {
            assert_eq!(claim(&store).await, [], "{field}");
            assert_eq!(
                state(&store, &parent).await,
                Some(JobState::Failed),
                "{field}"
            );
            act(&store, &parent, JobAction::Requeue).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_child_does_not_run_when_one_parent_of_two_ends() {
    for outcome in [success, failure] {
        for field in fields(false) {
            let store = Checked::new(store());
            let parents = [(); 2].map(|()| NewJob::new("mail", &1));
            let child = NewJob::new("mail", &2)
                .after(parents[0].id(), Condition::Succeeded)
                .after(parents[1].id(), Condition::Succeeded);
            let grandchild = NewJob::new("mail", &3).after(child.id(), Condition::Succeeded);
            let remedy = NewJob::new("remedy", &3).after(child.id(), Condition::Failed);
            let all = [
                parents[0].clone(),
                parents[1].clone(),
                child.clone(),
                grandchild.clone(),
                remedy.clone(),
            ];
            store.enqueue(&all).await.unwrap();
            testing::spoil_field(&store, child.id(), &field)
                .await
                .unwrap();
            for token in claim(&store).await {
                settle(&store, token, outcome()).await;
            }
            // The remedy runs exactly if the child has failed.
            let ended = state(&store, &child).await;
            let runs = claim(&store).await.iter().any(|one| one.job == remedy.id());
            assert_eq!(
                runs,
                ended.is_none_or(|end| end == JobState::Failed),
                "{field}: {ended:?}"
            );
            assert!(
                ended.is_none_or(JobState::is_terminal),
                "{field}: {ended:?}"
            );
            let cancelled = Some(JobState::Cancelled);
            assert_eq!(state(&store, &grandchild).await, cancelled, "{field}");
        }
    }
}

#[tokio::test]
async fn a_damaged_job_leaves_its_lane_to_the_next() {
    for field in fields(false).into_iter().chain(fields(true)) {
        let store = Checked::new(store());
        let lane = [(); 4].map(|()| NewJob::new("mail", &1).lane("l"));
        store.enqueue(&lane).await.unwrap();
        testing::spoil_field(&store, lane[1].id(), &field)
            .await
            .unwrap();
        for expected in [&lane[0], &lane[2], &lane[3]] {
            let tokens = claim(&store).await;
            let jobs: Vec<JobId> = tokens.iter().map(|token| token.job).collect();
            assert_eq!(jobs, [expected.id()], "{field}");
            settle(&store, tokens[0], success()).await;
        }
    }
}

#[tokio::test]
async fn a_running_job_that_is_damaged_keeps_its_permit_until_its_claim_ends() {
    for field in fields(false) {
        let store = Checked::new(store());
        let api = name("api");
        let set = store.set_permits(&api, 1, IfKnown::Change);
        set.await.unwrap();
        let jobs = [(); 2].map(|()| NewJob::new("mail", &1).lane("l").permit("api").tag("t"));
        store.enqueue(&jobs).await.unwrap();
        let token = claim(&store).await[0];
        testing::spoil_field(&store, jobs[0].id(), &field)
            .await
            .unwrap();
        // If one of these fields is damaged, the claim no longer matches its token.
        if ["claim_seq", "node", "claimed_at"].contains(&&*field) {
            continue;
        }
        let report = Report::new(token, ReportKind::Alive);
        let reported = store.report(&[report]).await.unwrap();
        assert!(matches!(reported[0], Reported::Applied { .. }), "{field}");
        assert_eq!(store.permits().await.unwrap()[0].held, 1, "{field}");
        let (delay, error) = (Duration::ZERO, "it failed".to_owned());
        settle(&store, token, Outcome::Retry { delay, error }).await;
        assert_eq!(
            state(&store, &jobs[0]).await.unwrap_or(JobState::Failed),
            JobState::Failed
        );
        let next = claim(&store).await;
        assert_eq!(
            next.iter().map(|token| token.job).collect::<Vec<_>>(),
            [jobs[1].id()]
        );
        assert_eq!(store.permits().await.unwrap()[0].held, 1, "{field}");
        settle(&store, next[0], success()).await;
        for job in &jobs {
            act(&store, job, JobAction::Delete).await;
        }
        assert_eq!(testing::rows_of_jobs(&store).await.unwrap(), 0, "{field}");
    }
}

#[tokio::test]
async fn a_running_job_of_which_nothing_can_be_read_gives_up_what_it_holds() {
    for field in fields(true) {
        let store = Checked::new(store());
        let api = name("api");
        let set = store.set_permits(&api, 1, IfKnown::Change);
        set.await.unwrap();
        let job = || NewJob::new("mail", &1).permit("api").unique_key("u");
        let (bad, next) = (job(), job());
        store.enqueue(std::slice::from_ref(&bad)).await.unwrap();
        let beat = heartbeat();
        store.heartbeat(&beat).await.unwrap();
        let request = ClaimRequest::new(beat.node, 10);
        assert_eq!(store.claim_next_batch(&request).await.unwrap().len(), 1);
        testing::spoil_field(&store, bad.id(), &field)
            .await
            .unwrap();
        // While its node lives, the body may run.
        assert_eq!(store.reclaim(&ReclaimRequest::new()).await.unwrap(), []);
        assert_eq!(store.permits().await.unwrap()[0].held, 1, "{field}");
        let left = store.set_node_status(beat.node, NodeStatus::Left).await;
        left.unwrap();
        assert_eq!(store.reclaim(&ReclaimRequest::new()).await.unwrap(), []);
        assert_eq!(store.permits().await.unwrap()[0].held, 0, "{field}");
        let answers = store.enqueue(std::slice::from_ref(&next)).await.unwrap();
        assert_eq!(answers, [Enqueued::Created(next.id())], "{field}");
        for job in [&bad, &next] {
            act(&store, job, JobAction::Cancel).await;
            act(&store, job, JobAction::Delete).await;
        }
        assert_eq!(testing::rows_of_jobs(&store).await.unwrap(), 0, "{field}");
    }
}

#[tokio::test]
async fn the_version_of_the_documents_belongs_to_the_format() {
    // If this fails, raise `FORMAT` too. Otherwise programs with the old version would take the new
    // documents for damaged jobs.
    let document = StoredJob::enqueued(&NewJob::new("mail", &1), 0).encode();
    let document: serde_json::Value = serde_json::from_str(&document.unwrap()).unwrap();
    let store = store();
    store.enqueue(&[NewJob::new("mail", &1)]).await.unwrap();
    let mut transaction = store.engine().begin(Access::Read).await.unwrap();
    let format = transaction.get(&[13]).await.unwrap().unwrap();
    assert_eq!((document["v"].as_u64(), &*format), (Some(1), &b"2"[..]));
}

#[tokio::test]
async fn data_without_a_format_is_refused() {
    let store = store();
    store.enqueue(&[NewJob::new("mail", &1)]).await.unwrap();
    let mut transaction = store.engine().begin(Access::Write).await.unwrap();
    transaction.remove(vec![13]).await.unwrap();
    transaction.commit().await.unwrap();
    let refused = store.enqueue(&[NewJob::new("mail", &1)]).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn a_lock_that_cannot_be_read_may_be_held() {
    let store = store();
    let hour = Duration::from_secs(3_600);
    let first = store.acquire(&name("lock"), &name("a"), hour).await;
    assert!(matches!(first.unwrap(), Acquired::Acquired { .. }));
    testing::spoil_lock(&store, &name("lock")).await.unwrap();
    let refused = store.acquire(&name("lock"), &name("b"), hour).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Corrupt);
    let read = store.inspect(&name("lock")).await;
    assert_eq!(read.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn a_limit_that_cannot_be_read_can_be_replaced_and_removed() {
    let store = store();
    for queues in ["mail", "mail*"] {
        let scope = FairScope::queues(queues).unwrap();
        for next in [Some(2), None] {
            store.set_fair_limit(&scope, Some(1)).await.unwrap();
            testing::spoil_fair_limit(&store, &scope).await.unwrap();
            assert_eq!(store.fair_limits().await.unwrap(), []);
            let changed = store.set_fair_limit(&scope, next).await.unwrap();
            assert_eq!(changed, Changed::Changed, "{queues}");
            let left = store.fair_limits().await.unwrap();
            assert_eq!(left.first().map(|limit| limit.max), next, "{queues}");
            let repeated = store.set_fair_limit(&scope, next).await.unwrap();
            assert_eq!(repeated, Changed::Unchanged, "{queues}");
        }
    }
}

#[tokio::test]
async fn data_of_another_format_is_refused() {
    let store = store();
    store.enqueue(&[NewJob::new("mail", &1)]).await.unwrap();
    // The key of the format is one byte: the number of its table, 13.
    let mut transaction = store.engine().begin(Access::Write).await.unwrap();
    assert_eq!(transaction.get(&[13]).await.unwrap(), Some(b"2".to_vec()));
    drop(transaction);
    for other in ["1", "3"] {
        let mut transaction = store.engine().begin(Access::Write).await.unwrap();
        transaction.put(vec![13], other.into()).await.unwrap();
        transaction.commit().await.unwrap();
        let request = ClaimRequest::new(NodeId::new(), 1);
        let refused = store.claim_next_batch(&request).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        let format = format!("format {other}");
        assert!(refused.to_string().contains(&format), "{refused}");
    }
}
