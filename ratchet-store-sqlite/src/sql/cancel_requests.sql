-- The claims of a node that somebody wants cancelled. [node.cancel] [cancel.running]
-- ratchet_jobs_running: reads only claims with such a request.
SELECT id, claim_seq
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3 AND cancel_requested = 1 AND node = ?1
ORDER BY id
