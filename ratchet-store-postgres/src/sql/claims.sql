-- Claims jobs, and settles, reports on and reclaims claims.

-- name: claim_jobs
-- Claims the first $8 due jobs in claim order for node $9, with their payloads if $10.
-- [claim.exclusive] [claim.due] [claim.limit] [claim.order] [claim.aging] [claim.match]
-- [claim.paused] [claim.live] [claim.running] [claim.whole] [claim.version] $1 to $4 are the wanted
-- routes, their queues and kinds, and how many candidates of each to look at (NULL: $7). $5 and $11
-- are the id (0: none) and the stamp of the last route that the caller has read; if the last route
-- in the table is another one, nothing is claimed. $6 is the aging interval, $7 the number of
-- candidates. $12 are those of the routes whose jobs have fair keys. If $13 and due jobs of these
-- routes have no turn, claims nothing. $14 are those
-- of the routes that are shared. For such a route, the queue in $2 is the only one to look at, or
-- empty for all except those in $15. $16 are all routes for jobs with fair keys in the wanted queues,
-- or none if the transaction has locked those of the queues with limits. If parked jobs of $16 may
-- get turns, or if limits apply to jobs of $16 and $12 that could be claimed, claims nothing, and
-- the column after the flags is 2; it is 1 if jobs have no turn. $17 are the routes in whose queues
-- each key has a limit, and $18 those in whose queues some keys have one: the flag of their jobs (512)
-- is set.
--
-- Reads one range of jobs_claim per route and priority, in order, and merges the candidates by
-- ratchet_core::priority::ClaimRank. Locks only the rows it returns. A lookup by place (ctid) is
-- safe: if a row has moved since the candidates were read, another transaction has changed it. The
-- row is skipped, and the caller sees that the batch is short. state + 0 keeps the planner from
-- reading all of jobs_claim where a row is looked up by its place, or by jobs_turn, jobs_asleep or
-- jobs_queue.
--
-- [fair.turn] [fair.due] [fair.limit.others] Of the routes in $12, reads one range of jobs_turn per
-- priority, in the order of the turns (nr), without the parked jobs at its end. A merge takes a job only after all jobs before it in its range. To sort in the
-- same way, each of these jobs has the due time and the id of the last in claim order of the jobs up
-- to itself. This is its rank, one text, because the server has no maximum of two columns: the due
-- time plus an offset, which has 16 digits even if the due time is damaged, and the id. Jobs without
-- a turn are found with one seek of jobs_asleep per route. A running job keeps the turn with which it
-- was claimed until the claim ends, so that unclaim_jobs gives it back. No index has turns of running
-- jobs.
--
-- Of one queue in a shared route, reads one range of jobs_queue per priority. Of all its queues,
-- reads jobs_claim, and skips the jobs of paused and excluded queues.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
known AS MATERIALIZED (
    SELECT coalesce((SELECT last.id = $5 AND last.stamp = $11::bigint FROM {schema}.routes AS last
                     ORDER BY last.id DESC LIMIT 1), $5 = 0) AS proven
),
-- No pause has this name, so this locks no row but only the table, before this statement takes its
-- snapshot. A pause waits for that lock (await_claims), so no earlier claim is still running when
-- the pause returns.
gate AS MATERIALIZED (SELECT name FROM {schema}.pauses WHERE name = '' FOR KEY SHARE),
paused AS MATERIALIZED (SELECT scope, name FROM {schema}.pauses),
asleep AS MATERIALIZED (
    SELECT $13::boolean AND EXISTS (
        SELECT
        FROM unnest($12::integer[]) AS fair (id)
        JOIN {schema}.routes AS route ON route.id = fair.id
        CROSS JOIN LATERAL (
            SELECT FROM {schema}.jobs AS job
            WHERE job.state + 0 = 0 AND job.turn IS NULL AND job.fair_key IS NOT NULL
              AND job.route = route.id AND job.run_at <= (SELECT now FROM clock)
            LIMIT 1
        ) AS sleeper
        WHERE route.queue NOT IN (SELECT name FROM paused WHERE scope = 0)
          AND route.kind NOT IN (SELECT name FROM paused WHERE scope = 1)
    ) AS found
),
limited AS MATERIALIZED (
    SELECT coalesce(bool_or(
        route.queue NOT IN (SELECT name FROM paused WHERE scope = 0)
        AND (EXISTS (SELECT FROM {schema}.freed WHERE freed.route = route.id OFFSET 0)
             OR (route.id = ANY($12::integer[])
                 AND (EXISTS (SELECT FROM {schema}.fair_limits AS own
                              WHERE own.queue = route.queue OFFSET 0)
                      OR EXISTS (SELECT FROM {schema}.fair_limits AS pattern
                                 WHERE pattern.fair_key = '' AND right(pattern.queue, 1) = '*'
                                   AND starts_with(route.queue, left(pattern.queue, -1))))
                 AND ((SELECT found FROM asleep) OR EXISTS (
                     SELECT
                     FROM (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint),
                                  (0::smallint)) AS level (priority)
                     CROSS JOIN LATERAL (
                         SELECT FROM {schema}.jobs AS job
                         WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = route.id
                           AND job.priority = level.priority AND job.turn < {parked}
                         LIMIT 1
                     ) AS next))))), false)
        AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE node = $9 AND status <> 1) AS found
    FROM unnest($16::integer[]) AS fair (id)
    JOIN {schema}.routes AS route ON route.id = fair.id
),
candidate AS MATERIALIZED (
    SELECT due.place, due.run_at, due.id,
           level.priority
           + CASE WHEN $6::bigint > 0
                  THEN greatest(clock.now - greatest(due.run_at, -4000000000000000), 0) / $6::bigint
                  ELSE 0 END AS effective
    FROM clock
    CROSS JOIN unnest($1::integer[], $2::text[], $3::text[], $4::bigint[])
        AS wanted (route, queue, kind, most)
    CROSS JOIN (VALUES (4::smallint), (3::smallint), (2::smallint), (1::smallint), (0::smallint))
        AS level (priority)
    CROSS JOIN LATERAL (
        (SELECT job.ctid AS place, job.run_at, job.id, 0 AS nr
         FROM {schema}.jobs AS job
         WHERE job.state = 0 AND job.route = wanted.route AND job.priority = level.priority
           AND job.run_at <= clock.now AND wanted.route <> ALL($12::integer[])
           AND (wanted.queue = '' OR wanted.route <> ALL($14::integer[]))
           AND (job.queue IS NULL
                OR (job.queue <> ALL($15::text[])
                    AND job.queue NOT IN (SELECT name FROM paused WHERE scope = 0)))
         ORDER BY job.run_at, job.id
         LIMIT least($7, wanted.most))
        UNION ALL
        (SELECT job.ctid, job.run_at, job.id, 0
         FROM {schema}.jobs AS job
         WHERE job.state + 0 = 0 AND job.queue IS NOT NULL AND job.queue = wanted.queue
           AND job.route = wanted.route AND job.priority = level.priority
           AND job.run_at <= clock.now AND wanted.route = ANY($14::integer[])
         ORDER BY job.run_at, job.id
         LIMIT $7)
        UNION ALL
        SELECT turned.place, left(turned.rank, 16)::bigint - 5000000000000000,
               substr(turned.rank, 17)::uuid, turned.nr
        FROM (
            SELECT next.place, row_number() OVER turns AS nr,
                   max((next.run_at + 5000000000000000 || next.id::text) COLLATE "C") OVER turns
                   AS rank
            FROM (
                SELECT job.ctid AS place, job.id, job.turn, job.fair_key,
                       least(greatest(job.run_at, -4000000000000000), 4000000000000000) AS run_at
                FROM {schema}.jobs AS job
                WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = wanted.route
                  AND job.priority = level.priority AND wanted.route = ANY($12::integer[])
                  AND job.turn < {parked}
                ORDER BY job.turn, job.fair_key, job.id
                LIMIT least($7, wanted.most)
            ) AS next
            WINDOW turns AS (ORDER BY next.turn, next.fair_key, next.id ROWS UNBOUNDED PRECEDING)
        ) AS turned
    ) AS due
    WHERE (SELECT proven FROM known) AND NOT (SELECT found FROM asleep)
      AND NOT (SELECT found FROM limited)
      AND NOT EXISTS (SELECT FROM gate)
      AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE node = $9 AND status <> 1)
      AND wanted.queue NOT IN (SELECT name FROM paused WHERE scope = 0)
      AND wanted.kind NOT IN (SELECT name FROM paused WHERE scope = 1)
    ORDER BY effective DESC, due.run_at, due.id, due.nr
    LIMIT $7
),
taken AS MATERIALIZED (
    SELECT locked.place
    FROM candidate
    CROSS JOIN LATERAL (
        SELECT job.ctid AS place FROM {schema}.jobs AS job
        WHERE job.ctid = candidate.place AND job.state + 0 = 0
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked
    LIMIT $8
),
claimed AS (
    UPDATE {schema}.jobs AS job
    SET state = 3, claim_seq = job.claim_seq + 1, node = $9, claimed_at = clock.now,
        last_report = NULL, cancel_requested = false,
        flags = CASE WHEN job.fair_key IS NOT NULL AND (
                    job.route = ANY($17::integer[])
                    OR (job.route = ANY($18::integer[]) AND EXISTS (
                        SELECT FROM {schema}.fair_limits AS own
                        JOIN {schema}.routes AS route ON route.queue = own.queue
                        WHERE route.id = job.route AND own.fair_key = job.fair_key OFFSET 0)))
                THEN job.flags | {limited} ELSE job.flags END
    FROM clock
    WHERE job.ctid = ANY(ARRAY(SELECT place FROM taken))
    RETURNING job.id, job.claim_seq, job.route, job.priority, job.run_at, job.attempts,
              job.crash_count, job.flags, job.turn, job.fair_key, job.queue
)
SELECT known.proven, (SELECT count(*) FROM candidate), clock.now,
       claimed.id, claimed.claim_seq, claimed.route, claimed.priority, claimed.run_at,
       claimed.attempts, claimed.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN $10 THEN data.payload END,
       CASE WHEN $10 AND claimed.claim_seq > 1
            THEN (SELECT checkpoint FROM {schema}.job_notes WHERE job = claimed.id) END,
       data.lane, data.payload_version, claimed.flags,
       CASE WHEN limited.found THEN 2 WHEN asleep.found THEN 1 ELSE 0 END,
       claimed.turn, claimed.fair_key,
       claimed.queue
FROM clock
CROSS JOIN known
CROSS JOIN asleep
CROSS JOIN limited
LEFT JOIN claimed ON true
LEFT JOIN {schema}.job_data AS data ON data.id = claimed.id

-- name: lock_routes
-- Locks routes until the transaction ends: no other transaction gives turns to their jobs. The
-- statements after it see the turns that were given before. [fair.turn] Primary key, locked in
-- order.
SELECT id FROM {schema}.routes WHERE id = ANY($1::integer[]) ORDER BY id FOR NO KEY UPDATE

-- name: try_lock_routes
-- Locks those of these routes that are free and have due jobs without a turn, as lock_routes does,
-- and returns them. So a claim never waits for an enqueue, which announces its jobs when it ends, and
-- keeps no enqueue waiting in other routes. [fair.due] Primary key, and one seek of jobs_asleep per
-- route: OFFSET 0 keeps the planner from joining all jobs.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT route.id
FROM {schema}.routes AS route
WHERE route.id = ANY($1::integer[])
  AND EXISTS (
      SELECT FROM {schema}.jobs AS job
      WHERE job.state + 0 = 0 AND job.turn IS NULL AND job.fair_key IS NOT NULL
        AND job.route = route.id AND job.run_at <= (SELECT now FROM clock)
      OFFSET 0)
ORDER BY route.id
FOR NO KEY UPDATE OF route SKIP LOCKED

-- name: find_turns
-- Returns the time, and for each of these levels ($1 and $2: route and priority) and keys ($3) the
-- first turn of the level, and the last turn of the key below $4 with its cost. The first turn is
-- none of a parked job. [fair.turn] [fair.bound] [fair.weight] [fair.idle] One seek of jobs_turn and
-- one of jobs_key each.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT clock.now, first.turn, last.turn, last.fair_cost
FROM clock
CROSS JOIN unnest($1::integer[], $2::smallint[], $3::text[]) WITH ORDINALITY
    AS wanted (route, priority, fair_key, place)
LEFT JOIN LATERAL (
    SELECT job.turn FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = wanted.route
      AND job.priority = wanted.priority AND job.turn < {parked}
    ORDER BY job.turn, job.fair_key, job.id LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT job.turn, job.fair_cost FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.turn IS NOT NULL AND job.route = wanted.route
      AND job.priority = wanted.priority AND job.fair_key = wanted.fair_key
      AND job.turn < $4
    ORDER BY job.turn DESC, job.id DESC LIMIT 1
) AS last ON true
ORDER BY wanted.place

-- name: find_sleepers
-- Returns the due jobs of these routes that have a fair key and no turn, the longest due first, at
-- most $2, and locks them. Skips jobs that another transaction has locked, which cannot be claimed
-- now. [fair.due] Reads a range of jobs_asleep for each route.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT sleeper.id, sleeper.route, sleeper.priority, sleeper.fair_key, sleeper.fair_cost,
       sleeper.run_at
FROM clock
CROSS JOIN {schema}.routes AS route
CROSS JOIN LATERAL (
    SELECT job.id, job.route, job.priority, job.fair_key, job.fair_cost, job.run_at
    FROM {schema}.jobs AS job
    WHERE job.state + 0 = 0 AND job.turn IS NULL AND job.fair_key IS NOT NULL
      AND job.route = route.id AND job.run_at <= clock.now
    ORDER BY job.run_at, job.id
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED
) AS sleeper
WHERE route.id = ANY($1::integer[])
  AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
ORDER BY sleeper.run_at, sleeper.id
LIMIT $2

-- name: give_turns
-- Gives these jobs, which this transaction has locked or stored, their turns. [fair.turn] [fair.due]
-- Primary key.
UPDATE {schema}.jobs AS job SET turn = given.turn
FROM unnest($1::uuid[], $2::bigint[]) AS given (job, turn)
WHERE job.id = given.job AND job.state + 0 = 0

-- name: unclaim_jobs
-- Undoes those claims of this transaction for which no permit is left; no other transaction has
-- seen them. They still have their turns. The other columns that a claim wrote have no meaning
-- while a job does not run. [permit.max] [permit.order] Primary key.
UPDATE {schema}.jobs AS job
SET state = 0, claim_seq = job.claim_seq - 1
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 = 3

-- name: load_inputs
-- Returns the inputs (payload and checkpoint) of the claims that are still held. [claim.load]
-- Primary keys.
SELECT job.id, job.claim_seq, job.node, job.claimed_at, data.payload, notes.checkpoint
FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[])
    AS token (job, seq, node, claimed_at)
