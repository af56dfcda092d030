-- Permits, limits of fair keys, and rates.

-- name: set_permits
-- Sets the limit of a resource, and creates the resource if it is new. Returns 1 if it changed the
-- row, and else 0: if the limit is the same, or if the resource exists and $3 is true (keep its
-- limit). [permit.change] [permit.declare] Waits for the claims that have locked the row. Primary
-- key. A new row first has a limit that no resource can have, which no other transaction can see.
BEGIN;
INSERT INTO {schema}.permits (resource, max_held) VALUES ($1, 9223372036854775807)
ON DUPLICATE KEY UPDATE max_held = max_held;
UPDATE {schema}.permits SET max_held = $2
WHERE resource = $1 AND max_held <> $2 AND (max_held = 9223372036854775807 OR NOT $3);
SELECT ROW_COUNT();
COMMIT

-- name: held_permits
-- Returns the limits of these resources ($1, or all if $2) and how many running jobs hold a permit.
-- [permit.max] [permit.free] [permit.list] A claim runs this statement after the one that locks the
-- resources, so that it sees everything committed before the locks were acquired. Primary key; the
-- few routes; jobs_claim: as many entries as there are holders.
SELECT permit.resource, permit.max_held,
       (SELECT COUNT(*) FROM {schema}.routes AS route
        STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (jobs_claim)
          ON job.state = 3 AND job.route = route.id
        WHERE route.permit = permit.resource)
FROM {schema}.permits AS permit
WHERE $2 OR permit.resource IN ($1)
ORDER BY permit.resource

-- name: look_at_permits
-- Returns which of these routes, all of which need permits, have due jobs and a free permit.
-- [permit.order] Locks nothing: a claim checks the permits again once it has locked them, and it
-- may skip a route that had no due job or free permit at any moment of its call. The first entry of
-- jobs_claim per route and priority. Then, only for the routes with due jobs, the few routes, and
-- jobs_claim: as many entries as there are holders.
SET @now = {now};
SELECT route.id
FROM {schema}.routes AS route
STRAIGHT_JOIN {schema}.permits AS permit FORCE INDEX (PRIMARY) ON permit.resource = route.permit
WHERE route.id IN ($1)
  AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
  AND EXISTS (
      SELECT 1 FROM {levels} AS level
      WHERE (SELECT job.run_at FROM {schema}.jobs AS job FORCE INDEX (jobs_claim)
             WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
             ORDER BY job.run_at, job.id LIMIT 1) <= @now
  )
  AND permit.max_held > (
      SELECT COUNT(*) FROM {schema}.routes AS other
      STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (jobs_claim)
        ON job.state = 3 AND job.route = other.id
      WHERE other.permit = permit.resource
  )

-- name: lock_permits
-- Locks these resources until the transaction ends: no other transaction claims jobs that need them
-- or changes their limits. Locks in order, so that no two claims deadlock. [permit.max]
-- [permit.change] Primary key.
SELECT resource FROM {schema}.permits FORCE INDEX (PRIMARY)
WHERE resource IN ($1)
ORDER BY resource
FOR UPDATE

-- name: find_permit
-- Returns a row if the resource exists. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = $1

-- name: set_fair_limit
-- Sets the limit of a scope. Returns 1 if it changed the row, and else 0. [fair.limit.change]
-- Primary key. A new row first has a limit that no scope can have, which no other transaction can
-- see.
BEGIN;
INSERT INTO {schema}.fair_limits (queue, fair_key, max_running)
VALUES ($1, $2, 9223372036854775807)
ON DUPLICATE KEY UPDATE max_running = max_running;
UPDATE {schema}.fair_limits FORCE INDEX (PRIMARY) SET max_running = $3
WHERE queue = $1 AND fair_key = $2 AND max_running <> $3;
SELECT ROW_COUNT();
COMMIT

-- name: remove_fair_limit
-- Removes the limit of a scope. Returns how many rows it deleted. [fair.limit.change] Primary key.
BEGIN;
DELETE FROM {schema}.fair_limits WHERE queue = $1 AND fair_key = $2;
SELECT ROW_COUNT();
COMMIT

