-- Lets new jobs wait for signals. [signal.wait]
DECLARE @now bigint = {now};
INSERT INTO {schema}.signals (job, [key], timeout, deadline)
SELECT CONVERT(binary(16), given.job, 2), {name given.[key]}, given.timeout, @now + given.timeout
FROM OPENJSON(@P1) WITH (job char(32), [key] nvarchar(256), timeout bigint) AS given
