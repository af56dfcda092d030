//! Version tokens: they only grow, as seen from every node.

use super::prelude::*;

async fn bump(node: &TestNode, namespace: &str) -> u64 {
    landed(ok(node.store.versions().bump(&name(namespace), None).await))
}

async fn versions(node: &TestNode, namespaces: &[&str]) -> Vec<u64> {
    let names: Vec<Name> = namespaces.iter().map(|one| name(one)).collect();
    ok(node.store.versions().versions(&names).await)
}

cases! {
    "version" on Cx;

    #[proves("version.bump", "version.read")]
    async fn every_handle_sees_a_bump_that_has_returned(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(versions(&b, &["config"]).await, [0]);
        let mut last = 0;
        for node in [&a, &a, &a, &b] {
            let bumped = bump(node, "config").await;
            assert!(bumped > last, "{bumped} after {last}");
            assert_eq!(versions(&b, &["config"]).await, [bumped]);
            last = bumped;
        }
    }

    #[proves("version.read")]
    async fn versions_are_read_in_the_order_they_are_asked_for(cx: &Cx) {
        let node = cx.node().await;
        bump(&node, "b").await;
        let small = bump(&node, "b").await;
        let large = bump(&node, "B").await;
        let read = versions(&node, &["b", "a", "B", "b"]).await;
        assert_eq!(read, [small, 0, large, small]);
        assert_eq!(versions(&node, &[]).await, [0_u64; 0]);
    }

    #[proves("version.bump")]
    async fn of_bumps_at_once_each_has_its_own_version(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let all = race(8, |racer| {
            let node = nodes[racer % 4].sibling();
            async move {
                let mut mine = Vec::new();
                for _ in 0..10 {
                    mine.push(bump(&node, "config").await);
                }
                mine
            }
        })
        .await;
        for mine in &all {
            assert!(mine.is_sorted(), "{mine:?}");
        }
        let mut all: Vec<u64> = all.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 80);
    }

    #[proves("version.bump")]
    #[needs(Clock)]
    async fn a_version_is_never_below_the_databases_time(cx: &Cx) {
        let node = cx.node().await;
        let mut last = 0;
        for round in 0..20 {
            if round % 4 == 0 {
                cx.advance(SECOND).await;
            }
            let before = time::to_millis(node.now().await);
            let bumped = bump(&node, "config").await;
            let after = time::to_millis(node.now().await);
            let range = next_in_time(last, before)..=next_in_time(last, after);
            assert!(range.contains(&bumped), "expected the version {bumped} in the range {range:?}");
            last = bumped;
        }
    }

    #[proves("version.bump", "guard.write")]
    #[needs(Guards)]
    async fn a_bump_of_a_tenure_that_is_over_changes_nothing(cx: &Cx) {
        let node = cx.node().await;
        let Acquired::Acquired { fence } = node.acquire("lock", HOUR).await else {
            panic!("expected to acquire the free lock, found it held");
        };
        let guard = Guard {
            lock: name("lock"),
            owner: node.label.clone(),
            fence,
        };
        let config = name("config");
        let versions_of = node.store.versions();
        let bumped = landed(ok(versions_of.bump(&config, Some(&guard)).await));
        ok(node.store.locks().release(&guard.lock, &guard.owner, guard.fence).await);
        assert_eq!(ok(versions_of.bump(&config, Some(&guard)).await), Guarded::Stale);
        assert_eq!(versions(&node, &["config"]).await, [bumped]);
    }

    #[proves("limits.batch")]
    async fn more_namespaces_than_a_batch_has_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let many = vec![name("n"); ratchet_core::limits::MAX_BATCH + 1];
        assert_refused(node.store.versions().versions(&many).await, "namespaces");
    }
}
