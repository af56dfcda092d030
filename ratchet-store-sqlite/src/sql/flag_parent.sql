-- Notes that others are linked to a job. [link.enqueue] Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET flags = flags | 16 WHERE id = ?1
