-- Permits and rates.

-- name: set_permits
-- Sets the limit of a resource, and creates the resource if it is new. If the resource exists and
-- @P3 is set, keeps its limit. Returns whether anything changed (1 or 0). [permit.declare]
-- [permit.change] Waits for the claims that have locked the row. If two callers race for a new
-- resource, one may fail with a duplicate key; it then begins again. Primary key.
DECLARE @changed int;
BEGIN TRANSACTION;
UPDATE {schema}.permits SET max_held = @P2 WHERE resource = @P1 AND max_held <> @P2 AND @P3 = 0;
SET @changed = @@ROWCOUNT;
IF @changed = 0
BEGIN
    INSERT INTO {schema}.permits (resource, max_held)
    SELECT @P1, @P2 WHERE NOT EXISTS (SELECT 1 FROM {schema}.permits WHERE resource = @P1);
    SET @changed = @@ROWCOUNT;
END;
COMMIT TRANSACTION;
SELECT @changed

-- name: held_permits
-- Returns the limits of these resources (@P1, or all if @P2) and how many running jobs hold a
-- permit. [permit.max] [permit.free] [permit.list] A claim runs this statement after the one that
-- locks the resources, so that it sees everything committed before the locks were acquired. Primary
-- key; the few routes, once; jobs_permits: as many rows as there are holders.
SELECT permit.resource, permit.max_held,
       (SELECT COUNT_BIG(*) FROM {schema}.routes AS route
        JOIN {schema}.jobs AS job ON job.state = 3 AND job.route = route.id
        WHERE route.permit = permit.resource)
FROM {schema}.permits AS permit
WHERE @P2 = 1 OR permit.resource IN (SELECT {name value} FROM OPENJSON(@P1))
ORDER BY permit.resource

-- name: look_at_permits
-- Returns which of these routes, all of which need permits, have due jobs and a free permit.
-- [permit.order] Locks nothing: a claim checks the permits again once it has locked them, and it
-- may skip a route that had no due job or free permit at any moment of its call. One seek of
-- jobs_claim per route and priority. Then, only for the resources of routes with due jobs, the few
-- routes, once, and jobs_permits: as many entries as there are holders.
DECLARE @now bigint = {now};
SELECT route.id
FROM {schema}.routes AS route
JOIN {schema}.permits AS permit ON permit.resource = route.permit
WHERE route.id IN (SELECT CONVERT(int, value) FROM OPENJSON(@P1))
  AND route.queue NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 0)
  AND route.kind NOT IN (SELECT name FROM {schema}.pauses WHERE scope = 1)
  AND EXISTS (
      SELECT 1
      FROM (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
      CROSS APPLY (
          SELECT TOP (1) job.id FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
          WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
            AND job.run_at <= @now
          ORDER BY job.run_at, job.id
      ) AS head
  )
  AND permit.max_held > (
      SELECT COUNT_BIG(*) FROM {schema}.routes AS other
      JOIN {schema}.jobs AS job ON job.state = 3 AND job.route = other.id
      WHERE other.permit = permit.resource
  )

-- name: lock_permits
-- Locks these resources until the transaction ends: no other transaction claims jobs that need them
-- or changes their limits. [permit.max] [permit.change] Primary key. The rows are written
-- unchanged, which locks them on every server.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE held SET max_held = held.max_held
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, ROWLOCK) ON held.resource = wanted.name;
SELECT held.resource
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON held.resource = wanted.name

-- name: find_permit
-- Returns a row if the resource exists. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = @P1

-- name: take_rates
-- Takes one start for each of these distinct keys, given with the intervals and the tolerances of
-- their rates, in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change] Implements
-- ratchet_core::rate::Rate::take in SQL, because a grant depends on concurrent calls. If a start is
-- refused, the key is written only if its time is later than this rate allows: its time becomes the
-- latest possible one. Otherwise the key is returned with NULL as the answer, and with its time.
-- The rows are first locked by writing them unchanged. If two callers race for a new key, one may
-- fail with a duplicate key; it then begins again. The answer is read before the commit, so a
-- caller that cannot read it has taken no start. Primary key.
DECLARE @now bigint = {now} * 1000;
DECLARE @wanted TABLE ([key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY,
                       interval bigint NOT NULL, tolerance bigint NOT NULL);
DECLARE @known TABLE ([key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY,
                      tat bigint NOT NULL);
INSERT INTO @wanted ([key], interval, tolerance)
SELECT {name given.[key]}, given.interval, given.tolerance
FROM OPENJSON(@P1) WITH ([key] nvarchar(256), interval bigint, tolerance bigint) AS given;
BEGIN TRANSACTION;
UPDATE rate SET tat = rate.tat
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, ROWLOCK) ON rate.[key] = wanted.[key];
INSERT INTO @known ([key], tat)
SELECT rate.[key], rate.tat
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON rate.[key] = wanted.[key];
INSERT INTO {schema}.rates ([key], tat, granted)
SELECT [key], @now + interval, 1 FROM @wanted AS wanted
WHERE NOT EXISTS (SELECT 1 FROM @known AS known WHERE known.[key] = wanted.[key]);
UPDATE rate
SET tat = CASE WHEN known.tat - @now > wanted.tolerance THEN @now + wanted.interval + wanted.tolerance
               WHEN known.tat > @now THEN known.tat + wanted.interval
               ELSE @now + wanted.interval END,
    granted = CASE WHEN known.tat - @now <= wanted.tolerance THEN 1 ELSE 0 END
FROM @known AS known
INNER LOOP JOIN @wanted AS wanted ON wanted.[key] = known.[key]
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, ROWLOCK) ON rate.[key] = known.[key]
WHERE known.tat - @now <= wanted.tolerance
   OR known.tat > @now + wanted.interval + wanted.tolerance;
SELECT wanted.[key],
       CAST(CASE WHEN known.tat IS NULL OR known.tat - @now <= wanted.tolerance THEN 1
                 WHEN known.tat > @now + wanted.interval + wanted.tolerance THEN 0 END AS bit),
       known.tat, @now
FROM @wanted AS wanted
LEFT JOIN @known AS known ON known.[key] = wanted.[key];
COMMIT TRANSACTION

-- name: forget_rates
-- Deletes the keys whose time has passed, except those that another transaction has locked.
-- [rate.forget] Reads the table, which has a row for each key that was used since the last pass.
-- The rows to delete are found by a range of their key, so that locked ones are skipped, and their
-- conditions are checked again.
DECLARE @now bigint = {now} * 1000;
DECLARE @idle TABLE ([key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @idle ([key])
SELECT TOP (@P1) [key] FROM {schema}.rates WITH (ROWLOCK{passing}) WHERE tat <= @now;
DELETE rate
FROM @idle AS idle
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range rate.[key] idle.[key]}
WHERE rate.tat <= @now