-- name: list_fair_limits
-- Returns the limits, in any order. [fair.limit.list] Reads the whole table.
SELECT queue, fair_key, max_running FROM {schema}.fair_limits

-- name: find_fair_limits
-- Returns the limits that may apply to these queues and keys: all limits of each key of a queue or
-- pattern, and those of single keys. [fair.limit.max] fair_limits_key, and the primary key.
SELECT queue, fair_key, max_running FROM {schema}.fair_limits FORCE INDEX (fair_limits_key)
WHERE fair_key = ''
UNION ALL
SELECT single.queue, single.fair_key, single.max_running
FROM {rows $1 (queue name, fair_key name)} AS wanted
STRAIGHT_JOIN {schema}.fair_limits AS single FORCE INDEX (PRIMARY)
   ON single.queue = wanted.queue AND single.fair_key = wanted.fair_key

-- name: flag_limited
-- Marks the running jobs of these routes with a fair key, or with the key $2 unless it is empty, as
-- jobs whose key has a limit. [fair.limit.max] The caller keeps claims waiting, so no more jobs run
-- when they are locked. jobs_claim: as many rows as there are claims. Locked by primary key, in
-- order of id, as in every call.
SELECT {hex job.id} INTO @running
FROM (
    SELECT id FROM {schema}.jobs FORCE INDEX (jobs_claim)
    WHERE state = 3 AND route IN ($1) AND fair_key IS NOT NULL
      AND (LENGTH($2) = 0 OR fair_key = $2)
    ORDER BY id LIMIT 1000000
) AS job;
UPDATE {list @running} AS running
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(running.id)
SET job.flags = job.flags | {limited}
WHERE job.state = 3

-- name: free_parked
-- Notes the keys of these routes, or only the key $2 unless it is empty, that have parked jobs.
-- [fair.limit.change] Reads the parked jobs of each level in jobs_state.
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT job.route, job.fair_key
FROM {schema}.routes AS route FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {levels} AS level
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (jobs_state)
   ON job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
  AND job.turn_level = 8 * route.id + level.priority AND job.turn_place >= {parked}
WHERE route.id IN ($1) AND job.fair_key IS NOT NULL AND (LENGTH($2) = 0 OR job.fair_key = $2)

-- name: lock_limited
-- Locks, until the transaction ends, those of these routes for jobs with fair keys in whose queues
-- limits apply, or parked jobs may get turns. Leaves out paused queues. Returns each with whether
-- each key of its queue has a limit, and whether some keys have one. No other transaction then
-- claims jobs of these queues, or gives turns to their jobs, and the statements after it see the
-- claims that were made before. [fair.limit.max] [queue.pause] As in claim_jobs, the gate lets a
-- pause and a change of a limit wait for this transaction. The few routes, once, and primary keys.
-- Locked in order of id, so that no two calls deadlock.
SELECT id INTO @gate FROM {schema}.gates WHERE id = 1 LOCK IN SHARE MODE;
SELECT CONCAT('[', COALESCE(GROUP_CONCAT(fair.id ORDER BY fair.id), ''), ']'),
       COALESCE(GROUP_CONCAT(CASE WHEN fair.`every` THEN fair.id END), ''),
       COALESCE(GROUP_CONCAT(CASE WHEN fair.single THEN fair.id END), '')
INTO @fair, @every, @single
FROM (
    SELECT route.id,
           EXISTS (SELECT 1 FROM {schema}.fair_limits AS every_key FORCE INDEX (fair_limits_key)
                   WHERE every_key.fair_key = ''
                     AND (every_key.queue = route.queue
                          OR (RIGHT(every_key.queue, 1) = '*'
                              AND LEFT(route.queue, CHAR_LENGTH(every_key.queue) - 1)
                                  = LEFT(every_key.queue, CHAR_LENGTH(every_key.queue) - 1))))
           AS `every`,
           EXISTS (SELECT 1 FROM {schema}.fair_limits AS single FORCE INDEX (PRIMARY)
                   WHERE single.queue = route.queue AND single.fair_key <> '') AS single,
           EXISTS (SELECT 1 FROM {schema}.routes AS other FORCE INDEX (PRIMARY)
                   STRAIGHT_JOIN {schema}.freed AS freed FORCE INDEX (freed_route)
                     ON freed.route = other.id
                   WHERE other.id IN ($1) AND other.queue = route.queue) AS is_freed
    FROM {schema}.routes AS route FORCE INDEX (PRIMARY)
    WHERE route.id IN ($1)
      AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
) AS fair
WHERE fair.`every` OR fair.single OR fair.is_freed;
SELECT route.route, FIND_IN_SET(route.route, @every) > 0, FIND_IN_SET(route.route, @single) > 0
FROM {list @fair} AS fair
STRAIGHT_JOIN {schema}.fair_routes AS route FORCE INDEX (PRIMARY)
   ON route.route = CAST(fair.id AS SIGNED)
