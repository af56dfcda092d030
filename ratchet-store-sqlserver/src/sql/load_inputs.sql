-- What the bodies of claims are given, as far as the claims still hold. [claim.load] Primary keys.
DECLARE @token TABLE (job binary(16) NOT NULL, seq bigint NOT NULL);
INSERT INTO @token (job, seq)
SELECT CONVERT(binary(16), given.job, 2), given.seq
FROM OPENJSON(@P1) WITH (job char(32), seq bigint) AS given;
SELECT job.id, job.claim_seq, data.payload, notes.[checkpoint]
FROM @token AS token
JOIN {schema}.jobs AS job ON job.id = token.job AND job.claim_seq = token.seq AND job.state + 0 = 3
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
