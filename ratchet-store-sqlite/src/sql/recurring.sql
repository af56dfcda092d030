-- Recurring definitions.

-- name: put_recurring
-- Stores the new state of a recurring definition. [recurring.create] [recurring.edit] Uses the
-- primary key of ratchet_recurring.
INSERT INTO ratchet_recurring (name, incarnation, revision, definition, next_fire, last_slot, paused,
                               declared, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name) DO UPDATE
SET incarnation = excluded.incarnation, revision = excluded.revision,
    definition = excluded.definition, next_fire = excluded.next_fire,
    last_slot = excluded.last_slot, paused = excluded.paused, declared = excluded.declared,
    created_at = excluded.created_at, claimed_by = NULL, claimed_until = NULL

-- name: find_recurring
-- Returns a recurring definition. [recurring.get] Uses the primary key of ratchet_recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM ratchet_recurring
WHERE name = ?1

-- name: list_recurring
-- Returns one page of the recurring definitions. [recurring.list] Uses the primary key of
-- ratchet_recurring.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM ratchet_recurring
WHERE name > ?1
ORDER BY name
LIMIT ?2

-- name: due_recurring
-- Returns the due definitions that are not claimed. [recurring.due] Uses ratchet_recurring_due.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM ratchet_recurring
WHERE paused = 0 AND next_fire IS NOT NULL AND next_fire <= ?1
  AND (claimed_until IS NULL OR claimed_until <= ?1)
ORDER BY next_fire, name
LIMIT ?2

-- name: claim_recurring
-- Claims a definition for one node, for a limited time. [recurring.claim] Uses the primary key of
-- ratchet_recurring.
UPDATE ratchet_recurring
SET revision = revision + 1, claimed_by = ?2, claimed_until = ?3
WHERE name = ?1

-- name: next_recurring
-- Returns when the next definition can be claimed, without the definitions named in ?1.
-- [recurring.hint] Reads the first unclaimed rows with ratchet_recurring_due, and all claimed rows
-- with ratchet_recurring_claimed.
SELECT min(free) FROM (
    SELECT next_fire AS free FROM (
        SELECT next_fire FROM ratchet_recurring
        WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NULL
          AND name NOT IN (SELECT value FROM json_each(?1))
        ORDER BY next_fire LIMIT 1
    )
    UNION ALL
    SELECT max(next_fire, claimed_until)
    FROM ratchet_recurring INDEXED BY ratchet_recurring_claimed
    WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NOT NULL
      AND name NOT IN (SELECT value FROM json_each(?1))
)

-- name: fire_recurring
-- Advances a definition to its next slot, if the token is still the current one. [recurring.fire]
-- [recurring.stale] Uses the primary key of ratchet_recurring.
UPDATE ratchet_recurring
SET revision = revision + 1, next_fire = ?4, last_slot = coalesce(max(last_slot, ?5), last_slot, ?5),
    claimed_by = NULL, claimed_until = NULL
WHERE name = ?1 AND incarnation = ?2 AND revision = ?3

-- name: declared_recurring
-- Returns the declared definitions that were created before a node started, if the node is stored.
-- [recurring.retire]
SELECT recurring.name, recurring.created_at, node.started_at
FROM ratchet_nodes AS node
JOIN ratchet_recurring AS recurring ON recurring.created_at < node.started_at
WHERE node.node = ?1 AND recurring.declared = 1
ORDER BY recurring.name

-- name: delete_recurring
-- Deletes a recurring definition. [recurring.delete] Uses the primary key of ratchet_recurring.
DELETE FROM ratchet_recurring WHERE name = ?1
