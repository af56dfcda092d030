-- A heartbeat lists the claims of its node, so the running jobs are indexed by node. Only the holders
-- of permits are counted by route: they have an index of their own, which other jobs pay nothing for.
-- flags & 128: the route names a permit.
UPDATE ratchet_jobs SET flags = flags | 128
WHERE route IN (SELECT id FROM ratchet_routes WHERE permit <> '');
DROP INDEX ratchet_jobs_running;
CREATE INDEX ratchet_jobs_running ON ratchet_jobs (node, id, route) WHERE state = 3;
CREATE INDEX ratchet_jobs_permits ON ratchet_jobs (route) WHERE state = 3 AND flags & 128 <> 0;
