-- What the bodies of claims are given, as far as the claims still hold. [claim.load] Primary keys.
SELECT job.id, job.claim_seq, job.node, job.claimed_at, data.payload, notes.checkpoint
FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[])
    AS token (job, seq, node, claimed_at)
JOIN {schema}.jobs AS job
  ON job.id = token.job AND job.claim_seq = token.seq AND job.state + 0 = 3
  AND job.node IS NOT DISTINCT FROM token.node AND coalesce(job.claimed_at, 0) = token.claimed_at
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
