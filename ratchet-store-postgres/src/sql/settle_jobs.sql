-- Ends claims and says what becomes of their jobs; one row comes back for each that held.
-- [settle.effect] [settle.mixed] [settle.token] [settle.cancel] [settle.keys] [settle.history]
-- The values are those of ratchet_core::model::Settlement::effect. Whether cancellation was
-- requested is known only here, so what that function says then is here too: Cancelled (6, in the
-- history 5), no other due time, no error and no result, and the attempts counted as otherwise.
-- Jobs whose ends others wait for (flags: 4 in a lane, 16 linked to it, 32 in a batch) are left alone
-- unless $10 says that they are followed.
-- Then they are waited for as long as the transaction says; otherwise, not for long: whoever holds one
-- job in an open transaction holds no others up (held.rs).
-- Primary keys; the caller sends the tokens in order of id, so that two calls lock in one order.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, CASE WHEN NOT $10 THEN set_config('lock_timeout', '200ms', true) END
),
settlement AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[],
                         $6::smallint[], $7::text[], $8::text[], $9::bigint[], $11::uuid[],
                         $12::bigint[])
    AS settlement (job, seq, state, delay, attempts, outcome, error, result, ran_for_us, node,
                   claimed_at)
),
ended AS (
    UPDATE {schema}.jobs AS job
    SET state = CASE WHEN job.cancel_requested THEN 6 ELSE settlement.state END,
        run_at = CASE WHEN job.cancel_requested OR settlement.delay IS NULL THEN job.run_at
                      ELSE clock.now + settlement.delay END,
        attempts = job.attempts + settlement.attempts,
        settled_seq = job.claim_seq,
        finished_at = CASE WHEN job.cancel_requested OR settlement.state >= 4 THEN clock.now END,
        ran_for_us = CASE WHEN settlement.state = 4 AND NOT job.cancel_requested
                          THEN settlement.ran_for_us END
    FROM settlement CROSS JOIN clock
    WHERE job.id = settlement.job AND job.claim_seq = settlement.seq AND job.state + 0 = 3
      AND job.node IS NOT DISTINCT FROM settlement.node AND coalesce(job.claimed_at, 0) = settlement.claimed_at
      AND ($10 OR job.flags & 52 = 0 OR (settlement.state < 4 AND NOT job.cancel_requested))
    RETURNING job.id, job.claim_seq, job.state, job.flags, job.node, job.claimed_at,
              job.cancel_requested, clock.now, settlement.outcome, settlement.error,
              settlement.result, settlement.ran_for_us
),
history AS (
    INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, ran_for_us, node, error)
    SELECT id, claim_seq, CASE WHEN cancel_requested THEN 5 ELSE outcome END,
           coalesce(claimed_at, now), now, ran_for_us, node,
           CASE WHEN NOT cancel_requested THEN error END
    FROM ended
    WHERE state <> 4
),
noted AS (
    INSERT INTO {schema}.job_notes AS notes (job, result, last_error)
    SELECT id, result, error FROM ended
    WHERE NOT cancel_requested AND (result IS NOT NULL OR error IS NOT NULL)
    ON CONFLICT (job) DO UPDATE
    SET result = coalesce(excluded.result, notes.result),
        last_error = coalesce(excluded.last_error, notes.last_error)
),
freed AS (
    DELETE FROM {schema}.unique_keys AS held
    USING ended
    WHERE ended.flags & 1 = 1 AND ended.state >= 4
      AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = ended.id)
      AND held.job = ended.id
)
SELECT id, claim_seq, state, flags, node, claimed_at FROM ended
