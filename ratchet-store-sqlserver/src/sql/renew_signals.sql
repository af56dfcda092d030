-- Lets requeued jobs wait for their signals again, but for those that have had theirs; who waits.
-- [link.requeue] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 0, deadline = @now + signals.timeout
OUTPUT inserted.job
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state <> 1
OPTION (FORCE ORDER, LOOP JOIN)
