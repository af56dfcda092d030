-- Takes claims back, as ratchet_core::model::ReclaimRequest::effect says, unless something about
-- them has changed since they were judged; one row comes back for each. Jobs that end and for whose
-- end others wait are left alone unless $9 says that they are followed.
-- [reclaim.requeue] [reclaim.once] [reclaim.exhausted] [link.decide]
-- None is waited for for long: whoever holds one job in an open transaction holds no others up (held.rs).
-- Primary keys.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, set_config('lock_timeout', '200ms', true)
),
lost AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::boolean[], $5::bigint[],
                         $6::uuid[], $7::integer[], $8::smallint[])
    AS lost (job, seq, crash_count, cancel_requested, last_report, node, crashes, state)
),
ended AS (
    UPDATE {schema}.jobs AS job
    SET state = lost.state, crash_count = lost.crashes,
        node = CASE WHEN lost.state = 3 THEN NULL ELSE job.node END,
        finished_at = CASE WHEN lost.state >= 4 THEN clock.now END
    FROM lost CROSS JOIN clock
    WHERE job.id = lost.job AND job.claim_seq = lost.seq AND job.state + 0 = 3
      AND job.crash_count = lost.crash_count AND job.cancel_requested = lost.cancel_requested
      AND job.last_report IS NOT DISTINCT FROM lost.last_report
      AND job.node IS NOT DISTINCT FROM lost.node
      AND ($9 OR lost.state < 4 OR job.flags & 52 = 0)
    RETURNING job.id, job.claim_seq, job.state, job.flags, job.node, job.claimed_at, clock.now
),
history AS (
    INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, node)
    SELECT id, claim_seq, 6, coalesce(claimed_at, now), now, node FROM ended WHERE state <> 3
),
freed AS (
    DELETE FROM {schema}.unique_keys AS held
    USING ended
    WHERE ended.flags & 1 = 1 AND ended.state >= 4
      AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = ended.id)
      AND held.job = ended.id
)
SELECT id, flags FROM ended
