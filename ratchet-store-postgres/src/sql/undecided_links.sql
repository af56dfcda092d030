-- The open links of jobs, and whether each job waits for a signal. [link.decide]
-- Primary keys of links and of signals.
SELECT link.child, link.place, link.kind, link.parent, link.state, link.condition,
       EXISTS (SELECT FROM {schema}.signals WHERE job = link.child AND state = 0 OFFSET 0)
FROM {schema}.links AS link
WHERE link.child = ANY($1::uuid[]) AND link.state = 0
ORDER BY link.child, link.place
