-- Gives the first $6 due jobs in claim order to node $7; with their payloads if $8.
-- [claim.exclusive] [claim.due] [claim.limit] [claim.order] [claim.aging] [claim.match]
-- [claim.paused] [claim.live] [claim.running] [claim.whole] [claim.version]
-- $1 and $2 are the wanted routes and their queues, $3 and $10 the last route that the caller knows
-- (0: none) and its stamp: if another one is the last, nothing is claimed. $4 is the aging interval, $5 how many candidates to look at,
-- $9 how many of each wanted route to look at (none: as many).
--
-- One range of jobs_claim per route and priority, read in its order; the candidates are merged by
-- the rank of ratchet_core::priority::ClaimRank, and only what is returned is locked. A lookup by
-- place (ctid) is safe here because a row that moved since the candidates were read is one that
-- somebody else has: it is passed over, and the caller sees that the batch is short.
-- state + 0 keeps the planner from reading jobs_claim as a whole where it has a row's place.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
known AS MATERIALIZED (
    SELECT coalesce((SELECT last.id = $3 AND last.stamp = $10::bigint FROM {schema}.routes AS last
                     ORDER BY last.id DESC LIMIT 1), $3 = 0) AS proven
),
-- Locks no row, since no queue has this name, but the table, and before this statement's snapshot
-- is taken: a pause waits for it (pause_queue), so that no claim that began before is still going
-- on when the pause returns.
gate AS MATERIALIZED (SELECT queue FROM {schema}.paused_queues WHERE queue = '' FOR KEY SHARE),
paused AS MATERIALIZED (SELECT queue FROM {schema}.paused_queues),
candidate AS MATERIALIZED (
    SELECT due.place, due.run_at, due.id,
           level.priority
           + CASE WHEN $4::bigint > 0 THEN (clock.now - due.run_at) / $4::bigint ELSE 0 END
           AS effective
    FROM clock
    CROSS JOIN unnest($1::integer[], $2::text[], $9::bigint[]) AS wanted (route, queue, most)
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        SELECT job.ctid AS place, job.run_at, job.id
        FROM {schema}.jobs AS job
        WHERE job.state = 0 AND job.route = wanted.route AND job.priority = level.priority
          AND job.run_at <= clock.now
        ORDER BY job.run_at, job.id
        LIMIT least($5, wanted.most)
    ) AS due
    WHERE (SELECT proven FROM known)
      AND NOT EXISTS (SELECT FROM gate)
      AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE node = $7 AND status <> 1)
      AND wanted.queue NOT IN (SELECT queue FROM paused)
    ORDER BY effective DESC, due.run_at, due.id
    LIMIT $5
),
taken AS MATERIALIZED (
    SELECT locked.place
    FROM candidate
    CROSS JOIN LATERAL (
        SELECT job.ctid AS place FROM {schema}.jobs AS job
        WHERE job.ctid = candidate.place AND job.state + 0 = 0
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked
    LIMIT $6
),
claimed AS (
    UPDATE {schema}.jobs AS job
    SET state = 3, claim_seq = job.claim_seq + 1, node = $7, claimed_at = clock.now,
        last_report = NULL, cancel_requested = false
    FROM clock
    WHERE job.ctid = ANY(ARRAY(SELECT place FROM taken))
    RETURNING job.id, job.claim_seq, job.route, job.priority, job.run_at, job.attempts,
              job.crash_count, job.flags
)
SELECT known.proven, (SELECT count(*) FROM candidate), clock.now,
       claimed.id, claimed.claim_seq, claimed.route, claimed.priority, claimed.run_at,
       claimed.attempts, claimed.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN $8 THEN data.payload END,
       CASE WHEN $8 AND claimed.claim_seq > 1
            THEN (SELECT checkpoint FROM {schema}.job_notes WHERE job = claimed.id) END,
       data.lane, data.payload_version, claimed.flags
FROM clock
CROSS JOIN known
LEFT JOIN claimed ON true
LEFT JOIN {schema}.job_data AS data ON data.id = claimed.id