ORDER BY fair.place
FOR UPDATE

-- name: take_freed
-- Deletes the oldest notes of these locked routes, at most $2, and returns them. [fair.limit.free]
-- freed_route, and the primary key.
BEGIN;
SELECT CONCAT('[', COALESCE(GROUP_CONCAT(note.id), ''), ']') INTO @taken
FROM (SELECT id FROM {schema}.freed FORCE INDEX (freed_route)
      WHERE route IN ($1) ORDER BY id LIMIT $2) AS note;
SELECT note.route, note.fair_key
FROM {list @taken} AS taken
STRAIGHT_JOIN {schema}.freed AS note FORCE INDEX (PRIMARY) ON note.id = CAST(taken.id AS SIGNED);
DELETE note FROM {list @taken} AS taken
STRAIGHT_JOIN {schema}.freed AS note FORCE INDEX (PRIMARY) ON note.id = CAST(taken.id AS SIGNED);
COMMIT

-- name: keep_freed
-- Notes these keys of these routes again. [fair.limit.wait]
INSERT INTO {schema}.freed (route, fair_key)
SELECT kept.route, kept.fair_key FROM {rows $1 (route int, fair_key name)} AS kept

-- name: count_limited
-- Counts the running jobs of each of these queues and keys, in their order. [fair.limit.max]
-- [fair.limit.free] A claim runs this statement after the one that locks the routes, so that it
-- sees the claims that were made before. jobs_claim: the running jobs with fair keys of these
-- queues, once, because the server has no index of those with limits alone.
SET @given = $1;
SELECT COALESCE(counted.jobs, 0)
FROM {rows @given (place place, queue name, fair_key name)} AS wanted
LEFT JOIN (
    SELECT route.queue, job.fair_key, COUNT(*) AS jobs
    FROM {schema}.routes AS route
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (jobs_claim)
       ON job.state = 3 AND job.route = route.id
    WHERE route.fair AND job.flags & {limited} <> 0
      AND route.queue IN (SELECT queue FROM {rows @given (queue name)} AS given)
    GROUP BY route.queue, job.fair_key
) AS counted ON counted.queue = wanted.queue AND counted.fair_key = wanted.fair_key
ORDER BY wanted.place

-- name: parked_levels
-- Returns the levels with parked jobs of each of these queues and keys: the index of the queue and
-- key, the route and priority, the number of these jobs, at most $2, and the number of the key's
-- jobs that have turns and are not parked. [fair.limit.free] [fair.limit.wait] Does not count jobs
-- that another transaction has locked, because it may be about to take their turns away: then more
-- jobs than places get turns, which is harmless. One seek of jobs_state per level, and a range of
-- turns per key and level with parked jobs; the ranges with a limit are in a query that the
-- statement writes (see claim_jobs).
/* undivided */
SET @given = $1, @counted = '', @ahead = '[]';
SELECT {json JSON_OBJECT('place', found.place, 'route', found.route, 'priority', found.priority,
                         'fair_key', found.fair_key)} INTO @levels
