-- The timeouts of a running job that has some. [reclaim.stall] [reclaim.overdue] Primary key.
SELECT timeout, stall_timeout FROM ratchet_job_data WHERE id = ?1
