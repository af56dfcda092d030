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
