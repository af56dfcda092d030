-- Restarts the stall timeouts of claims and keeps what their bodies tell; one row comes back for
-- each that held. [report.life] [report.progress] [report.token] [report.cancel]
-- None is waited for for long: whoever holds one job in an open transaction holds no others up (held.rs).
-- Primary keys; no index has last_report.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, set_config('lock_timeout', '200ms', true)
),
report AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::text[],
                         $6::uuid[], $7::bigint[])
    AS report (job, seq, percent, message, checkpoint, node, claimed_at)
),
alive AS (
    UPDATE {schema}.jobs AS job SET last_report = clock.now
    FROM report CROSS JOIN clock
    WHERE job.id = report.job AND job.claim_seq = report.seq AND job.state + 0 = 3
      AND job.node IS NOT DISTINCT FROM report.node AND coalesce(job.claimed_at, 0) = report.claimed_at
    RETURNING job.id, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
              report.percent, report.message, report.checkpoint
),
noted AS (
    INSERT INTO {schema}.job_notes AS notes (job, percent, message, checkpoint)
    SELECT id, percent, message, checkpoint FROM alive
    WHERE percent IS NOT NULL OR checkpoint IS NOT NULL
    ON CONFLICT (job) DO UPDATE
    SET percent = coalesce(excluded.percent, notes.percent),
        message = coalesce(excluded.message, notes.message),
        checkpoint = coalesce(excluded.checkpoint, notes.checkpoint)
)
SELECT id, claim_seq, node, claimed_at, cancel_requested FROM alive
