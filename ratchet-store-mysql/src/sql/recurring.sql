-- Recurring definitions.

-- name: add_recurring
-- Stores a recurring definition, unless its name exists. [recurring.create] Primary key of
-- recurring.
INSERT IGNORE INTO {schema}.recurring (name, incarnation, revision, definition, next_fire, last_slot,
                                       paused, declared, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: change_recurring
-- Updates a locked recurring definition. [recurring.edit] [recurring.pause]
-- Primary key of recurring.
UPDATE {schema}.recurring
SET incarnation = $2, revision = $3, definition = $4, next_fire = $5, last_slot = $6, paused = $7,
    declared = $8, created_at = $9, claimed_by = NULL, claimed_until = NULL
WHERE name = $1

-- name: find_recurring
-- Returns a recurring definition. [recurring.get] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name = $1

-- name: lock_recurring
-- Returns a recurring definition, and locks it until the transaction ends. [recurring.edit]
-- [recurring.pause] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name = $1
FOR UPDATE

-- name: list_recurring
-- Returns one page of the recurring definitions. [recurring.list] Primary key of recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring
WHERE name > $1
ORDER BY name
LIMIT $2

-- name: claim_recurring
-- Claims the due definitions that are not claimed. Each row also has the time now, and the time
-- when the next of the other definitions can be claimed. So the statement returns a row even if it
-- claims nothing. Skips definitions that other transactions have locked. [recurring.due]
-- [recurring.claim] [recurring.clock] [recurring.hint] Index recurring_due: the first unclaimed
-- rows; index recurring_claimed: all claimed rows.
SET @now = {now};
BEGIN;
SELECT {json JSON_QUOTE(due.name)} INTO @due
FROM (SELECT name FROM {schema}.recurring FORCE INDEX (recurring_due)
      WHERE paused = 0 AND next_fire <= @now
        AND (claimed_until IS NULL OR claimed_until <= @now)
      ORDER BY next_fire, name
      LIMIT $2
      FOR UPDATE SKIP LOCKED) AS due;
UPDATE {names @due} AS due
STRAIGHT_JOIN {schema}.recurring AS claimed FORCE INDEX (PRIMARY) ON claimed.name = due.name
SET claimed.revision = claimed.revision + 1, claimed.claimed_by = $1,
    claimed.claimed_until = @now + $3;
SELECT claimed.name, claimed.incarnation, claimed.revision, claimed.definition, claimed.next_fire,
       claimed.last_slot, claimed.paused, claimed.declared, claimed.created_at, claimed.claimed_by,
       claimed.claimed_until, @now,
       (SELECT MIN(free.at) FROM (
            (SELECT next_fire AS at FROM {schema}.recurring FORCE INDEX (recurring_due)
             WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NULL
             ORDER BY next_fire LIMIT 1)
            UNION ALL
            (SELECT MIN(GREATEST(next_fire, claimed_until))
             FROM {schema}.recurring FORCE INDEX (recurring_claimed)
             WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NOT NULL
               AND name NOT IN (SELECT due.name FROM {names @due} AS due))
        ) AS free)
FROM (SELECT 1 AS one) AS one
LEFT JOIN {names @due} AS due ON TRUE
LEFT JOIN {schema}.recurring AS claimed FORCE INDEX (PRIMARY) ON claimed.name = due.name
ORDER BY claimed.next_fire, claimed.name;
COMMIT

-- name: lock_tokens
-- Returns the tokens of definitions, and locks the definitions in order of name until the
-- transaction ends. [recurring.stale] [recurring.slot] Primary key of recurring.
SELECT name, incarnation, revision
FROM {schema}.recurring FORCE INDEX (PRIMARY)
WHERE name IN ($1)
ORDER BY name
FOR UPDATE

-- name: fire_recurring
-- Advances locked definitions to their next slots. [recurring.fire] Primary key of recurring.
UPDATE {rows $1 (name name, next_fire bigint, last_slot bigint)} AS given
STRAIGHT_JOIN {schema}.recurring AS fired FORCE INDEX (PRIMARY) ON fired.name = given.name
SET fired.revision = fired.revision + 1, fired.next_fire = given.next_fire,
    fired.last_slot = COALESCE(GREATEST(fired.last_slot, given.last_slot), fired.last_slot,
                               given.last_slot),
    fired.claimed_by = NULL, fired.claimed_until = NULL

-- name: declared_recurring
-- Returns the declared definitions that were created before this node began, if the node has a row.
-- Locks them until the transaction ends. [recurring.retire]
SET @began = (SELECT started_at FROM {schema}.nodes WHERE node = $1);
SELECT name, created_at, @began
FROM {schema}.recurring FORCE INDEX (PRIMARY)
WHERE declared AND created_at < @began
ORDER BY name
FOR UPDATE

-- name: delete_recurring
-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DELETE FROM {schema}.recurring WHERE name IN ($1)
