-- Claims the definitions whose slots have come and that nobody has claimed, and says the time and when
-- the next of the others is to be claimed: at least one row. What others have locked is left to them.
-- [recurring.due] [recurring.claim] [recurring.clock] [recurring.hint] Index recurring_due: of those
-- that nobody has claimed the first rows, and all that somebody has.
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
