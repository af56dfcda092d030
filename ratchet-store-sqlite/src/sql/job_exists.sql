-- Whether a job is stored. [enqueue.repeat] Primary key of ratchet_jobs.
SELECT EXISTS (SELECT 1 FROM ratchet_jobs WHERE id = ?1)
