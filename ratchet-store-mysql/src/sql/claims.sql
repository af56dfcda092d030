-- Claims jobs, and settles, reports on and reclaims claims.

-- name: claim_jobs
-- Claims the first $5 due jobs in claim order for node $6, with their payloads if $7.
-- [claim.exclusive] [claim.due] [claim.limit] [claim.order] [claim.aging] [claim.match]
-- [claim.paused] [claim.live] [claim.running] [claim.whole] [claim.version] $1 are the wanted
-- routes, their queues and kinds, and how many candidates of each to look at (NULL: $4). $2 and $8
-- are the id (0: none) and the stamp of the last route that the caller has read; if the last route
-- in the table is another one, nothing is claimed. $3 is the aging interval, $4 the number of
-- candidates.
--
-- $9 are those of the routes whose jobs have fair keys. If $10 and due jobs of these routes have no
-- turn, claims nothing, and the column after the flags is 1. $11 are all routes for jobs with fair
-- keys in the wanted queues, or none if the transaction has locked those of the queues with limits.
-- If parked jobs of $11 may get turns, or if limits apply to jobs of $11 and $9 that could be
-- claimed, claims nothing, and the column is 2. $12 are the routes in whose queues each key has a
-- limit, and $13 those in whose queues some keys have one: the flag of their jobs (512) is set.
--
-- Claims share the first gate, which a pause locks alone (await_claims). The statement then reads
-- the first entry of jobs_claim for each route and priority. Only the $4 first of these ranges, in
-- the order of their first jobs, can have one of the $4 first candidates. The server has no joins
-- with a range for each row, so the statement writes a query that reads these ranges in order, and
-- runs it. It merges the candidates by ratchet_core::priority::ClaimRank, without locks, then locks
-- as many rows as are wanted by their primary keys, and skips the rows that are locked. The
-- condition is checked again on each locked row. No index is locked except the primary key, and
-- under READ COMMITTED there are no gap locks.
--
-- [fair.turn] [fair.due] [fair.limit.others] Of the routes in $9, reads the jobs with a turn in
-- jobs_state, in the order of the turns (nr), whatever their due times, and not the parked ones. A merge takes a job only after all jobs before
-- it in its range. To sort in the same way, each of these jobs has the due time and the id of the
-- last in claim order of the jobs up to itself. Both are one text, its place, because the server has
-- no maximum of two columns: the due time plus an offset, which has 16 digits even if the due time
-- is damaged, and the id. Variables compute the places while the rows are read, because MAX over a
-- window reads all rows before each row on MariaDB. Jobs without a turn are found with one seek of
-- jobs_state per route, in a SELECT, because SET would lock what it reads. Nothing of this is sent
-- if $9 is empty. A running job keeps the turn with which it was claimed until the claim ends, so
-- that unclaim_jobs gives it back. But turns has no row of it.
/* undivided */
SET @now = {now}, @wanted = $1, @due = '', @looked = 0, @asleep = FALSE, @limited = FALSE,
    @proven = COALESCE((SELECT last.id = $2 AND last.stamp = $8 FROM {schema}.routes AS last
                        ORDER BY last.id DESC LIMIT 1), $2 = 0);
