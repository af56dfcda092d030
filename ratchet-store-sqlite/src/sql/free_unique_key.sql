-- Frees the unique key of a job that ends, if the job still has it. [settle.keys] [cancel.waiting]
-- Primary keys of ratchet_unique_keys and ratchet_job_data.
DELETE FROM ratchet_unique_keys
WHERE key = (SELECT unique_key FROM ratchet_job_data WHERE id = ?1) AND job = ?2
