-- The claims of a node. [node.claims] [node.cancel] [cancel.running]
-- ratchet_jobs_running: the rows of this node.
SELECT id, claim_seq, cancel_requested, coalesce(claimed_at, 0)
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3 AND node = ?1
ORDER BY id
