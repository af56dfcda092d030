-- Asks the nodes of running jobs to cancel them. [cancel.running] Primary key of jobs.
UPDATE {schema}.jobs SET cancel_requested = true WHERE id = ANY($1::uuid[]) AND state + 0 = 3
