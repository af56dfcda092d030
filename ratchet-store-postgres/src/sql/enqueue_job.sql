-- Stores one new job without keys: enqueue_jobs for the most common batch, at two thirds of its cost.
-- A time of NULL is now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
WITH clock AS MATERIALIZED (SELECT {now} AS now),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                                   payload_version)
    VALUES ($1, $7, $8, $9, $10, $11, $12, $13)
)
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT $1, 0, $2, $3, $4, coalesce($5, clock.now + $6), clock.now FROM clock
