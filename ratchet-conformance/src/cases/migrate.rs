//! Opening: concurrently on a new database, and again on one in use.

use super::prelude::*;

cases! {
    "migrate" on Cx;

    #[proves("enqueue.created")]
    async fn many_may_open_a_new_database_at_once(cx: &Cx) {
        let fixture = cx.fixture();
        if let Err(error) = fixture.renew().await {
            panic!("the fixture could not provide a new database: {error}");
        }
        let opened = race(8, |_| {
            let fixture = std::sync::Arc::clone(&fixture);
            async move {
                let store = match fixture.open().await {
                    Ok(store) => store,
                    Err(error) => panic!("the fixture could not open the database: {error}"),
                };
                let node = TestNode::new(store);
                node.add(job()).await;
                node
            }
        })
        .await;
        for node in &opened {
            assert_eq!(node.everything().await.len(), 8);
        }
        let mut claimed = Vec::new();
        for node in &opened {
            claimed.extend(node.claim_ids(1).await);
        }
        claimed.sort();
        claimed.dedup();
        assert_eq!(claimed.len(), 8);
    }

    #[proves("enqueue.created", "get.whole", "history.order")]
    async fn opening_again_changes_nothing(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        let all = node.add_all(&jobs(4)).await;
        let claimed = node.claim(3).await;
        node.settle(claimed[0].claim.token, result("1")).await;
        node.settle(claimed[1].claim.token, retry(HOUR)).await;
        node.pause_queue("paused").await;
        node.acquire("lock", HOUR).await;
        let before = (
            node.get_all(&all).await,
            node.history(all[0]).await,
            node.nodes().await,
        );
        let (queues, fence) = (
            node.queues().await,
            node.inspect("lock").await.map(|lock| lock.fence),
        );
        for _ in 0..3 {
            let again = cx.node().await;
            let after = (
                again.get_all(&all).await,
                again.history(all[0]).await,
                again.nodes().await,
            );
            assert_eq!(after, before);
            assert_eq!(again.queues().await, queues);
            assert_eq!(again.inspect("lock").await.map(|lock| lock.fence), fence);
        }
        node.succeed(claimed[2].claim.token).await;
    }

    #[proves("get.whole", "settle.token")]
    async fn what_one_handle_began_another_can_end(cx: &Cx) {
        let first = cx.node().await;
        first.add(job()).await;
        let token = first.take().await;
        drop(first);
        let second = cx.node().await;
        second.succeed(token).await;
        assert_eq!(second.state(token.job).await, JobState::Succeeded);
    }

    #[proves("enqueue.created")]
    async fn closing_one_handle_leaves_the_others_working(cx: &Cx) {
        let keeper = cx.node().await;
        for _ in 0..5 {
            let visitor = cx.node().await;
            visitor.add(job()).await;
            drop(visitor);
            keeper.succeed(keeper.take().await).await;
        }
        assert_eq!(keeper.everything().await.len(), 5);
    }

    #[proves("errors.kind")]
    async fn a_store_says_what_it_is(cx: &Cx) {
        let info = cx.node().await.store.info();
        assert!(
            !info.backend.is_empty() && !info.version.is_empty(),
            "{info:?}"
        );
    }
}
