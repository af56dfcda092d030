//! Acting on jobs: which ones, and what they answer. With pausing and resuming of single jobs.

use ratchet_core::limits::MAX_BATCH;
use ratchet_core::state::Response;

use super::prelude::*;

/// One job in every state that can be reached, each in a queue of its own.
async fn one_in_every_state(node: &TestNode) -> Vec<JobId> {
    let mut all = Vec::new();
    let error = "it failed".to_owned();
    let ends = [
        Some(Outcome::Succeeded { result: None }),
        Some(Outcome::Failed { error }),
        Some(Outcome::Cancelled),
        None,
    ];
    for end in ends {
        all.push(node.add(job()).await);
        let token = node.take().await;
        if let Some(end) = end {
            node.settle(token, end).await;
        }
    }
    let paused = node.add(job()).await;
    node.act(paused, JobAction::Pause).await;
    all.extend([paused, node.add(job()).await]);
    // Before the head of its lane, whose end would let it go.
    let lane = [job().lane("l"), job().lane("l")];
    all.extend(node.add_all(&lane).await.into_iter().rev());
    all
}

cases! {
    "act" on Cx;

    #[proves("act.respond")]
    async fn every_state_answers_every_action_as_the_table_says(cx: &Cx) {
        for action in JobAction::ALL {
            let other = cx.another().await;
            let node = other.node().await;
            for id in one_in_every_state(&node).await {
                let before = node.get(id).await;
                let outcome = node.act(id, action).await;
                let after = node.get(id).await;
                let (expected, state) = match before.state.respond(action) {
                    Response::Become(state) => (ActionOutcome::Became(state), state),
                    Response::RequestCancel => (ActionOutcome::CancelRequested, before.state),
                    Response::Refuse => (ActionOutcome::Refused(before.state), before.state),
                };
                assert_eq!(outcome, expected, "{action:?} of a {} job", before.state);
                assert_eq!(after.state, state, "{action:?} of a {} job", before.state);
                if let ActionOutcome::Refused(_) = outcome {
                    assert_eq!(after, before, "a refused {action:?} changed the job");
                }
            }
            drop(node);
            cx.close(other).await;
        }
    }

    #[proves("act.respond")]
    async fn a_job_that_does_not_exist_is_not_found(cx: &Cx) {
        let node = cx.node().await;
        for action in JobAction::ALL {
            assert_eq!(
                node.act(JobId::new(), action).await,
                ActionOutcome::NotFound
            );
        }
    }

    #[proves("act.select")]
    async fn ids_are_answered_each_and_in_order(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        node.act(all[1], JobAction::Pause).await;
        let missing = JobId::new();
        let asked = vec![all[2], missing, all[1], all[0], all[2]];
        let acted = node
            .act_on(&JobSelector::Ids(asked.clone()), JobAction::Pause)
            .await;
        let became = ActionOutcome::Became(JobState::Paused);
        let refused = ActionOutcome::Refused(JobState::Paused);
        let outcomes = [became, ActionOutcome::NotFound, refused, became, refused];
        let expected: Vec<Acted> = asked
            .into_iter()
            .zip(outcomes)
            .map(|(job, outcome)| Acted { job, outcome })
            .collect();
        assert_eq!(acted, expected);
        assert_eq!(
            node.act_on(&JobSelector::Ids(vec![]), JobAction::Pause)
                .await,
            []
        );
    }

    #[proves("act.select")]
    async fn a_filter_takes_the_oldest_that_can(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(6)).await;
        // Those that refuse neither count against the limit nor are answered.
        node.act(all[0], JobAction::Pause).await;
        node.act(all[2], JobAction::Cancel).await;
        let selector = JobSelector::Matching {
            filter: JobFilter::all(),
            limit: 2,
        };
        let acted = node.act_on(&selector, JobAction::Pause).await;
        let outcome = ActionOutcome::Became(JobState::Paused);
        let expected = [
            Acted {
                job: all[1],
                outcome,
            },
            Acted {
                job: all[3],
                outcome,
            },
        ];
        assert_eq!(acted, expected);
        assert_eq!(node.claim_ids(10).await, all[4..]);
    }

    #[proves("act.select", "page.filter")]
    async fn a_filter_acts_on_what_it_matches_and_nothing_else(cx: &Cx) {
        let node = cx.node().await;
        let batch = [
            NewJob::new("a", &()).queue("x"),
            NewJob::new("b", &()).queue("x"),
            NewJob::new("a", &()).queue("y"),
            NewJob::new("a", &()).queue("x"),
        ];
        let all = node.add_all(&batch).await;
        let filter = JobFilter::all()
            .queue(name("x"))
            .kind(name("a"))
            .state(JobState::Pending)
            .state(JobState::Running);
        let selector = JobSelector::Matching { filter, limit: 10 };
        let acted = node.act_on(&selector, JobAction::Cancel).await;
        let acted: Vec<JobId> = acted.iter().map(|one| one.job).collect();
        assert_eq!(acted, [all[0], all[3]]);
        assert_eq!(node.claim_ids(10).await, all[1..3]);
    }

    #[proves("act.select", "limits.batch")]
    async fn a_filter_without_a_limit_and_too_many_ids_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for limit in [0, MAX_BATCH + 1] {
            let selector = JobSelector::Matching {
                filter: JobFilter::all(),
                limit,
            };
            assert_refused(node.jobs().act(&selector, JobAction::Cancel).await, "limit");
        }
        let selector = JobSelector::Ids(vec![id; MAX_BATCH + 1]);
        assert_refused(node.jobs().act(&selector, JobAction::Cancel).await, "ids");
        assert_eq!(node.state(id).await, JobState::Pending);
    }

    #[proves("pause.job")]
    async fn a_paused_job_is_not_claimed(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(2)).await;
        let acted = node.act(all[0], JobAction::Pause).await;
        assert_eq!(acted, ActionOutcome::Became(JobState::Paused));
        assert_eq!(node.claim_ids(10).await, all[1..]);
        assert_eq!(node.get(all[0]).await.finished_at, None);
    }

    #[proves("pause.job")]
    #[needs(Clock)]
    async fn a_resumed_job_has_its_old_place(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(job()).await;
        let later = node.add(job().delay(MINUTE)).await;
        let before = node.get_all(&[first, later]).await;
        for id in [first, later] {
            node.act(id, JobAction::Pause).await;
        }
        cx.advance(30 * SECOND).await;
        let between = node.add(job()).await;
        for id in [first, later] {
            let acted = node.act(id, JobAction::Resume).await;
            assert_eq!(acted, ActionOutcome::Became(JobState::Pending));
        }
        assert_eq!(node.get_all(&[first, later]).await, before);
        assert_eq!(node.claim_ids(10).await, [first, between]);
        cx.advance(30 * SECOND).await;
        assert_eq!(node.claim_ids(10).await, [later]);
    }
}
