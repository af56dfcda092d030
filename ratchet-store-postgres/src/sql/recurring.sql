-- Recurring definitions.

-- name: add_recurring
-- Stores a recurring definition, unless its name exists. [recurring.create] Primary key of
-- recurring.
INSERT INTO {schema}.recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                                declared, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) DO NOTHING

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
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT recurring.name FROM {schema}.recurring AS recurring
    WHERE NOT paused AND next_fire IS NOT NULL AND next_fire <= (SELECT now FROM clock)
      AND (claimed_until IS NULL OR claimed_until <= (SELECT now FROM clock))
    ORDER BY next_fire, name LIMIT $2
    FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE {schema}.recurring AS recurring
    SET revision = revision + 1, claimed_by = $1, claimed_until = clock.now + $3
    FROM due CROSS JOIN clock
    WHERE recurring.name = due.name
    RETURNING recurring.*
),
others AS (
    SELECT min(free) AS next FROM (
        (SELECT next_fire AS free FROM {schema}.recurring AS recurring
         WHERE NOT paused AND next_fire IS NOT NULL AND claimed_until IS NULL
           AND NOT EXISTS (SELECT FROM due WHERE due.name = recurring.name)
         ORDER BY next_fire LIMIT 1)
        UNION ALL
        SELECT greatest(next_fire, claimed_until) FROM {schema}.recurring AS recurring
        WHERE NOT paused AND next_fire IS NOT NULL AND claimed_until IS NOT NULL
          AND NOT EXISTS (SELECT FROM due WHERE due.name = recurring.name)
    ) AS each
)
SELECT claimed.name, claimed.incarnation, claimed.revision, claimed.definition, claimed.next_fire,
       claimed.last_slot, claimed.paused, claimed.declared, claimed.created_at, claimed.claimed_by,
       claimed.claimed_until, clock.now, others.next
FROM clock CROSS JOIN others LEFT JOIN claimed ON true
ORDER BY claimed.next_fire, claimed.name

-- name: lock_tokens
-- Returns the tokens of definitions, and locks the definitions in order of name until the
-- transaction ends. [recurring.stale] [recurring.slot] Primary key of recurring.
SELECT name, incarnation, revision
FROM {schema}.recurring
WHERE name = ANY($1::text[])
ORDER BY name
FOR UPDATE

-- name: fire_recurring
-- Advances locked definitions to their next slots. [recurring.fire] Primary key of recurring.
UPDATE {schema}.recurring AS recurring
SET revision = revision + 1, next_fire = fired.next_fire,
    last_slot = greatest(recurring.last_slot, fired.last_slot),
    claimed_by = NULL, claimed_until = NULL
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS fired (name, next_fire, last_slot)
WHERE recurring.name = fired.name

-- name: declared_recurring
-- Returns the declared definitions that were created before this node began, if the node has a row.
-- Locks them until the transaction ends. [recurring.retire]
SELECT recurring.name, recurring.created_at, node.started_at
FROM {schema}.nodes AS node
JOIN {schema}.recurring AS recurring ON recurring.created_at < node.started_at
WHERE node.node = $1 AND recurring.declared
ORDER BY recurring.name
FOR UPDATE OF recurring

-- name: delete_recurring
-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DELETE FROM {schema}.recurring WHERE name = ANY($1::text[])
