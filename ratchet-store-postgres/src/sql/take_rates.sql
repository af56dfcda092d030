-- Asks for one start of each of these keys, which are distinct; $2 and $3 are the intervals and the
-- tolerances of their rates, in microseconds. [rate.exact] [rate.refill] [rate.keys] [rate.change]
-- What ratchet_core::rate::Rate::take says, here because whether a start is granted depends on who
-- came before in the same moment. A key that is refused is not written, unless its time is later than
-- this rate can make it, and comes back without an answer but with its time as it was when the
-- statement began. Primary key; in order of the keys, so that no two calls wait for each other.
WITH clock AS MATERIALIZED (SELECT {now} * 1000 AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
    AS wanted (key, interval, tolerance)
),
taken AS (
    INSERT INTO {schema}.rates AS rate (key, tat, granted)
    SELECT wanted.key, clock.now + wanted.interval, true
    FROM wanted CROSS JOIN clock
    ORDER BY wanted.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE
    SET tat = CASE
            WHEN rate.tat - (SELECT now FROM clock)
                 <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
            THEN greatest(rate.tat + excluded.tat - (SELECT now FROM clock), excluded.tat)
            ELSE excluded.tat + (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
        END,
        granted = rate.tat - (SELECT now FROM clock)
                  <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
    WHERE rate.tat - (SELECT now FROM clock)
          <= (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
       OR rate.tat > excluded.tat
                     + (SELECT tolerance FROM wanted WHERE wanted.key = excluded.key)
    RETURNING rate.key, rate.granted
)
SELECT wanted.key, taken.granted, known.tat, clock.now
FROM wanted
CROSS JOIN clock
LEFT JOIN taken ON taken.key = wanted.key
LEFT JOIN {schema}.rates AS known ON known.key = wanted.key