JOIN {schema}.jobs AS job
  ON job.id = token.job AND job.claim_seq = token.seq AND job.state + 0 = 3
  AND coalesce(job.node, '00000000-0000-0000-0000-000000000000') = token.node
  AND coalesce(job.claimed_at, 0) = token.claimed_at
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id

-- name: settle_jobs
-- Ends claims and changes their jobs accordingly. Returns one row for each claim that was still
-- held. [settle.effect] [settle.mixed] [settle.token] [settle.cancel] [settle.keys]
-- [settle.history] [fair.limit.free] The values come from ratchet_core::model::Settlement::effect.
-- Only this statement knows whether cancellation was requested, so it implements what that function
-- does in this case: Cancelled (6, in the history 5), the same due time, no error and no result,
-- and attempts counted as usual. Skips jobs that would end while other jobs wait for their end
-- (flags: 4 in a lane, 16 has children, 32 in a batch), unless $12: then the caller applies the
-- effects on the other jobs. With $12, waits for locked jobs as long as the transaction allows;
-- otherwise only briefly, so that one locked job does not delay the others (held.rs). Primary keys;
-- the caller sends the tokens in order of id, so that all calls lock in the same order.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, CASE WHEN NOT $12 THEN set_config('lock_timeout', '{patience}', true) END
),
settlement AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[],
                         $6::smallint[], $7::text[], $8::text[], $9::bigint[], $10::uuid[],
                         $11::bigint[])
    AS settlement (job, seq, state, delay, attempts, outcome, error, result, ran_for, node,
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
                          THEN settlement.ran_for END,
        turn = NULL
    FROM settlement CROSS JOIN clock
    WHERE job.id = settlement.job AND job.claim_seq = settlement.seq AND job.state + 0 = 3
      AND coalesce(job.node, '00000000-0000-0000-0000-000000000000') = settlement.node
      AND coalesce(job.claimed_at, 0) = settlement.claimed_at
      AND ($12 OR job.flags & {awaited} = 0 OR (settlement.state < 4 AND NOT job.cancel_requested))
    RETURNING job.id, job.claim_seq, job.state, job.flags, job.node, job.claimed_at,
              job.cancel_requested, clock.now, settlement.outcome, settlement.error,
              settlement.result, settlement.ran_for AS ran_for_us, job.route, job.fair_key
),
places AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT route, fair_key FROM ended
    WHERE flags & {limited} <> 0 AND fair_key IS NOT NULL
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
    WHERE ended.flags & {unique_key} = {unique_key} AND ended.state >= 4
      AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = ended.id)
      AND held.job = ended.id
)
SELECT id, claim_seq, state, flags, node, claimed_at FROM ended

