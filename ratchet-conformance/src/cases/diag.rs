//! Diagnostics: what a store finds when it checks its database.

use super::prelude::*;

async fn look(node: &TestNode) -> Vec<Finding> {
    let diagnostics = node.store.diagnostics();
    let diagnostics = diagnostics.expect(
        "the store should have diagnostics, because the case \
         requires the power Diagnostics",
    );
    ok(diagnostics.findings().await)
}

cases! {
    "diag" on Cx;

    #[proves("diag.sound", "diag.order")]
    #[needs(Diagnostics)]
    async fn a_database_as_it_is_made_has_no_errors(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        node.add_all(&jobs(20)).await;
        node.take().await;
        let found = look(&node).await;
        for finding in &found {
            assert_ne!(finding.severity, Severity::Error, "{finding:?}");
            let plain = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            assert!(finding.code.chars().all(plain), "{finding:?}");
            assert!(!finding.summary.is_empty(), "{finding:?}");
        }
        let mut sorted = found.clone();
        Finding::sort(&mut sorted);
        assert_eq!(found, sorted);
    }

    #[proves("diag.read")]
    #[needs(Diagnostics)]
    async fn to_look_changes_nothing(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.beat().await;
        a.add_all(&jobs(3)).await;
        a.take().await;
        a.acquire("lock", HOUR).await;
        a.pause_queue("other").await;
        let seen = async || {
            let versions = a.store.versions();
            let fences: Vec<_> = a.list_locks(None, 10).await;
            let fences: Vec<_> = fences.into_iter().map(|(name, lock)| (name, lock.fence)).collect();
            (
                a.everything().await,
                a.queues().await,
                a.nodes().await,
                fences,
                ok(versions.versions(&names(["config"])).await),
            )
        };
        let before = seen().await;
        for node in [&a, &b, &a] {
            look(node).await;
        }
        assert_eq!(seen().await, before);
    }

    #[proves("diag.poison")]
    #[needs(Diagnostics, Vandal)]
    async fn a_look_that_fails_keeps_no_other_finding_away(cx: &Cx) {
        let node = cx.node().await;
        let codes = async || -> Vec<&'static str> {
            look(&node).await.iter().map(|finding| finding.code).collect()
        };
        let count = |codes: &[&str], one| codes.iter().filter(|code| **code == one).count();
        let before = codes().await;
        if let Err(error) = cx.vandal().spoil_schema().await {
            panic!("the fixture could not damage the schema: {error}");
        }
        let after = codes().await;
        for one in ["not_seen", "missing_object"] {
            assert_eq!(count(&after, one), count(&before, one) + 1, "{before:?}, {after:?}");
        }
        let mut others = before.iter().filter(|code| **code != "schema_version");
        assert!(others.all(|code| after.contains(code)), "{before:?}, {after:?}");
    }
}
