-- What the body of a claim is given, if the claim still holds. [claim.load] Primary keys.
SELECT data.payload, notes.checkpoint
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_data AS data ON data.id = job.data
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1 AND job.state = 3 AND job.claim_seq = ?2 AND job.node IS ?3
  AND coalesce(job.claimed_at, 0) = ?4
