-- A heartbeat lists the claims of its node, so the running jobs are indexed by node. Only the holders
-- of permits are counted by route: they have an index of their own, which other jobs pay nothing for.
-- flags & 128: the route names a permit.
UPDATE {schema}.jobs AS job SET flags = flags | 128
FROM {schema}.routes AS route WHERE route.id = job.route AND route.permit <> '';
DROP INDEX {schema}.jobs_running;
CREATE INDEX jobs_running ON {schema}.jobs (node) WHERE state = 3;
CREATE INDEX jobs_permits ON {schema}.jobs (route) WHERE state = 3 AND flags & 128 <> 0;
