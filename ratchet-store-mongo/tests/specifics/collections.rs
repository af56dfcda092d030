//! Collections and indexes: Ratchet's and foreign ones.

use std::sync::Arc;
use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use ratchet_conformance::kit::{assert_altered, assert_kind, enqueue, exists, job, request_all};
use ratchet_core::model::{Detail, Finding, ReclaimRequest};
use ratchet_core::store::{DiagnosticStore, JobStore, Store};
use ratchet_core::{SchemaProblem, StoreErrorKind};

use crate::open;
use crate::server::Space;

/// Tries to connect, which must fail with `SchemaMismatch`. Returns the text of the error.
async fn refused(space: &Space) -> String {
    let error = space.builder().connect().await.unwrap_err();
    let StoreErrorKind::SchemaMismatch(problem) = error.kind() else {
        panic!("{error}");
    };
    format!("{problem:?}: {error}")
}

async fn names(space: &Space) -> Vec<String> {
    let mut names = space.database.list_collection_names().await.unwrap();
    names.retain(|name| name.starts_with(&space.prefix) && !name.ends_with("clock"));
    names
}

pub(crate) async fn two_prefixes_never_see_each_other(space: Arc<Space>) {
    let one = open(&space).await;
    let other = space.builder().prefix(space.name("other_"));
    let other = other.connect().await.unwrap();
    let id = enqueue(&one, job()).await;
    assert!(!exists(&other, id).await);
    assert!(
        other
            .claim_next_batch(&request_all())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(one.claim_next_batch(&request_all()).await.unwrap().len(), 1);
}

pub(crate) async fn odd_names_work(space: Arc<Space>) {
    let crab = "\u{1f980}";
    for prefix in [
        String::new(),
        crab.repeat(40),
        "it's \"quoted\"; {\\} ".to_owned(),
        "a.b..c".to_owned(),
    ] {
        let store = space.builder().prefix(space.name(&prefix));
        let store = store.connect().await.unwrap();
        // Names have at most 128 bytes: 32 of these characters.
        let name = crab.repeat(32);
        let odd = job()
            .queue(&name)
            .lane(&name)
            .unique_key(&name)
            .idempotency_key(&name);
        let id = enqueue(&store, odd.clone().capability(&name)).await;
        let found = store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(found.spec.lane.unwrap(), name.as_str());
        assert_eq!(
            store.queues().queues().await.unwrap()[0].name,
            name.as_str()
        );
    }
}

pub(crate) async fn a_newer_version_is_refused(space: Arc<Space>) {
    open(&space).await;
    let newer = doc! { "$set": { "version": 1_000 } };
    let meta = space.of_majority("meta");
    meta.update_one(doc! {}, newer).await.unwrap();
    let problem = refused(&space).await;
    assert!(problem.starts_with("Newer: "), "{problem}");
    assert!(problem.contains("version 1000"), "{problem}");
}

pub(crate) async fn collections_of_others_are_refused(space: Arc<Space>) {
    let jobs = space.of_majority("jobs");
    jobs.insert_one(doc! { "title": "gardener" }).await.unwrap();
    let problem = refused(&space).await;
    assert!(problem.starts_with("Altered: "), "{problem}");
    assert!(problem.contains("not Ratchet's"), "{problem}");
    let names = names(&space).await;
    assert_eq!(
        names,
        [space.name("jobs")],
        "expected no further collection"
    );
}

pub(crate) async fn indexes_of_others_are_refused(space: Arc<Space>) {
    let jobs = space.of_majority("jobs");
    let named = |name: &str| IndexOptions::builder().name(name.to_owned());
    let mut unique = named("mine").build();
    unique.unique = Some(true);
    let table = [
        (doc! { "state": 1 }, named("claim").build(), "claim"),
        (doc! { "payload": 1 }, unique, "unique index mine"),
        (doc! { "live_key": 1 }, named("theirs").build(), "theirs"),
    ];
    for (keys, options, part) in table {
        let index = IndexModel::builder().keys(keys).options(options).build();
        let made = jobs.create_index(index).await.unwrap();
        let problem = refused(&space).await;
        assert!(problem.contains(part), "{problem}");
        assert_eq!(
            names(&space).await.len(),
            1,
            "expected no further collection"
        );
        jobs.drop_index(made.index_name).await.unwrap();
    }
    open(&space).await;
}

pub(crate) async fn collections_of_another_kind_are_refused(space: Arc<Space>) {
    let german = doc! { "collation": { "locale": "de", "strength": 2 } };
    let series = doc! { "timeseries": { "timeField": "at" } };
    let view = doc! { "viewOn": space.name("clock"), "pipeline": [] };
    let table = [
        ("keys", german, "has a collation"),
        (
            "jobs",
            doc! { "capped": true, "size": 1_000_000 },
            "is capped",
        ),
        ("rates", series, "is a time series"),
        ("nodes", view, "is a view"),
    ];
    for (collection, options, part) in table {
        let mut create = doc! { "create": space.name(collection) };
        create.extend(options);
        space.database.run_command(create).await.unwrap();
        let problem = refused(&space).await;
        let named = format!("the collection {} {part}", space.name(collection));
        assert!(problem.contains(&named), "{problem}");
        assert_eq!(
            names(&space).await.len(),
            1,
            "expected no further collection"
        );
        space.of_majority(collection).drop().await.unwrap();
    }
    open(&space).await;
}

pub(crate) async fn what_an_operator_changed_is_found(space: Arc<Space>) {
    let store = open(&space).await;
    let found = async |code: &str, part: &str| {
        let findings = store.findings().await.unwrap();
        let named = |one: &Finding| one.code == code && one.summary.contains(part);
        assert!(findings.iter().any(named), "{part}: {findings:?}");
        let problem = refused(&space).await;
        assert!(problem.contains(part), "{problem}");
    };
    let jobs = space.of_majority("jobs");
    let options = IndexOptions::builder().expire_after(Duration::from_secs(60));
    let index = IndexModel::builder().keys(doc! { "created_at": 1 });
    let index = index.options(options.build()).build();
    let made = jobs.create_index(index).await.unwrap();
    found("odd_index", "TTL index created_at_1").await;
    jobs.drop_index(made.index_name).await.unwrap();
    let validator = |validator| doc! { "collMod": space.name("nodes"), "validator": validator };
    let strict = validator(doc! { "label": { "$ne": "n" } });
    space.database.run_command(strict).await.unwrap();
    found("odd_collection", "has a validator").await;
    space
        .database
        .run_command(validator(doc! {}))
        .await
        .unwrap();
    open(&space).await;
}

pub(crate) async fn a_statement_without_its_index_names_it(space: Arc<Space>) {
    let store = open(&space).await;
    space
        .of_majority("jobs")
        .drop_index("running")
        .await
        .unwrap();
    let reclaim = ReclaimRequest::new();
    let error = store.reclaim(&reclaim).await.unwrap_err();
    assert_altered(&error, "index running");
}

pub(crate) async fn what_is_missing_is_named_where_nothing_may_be_created(space: Arc<Space>) {
    let without = || space.builder().create(false);
    let error = without().connect().await.unwrap_err();
    assert_kind(
        &error,
        StoreErrorKind::SchemaMismatch(SchemaProblem::Behind),
    );
    assert!(names(&space).await.is_empty());
    open(&space).await;
    without().connect().await.unwrap();
    let jobs = space.of_majority("jobs");
    jobs.drop_index("lane").await.unwrap();
    let error = without().connect().await.unwrap_err();
    assert!(error.to_string().contains("no index lane"), "{error}");
    // A store that may create indexes creates the dropped index again.
    open(&space).await;
    without().connect().await.unwrap();
    // A database that was prepared by hand, but without the version, is not complete.
    assert!(without().pending_migrations().await.unwrap().is_empty());
    space
        .of_majority("meta")
        .delete_many(doc! {})
        .await
        .unwrap();
    let error = without().connect().await.unwrap_err();
    assert!(error.to_string().contains("version"), "{error}");
    assert_eq!(without().pending_migrations().await.unwrap().len(), 1);
    open(&space).await;
    without().connect().await.unwrap();
}

pub(crate) async fn many_starters_create_once(space: Arc<Space>) {
    let starting: Vec<_> = (0..6)
        .map(|_| {
            let builder = space.builder();
            tokio::spawn(async move { builder.connect().await })
        })
        .collect();
    for starter in starting {
        let store = starter.await.unwrap().unwrap();
        enqueue(&store, job()).await;
    }
    let meta = space.of_majority("meta");
    let count = meta.count_documents(Document::new()).await.unwrap();
    assert_eq!(count, 1);
}
