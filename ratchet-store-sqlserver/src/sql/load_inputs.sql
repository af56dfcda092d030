-- What the bodies of claims are given, as far as the claims still hold. [claim.load] Primary keys.
SELECT job.id, job.claim_seq, data.payload, notes.[checkpoint]
FROM (SELECT CONVERT(binary(16), given.job, 2) AS job, given.seq
      FROM OPENJSON(@P1) WITH (job char(32), seq bigint) AS given) AS token
JOIN {schema}.jobs AS job ON job.id = token.job AND job.claim_seq = token.seq AND job.state = 3
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
