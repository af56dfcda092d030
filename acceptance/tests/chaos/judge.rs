//! Checks what must hold after any disturbance.

use ratchet::{AttemptOutcome, Client, JobId, JobRecord, JobState};

use crate::field::{Field, all_jobs, begun};

/// Checks every acknowledged job, and prints a summary.
pub(crate) async fn judge(field: &Field, acknowledged: &[JobId]) {
    let stored = all_jobs(&field.client).await;
    let begun = begun(&field.notes());
    let (mut failed, mut again, mut lost_claims) = (0, 0, 0);
    for id in acknowledged {
        let job = stored
            .get(id)
            .unwrap_or_else(|| panic!("the job {id} was acknowledged, so it should be stored"));
        match job.state {
            JobState::Succeeded => {}
            JobState::Failed => failed += 1,
            JobState::Pending => {}
            other => panic!(
                "expected job {id} to be succeeded, failed or pending, found {other}: {job:?}"
            ),
        }
        let begun = begun.get(&id.to_string()).copied().unwrap_or_default();
        again += begun.saturating_sub(1);
        lost_claims += check_history(&field.client, job, begun).await;
    }
    println!(
        "    {} jobs: none lost, {failed} dead letters, {again} bodies began again after \
         {lost_claims} lost claims",
        acknowledged.len()
    );
}

/// Checks that the claims have increasing numbers, that at most one of them succeeded, and that a
/// body began again only after its claim was lost. Returns how many claims were lost.
async fn check_history(client: &Client, job: &JobRecord, begun: usize) -> usize {
    if job.claim_seq == 1 {
        assert!(
            begun <= 1,
            "expected at most one body per claim, but the body of job {} began {begun} times under \
             one claim",
            job.id
        );
        return 0;
    }
    let history = client.history(job.id).await.unwrap();
    let ascending = history.windows(2).all(|pair| pair[0].seq < pair[1].seq);
    assert!(ascending, "{history:?}");
    let count = |outcome| {
        history
            .iter()
            .filter(|attempt| attempt.outcome == outcome)
            .count()
    };
    let succeeded = count(AttemptOutcome::Succeeded);
    let last = history.last().map(|attempt| (attempt.seq, attempt.outcome));
    if job.state == JobState::Succeeded {
        assert_eq!(succeeded, 1, "{history:?}");
        assert_eq!(
            last,
            Some((job.claim_seq, AttemptOutcome::Succeeded)),
            "{job:?}"
        );
    } else {
        assert_eq!(succeeded, 0, "{history:?}");
    }
    let lost = count(AttemptOutcome::Lost);
    let handed_back = count(AttemptOutcome::Released) + count(AttemptOutcome::Undelivered);
    let known = lost + handed_back + succeeded + count(AttemptOutcome::Failed);
    assert_eq!(
        known,
        history.len(),
        "a body failed that should always succeed: {history:?}"
    );
    assert!(
        begun <= lost + 1,
        "the body of job {} began {begun} times, which is too often for {lost} lost claims: \
         {history:?}",
        job.id
    );
    lost
}
