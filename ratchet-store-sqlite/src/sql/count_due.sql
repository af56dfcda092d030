-- How many jobs of a queue (?2) are due, counted up to ?3. [queue.depth]
-- Reads as many entries of ratchet_jobs_claim, and one seek per route of the queue and priority.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT count(*) FROM (
    SELECT 1
    FROM ratchet_routes AS route
    CROSS JOIN level
    CROSS JOIN ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
    WHERE route.queue = ?2
      AND job.state = 0 AND job.route = route.id AND job.priority = level.priority
      AND job.run_at <= ?1
    LIMIT ?3)
