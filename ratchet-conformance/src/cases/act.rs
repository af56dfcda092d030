//! Actions on jobs: which jobs they reach, their outcomes, and what they change: pauses, due times,
//! priorities, deletion.

use ratchet_core::limits::MAX_BATCH;
use ratchet_core::state::Response;

use super::prelude::*;

/// Stores at least one job in each state that a job can have. Returns the ids of the jobs.
async fn one_in_every_state(cx: &Cx, node: &TestNode) -> Vec<JobId> {
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
    if cx.has(Power::Lanes) {
        // The blocked job comes before the head of its lane, because an action that ends the head
        // would promote the blocked job.
        let lane = [job().lane("l"), job().lane("l")];
        all.extend(node.add_all(&lane).await.into_iter().rev());
    }
    all
}

cases! {
    "act" on Cx;

    #[proves("act.respond")]
    async fn every_state_answers_every_action_as_the_table_says(cx: &Cx) {
        for action in JobAction::ALL {
            let other = cx.another().await;
            let node = other.node().await;
            for id in one_in_every_state(cx, &node).await {
                let before = node.get(id).await;
                let outcome = node.act(id, action).await;
                let after = node.find(id).await;
                let kept = Some(before.state);
                let (expected, state) = match before.state.respond(action) {
                    Response::Become(state) => (ActionOutcome::Became(state), Some(state)),
                    Response::RequestCancel => (ActionOutcome::CancelRequested, kept),
                    Response::Refuse => (ActionOutcome::Refused(before.state), kept),
                    Response::Change => (ActionOutcome::Changed, kept),
                    Response::Remove => (ActionOutcome::Deleted, None),
                };
                assert_eq!(outcome, expected, "unexpected outcome of {action:?} for a {} job", before.state);
                let found = after.as_ref().map(|job| job.state);
                assert_eq!(found, state, "unexpected state after {action:?} of a {} job", before.state);
                if let ActionOutcome::Refused(_) = outcome {
                    assert_eq!(after, Some(before), "expected a refused {action:?} to leave the job unchanged");
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

    #[proves("act.from")]
    async fn a_job_that_left_the_states_it_was_selected_in_is_left_alone(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        node.act(all[1], JobAction::Pause).await;
        let asked = [all[0], all[1], JobId::new()];
        for action in [JobAction::Cancel, JobAction::Requeue, JobAction::Delete] {
            let acted = ok(node.jobs().act_on(&asked, &[JobState::Running], action).await);
            let missing = asked.map(|job| Acted {
                job,
                outcome: ActionOutcome::NotFound,
            });
            assert_eq!(acted, missing, "{action:?}");
        }
        let paused = [JobState::Paused];
        let acted = ok(node.jobs().act_on(&asked, &paused, JobAction::Cancel).await);
        let outcomes = acted.iter().map(|one| one.outcome);
        let cancelled = ActionOutcome::Became(JobState::Cancelled);
        let expected = [ActionOutcome::NotFound, cancelled, ActionOutcome::NotFound];
        assert_eq!(outcomes.collect::<Vec<_>>(), expected);
        assert_eq!(node.state(all[0]).await, JobState::Pending);
        assert_eq!(node.claim_ids(10).await, [all[0], all[2]]);
    }

    #[proves("act.select")]
    async fn a_filter_takes_the_oldest_that_can(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(6)).await;
        // Jobs to which the action does not apply do not count against the limit and are not
        // returned.
        node.act(all[0], JobAction::Pause).await;
        node.act(all[2], JobAction::Cancel).await;
        let selector = JobSelector::matching(JobFilter::all(), 2);
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
        let selector = JobSelector::matching(filter, 10);
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
            let selector = JobSelector::matching(JobFilter::all(), limit);
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

    #[proves("act.select")]
    async fn passes_go_on_behind_the_last_job_until_there_is_none(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(7)).await;
        let action = JobAction::SetPriority(Priority::High);
        let (mut visited, mut after) = (Vec::new(), None);
        loop {
            let selector = JobSelector::matching(JobFilter::all(), 3).after(after);
            let acted = node.act_on(&selector, action).await;
            let Some(last) = acted.last() else {
                break;
            };
            after = Some(last.job);
            visited.extend(acted.iter().map(|one| one.job));
            assert!(visited.len() <= all.len(), "expected every job once, found one twice");
        }
        assert_eq!(visited, all);
        // A selector that lists ids ignores the cursor.
        let ids = JobSelector::Ids(all[..2].to_vec()).after(Some(all[6]));
        assert_eq!(node.act_on(&ids, action).await.len(), 2);
    }

    #[proves("reschedule.job", "time.clock", "time.precision")]
    #[needs(Clock)]
    async fn a_rescheduled_job_is_claimed_from_its_new_time(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().priority(Priority::High)).await;
        let before = node.get(id).await;
        let later = JobAction::Reschedule(RunAt::In(Duration::from_micros(59_999_001)));
        assert_eq!(node.act(id, later).await, ActionOutcome::Changed);
        let mut expected = before.clone();
        expected.run_at = before.run_at + MINUTE;
        cx.proving(["reschedule.job", "time.precision"]);
        assert_eq!(node.get(id).await, expected);
        cx.proving(["reschedule.job", "time.clock"]);
        cx.advance(MINUTE - MILLI).await;
        assert_eq!(node.claim_ids(10).await, []);
        cx.advance(MILLI).await;
        assert_eq!(node.claim_ids(10).await, [id]);
    }

    #[proves("reschedule.job", "claim.order")]
    #[needs(Clock)]
    async fn jobs_are_claimed_in_the_order_they_were_rescheduled_to(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(4)).await;
        let now = node.now().await;
        let due = [
            RunAt::Now,
            RunAt::In(HOUR),
            RunAt::At(now - 2 * SECOND),
            RunAt::At(now - SECOND),
        ];
        for (id, due) in all.iter().zip(due) {
            node.act(*id, JobAction::Reschedule(due)).await;
        }
        assert_eq!(node.claim_ids(10).await, [all[2], all[3], all[0]]);
        cx.advance(HOUR).await;
        assert_eq!(node.claim_ids(10).await, [all[1]]);
    }

    #[proves("reschedule.job", "pause.job")]
    #[needs(Clock)]
    async fn a_paused_job_that_is_rescheduled_stays_paused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let due = node.get(id).await.run_at + HOUR;
        node.act(id, JobAction::Pause).await;
        let later = JobAction::Reschedule(RunAt::In(HOUR));
        assert_eq!(node.act(id, later).await, ActionOutcome::Changed);
        assert_eq!(node.get(id).await.run_at, due);
        cx.advance(2 * HOUR).await;
        assert_eq!(node.state(id).await, JobState::Paused);
        assert_eq!(node.claim_ids(10).await, []);
        node.act(id, JobAction::Resume).await;
        assert_eq!(node.claim_ids(10).await, [id]);
    }

    #[proves("reschedule.job", "act.respond")]
    async fn running_and_ended_jobs_keep_their_due_time(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(2)).await;
        node.fail(node.take().await).await;
        node.take().await;
        let before = node.get_all(&all).await;
        let later = JobAction::Reschedule(RunAt::In(HOUR));
        for (id, state) in all.iter().zip([JobState::Failed, JobState::Running]) {
            assert_eq!(node.act(*id, later).await, ActionOutcome::Refused(state));
        }
        assert_eq!(node.get_all(&all).await, before);
    }

    #[proves("lane.reschedule", "reschedule.job")]
    #[needs(Clock, Lanes)]
    async fn a_rescheduled_head_holds_its_lane_and_who_waits_keeps_the_place(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&[job().lane("l"), job().lane("l"), job().lane("l")]).await;
        let later = JobAction::Reschedule(RunAt::In(HOUR));
        assert_eq!(node.act(all[0], later).await, ActionOutcome::Changed);
        // The last job of the lane becomes due first, but keeps its place in the lane.
        let due = node.now().await - HOUR;
        let early = JobAction::Reschedule(RunAt::At(due));
        assert_eq!(node.act(all[2], early).await, ActionOutcome::Changed);
        assert_eq!(node.get(all[2]).await.run_at, due);
        assert_eq!(node.act(all[1], later).await, ActionOutcome::Changed);
        assert_eq!(node.claim_ids(10).await, []);
        assert_eq!(node.state(all[2]).await, JobState::Blocked);
        cx.advance(HOUR).await;
        for id in all {
            let token = node.take().await;
            assert_eq!(token.job, id);
            node.succeed(token).await;
        }
    }

    #[proves("act.select", "errors.kind")]
    async fn due_times_that_cannot_be_stored_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        let before = node.get(id).await;
        let past = time::from_millis(-1);
        for (due, field) in [(RunAt::At(past), "run_at"), (RunAt::In(Duration::MAX), "delay")] {
            let action = JobAction::Reschedule(due);
            for jobs in [JobSelector::Ids(vec![id]), JobSelector::matching(JobFilter::all(), 1)] {
                assert_refused(node.jobs().act(&jobs, action).await, field);
            }
        }
        assert_eq!(node.get(id).await, before);
    }

    #[proves("priority.job", "claim.order")]
    async fn a_job_is_claimed_by_its_new_priority(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(4)).await;
        node.act(all[3], JobAction::Pause).await;
        let set = [(3, Priority::Critical), (1, Priority::High), (0, Priority::Lowest)];
        for (place, priority) in set {
            let action = JobAction::SetPriority(priority);
            assert_eq!(node.act(all[place], action).await, ActionOutcome::Changed);
            assert_eq!(node.get(all[place]).await.spec.priority, priority);
        }
        assert_eq!(node.state(all[3]).await, JobState::Paused);
        node.act(all[3], JobAction::Resume).await;
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), [all[3], all[1], all[2], all[0]]);
        assert_eq!(claimed[0].claim.priority, Priority::Critical);
    }

    #[proves("priority.job", "settle.token")]
    async fn a_running_job_keeps_its_claim_and_has_the_priority_when_it_waits_again(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(job()).await;
        let token = node.take().await;
        let high = JobAction::SetPriority(Priority::High);
        assert_eq!(node.act(first, high).await, ActionOutcome::Changed);
        let other = node.add(job()).await;
        node.alive(token).await;
        node.release(token).await;
        node.act(other, JobAction::Reschedule(RunAt::At(node.now().await - MINUTE))).await;
        let claimed = node.claim(1).await;
        assert_eq!(ids(&claimed), [first]);
        assert_eq!(claimed[0].claim.priority, Priority::High);
    }

    #[proves("delete.job")]
    async fn a_deleted_job_is_gone_for_every_read_and_its_idempotency_key_stays_used(cx: &Cx) {
        let node = cx.node().await;
        let new = || cx.tagged(job().unique_key("u"), "t");
        let first = cx.once(new(), "i");
        let id = node.add(first.clone()).await;
        node.fail(node.take().await).await;
        assert_eq!(node.act(id, JobAction::Delete).await, ActionOutcome::Deleted);
        assert_eq!(node.find(id).await, None);
        assert_eq!(node.history(id).await, []);
        assert!(node.everything().await.is_empty());
        assert_eq!(node.act(id, JobAction::Delete).await, ActionOutcome::NotFound);
        let tagged = JobFilter::all().tag(name("t"));
        assert!(node.list(&tagged, &PageRequest::first(10)).await.jobs.is_empty());
        if cx.has(Power::IdempotencyKeys) {
            let again = job().idempotency_key("i");
            assert_eq!(node.offer(&again).await, Enqueued::Duplicate(id));
        }
        node.add(new()).await;
    }

    #[proves("delete.job")]
    async fn an_unfinished_job_is_never_deleted(cx: &Cx) {
        let node = cx.node().await;
        let running = node.add(job()).await;
        let token = node.take().await;
        let paused = node.add(job()).await;
        node.act(paused, JobAction::Pause).await;
        let mut unfinished = vec![running, paused];
        if cx.has(Power::Lanes) {
            unfinished.extend(node.add_all(&[job().lane("l"), job().lane("l")]).await);
        }
        let count = unfinished.len();
        for id in unfinished {
            let state = node.state(id).await;
            assert_eq!(node.act(id, JobAction::Delete).await, ActionOutcome::Refused(state));
        }
        let all = JobSelector::matching(JobFilter::all(), 10);
        assert_eq!(node.act_on(&all, JobAction::Delete).await, []);
        node.succeed(token).await;
        let acted = node.act_on(&all, JobAction::Delete).await;
        let outcome = ActionOutcome::Deleted;
        assert_eq!(acted, [Acted { job: running, outcome }]);
        assert_eq!(node.everything().await.len(), count - 1);
    }

    #[proves("delete.job", "act.select")]
    async fn one_call_deletes_each_job_once(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        for id in &all[..2] {
            node.act(*id, JobAction::Cancel).await;
        }
        let asked = JobSelector::Ids(vec![all[0], all[2], all[0], all[1]]);
        let acted = node.act_on(&asked, JobAction::Delete).await;
        let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
        let deleted = ActionOutcome::Deleted;
        let refused = ActionOutcome::Refused(JobState::Pending);
        assert_eq!(outcomes, [deleted, refused, ActionOutcome::NotFound, deleted]);
        assert_eq!(node.everything().await.len(), 1);
    }

    #[proves("act.twice")]
    async fn an_id_that_is_given_twice_is_acted_on_twice(cx: &Cx) {
        for action in JobAction::ALL {
            let other = cx.another().await;
            let node = other.node().await;
            for id in one_in_every_state(cx, &node).await {
                let before = node.get(id).await.state;
                let twice = JobSelector::Ids(vec![id, id]);
                let acted = node.act_on(&twice, action).await;
                let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
                let after = match before.respond(action) {
                    Response::Become(state) => Some(state),
                    Response::Remove => None,
                    _ => Some(before),
                };
                let second = match after {
                    None => ActionOutcome::NotFound,
                    Some(state) if state.respond(action) == Response::Refuse => {
                        ActionOutcome::Refused(state)
                    }
                    // An action that changes no state has the same outcome when it is repeated.
                    Some(_) => outcomes[0],
                };
                assert_eq!(outcomes.len(), 2, "unexpected number of outcomes of {action:?} for a {before} job");
                assert_eq!(outcomes[1], second, "unexpected second outcome of {action:?} for a {before} job");
                let found = node.find(id).await.map(|job| job.state);
                assert_eq!(found, after, "unexpected state after {action:?} of a {before} job");
            }
            drop(node);
            cx.close(other).await;
        }
    }

    #[proves("act.twice", "requeue.key")]
    async fn a_dead_letter_that_is_given_twice_takes_its_key_once(cx: &Cx) {
        let node = cx.node().await;
        let mut dead = Vec::new();
        for _ in 0..2 {
            dead.push(node.add(job().unique_key("k")).await);
            node.fail(node.take().await).await;
        }
        let ids = JobSelector::Ids(vec![dead[0], dead[1], dead[0], dead[1]]);
        let acted = node.act_on(&ids, JobAction::Requeue).await;
        let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
        let expected = [
            ActionOutcome::Became(JobState::Pending),
            ActionOutcome::KeyTaken(dead[0]),
            ActionOutcome::Refused(JobState::Pending),
            ActionOutcome::KeyTaken(dead[0]),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(node.claim_ids(10).await, dead[..1]);
    }

    #[proves("requeue.pass", "act.select")]
    async fn jobs_whose_key_is_taken_count_and_hold_no_pass_up(cx: &Cx) {
        let node = cx.node().await;
        let mut dead = Vec::new();
        for new in [job().unique_key("k"), job().unique_key("k"), job(), job()] {
            dead.push(node.add(new).await);
            node.fail(node.take().await).await;
        }
        let holder = node.add(job().unique_key("k")).await;
        let (taken, became) = (
            ActionOutcome::KeyTaken(holder),
            ActionOutcome::Became(JobState::Pending),
        );
        let mut after = None;
        for expected in [&[taken, taken][..], &[became, became], &[]] {
            let selector = JobSelector::matching(JobFilter::all(), 2).after(after);
            let acted = node.act_on(&selector, JobAction::Requeue).await;
            let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
            assert_eq!(outcomes, expected);
            after = acted.last().map(|one| one.job);
        }
        // A pass that starts again from the beginning meets the same jobs again.
        let selector = JobSelector::matching(JobFilter::all(), 2);
        let acted = node.act_on(&selector, JobAction::Requeue).await;
        let met: Vec<JobId> = acted.iter().map(|one| one.job).collect();
        assert_eq!(met, dead[..2]);
    }
}
