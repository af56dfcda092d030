-- Claims the definitions whose slots have come and that nobody has claimed, and says the time and when
-- the next of the others is to be claimed: at least one row. What others have locked is left to them.
-- [recurring.due] [recurring.claim] [recurring.clock] [recurring.hint] Index recurring_due: of those
-- that nobody has claimed the first rows, read without locks; index recurring_claimed: all that
-- somebody has. The rows are locked by a range of their name, so that those which somebody else has
-- are passed over. Where hints do nothing they are waited for; the conditions are looked at again.
DECLARE @now bigint = {now};
DECLARE @due TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
DECLARE @held TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
BEGIN TRANSACTION;
INSERT INTO @due (name)
SELECT TOP (@P2) name
FROM {schema}.recurring WITH (ROWLOCK{passing})
WHERE paused = 0 AND next_fire IS NOT NULL AND next_fire <= @now
  AND (claimed_until IS NULL OR claimed_until <= @now)
ORDER BY next_fire, name;
INSERT INTO @held (name)
SELECT locked.name
FROM @due AS due
INNER LOOP JOIN {schema}.recurring AS locked
    WITH (INDEX(recurring_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range locked.name due.name};
UPDATE {schema}.recurring
SET revision = recurring.revision + 1, claimed_by = CONVERT(binary(16), @P1),
    claimed_until = @now + @P3
OUTPUT inserted.name INTO @claimed
FROM @held AS held{seek recurring}
WHERE recurring.name = held.name
  AND recurring.paused = 0 AND recurring.next_fire <= @now
  AND (recurring.claimed_until IS NULL OR recurring.claimed_until <= @now)
OPTION (FORCE ORDER, LOOP JOIN);
SELECT recurring.name, recurring.incarnation, recurring.revision, recurring.definition,
       recurring.next_fire, recurring.last_slot, recurring.paused, recurring.declared,
       recurring.created_at, recurring.claimed_by, recurring.claimed_until, @now,
       (SELECT MIN(free.at)
        FROM (SELECT MIN(other.next_fire) AS at FROM {schema}.recurring AS other
              WHERE other.paused = 0 AND other.next_fire IS NOT NULL
                AND other.claimed_until IS NULL
                AND other.name NOT IN (SELECT name FROM @claimed)
              UNION ALL
              SELECT MIN(CASE WHEN other.next_fire > other.claimed_until THEN other.next_fire
                              ELSE other.claimed_until END)
              FROM {schema}.recurring AS other
              WHERE other.paused = 0 AND other.next_fire IS NOT NULL
                AND other.claimed_until IS NOT NULL
                AND other.name NOT IN (SELECT name FROM @claimed)) AS free)
FROM (SELECT 1 AS one) AS one
LEFT JOIN (SELECT * FROM {schema}.recurring WHERE name IN (SELECT name FROM @claimed)) AS recurring
    ON 1 = 1
ORDER BY recurring.next_fire, recurring.name;
COMMIT TRANSACTION
