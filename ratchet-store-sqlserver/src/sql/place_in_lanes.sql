-- Puts unfinished jobs into lanes that are locked. [lane.sequence] [lane.requeue]
INSERT INTO {schema}.lane_jobs (job, queue, lane, seq)
SELECT CONVERT(binary(16), given.job, 2), {name given.queue}, {name given.lane}, given.seq
FROM OPENJSON(@P1) WITH (job char(32), queue nvarchar(256), lane nvarchar(256), seq bigint) AS given
