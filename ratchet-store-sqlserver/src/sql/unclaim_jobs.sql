-- Takes back claims that the same transaction made and for which there is no permit: nobody has seen
-- them. What else a claim wrote means nothing while a job does not run. [permit.max] Primary key.
UPDATE {schema}.jobs SET state = 0, claim_seq = claim_seq - 1
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state = 3
