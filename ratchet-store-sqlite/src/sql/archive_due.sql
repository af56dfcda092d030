-- The longest finished jobs of a state behind one that was looked at (?3, ?4) that no unfinished
-- child may read. (flags: 16 it has children)
-- [archive.old] [archive.awaited] [archive.poison] ratchet_jobs_finished, read in its order,
-- ratchet_links_parent and primary keys.
SELECT job.id, job.data, job.finished_at, job.flags
FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_finished
WHERE job.state = ?1 AND job.state >= 4 AND job.finished_at < ?2
  AND (job.finished_at, job.id) > (?3, ?4)
  AND (job.flags & 16 = 0 OR NOT EXISTS (
      SELECT 1 FROM ratchet_links AS link CROSS JOIN ratchet_jobs AS child ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.id
LIMIT ?5
