-- Recurring definitions.

-- name: add_recurring
-- Stores a recurring definition. Fails with a duplicate key if its name exists. [recurring.create]
-- Primary key of recurring.
INSERT INTO {schema}.recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                                declared, created_at)
VALUES (@P1, CONVERT(binary(16), @P2), @P3, @P4, @P5, @P6, @P7, @P8, @P9)

-- name: change_recurring
-- Updates a locked recurring definition. [recurring.edit] [recurring.pause] Primary key of
-- recurring.
UPDATE {schema}.recurring
SET incarnation = CONVERT(binary(16), @P2), revision = @P3, definition = @P4, next_fire = @P5,
    last_slot = @P6, paused = @P7, declared = @P8, created_at = @P9, claimed_by = NULL,
    claimed_until = NULL
WHERE name = @P1

-- name: find_recurring
-- Returns a recurring definition. [recurring.get] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name = @P1

-- name: lock_recurring
-- Returns a recurring definition, and locks it until the transaction ends. [recurring.edit]
-- [recurring.pause] Primary key of recurring. The row is written unchanged, which locks it on every
-- server.
UPDATE {schema}.recurring SET revision = revision WHERE name = @P1;
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring WITH (UPDLOCK, ROWLOCK)
WHERE name = @P1

-- name: list_recurring
-- Returns one page of the recurring definitions. [recurring.list] Primary key of recurring.
SELECT TOP (@P2) name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name > @P1
ORDER BY name

-- name: claim_recurring
-- Claims the due definitions that are not claimed. Each row also has the time now, and the time
-- when the next of the other definitions can be claimed. So the statement returns a row even if it
-- claims nothing. Skips definitions that other transactions have locked. [recurring.due]
-- [recurring.claim] [recurring.clock] [recurring.hint] Index recurring_due: the first unclaimed
-- rows, read without locks; index recurring_claimed: all claimed rows. The rows to claim are found
-- by a range of their name, so that locked ones are skipped, and their conditions are checked
-- again. Babelfish ignores hints: there, the statement waits for locked rows.
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

-- name: lock_tokens
-- Returns the tokens of definitions, and locks the definitions until the transaction ends.
-- [recurring.stale] [recurring.slot] Primary key of recurring. The rows are written unchanged,
-- which locks them on every server.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
UPDATE held SET revision = held.revision
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, ROWLOCK) ON held.name = wanted.name;
SELECT held.name, held.incarnation, held.revision
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON held.name = wanted.name

-- name: fire_recurring
-- Advances locked definitions to their next slots. [recurring.fire] Primary key of recurring.
DECLARE @fired TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY,
                      next_fire bigint NULL, last_slot bigint NULL);
INSERT INTO @fired (name, next_fire, last_slot)
SELECT {name given.name}, given.next_fire, given.last_slot
FROM OPENJSON(@P1) WITH (name nvarchar(256), next_fire bigint, last_slot bigint) AS given;
UPDATE recurring
SET revision = recurring.revision + 1, next_fire = fired.next_fire,
    last_slot = CASE WHEN recurring.last_slot IS NULL OR fired.last_slot > recurring.last_slot
                     THEN COALESCE(fired.last_slot, recurring.last_slot)
                     ELSE recurring.last_slot END,
    claimed_by = NULL, claimed_until = NULL
FROM @fired AS fired
INNER LOOP JOIN {schema}.recurring AS recurring WITH (FORCESEEK, ROWLOCK)
    ON recurring.name = fired.name

-- name: declared_recurring
-- Returns the declared definitions that were created before this node began, if the node has a row.
-- Locks them until the transaction ends. [recurring.retire] The rows are written unchanged, which
-- locks them on every server. Their conditions are then checked again.
DECLARE @began bigint = (SELECT started_at FROM {schema}.nodes WHERE node = CONVERT(binary(16), @P1));
DECLARE @declared TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @declared (name)
SELECT name FROM {schema}.recurring WHERE declared = 1 AND created_at < @began;
UPDATE held SET declared = held.declared
FROM @declared AS declared
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, ROWLOCK) ON held.name = declared.name;
SELECT held.name, held.created_at, @began
FROM @declared AS declared
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK)
    ON held.name = declared.name
WHERE held.declared = 1 AND held.created_at < @began
ORDER BY held.name

-- name: delete_recurring
-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
DELETE gone
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.recurring AS gone WITH (FORCESEEK, ROWLOCK) ON gone.name = wanted.name