BEGIN;
SELECT id INTO @gate FROM {schema}.gates WHERE id = 1 LOCK IN SHARE MODE;
{some $9}
SELECT $10 AND EXISTS (
    SELECT 1 FROM {rows @wanted (route int, queue name, kind name)} AS wanted
    WHERE wanted.route IN ($9)
      AND wanted.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
      AND wanted.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
      AND (SELECT job.turn_place FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
           WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
             AND job.turn_level = -wanted.route
           ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) <= @now
) INTO @asleep;
{end}
{some $11}
SELECT COUNT(*) > 0 INTO @limited
FROM {schema}.routes AS route FORCE INDEX (PRIMARY)
WHERE route.id IN ($11)
  AND NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = $6 AND status <> 1)
  AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
  AND (EXISTS (SELECT 1 FROM {schema}.freed AS freed FORCE INDEX (freed_route)
               WHERE freed.route = route.id)
       OR (route.id IN ($9)
           AND (EXISTS (SELECT 1 FROM {schema}.fair_limits AS own FORCE INDEX (PRIMARY)
                        WHERE own.queue = route.queue)
                OR EXISTS (SELECT 1 FROM {schema}.fair_limits AS pattern FORCE INDEX (fair_limits_key)
                           WHERE pattern.fair_key = '' AND RIGHT(pattern.queue, 1) = '*'
                             AND LEFT(route.queue, CHAR_LENGTH(pattern.queue) - 1)
                                 = LEFT(pattern.queue, CHAR_LENGTH(pattern.queue) - 1)))
           AND (@asleep OR EXISTS (
               SELECT 1 FROM {levels} AS level
               WHERE (SELECT job.turn_place FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
                      WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
                        AND job.turn_level = 8 * route.id + level.priority
                      ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) < {parked}))));
{end}
SELECT GROUP_CONCAT(CONCAT(
           '(SELECT id, run_at, ', due.priority,
           CASE WHEN $3 > 0 THEN CONCAT(' + GREATEST(', @now, ' - GREATEST(run_at, -4000000000000000), 0) DIV ', $3) ELSE '' END,
           ' AS effective',{some $9}
           CASE WHEN due.route IN ($9) THEN CONCAT(
               ', last, nr FROM (
                   SELECT id, CAST(LEFT(place, 16) AS SIGNED) - 5000000000000000 AS run_at,
                          UNHEX(SUBSTRING(place, 17)) AS last, nr
                   FROM (
                       SELECT id, @nr', due.level, ' := @nr', due.level, ' + 1 AS nr,
                              @top', due.level, ' := GREATEST(@top', due.level, ',
                                  CONCAT(run_at + 5000000000000000, HEX(id))) AS place
                       FROM (SELECT @nr', due.level, ' := 0, @top', due.level, ' := '''') AS reset
                       STRAIGHT_JOIN (
                           SELECT id, LEAST(GREATEST(run_at, -4000000000000000),
                                            4000000000000000) AS run_at
                           FROM {schema}.jobs FORCE INDEX (jobs_state)
                           WHERE state = 0 AND finished_at IS NULL AND holder IS NULL
                             AND turn_level = ', due.level, ' AND turn_place < {parked}
                           ORDER BY turn_place, turn_key, id
                           LIMIT ', LEAST($4, COALESCE(due.most, $4)), '
                       ) AS next
                   ) AS ordered
               ) AS turned'
           ) ELSE CONCAT(', id AS last, 0 AS nr',{end}
           ' FROM {schema}.jobs FORCE INDEX (jobs_claim) WHERE state = 0 AND route = ',
           due.route, ' AND priority = ', due.priority, ' AND run_at <= ', @now,
           ' ORDER BY run_at, id LIMIT ', LEAST($4, COALESCE(due.most, $4)){some $9}) END{end}, ')'
       ) SEPARATOR ' UNION ALL ') INTO @ranges
FROM (
    SELECT head.route, head.priority, head.most{some $9}, 8 * head.route + head.priority AS level{end}
    FROM (
        SELECT wanted.route, wanted.most, level.priority,{some $9}
               CASE WHEN wanted.route IN ($9) THEN
               (SELECT CONCAT(LEAST(GREATEST(job.run_at, -4000000000000000), 4000000000000000)
                              + 5000000000000000, HEX(job.id))
                FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
                WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
                  AND job.turn_level = 8 * wanted.route + level.priority
                  AND job.turn_place < {parked}
                ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) ELSE{end}
               (SELECT CONCAT(LEAST(GREATEST(job.run_at, -4000000000000000), 4000000000000000)
                              + 5000000000000000, HEX(job.id))
                FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
                WHERE job.state = 0 AND job.route = wanted.route AND job.priority = level.priority
                ORDER BY job.run_at, job.id LIMIT 1){some $9} END{end} AS first
        FROM {rows @wanted (route int, queue name, kind name, most bigint)} AS wanted
        CROSS JOIN {levels} AS level
        WHERE @proven AND COALESCE(wanted.most, 1) > 0{some $9} AND NOT @asleep{end} AND NOT @limited
          AND NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = $6 AND status <> 1)
          AND wanted.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
          AND wanted.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
        LIMIT 1000000
    ) AS head
    WHERE CAST(LEFT(head.first, 16) AS SIGNED) - 5000000000000000 <= @now{some $9}
       OR (head.route IN ($9) AND head.first IS NOT NULL){end}
    ORDER BY head.priority
             + CASE WHEN $3 > 0
                    THEN GREATEST(@now + 5000000000000000 - CAST(LEFT(head.first, 16) AS SIGNED), 0)
                         DIV $3
                    ELSE 0 END DESC, head.first
    LIMIT $4
) AS due;
SET @search = CASE WHEN @ranges IS NULL THEN 'DO 0' ELSE CONCAT(
    'SELECT GROUP_CONCAT(CONCAT(''"'', HEX(id), ''"'')
                         ORDER BY effective DESC, run_at, {some $9}last, nr, {end}id), COUNT(*)
     INTO @due, @looked
     FROM (SELECT id, run_at, {some $9}last, nr, {end}effective FROM (', @ranges, ') AS ranged
     ORDER BY effective DESC, run_at, {some $9}last, nr, {end}id LIMIT $4) AS candidate') END;
PREPARE ratchet_search FROM @search;
EXECUTE ratchet_search;
DEALLOCATE PREPARE ratchet_search;
SET @due = CONCAT('[', @due, ']');
SELECT {hex taken.id} INTO @taken
FROM (
    SELECT job.id
    FROM {list @due} AS due
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(due.id)
    WHERE job.state = 0 AND (job.run_at <= @now OR job.turn IS NOT NULL)
    ORDER BY due.place
    LIMIT $5
    FOR UPDATE SKIP LOCKED
) AS taken;
{some $9}
DELETE kept FROM {list @taken} AS taken
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(taken.id)
{turn job};
{end}
UPDATE {list @taken} AS taken
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(taken.id)
SET job.state = 3, job.claim_seq = job.claim_seq + 1, job.node = $6, job.claimed_at = @now,
    job.last_report = NULL, job.cancel_requested = FALSE;
{some $12}
UPDATE {list @taken} AS taken
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(taken.id)
SET job.flags = job.flags | {limited}
WHERE job.route IN ($12) AND job.fair_key IS NOT NULL;
{end}
{some $13}
SELECT {hex job.id} INTO @flagged
FROM {list @taken} AS taken
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(taken.id)
STRAIGHT_JOIN {schema}.routes AS route FORCE INDEX (PRIMARY) ON route.id = job.route
STRAIGHT_JOIN {schema}.fair_limits AS own FORCE INDEX (PRIMARY)
   ON own.queue = route.queue AND own.fair_key = job.fair_key
WHERE job.route IN ($13);
UPDATE {list @flagged} AS flagged
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(flagged.id)
SET job.flags = job.flags | {limited};
{end}
SELECT @proven, @looked, @now,
       job.id, job.claim_seq, job.route, job.priority, job.run_at, job.attempts, job.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN $7 THEN data.payload END, CASE WHEN $7 THEN notes.checkpoint END,
       data.lane, data.payload_version, job.flags,
       CASE WHEN @limited THEN 2 WHEN @asleep THEN 1 ELSE 0 END,
       job.turn, job.fair_key
FROM (SELECT 1 AS one) AS one
LEFT JOIN {list @taken} AS taken ON TRUE
LEFT JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(taken.id)
LEFT JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = job.id AND job.claim_seq > 1;
COMMIT

-- name: lock_routes
-- Locks routes until the transaction ends: no other transaction gives turns to their jobs. The
-- statements after it see the turns that were given before. [fair.turn] Primary key, locked in
-- order.
SELECT route FROM {schema}.fair_routes FORCE INDEX (PRIMARY) WHERE route IN ($1) ORDER BY route
FOR UPDATE

-- name: try_lock_routes
-- Locks, as lock_routes does, those of these routes that are free and have due jobs without a turn,
-- and returns them. So a claim never waits for an enqueue; that enqueue announces its jobs when it
-- ends. [fair.due] Primary key, and one seek of jobs_state for each route.
SELECT route.route FROM {schema}.fair_routes AS route FORCE INDEX (PRIMARY)
WHERE route.route IN ($1)
  AND (SELECT job.turn_place FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
       WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
         AND job.turn_level = -route.route
       ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) <= {now}
ORDER BY route.route
FOR UPDATE SKIP LOCKED

-- name: find_turns
-- Returns the time, and for each of these levels (route and priority) and keys the first turn of
-- the level, and the last turn of the key below $2 with its cost. The first turn is none of a parked
-- job. [fair.turn] [fair.bound] [fair.weight] [fair.idle] One seek of jobs_state for each level, and
-- one of turns for each key.
SET @now = {now}, @given = $1;
SELECT @now, level.first,
       (SELECT last.turn FROM {schema}.turns AS last FORCE INDEX (PRIMARY)
        WHERE last.route = given.route AND last.priority = given.priority
          AND last.fair_key = given.fair_key AND last.turn < $2
        ORDER BY last.turn DESC, last.job DESC LIMIT 1),
       (SELECT last.fair_cost FROM {schema}.turns AS last FORCE INDEX (PRIMARY)
        WHERE last.route = given.route AND last.priority = given.priority
          AND last.fair_key = given.fair_key AND last.turn < $2
        ORDER BY last.turn DESC, last.job DESC LIMIT 1)
FROM {rows @given (place place, route int, priority smallint, fair_key name)} AS given
JOIN (
    SELECT wanted.route, wanted.priority,
           (SELECT job.turn FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
            WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
              AND job.turn_level = 8 * wanted.route + wanted.priority
              AND job.turn_place < {parked}
            ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) AS first
    FROM (SELECT DISTINCT pair.route, pair.priority
          FROM {rows @given (route int, priority smallint)} AS pair) AS wanted
    LIMIT 1000000
) AS level ON level.route = given.route AND level.priority = given.priority
ORDER BY given.place

-- name: find_sleepers
-- Returns the due jobs of these routes that have a fair key and no turn, the longest due first, at
-- most $2, and locks them. Skips jobs that another transaction has locked, which cannot be claimed
-- now. [fair.due] Reads a range of jobs_state for each route, in a query that it writes (see
-- claim_jobs), and locks by the primary key.
SET @now = {now}, @found = '';
SELECT GROUP_CONCAT(CONCAT(
           '(SELECT id, run_at FROM {schema}.jobs FORCE INDEX (jobs_state)
             WHERE state = 0 AND finished_at IS NULL AND holder IS NULL AND turn_level = ', -route.id,
           ' AND turn_place <= ', @now, ' ORDER BY turn_place, turn_key, id LIMIT $2)'
       ) SEPARATOR ' UNION ALL ') INTO @ranges
FROM {schema}.routes AS route FORCE INDEX (PRIMARY)
WHERE route.id IN ($1)
  AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
  AND (SELECT job.turn_place FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
       WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
         AND job.turn_level = -route.id
       ORDER BY job.turn_place, job.turn_key, job.id LIMIT 1) <= @now;
SET @search = CASE WHEN @ranges IS NULL THEN 'DO 0' ELSE CONCAT(
    'SELECT GROUP_CONCAT(CONCAT(''"'', HEX(id), ''"'') ORDER BY run_at, id) INTO @found
     FROM (SELECT id, run_at FROM (', @ranges, ') AS ranged
     ORDER BY run_at, id LIMIT $2) AS sleeper') END;
PREPARE ratchet_search FROM @search;
EXECUTE ratchet_search;
DEALLOCATE PREPARE ratchet_search;
SET @found = CONCAT('[', @found, ']');
SELECT job.id, job.route, job.priority, job.fair_key, job.fair_cost, job.run_at
FROM {list @found} AS found
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(found.id)
WHERE job.state = 0 AND job.turn IS NULL AND job.fair_key IS NOT NULL AND job.run_at <= @now
ORDER BY found.place
FOR UPDATE SKIP LOCKED

-- name: give_turns
-- Gives these jobs, which this transaction has locked, their turns, in place of those that they had
-- while they were parked. [fair.due] Primary keys.
SET @given = $1;
BEGIN;
DELETE kept FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
{turn job}
WHERE job.state = 0;
UPDATE {rows @given (job id, turn bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.turn = given.turn
WHERE job.state = 0;
INSERT INTO {schema}.turns (route, priority, fair_key, turn, job, fair_cost)
SELECT job.route, job.priority, job.fair_key, job.turn, job.id, job.fair_cost
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE job.state = 0 AND job.turn IS NOT NULL
ON DUPLICATE KEY UPDATE fair_cost = VALUES(fair_cost);
COMMIT

-- name: unclaim_jobs
-- Undoes those claims of this transaction for which no permit is left; no other transaction has
-- seen them. They still have their turns. The other columns that a claim wrote have no meaning
-- while a job does not run. [permit.max] [permit.order] Primary keys.
BEGIN;
UPDATE {schema}.jobs FORCE INDEX (PRIMARY) SET state = 0, claim_seq = claim_seq - 1
WHERE id IN ($1) AND state = 3;
INSERT INTO {schema}.turns (route, priority, fair_key, turn, job, fair_cost)
SELECT route, priority, fair_key, turn, id, fair_cost FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id IN ($1) AND state = 0 AND turn IS NOT NULL
ON DUPLICATE KEY UPDATE fair_cost = VALUES(fair_cost);
COMMIT

-- name: load_inputs
-- Returns the inputs (payload and checkpoint) of the claims that are still held. [claim.load]
-- Primary keys.
SELECT job.id, job.claim_seq, job.node, job.claimed_at, data.payload, notes.checkpoint
FROM {rows $1 (job id, seq bigint, node id, claimed_at bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY)
   ON job.id = UNHEX(given.job) AND job.claim_seq = given.seq AND job.state = 3
  AND COALESCE(job.node, {nil}) = UNHEX(given.node)
  AND COALESCE(job.claimed_at, 0) = given.claimed_at
LEFT JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = job.id

-- name: settle_jobs
-- Ends claims and changes their jobs accordingly. Returns one row for each claim that was still
-- held. [settle.effect] [settle.mixed] [settle.token] [settle.cancel] [settle.keys]
-- [settle.history] The values come from ratchet_core::model::Settlement::effect.
-- Only this statement knows whether cancellation was requested, so it implements what that function
-- does in this case: Cancelled (6, in the history 5), the same due time, no error and no result,
-- and attempts counted as usual. Skips jobs that would end while other jobs wait for their end (flags:
-- 4 in a lane, 16 has children, 32 in a batch), unless $2: then the caller applies the effects on
-- the other jobs. With $2, waits for locked jobs as long as the transaction allows; otherwise only
-- briefly, so that one locked job does not delay the others (held.rs). Primary keys; the caller
-- sends the tokens in order of id, so that all calls lock in the same order.
--
-- First locks the jobs, and keeps only the settlements of claims that are still held. The rows stay
-- locked, so the other parts need not compare the tokens again. The update of jobs is the last
-- write, so the parts before it see the claim as it was.
SET @now = {now}, @given = $1;
BEGIN;
{patience $2}
SELECT {json given.whole}, COALESCE(MAX(given.limited), 0) INTO @given, @limited
FROM (
    SELECT given.whole, job.flags & {limited} AS limited
    FROM {rows @given (job id, seq bigint, state smallint, node id, claimed_at bigint, whole whole)}
         AS given
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
    WHERE job.claim_seq = given.seq AND job.state = 3
      AND COALESCE(job.node, {nil}) = UNHEX(given.node)
      AND COALESCE(job.claimed_at, 0) = given.claimed_at
      AND ($2 OR job.flags & {awaited} = 0 OR (given.state < 4 AND NOT job.cancel_requested))
    FOR UPDATE
) AS given;
SET @freed = CASE WHEN @limited > 0 THEN @given ELSE '[]' END;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT job.route, job.fair_key
FROM {rows @freed (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE job.flags & {limited} <> 0 AND job.fair_key IS NOT NULL;
INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, ran_for_us, node, error)
SELECT job.id, job.claim_seq, CASE WHEN job.cancel_requested THEN 5 ELSE given.outcome END,
       COALESCE(job.claimed_at, @now), @now, given.ran_for, job.node,
       CASE WHEN NOT job.cancel_requested THEN given.error END
FROM {rows @given (job id, state smallint, outcome smallint, ran_for bigint, error text)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE given.state <> 4 OR job.cancel_requested;
INSERT INTO {schema}.job_notes (job, result, last_error)
SELECT job.id, given.result, given.error
FROM {rows @given (job id, error text, result text)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE NOT job.cancel_requested AND (given.result IS NOT NULL OR given.error IS NOT NULL)
ON DUPLICATE KEY UPDATE result = COALESCE(VALUES(result), {schema}.job_notes.result),
                        last_error = COALESCE(VALUES(last_error), {schema}.job_notes.last_error);
DELETE held
FROM {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
STRAIGHT_JOIN {schema}.unique_keys AS held FORCE INDEX (PRIMARY) ON held.`key` = data.unique_key
WHERE job.flags & {unique_key} <> 0 AND (given.state >= 4 OR job.cancel_requested)
  AND held.job = job.id;
UPDATE {rows @given (job id, state smallint, delay bigint, attempts int, ran_for bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.state = CASE WHEN job.cancel_requested THEN 6 ELSE given.state END,
    job.run_at = CASE WHEN job.cancel_requested OR given.delay IS NULL THEN job.run_at
                      ELSE @now + given.delay END,
    job.attempts = job.attempts + given.attempts,
    job.settled_seq = job.claim_seq,
    job.finished_at = CASE WHEN job.cancel_requested OR given.state >= 4 THEN @now END,
    job.ran_for_us = CASE WHEN given.state = 4 AND NOT job.cancel_requested
                          THEN given.ran_for END,
    job.turn = NULL;
SELECT job.id, job.claim_seq, job.state, job.flags, job.node, job.claimed_at
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job);
{patient};
COMMIT

-- name: find_settled
-- Returns for each of these jobs the claim that was last settled, and the current claim if the job
-- is running; 0 means none. [settle.repeat] [lane.promote] [link.decide] A claim that succeeded is
-- not in the history: its node and time are in the job's row. Primary keys.
SELECT job.id, job.settled_seq, CASE WHEN job.state = 3 THEN job.claim_seq ELSE 0 END, job.flags,
       CASE WHEN attempt.job IS NULL THEN job.node ELSE attempt.node END,
       CASE WHEN attempt.job IS NULL THEN job.claimed_at ELSE attempt.claimed_at END,
       job.node, job.claimed_at
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
LEFT JOIN {schema}.attempts AS attempt FORCE INDEX (PRIMARY)
  ON attempt.job = job.id AND attempt.seq = job.settled_seq
WHERE job.id IN ($1)

-- name: report_life
-- Restarts the stall timeouts of claims and stores their reports. Returns one row for each claim
-- still held. Their jobs have begun, so it deletes their expiries. [report.life] [report.progress]
-- [report.token] [report.cancel] [expiry.begun] Waits only briefly for locked jobs, so that one
-- locked job does not delay the others (held.rs). Primary keys; no index has last_report.
SET @now = {now}, @given = $1;
BEGIN;
{patience FALSE}
SELECT {json given.whole} INTO @given
FROM (
    SELECT given.whole
    FROM {rows @given (job id, seq bigint, node id, claimed_at bigint, whole whole)} AS given
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
    WHERE job.claim_seq = given.seq AND job.state = 3
      AND COALESCE(job.node, {nil}) = UNHEX(given.node)
      AND COALESCE(job.claimed_at, 0) = given.claimed_at
    FOR UPDATE
) AS given;
DELETE expiry
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.expiries AS expiry FORCE INDEX (PRIMARY) ON expiry.job = job.id
WHERE job.flags & {expires} <> 0;
UPDATE {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.last_report = @now, job.flags = job.flags - (job.flags & {expires});
INSERT INTO {schema}.job_notes (job, percent, message, checkpoint)
SELECT UNHEX(given.job), given.percent, given.message, given.checkpoint
FROM {rows @given (job id, percent smallint, message text, checkpoint text)} AS given
WHERE given.percent IS NOT NULL OR given.checkpoint IS NOT NULL
ON DUPLICATE KEY UPDATE percent = COALESCE(VALUES(percent), {schema}.job_notes.percent),
                        message = COALESCE(VALUES(message), {schema}.job_notes.message),
                        checkpoint = COALESCE(VALUES(checkpoint), {schema}.job_notes.checkpoint);
SELECT job.id, job.claim_seq, job.node, job.claimed_at, job.cancel_requested
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job);
{patient};
COMMIT

-- name: running_jobs
-- Returns every running job in order of id, with its timeouts, its node, and when the oldest node
-- began: the input of ratchet_core::model::ReclaimRequest::judge. [reclaim.dead] [reclaim.unknown]
-- [reclaim.start] Reads jobs_claim: as many rows as there are claims, however many jobs there are.
SELECT node.node, node.label, node.status, node.running, node.capacity, node.`interval`,
       node.started_at, node.last_seen, node.connections, node.cpu_percent, node.memory_bytes,
       node.roles, node.capabilities,
       {now}, job.id, job.claim_seq, job.crash_count, job.cancel_requested, job.claimed_at,
       job.last_report, job.node, data.timeout, data.stall_timeout, job.flags,
       (SELECT MIN(started_at) FROM {schema}.nodes)
FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
LEFT JOIN {schema}.nodes AS node FORCE INDEX (PRIMARY) ON node.node = job.node
LEFT JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id AND job.flags & {timeouts} <> 0
WHERE job.state = 3
ORDER BY job.id

-- name: reclaim_jobs
-- Takes claims back, with the effects that ratchet_core::model::ReclaimRequest::judge returned,
-- unless they have changed since the caller read them. Returns one row for each claim that it took
-- back. Skips jobs that would end while other jobs wait for their end, unless $2: then the caller
-- applies the effects on the other jobs. [reclaim.requeue] [reclaim.once] [reclaim.exhausted]
-- [link.decide] With $2, waits for locked jobs as long as the transaction allows; otherwise only
-- briefly, so that one locked job does not delay the others (held.rs). Primary keys.
SET @now = {now}, @given = $1;
BEGIN;
{patience $2}
SELECT {json given.whole} INTO @given
FROM (
    SELECT given.whole
    FROM {rows @given (job id, seq bigint, crash_count int, cancel_requested smallint,
                       last_report bigint, node id, state smallint, whole whole)} AS given
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
    WHERE job.claim_seq = given.seq AND job.state = 3 AND job.crash_count = given.crash_count
      AND job.cancel_requested = given.cancel_requested
      AND job.last_report <=> given.last_report AND job.node <=> UNHEX(given.node)
      AND ($2 OR given.state < 4 OR job.flags & {awaited} = 0)
    FOR UPDATE
) AS given;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT job.route, job.fair_key
FROM {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE given.state <> 3 AND job.flags & {limited} <> 0 AND job.fair_key IS NOT NULL;
INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, node)
SELECT job.id, job.claim_seq, 6, COALESCE(job.claimed_at, @now), @now,
       CASE WHEN given.state <> 3 THEN job.node END
FROM {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE given.state <> 3;
DELETE held
FROM {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
STRAIGHT_JOIN {schema}.unique_keys AS held FORCE INDEX (PRIMARY) ON held.`key` = data.unique_key
WHERE job.flags & {unique_key} <> 0 AND given.state >= 4 AND held.job = job.id;
UPDATE {rows @given (job id, crashes int, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.state = given.state, job.crash_count = given.crashes,
    job.node = CASE WHEN given.state <> 3 THEN job.node END,
    job.finished_at = CASE WHEN given.state >= 4 THEN @now END, job.turn = NULL;
SELECT job.id, job.flags
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job);
{patient};
COMMIT
