-- Takes back claims that the same transaction made and for which there is no permit: nobody has seen
-- them. What else a claim wrote means nothing while a job does not run. [permit.max] Primary key.
UPDATE {schema}.jobs AS job
SET state = 0, claim_seq = job.claim_seq - 1
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 = 3
