-- Permits and rates.

-- name: set_permits
-- Sets how many permits a resource has, which makes it known; whether that changed anything (1 or 0).
-- One that is known keeps its number if @P3. [permit.declare]
-- Two callers that meet at a resource that is not known yet may leave one with an error (duplicate
-- key): it begins again. [permit.change] Waits for the claims that hold the row. Primary key.
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
-- How many permits these resources (@P1), or all (if @P2), have and how many running jobs hold one of
-- them. [permit.max] [permit.free] [permit.list]
-- In a claim, a statement of its own after the one that locks the resources: it sees what was
-- committed until then. Primary key; the routes, which are few; jobs_permits: as many rows as are held.
SELECT permit.resource, permit.max_held,
       (SELECT COUNT_BIG(*) FROM {schema}.routes AS route
        JOIN {schema}.jobs AS job ON job.state = 3 AND job.route = route.id
        WHERE route.permit = permit.resource)
FROM {schema}.permits AS permit
WHERE @P2 = 1 OR permit.resource IN (SELECT {name value} FROM OPENJSON(@P1))
ORDER BY permit.resource

-- name: look_at_permits
-- Which of these routes, all of which need permits, have jobs that are due and a permit for one.
-- [permit.order] Locks nothing: who takes a permit looks again when it has the lock, and who leaves a
-- route out does so for what was the case during its call.
-- One seek of jobs_claim per route and priority; then, for the resources of those with due jobs only,
-- the routes, which are few, and jobs_permits: as many entries as are held.
DECLARE @now bigint = {now};
SELECT route.id
FROM {schema}.routes AS route
JOIN {schema}.permits AS permit ON permit.resource = route.permit
WHERE route.id IN (SELECT CONVERT(int, value) FROM OPENJSON(@P1))
  AND route.queue NOT IN (SELECT queue FROM {schema}.paused_queues)
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
-- Keeps others from claiming jobs that need these resources, and from changing how many may run, until the
-- transaction ends. [permit.max] [permit.change] Primary key. The rows are written as they were: that
-- locks them everywhere.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE held SET max_held = held.max_held
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, ROWLOCK) ON held.resource = wanted.name;
SELECT held.resource
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.permits AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON held.resource = wanted.name

-- name: find_permit
-- A row if the resource is known. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = @P1

-- name: take_rates
-- Asks for one start of each of these keys, which are distinct; with the intervals and the tolerances of
-- their rates, in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change]
-- What ratchet_core::rate::Rate::take says, here because whether a start is granted depends on who
-- came before in the same moment. A key that is refused stays as it is, unless its time is later than
-- this rate can make it, and comes back without an answer but with its time. The rows are locked first,
-- by writing them as they were. Two callers that meet at a new key may leave one with an error
-- (duplicate key): it begins again. The answer is read before the commit: who cannot read it has taken
-- nothing. Primary key.
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
-- Forgets the keys whose time has passed, but for those that another transaction is using. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass; what is deleted is
-- come by in a range of its key, so that locked rows are passed over, and looked at again.
DECLARE @now bigint = {now} * 1000;
DECLARE @idle TABLE ([key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @idle ([key])
SELECT TOP (@P1) [key] FROM {schema}.rates WITH (ROWLOCK{passing}) WHERE tat <= @now;
DELETE rate
FROM @idle AS idle
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range rate.[key] idle.[key]}
WHERE rate.tat <= @now
