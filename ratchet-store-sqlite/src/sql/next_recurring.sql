-- When the next definition is to be claimed of those that are not named. [recurring.hint] Index
-- ratchet_recurring_due: its first rows that nobody has claimed, and all that somebody has.
SELECT min(free) FROM (
    SELECT next_fire AS free FROM (
        SELECT next_fire FROM ratchet_recurring
        WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NULL
          AND name NOT IN (SELECT value FROM json_each(?1))
        ORDER BY next_fire LIMIT 1
    )
    UNION ALL
    SELECT max(next_fire, claimed_until) FROM ratchet_recurring
    WHERE paused = 0 AND next_fire IS NOT NULL AND claimed_until IS NOT NULL
      AND name NOT IN (SELECT value FROM json_each(?1))
)
