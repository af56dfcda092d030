-- A heartbeat lists the claims of its node, so the running jobs are indexed by node. The holders of
-- permits are counted by route. A filtered index cannot test a bit of flags, so this one has an entry
-- for every running job.
DROP INDEX jobs_running ON {schema}.jobs;
CREATE INDEX jobs_running ON {schema}.jobs (node, id) INCLUDE (route, cancel_requested) WHERE state = 3;
CREATE INDEX jobs_permits ON {schema}.jobs (route) WHERE state = 3;
