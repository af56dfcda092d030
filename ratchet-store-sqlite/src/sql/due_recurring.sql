-- The definitions whose slots have come and that nobody has claimed. [recurring.due]
-- Index ratchet_recurring_due.
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM ratchet_recurring
WHERE paused = 0 AND next_fire IS NOT NULL AND next_fire <= ?1
  AND (claimed_until IS NULL OR claimed_until <= ?1)
ORDER BY next_fire, name
LIMIT ?2
