-- Permits and rates.

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
