-- Indexes for what is looked for among many others.

-- Who still waits for a parent, which may have had very many children.
CREATE INDEX ratchet_links_open ON ratchet_links (parent, child) WHERE state = 0;
-- The definitions that somebody has claimed.
CREATE INDEX ratchet_recurring_claimed ON ratchet_recurring (claimed_until)
WHERE claimed_until IS NOT NULL;
-- Blocked and paused jobs, which no other index has.
CREATE INDEX ratchet_jobs_waiting ON ratchet_jobs (id) WHERE state IN (1, 2);