-- name: find_settled
-- Returns for each of these jobs the claim that was last settled, and the current claim if the job
-- is running; 0 means none. [settle.repeat] [lane.promote] [link.decide] A claim that succeeded is
-- not in the history: its node and time are in the job's row. Primary keys.
SELECT job.id, job.settled_seq, CASE WHEN job.state = 3 THEN job.claim_seq ELSE 0 END, job.flags,
       CASE WHEN attempt.job IS NULL THEN job.node ELSE attempt.node END,
       CASE WHEN attempt.job IS NULL THEN job.claimed_at ELSE attempt.claimed_at END,
       job.node, job.claimed_at
FROM {schema}.jobs AS job
LEFT JOIN {schema}.attempts AS attempt
  ON attempt.job = job.id AND attempt.seq = job.settled_seq
WHERE job.id = ANY($1::uuid[])

-- name: report_life
-- Restarts the stall timeouts of claims and stores their reports. Returns one row for each claim
-- still held. Their jobs have begun, so it deletes their expiries. [report.life] [report.progress]
-- [report.token] [report.cancel] [expiry.begun] Waits only briefly for locked jobs, so that one
-- locked job does not delay the others (held.rs). Primary keys; no index has last_report.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, set_config('lock_timeout', '{patience}', true)
),
report AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::text[],
                         $6::uuid[], $7::bigint[])
    AS report (job, seq, percent, message, checkpoint, node, claimed_at)
),
alive AS (
    UPDATE {schema}.jobs AS job
    SET last_report = clock.now, flags = job.flags - (job.flags & {expires})
    FROM report CROSS JOIN clock
    WHERE job.id = report.job AND job.claim_seq = report.seq AND job.state + 0 = 3
      AND coalesce(job.node, '00000000-0000-0000-0000-000000000000') = report.node
      AND coalesce(job.claimed_at, 0) = report.claimed_at
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
),
begun AS (
    DELETE FROM {schema}.expiries WHERE job = ANY(ARRAY(SELECT id FROM alive))
)
SELECT id, claim_seq, node, claimed_at, cancel_requested FROM alive

