-- Indexes for what is looked for among many others.

-- Who still waits for a parent, which may have had very many children.
CREATE INDEX links_open ON {schema}.links (parent, child) WHERE state = 0;
-- The definitions that somebody has claimed.
CREATE INDEX recurring_claimed ON {schema}.recurring (claimed_until) WHERE claimed_until IS NOT NULL;
-- Blocked and paused jobs, which no other index has.
CREATE INDEX jobs_waiting ON {schema}.jobs (id) WHERE state IN (1, 2);
