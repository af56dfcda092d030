-- Stores jobs that may have keys, lanes, origins and tags, unless their ids are stored already, and
-- takes the keys; returns how many it stored. A key that was taken meanwhile fails the whole
-- statement, so that nothing is stored. Nothing is stored either without the route $22, the largest of
-- these, under the stamp $23; then false is returned beside the count. A time of NULL is now plus the
-- delay. [enqueue.created] [enqueue.repeat] [enqueue.due] [keys.race] [enqueue.atomic] [lane.head]
-- [recurring.origin] [tag.set] [claim.version]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $22 AND stamp = $23
),
new AS (
    SELECT new.*, clock.now
    FROM clock CROSS JOIN
         unnest($1::uuid[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[],
                $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::bigint[],
                $11::text[], $12::text[], $13::integer[], $14::text[], $15::text[],
                $16::text[], $17::smallint[], $18::text[], $19::bigint[])
    AS new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
            traceparent, tracestate, payload_version, unique_key, idempotency_key, lane, state,
            recurring, slot)
),
idempotency AS (
    INSERT INTO {schema}.idempotency_keys (key, job, reserved_at)
    SELECT idempotency_key, id, now FROM new
    WHERE idempotency_key IS NOT NULL ORDER BY idempotency_key
),
uniqueness AS (
    INSERT INTO {schema}.unique_keys (key, job)
    SELECT unique_key, id FROM new WHERE unique_key IS NOT NULL ORDER BY unique_key
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent,
                                   tracestate, payload_version, unique_key, idempotency_key,
                                   lane, recurring, slot)
    SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version,
           unique_key, idempotency_key, lane, recurring, slot
    FROM new
    ON CONFLICT (id) DO NOTHING
),
stored AS (
    INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
    SELECT new.id, new.state, new.route, new.priority, new.flags,
           coalesce(new.run_at, new.now + new.delay), new.now
    FROM new
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
tagged AS (
    INSERT INTO {schema}.job_tags (job, tag)
    SELECT given.job, given.tag
    FROM unnest($20::uuid[], $21::text[]) AS given (job, tag)
    JOIN stored ON stored.id = given.job
)
SELECT (SELECT count(*) FROM stored), EXISTS (SELECT FROM clock)