FROM (
    SELECT wanted.place, level.route, level.priority, wanted.fair_key
    FROM {rows @given (place place, queue name, fair_key name)} AS wanted
    STRAIGHT_JOIN (
        SELECT route.queue, route.id AS route, level.priority
        FROM {schema}.routes AS route
        CROSS JOIN {levels} AS level
        WHERE route.fair AND route.queue IN (SELECT queue FROM {rows @given (queue name)} AS given)
          AND EXISTS (SELECT 1 FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
                      WHERE job.state = 0 AND job.finished_at IS NULL AND job.holder IS NULL
                        AND job.turn_level = 8 * route.id + level.priority
                        AND job.turn_place >= {parked})
        LIMIT 1000000
    ) AS level ON level.queue = wanted.queue
    WHERE EXISTS (SELECT 1 FROM {schema}.turns AS parked FORCE INDEX (PRIMARY)
                  WHERE parked.route = level.route AND parked.priority = level.priority
                    AND parked.fair_key = wanted.fair_key AND parked.turn >= {parked})
    LIMIT 1000000
) AS found;
SELECT GROUP_CONCAT(CONCAT(
           '(SELECT ', level.nr, ' AS nr FROM {schema}.turns FORCE INDEX (PRIMARY) WHERE route = ',
           level.route, ' AND priority = ', level.priority, ' AND fair_key = ',
           QUOTE(level.fair_key), ' AND turn >= {parked} LIMIT $2)'
       ) SEPARATOR ' UNION ALL ') INTO @ranges
