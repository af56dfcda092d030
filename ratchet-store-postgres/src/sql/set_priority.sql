-- Gives unfinished jobs another priority. [priority.job] Primary key of jobs.
UPDATE {schema}.jobs SET priority = $2 WHERE id = ANY($1::uuid[]) AND state + 0 < 4
