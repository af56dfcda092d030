-- What a settlement or a report of a claim must know. [settle.token] [settle.repeat] [report.token]
-- Primary key of ratchet_jobs.
SELECT state, claim_seq, settled_seq, cancel_requested, claimed_at, node, data, flags
FROM ratchet_jobs
WHERE id = ?1
