-- Stores new jobs without keys, and none of them if one is stored already: looking for that row by
-- row (ON CONFLICT) costs a third more time, and a record in the log for each.
-- Nothing without the route $14, the largest of these, under the stamp $15.
-- A time of NULL is now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $14 AND stamp = $15
),
new AS (
    SELECT new.*, clock.now
    FROM clock CROSS JOIN
         unnest($1::uuid[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[],
                $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::bigint[],
                $11::text[], $12::text[], $13::integer[])
    AS new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
            traceparent, tracestate, payload_version)
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent,
                                   tracestate, payload_version)
    SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version
    FROM new
)
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT new.id, 0, new.route, new.priority, new.flags,
       coalesce(new.run_at, new.now + new.delay), new.now
FROM new
