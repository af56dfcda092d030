-- Where the next enqueue appends. Primary key of ratchet_job_data.
SELECT coalesce(max(id), 0) FROM ratchet_job_data
