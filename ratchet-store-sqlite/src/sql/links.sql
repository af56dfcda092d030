-- Links between jobs.

-- name: add_link
-- Links a new job to a parent. [link.wait]
INSERT INTO ratchet_links (child, place, kind, parent, condition) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: flag_parent
-- Marks a job as a parent in its flags. [link.enqueue] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET flags = flags | {children} WHERE id = ?1 AND flags & {children} = 0

-- name: find_ended
-- Returns the state, the flags and the result of an ended job. [link.decide] Uses primary keys.
SELECT job.state, job.flags, notes.result
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1 AND job.state >= 4

-- name: open_children
-- Returns the jobs that have open links to a parent. [link.decide] [batch.callback] Uses
-- ratchet_links_open.
SELECT DISTINCT child FROM ratchet_links INDEXED BY ratchet_links_open
WHERE parent = ?1 AND kind = ?2 AND state = 0

-- name: decide_link
-- Decides an open link. [link.decide] [link.once] Uses the primary key of ratchet_links.
UPDATE ratchet_links SET state = ?3 WHERE child = ?1 AND place = ?2 AND state = 0

-- name: has_open_links
-- Returns whether a job has an open link. [link.requeue] [signal.deliver] Uses the primary key of
-- ratchet_links.
SELECT EXISTS (SELECT 1 FROM ratchet_links WHERE child = ?1 AND state = 0)

-- name: links_of
-- Returns what a job waits for. [link.parents] [link.decide] Uses the primary key of ratchet_links.
SELECT place, kind, parent, state, condition FROM ratchet_links WHERE child = ?1 ORDER BY place

-- name: children_of
-- Returns the links to a parent, from children with ids greater than ?3. [link.children] Uses
-- ratchet_links_parent.
SELECT child, state, condition FROM ratchet_links INDEXED BY ratchet_links_parent
WHERE parent = ?1 AND kind = ?2 AND child > ?3
ORDER BY child, place
LIMIT ?4

-- name: purge_links
-- Deletes the links from a purged job to its parents, but keeps the links from its children.
-- [link.kept] Uses the primary key.
DELETE FROM ratchet_links WHERE child = ?1
