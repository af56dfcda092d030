-- The unique key a job was enqueued with. [requeue.key] Primary key of ratchet_job_data.
SELECT unique_key FROM ratchet_job_data WHERE id = ?1
