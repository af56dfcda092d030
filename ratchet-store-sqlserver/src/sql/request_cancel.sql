-- Asks the nodes of running jobs to cancel them. [cancel.running] Primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.jobs SET cancel_requested = 1
WHERE id IN (SELECT id FROM @wanted) AND state = 3
