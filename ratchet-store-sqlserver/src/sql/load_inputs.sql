-- What the bodies of claims are given, as far as the claims still hold. [claim.load] Primary keys.
DECLARE @token TABLE (job binary(16) NOT NULL, seq bigint NOT NULL, node binary(16) NOT NULL,
                      claimed_at bigint NOT NULL);
INSERT INTO @token (job, seq, node, claimed_at)
SELECT CONVERT(binary(16), given.job, 2), given.seq, CONVERT(binary(16), given.node, 2),
       given.claimed_at
FROM OPENJSON(@P1) WITH (job char(32), seq bigint, node char(32), claimed_at bigint) AS given;
SELECT job.id, job.claim_seq, job.node, job.claimed_at, data.payload, notes.[checkpoint]
FROM @token AS token
JOIN {schema}.jobs AS job ON job.id = token.job AND job.claim_seq = token.seq AND job.state + 0 = 3
    AND COALESCE(job.node, 0x00000000000000000000000000000000) = token.node
    AND COALESCE(job.claimed_at, 0) = token.claimed_at
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
