-- Stores one new job without keys: enqueue_jobs for the most common batch, at two thirds of its cost.
-- Nothing without the route ($2) under this stamp ($14).
-- A time of NULL is now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $2 AND stamp = $14
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                                   payload_version)
    SELECT $1, $7, $8, $9, $10, $11, $12, $13 FROM clock
)
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT $1, 0, $2, $3, $4, coalesce($5, clock.now + $6), clock.now FROM clock
