-- Deletes the tags of a job. [purge.old] [delete.job] ratchet_job_tags_of_job.
DELETE FROM ratchet_job_tags WHERE job = ?1
