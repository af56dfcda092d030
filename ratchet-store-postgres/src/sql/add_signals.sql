-- Lets new jobs wait for signals. [signal.wait]
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {schema}.signals (job, key, timeout, deadline)
SELECT new.job, new.key, new.timeout, clock.now + new.timeout
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS new (job, key, timeout)
CROSS JOIN clock
