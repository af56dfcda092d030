-- Stores jobs that may have keys, lanes, origins and tags, unless their ids are stored already, and
-- takes the keys; returns how many it stored, and of how many. A key that was taken meanwhile fails
-- the whole, so that nothing is stored, and so does an id that is stored in this moment. Nothing is
-- stored, of none, without the route @P3, the largest of these, under the stamp @P4. A time of NULL is
-- now plus the delay. [enqueue.created] [enqueue.repeat] [enqueue.due] [keys.race] [enqueue.atomic] [lane.head]
-- [recurring.origin] [tag.set] [claim.version]
DECLARE @now bigint = {now};
DECLARE @new TABLE (id binary(16) NOT NULL, route int NOT NULL, priority smallint NOT NULL,
                    flags smallint NOT NULL, run_at bigint NULL, delay bigint NOT NULL,
                    payload nvarchar(max) NOT NULL, retry nvarchar(max) NULL, timeout bigint NULL,
                    stall_timeout bigint NULL, traceparent nvarchar(max) NULL,
                    tracestate nvarchar(max) NULL, payload_version int NULL,
                    unique_key nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
                    idempotency_key nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
                    lane nvarchar(128) COLLATE Latin1_General_BIN2 NULL, state smallint NOT NULL,
                    recurring nvarchar(128) COLLATE Latin1_General_BIN2 NULL, slot bigint NULL);
DECLARE @tagged TABLE (job binary(16) NOT NULL,
                       tag nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @stored TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
                  traceparent, tracestate, payload_version, unique_key, idempotency_key, lane, state,
                  recurring, slot)
SELECT CONVERT(binary(16), given.id, 2), given.route, given.priority, given.flags, given.run_at,
       given.delay, {text given.payload}, {text given.retry}, given.timeout, given.stall_timeout,
       {text given.traceparent}, {text given.tracestate}, given.payload_version,
       {name given.unique_key}, {name given.idempotency_key}, {name given.lane}, given.state,
       {name given.recurring}, given.slot
FROM OPENJSON(@P1) WITH (id char(32), route int, priority smallint, flags smallint, run_at bigint,
                         delay bigint, payload {long}, retry {long}, timeout bigint,
                         stall_timeout bigint, traceparent {long}, tracestate {long},
                         payload_version int, unique_key nvarchar(256),
                         idempotency_key nvarchar(256), lane nvarchar(256), state smallint,
                         recurring nvarchar(256), slot bigint) AS given
WHERE EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P3 AND stamp = @P4);
INSERT INTO @tagged (job, tag)
SELECT CONVERT(binary(16), given.job, 2), {name given.tag}
FROM OPENJSON(@P2) WITH (job char(32), tag nvarchar(256)) AS given;
BEGIN TRANSACTION;
INSERT INTO {schema}.idempotency_keys ([key], job, reserved_at)
SELECT idempotency_key, id, @now FROM @new WHERE idempotency_key IS NOT NULL
ORDER BY idempotency_key;
INSERT INTO {schema}.unique_keys ([key], job)
SELECT unique_key, id FROM @new WHERE unique_key IS NOT NULL ORDER BY unique_key;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
OUTPUT inserted.id INTO @stored
SELECT new.id, new.state, new.route, new.priority, new.flags, COALESCE(new.run_at, @now + new.delay),
       @now
FROM @new AS new
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.id = new.id);
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version, unique_key, idempotency_key, lane, recurring, slot)
SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version,
       unique_key, idempotency_key, lane, recurring, slot
FROM @new AS new
WHERE EXISTS (SELECT 1 FROM @stored AS stored WHERE stored.id = new.id)
ORDER BY id;
INSERT INTO {schema}.job_tags (job, tag)
SELECT job, tag FROM @tagged WHERE job IN (SELECT id FROM @stored);
COMMIT TRANSACTION;
SELECT (SELECT COUNT_BIG(*) FROM @stored), (SELECT COUNT_BIG(*) FROM @new)
