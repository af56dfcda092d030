-- Links between jobs.

-- name: add_link
-- Links a new job to a parent. [link.wait]
INSERT INTO ratchet_links (child, place, kind, parent, condition) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: flag_parent
-- Notes that others are linked to a job. [link.enqueue] Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET flags = flags | {children} WHERE id = ?1 AND flags & {children} = 0

-- name: find_ended
-- How a job has ended. [link.decide] Primary keys.
SELECT job.state, job.flags, notes.result
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1 AND job.state >= 4

-- name: open_children
-- The jobs that have open links on a parent. [link.decide] [batch.callback] ratchet_links_open.
SELECT DISTINCT child FROM ratchet_links INDEXED BY ratchet_links_open
WHERE parent = ?1 AND kind = ?2 AND state = 0

-- name: decide_link
-- Decides an open link. [link.decide] [link.once] Primary key of ratchet_links.
UPDATE ratchet_links SET state = ?3 WHERE child = ?1 AND place = ?2 AND state = 0

-- name: has_open_links
-- Whether a job has an open link. [link.requeue] [signal.deliver] Primary key of ratchet_links.
SELECT EXISTS (SELECT 1 FROM ratchet_links WHERE child = ?1 AND state = 0)

-- name: links_of
-- What a job waits for. [link.parents] [link.decide] Primary key of ratchet_links.
SELECT place, kind, parent, state, condition FROM ratchet_links WHERE child = ?1 ORDER BY place

-- name: children_of
-- The links on a parent, of children behind one. [link.children] ratchet_links_parent.
SELECT child, state, condition FROM ratchet_links INDEXED BY ratchet_links_parent
WHERE parent = ?1 AND kind = ?2 AND child > ?3
ORDER BY child, place
LIMIT ?4

-- name: purge_links
-- Deletes what a purged job waited for, but not that others waited for it. [link.kept] Primary key.
DELETE FROM ratchet_links WHERE child = ?1
