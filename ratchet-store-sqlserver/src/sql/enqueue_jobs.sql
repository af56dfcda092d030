-- Stores new jobs without keys, and none of them if one is stored already, which is a duplicate;
-- returns how many it stored, which is none without the route @P2, the largest of these, under the
-- stamp @P3.
-- A time of NULL is now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
DECLARE @now bigint = {now};
DECLARE @new TABLE (id binary(16) NOT NULL, route int NOT NULL, priority smallint NOT NULL,
                    flags smallint NOT NULL, run_at bigint NULL, delay bigint NOT NULL,
                    payload nvarchar(max) NOT NULL, retry nvarchar(max) NULL, timeout bigint NULL,
                    stall_timeout bigint NULL, traceparent nvarchar(max) NULL,
                    tracestate nvarchar(max) NULL, payload_version int NULL);
INSERT INTO @new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
                  traceparent, tracestate, payload_version)
SELECT CONVERT(binary(16), given.id, 2), given.route, given.priority, given.flags, given.run_at,
       given.delay, {text given.payload}, {text given.retry}, given.timeout, given.stall_timeout,
       {text given.traceparent}, {text given.tracestate}, given.payload_version
FROM OPENJSON(@P1) WITH (id char(32), route int, priority smallint, flags smallint, run_at bigint,
                         delay bigint, payload {long}, retry {long}, timeout bigint,
                         stall_timeout bigint, traceparent {long}, tracestate {long},
                         payload_version int) AS given
WHERE EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P2 AND stamp = @P3);
BEGIN TRANSACTION;
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version)
SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version
FROM @new ORDER BY id;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT id, 0, route, priority, flags, COALESCE(run_at, @now + delay), @now FROM @new ORDER BY id;
COMMIT TRANSACTION;
SELECT COUNT_BIG(*) FROM @new
