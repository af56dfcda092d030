-- Asks the nodes of running jobs to cancel them. [cancel.running] Primary key of jobs.
UPDATE {schema}.jobs SET cancel_requested = 1
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state = 3