-- name: running_jobs
-- Returns every running job in order of id, with its timeouts, its node, and when the oldest node
-- began: the input of ratchet_core::model::ReclaimRequest::judge. [reclaim.dead] [reclaim.unknown]
-- [reclaim.start] Reads jobs_running: as many rows as there are claims, however many jobs there
-- are.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
registry AS MATERIALIZED (SELECT min(started_at) AS since FROM {schema}.nodes)
SELECT node.node, node.label, node.status, node.running, node.capacity, node.interval,
       node.started_at, node.last_seen, node.connections, node.cpu_percent, node.memory_bytes,
       node.roles, node.capabilities,
       clock.now, job.id, job.claim_seq, job.crash_count, job.cancel_requested, job.claimed_at,
       job.last_report, job.node, data.timeout, data.stall_timeout, job.flags,
       registry.since
FROM {schema}.jobs AS job
CROSS JOIN clock
CROSS JOIN registry
LEFT JOIN {schema}.nodes AS node ON node.node = job.node
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & {timeouts} = {timeouts}
WHERE job.state = 3
ORDER BY job.id

-- name: reclaim_jobs
-- Takes claims back, with the effects that ratchet_core::model::ReclaimRequest::judge returned,
-- unless they have changed since the caller read them. Returns one row for each claim that it took
-- back. Skips jobs that would end while other jobs wait for their end, unless $9: then the caller
-- applies the effects on the other jobs. [reclaim.requeue] [reclaim.once] [reclaim.exhausted]
-- [link.decide] [fair.limit.free] Waits only briefly for locked jobs, so that one locked job does
-- not delay the others (held.rs). Primary keys.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now, set_config('lock_timeout', '{patience}', true)
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
        finished_at = CASE WHEN lost.state >= 4 THEN clock.now END, turn = NULL
    FROM lost CROSS JOIN clock
    WHERE job.id = lost.job AND job.claim_seq = lost.seq AND job.state + 0 = 3
      AND job.crash_count = lost.crash_count AND job.cancel_requested = lost.cancel_requested
      AND job.last_report IS NOT DISTINCT FROM lost.last_report
      AND job.node IS NOT DISTINCT FROM lost.node
      AND ($9 OR lost.state < 4 OR job.flags & {awaited} = 0)
    RETURNING job.id, job.claim_seq, job.state, job.flags, job.node, job.claimed_at, clock.now,
              job.route, job.fair_key
),
places AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT route, fair_key FROM ended
    WHERE flags & {limited} <> 0 AND state <> 3 AND fair_key IS NOT NULL
),
history AS (
    INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, node)
    SELECT id, claim_seq, 6, coalesce(claimed_at, now), now, node FROM ended WHERE state <> 3
),
freed AS (
    DELETE FROM {schema}.unique_keys AS held
    USING ended
    WHERE ended.flags & {unique_key} = {unique_key} AND ended.state >= 4
      AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = ended.id)
      AND held.job = ended.id
)
SELECT id, flags FROM ended
