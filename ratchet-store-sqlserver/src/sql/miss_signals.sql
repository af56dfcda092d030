-- Notes that those of these jobs, which are locked, that still wait for their signal wait in vain;
-- what they waited for, which never changes. [signal.expire] [signal.once] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 2
OUTPUT inserted.job, inserted.[key], inserted.timeout
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state = 0 AND signals.deadline <= @now
OPTION (FORCE ORDER, LOOP JOIN)
