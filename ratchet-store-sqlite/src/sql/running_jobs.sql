-- Every running job, in order of id. [reclaim.dead] [reclaim.start]
-- ratchet_jobs_running: as many rows as there are claims, however many jobs there are.
SELECT id, claim_seq, crash_count, cancel_requested, claimed_at, last_report, node, data, flags
FROM ratchet_jobs INDEXED BY ratchet_jobs_running
WHERE state = 3
ORDER BY id
