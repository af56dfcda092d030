-- Gives unfinished jobs another priority. [priority.job] Primary key of jobs.
UPDATE {schema}.jobs SET priority = @P2
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state < 4
