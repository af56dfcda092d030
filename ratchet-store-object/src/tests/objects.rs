//! Objects that are missing, damaged, or of another version.

use object_store::{ObjectStore as _, ObjectStoreExt};
use ratchet_core::{SchemaProblem, StoreErrorKind};

use super::*;
use crate::document;

#[tokio::test]
async fn a_damaged_segment_is_named_and_nothing_follows_it() {
    for keep in [0, 70, 200] {
        let bucket = Faulty::default();
        let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
        let job = add(&writer).await;
        let mut whole = Vec::new();
        bucket
            .replace(&segment(1), |bytes| {
                whole = bytes;
                whole[..keep].to_vec()
            })
            .await;
        let failed = reader.get(&[job], Detail::Whole).await.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
        assert!(
            format!("{failed:?}").contains("log/00000000000000000001"),
            "{failed:?}"
        );
        let failed = reader
            .enqueue(&[NewJob::new("kind", &())])
            .await
            .unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
        let new = builder(&bucket.other()).connect().await.unwrap();
        assert!(new.get(&[job], Detail::Whole).await.is_err());
        // Restored from a backup.
        bucket.replace(&segment(1), |_| whole).await;
        assert!(has_all(&reader, &[job]).await);
        assert_eq!(data(&reader).await, data(&writer).await);
    }
}

#[tokio::test]
async fn a_segment_of_a_newer_version_is_named_and_nothing_follows_it() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
    let job = add(&writer).await;
    for (from, to) in [
        ("\"format\":2", "\"format\":3"),
        ("\"enqueue\"", "\"novelty\""),
    ] {
        let mut known = Vec::new();
        bucket
            .replace(&segment(1), |bytes| {
                known = bytes;
                let text = String::from_utf8(known.clone()).unwrap();
                let (_, text) = text.split_once('\n').unwrap();
                document::sealed(&text.replacen(from, to, 1)).into_bytes()
            })
            .await;
        bucket.counts();
        for failed in [
            reader.get(&[job], Detail::Whole).await.map(drop),
            reader.enqueue(&[NewJob::new("kind", &())]).await.map(drop),
        ] {
            let failed = failed.unwrap_err();
            let newer = StoreErrorKind::SchemaMismatch(SchemaProblem::Newer);
            assert_eq!(failed.kind(), newer, "{failed}");
            assert!(format!("{failed:?}").contains("upgrade"), "{failed:?}");
        }
        assert!(bucket.objects().head(&segment(2)).await.is_err());
        bucket.replace(&segment(1), |_| known).await;
    }
    assert!(has_all(&reader, &[job]).await);
}

#[tokio::test]
async fn a_snapshot_that_is_missing_or_damaged_is_replaced_by_another() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(2).connect().await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..7 {
        jobs.push(add(&store).await);
        snapshot_stored(&store).await;
    }
    let mut snapshots = snapshots(&bucket).await;
    assert_eq!(snapshots.len(), 3);
    let expected = data(&store).await;
    // The manifest names the last one.
    bucket
        .replace(&snapshots[2], |bytes| bytes[..40].to_vec())
        .await;
    assert_eq!(data(&open(&bucket).await).await, expected);
    while let Some(snapshot) = snapshots.pop() {
        bucket.objects().delete(&snapshot).await.unwrap();
        assert_eq!(data(&open(&bucket).await).await, expected);
    }
    bucket
        .objects()
        .delete(&Path::from("r/manifest"))
        .await
        .unwrap();
    assert_eq!(data(&open(&bucket).await).await, expected);
    assert!(has_all(&open(&bucket).await, &jobs).await);
}

#[tokio::test]
async fn a_log_without_its_beginning_is_refused() {
    let bucket = Faulty::default();
    add(&open(&bucket).await).await;
    bucket.objects().delete(&segment(0)).await.unwrap();
    let refused = builder(&bucket).connect().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Corrupt, "{refused}");
}

#[tokio::test]
async fn what_snapshots_replace_is_deleted() {
    let bucket = Faulty::default();
    let store = open_hasty(&bucket).await;
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(add(&store).await);
        snapshot_stored(&store).await;
    }
    assert_eq!(snapshots(&bucket).await.len(), 2);
    let log = names(&bucket, "r/log").await;
    assert_eq!(log, [18, 19, 20].map(segment));
    assert_eq!(names(&bucket, "r/probes").await, []);
    assert!(has_all(&open(&bucket).await, &jobs).await);
}

#[tokio::test]
async fn nothing_is_deleted_before_its_time() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(2).connect().await.unwrap();
    for _ in 0..10 {
        add(&store).await;
        snapshot_stored(&store).await;
    }
    assert_eq!(snapshots(&bucket).await.len(), 5);
    assert_eq!(names(&bucket, "r/log").await.len(), 11);
}

#[tokio::test]
async fn a_service_without_conditional_puts_is_refused() {
    let refused = builder(&Faulty::without_conditions())
        .connect()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    assert!(
        format!("{refused:?}").contains("conditional writes"),
        "{refused:?}"
    );
}

async fn names(bucket: &Faulty, below: &str) -> Vec<Path> {
    let objects = bucket.objects().list(Some(&Path::from(below)));
    let objects: Vec<_> = futures_util::TryStreamExt::try_collect(objects)
        .await
        .unwrap();
    objects
        .into_iter()
        .map(|object: object_store::ObjectMeta| object.location)
        .collect()
}

async fn snapshots(bucket: &Faulty) -> Vec<Path> {
    names(bucket, "r/snapshots").await
}
