-- Which of the wanted routes have due jobs, at which priorities, and the first of each; none for a
-- node (?3) whose row does not say that it is active. [claim.due] [claim.match] [claim.paused] [claim.live]
-- One seek of ratchet_jobs_claim per wanted route and priority; no cost per job.
WITH level (priority) AS (VALUES (4), (3), (2), (1), (0))
SELECT route.id, level.priority, head.run_at, head.id
FROM json_each(?1) AS wanted
CROSS JOIN ratchet_routes AS route ON route.id = wanted.value
CROSS JOIN level
CROSS JOIN ratchet_jobs AS head ON head.id = (
    SELECT job.id FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_claim
    WHERE job.state = 0 AND job.route = route.id AND job.priority = level.priority
      AND job.run_at <= ?2
    ORDER BY job.run_at, job.id
    LIMIT 1)
WHERE route.queue NOT IN (SELECT queue FROM ratchet_paused_queues)
  AND NOT EXISTS (SELECT 1 FROM ratchet_nodes WHERE node = ?3 AND status <> 1)
