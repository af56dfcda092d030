-- Notes that those of these jobs, which are locked, that still wait for their signal wait in vain;
-- what they waited for, which never changes. [signal.expire] [signal.once] Primary key of signals.
DECLARE @now bigint = {now};
UPDATE {schema}.signals SET state = 2
OUTPUT inserted.job, inserted.[key], inserted.timeout
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state = 0
  AND deadline <= @now
