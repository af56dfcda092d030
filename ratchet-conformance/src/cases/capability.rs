//! Capabilities: a job runs only on nodes that advertise the capability it requires.

use super::prelude::*;

cases! {
    "capability" on Cx;

    #[proves("claim.match")]
    async fn a_job_without_a_requirement_runs_anywhere(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(2)).await;
        assert_eq!(node.claim_ids(1).await, all[..1]);
        let able = node.request(1).capabilities(names(["gpu", "arm"]));
        assert_eq!(ids(&node.claim_with(&able).await), all[1..]);
    }

    #[proves("claim.match")]
    async fn a_job_with_a_requirement_runs_only_where_it_is_met(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().capability("gpu")).await;
        let with = |capabilities| node.request(1).capabilities(capabilities);
        assert!(node.claim_with(&with(vec![])).await.is_empty());
        assert!(
            node.claim_with(&with(names(["arm", "gpu2", "gp"])))
                .await
                .is_empty()
        );
        assert_eq!(
            ids(&node.claim_with(&with(names(["arm", "gpu"]))).await),
            [id]
        );
    }

    #[proves("claim.match")]
    async fn a_capability_is_matched_to_the_letter(cx: &Cx) {
        let node = cx.node().await;
        node.add(job().capability("gpu")).await;
        for near in ["GPU", "gpü", "gpu\u{301}", "g%", "g_u", "ｇpu"] {
            let request = node.request(1).capabilities(names([near]));
            assert!(node.claim_with(&request).await.is_empty(), "{near:?}");
        }
    }

    #[proves("claim.match", "claim.optimized")]
    async fn the_optimized_claim_heeds_capabilities_too(cx: &Cx) {
        let node = cx.node().await;
        let gpu = node
            .add(job().capability("gpu").priority(Priority::High))
            .await;
        let plain = node.add(job()).await;
        let lean = node.claim_lean(&node.request(10)).await;
        assert_eq!(
            lean.iter().map(|claim| claim.token.job).collect::<Vec<_>>(),
            [plain]
        );
        let able = node.request(10).capabilities(names(["gpu"]));
        let lean = node.claim_lean(&able).await;
        assert_eq!(
            lean.iter().map(|claim| claim.token.job).collect::<Vec<_>>(),
            [gpu]
        );
        assert_eq!(lean[0].route.capability, Some(name("gpu")));
    }

    #[proves("claim.match", "claim.optimized")]
    async fn a_request_may_leave_jobs_without_a_requirement_out(cx: &Cx) {
        let node = cx.node().await;
        let free = node.add(job().priority(Priority::Critical)).await;
        let tagged = ["gpu", "arm", "gpu"].map(|tag| job().capability(tag));
        let tagged = node.add_all(&tagged).await;
        let request = |tags: &[&str], limit| {
            let tags = tags.iter().map(|tag| name(tag));
            node.request(limit).capabilities(tags).untagged(false)
        };
        assert!(node.claim_with(&request(&[], 10)).await.is_empty());
        assert_eq!(ids(&node.claim_with(&request(&["gpu"], 1)).await), [tagged[0]]);
        let lean = node.claim_lean(&request(&["gpu"], 10)).await;
        assert_eq!(lean.len(), 1);
        assert_eq!(lean[0].token.job, tagged[2]);
        let both = node.request(10).capabilities(names(["arm"]));
        assert_eq!(ids(&node.claim_with(&both).await), [free, tagged[1]]);
    }

    #[proves("claim.match", "claim.order")]
    async fn required_and_free_jobs_share_one_order(cx: &Cx) {
        let node = cx.node().await;
        let batch: Vec<NewJob> = (0..12)
            .map(|number| {
                let new = NewJob::new("kind", &number);
                match number % 3 {
                    0 => new,
                    1 => new.capability("a"),
                    _ => new.capability("b"),
                }
            })
            .collect();
        let all = node.add_all(&batch).await;
        let both = node.request(12).capabilities(names(["b", "a"]));
        assert_eq!(ids(&node.claim_with(&both).await), all);
    }
}