FROM {rows @levels (nr place, route int, priority smallint, fair_key name)} AS level;
SET @search = CASE WHEN @ranges IS NULL THEN 'DO 0' ELSE CONCAT(
    'SELECT GROUP_CONCAT(JSON_OBJECT(''nr'', found.nr, ''jobs'', found.jobs)) INTO @counted
     FROM (SELECT nr, COUNT(*) AS jobs FROM (', @ranges, ') AS ranged GROUP BY nr) AS found') END;
PREPARE ratchet_search FROM @search;
EXECUTE ratchet_search;
DEALLOCATE PREPARE ratchet_search;
SET @counted = CONCAT('[', COALESCE(@counted, ''), ']');
SELECT {json ahead.nr} INTO @ahead
FROM (
    SELECT level.nr
    FROM {rows @levels (nr place, route int, priority smallint, fair_key name)} AS level
    STRAIGHT_JOIN {schema}.turns AS turned FORCE INDEX (PRIMARY)
       ON turned.route = level.route AND turned.priority = level.priority
      AND turned.fair_key = level.fair_key AND turned.turn < {parked}
    STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = turned.job
    FOR UPDATE SKIP LOCKED
) AS ahead;
SELECT level.place - 1, level.route, level.priority, counted.jobs, COALESCE(ahead.jobs, 0)
FROM {rows @levels (nr place, place int, route int, priority smallint)} AS level
JOIN {rows @counted (nr int, jobs bigint)} AS counted ON counted.nr = level.nr
LEFT JOIN (
    SELECT CAST(found.id AS SIGNED) AS nr, COUNT(*) AS jobs
    FROM {list @ahead} AS found
    GROUP BY CAST(found.id AS SIGNED)
) AS ahead ON ahead.nr = level.nr
ORDER BY level.place, level.priority DESC, level.route

-- name: first_parked
-- Returns the first parked jobs of these levels (route and priority) and keys, at most the given
-- number of each, with the index of the level and key and with their costs, and locks them. Skips
-- jobs that another transaction has locked. [fair.limit.free] A range of turns each, in a query
-- that the statement writes (see claim_jobs), and the primary key.
/* undivided */
SET @given = $1, @found = '';
SELECT GROUP_CONCAT(CONCAT(
           '(SELECT ', given.nr, ' AS nr, turn, job FROM {schema}.turns FORCE INDEX (PRIMARY)
             WHERE route = ', given.route, ' AND priority = ', given.priority, ' AND fair_key = ',
           QUOTE(given.fair_key), ' AND turn >= {parked} ORDER BY turn, job LIMIT ', given.most, ')'
       ) SEPARATOR ' UNION ALL ') INTO @ranges
FROM {rows @given (nr place, route int, priority smallint, fair_key name, most bigint)} AS given;
SET @search = CASE WHEN @ranges IS NULL THEN 'DO 0' ELSE CONCAT(
    'SELECT GROUP_CONCAT(JSON_OBJECT(''nr'', nr, ''turn'', turn, ''job'', HEX(job))) INTO @found
     FROM (', @ranges, ') AS ranged') END;
PREPARE ratchet_search FROM @search;
EXECUTE ratchet_search;
DEALLOCATE PREPARE ratchet_search;
SET @found = CONCAT('[', COALESCE(@found, ''), ']');
SELECT found.nr - 1, job.id, job.fair_cost
FROM {rows @found (nr int, turn bigint, job id)} AS found
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(found.job)
WHERE job.state = 0 AND job.turn = found.turn
ORDER BY found.nr, found.turn, job.id
FOR UPDATE SKIP LOCKED

-- name: park_jobs
-- Undoes those claims of this transaction for whose keys no place is free, and parks the jobs with
-- these turns; no other transaction has seen them. [fair.limit.max] [fair.limit.others] Primary
-- keys.
SET @given = $1;
BEGIN;
UPDATE {rows @given (job id, turn bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.state = 0, job.claim_seq = job.claim_seq - 1, job.turn = given.turn
WHERE job.state = 3;
INSERT INTO {schema}.turns (route, priority, fair_key, turn, job, fair_cost)
SELECT job.route, job.priority, job.fair_key, job.turn, job.id, job.fair_cost
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
WHERE job.state = 0 AND job.turn IS NOT NULL AND job.fair_key IS NOT NULL
ON DUPLICATE KEY UPDATE fair_cost = VALUES(fair_cost);
COMMIT

-- name: take_rates
-- Takes one start for each of these distinct keys; the intervals and the tolerances of their rates
-- are in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change] Implements
-- ratchet_core::rate::Rate::take in SQL, because a grant depends on concurrent calls. If a start is
-- refused, the key is written only if its time is later than this rate allows: its time becomes the
-- latest possible one. Otherwise the key is returned with NULL as the answer, and with its time
-- when the statement began. Primary key; in order of the keys, so that no two calls deadlock. The
-- first write locks the rows; a new one has the time 0, which is equivalent to no row.
SET @now = {now} * 1000, @given = $1;
BEGIN;
INSERT INTO {schema}.rates (`key`, tat, granted)
SELECT given.`key`, 0, FALSE FROM {rows @given (key name)} AS given ORDER BY given.`key`
ON DUPLICATE KEY UPDATE tat = tat;
SELECT rate.`key`,
       CASE WHEN rate.tat - @now <= given.tolerance THEN TRUE
            WHEN rate.tat > @now + given.`interval` + given.tolerance THEN FALSE END,
       NULLIF(rate.tat, 0), @now
FROM {rows @given (key name, interval bigint, tolerance bigint)} AS given
STRAIGHT_JOIN {schema}.rates AS rate FORCE INDEX (PRIMARY) ON rate.`key` = given.`key`;
UPDATE {rows @given (key name, interval bigint, tolerance bigint)} AS given
STRAIGHT_JOIN {schema}.rates AS rate FORCE INDEX (PRIMARY) ON rate.`key` = given.`key`
SET rate.granted = rate.tat - @now <= given.tolerance,
    rate.tat = CASE WHEN rate.tat - @now > given.tolerance
                    THEN @now + given.`interval` + given.tolerance
                    ELSE GREATEST(rate.tat, @now) + given.`interval` END
WHERE rate.tat - @now <= given.tolerance
   OR rate.tat > @now + given.`interval` + given.tolerance;
COMMIT

-- name: forget_rates
-- Deletes the keys whose time has passed, except those that another transaction has locked.
-- [rate.forget] Reads the table, which has a row for each key that was used since the last pass.
SET @now = {now} * 1000;
BEGIN;
SELECT {json JSON_QUOTE(old.`key`)} INTO @old
FROM (SELECT `key` FROM {schema}.rates WHERE tat <= @now LIMIT $1
      FOR UPDATE SKIP LOCKED) AS old;
DELETE rate FROM {names @old} AS old
STRAIGHT_JOIN {schema}.rates AS rate FORCE INDEX (PRIMARY) ON rate.`key` = old.name;
COMMIT
