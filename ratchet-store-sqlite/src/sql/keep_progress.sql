-- Replaces the progress of a job. [report.progress] Primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, percent, message) VALUES (?1, ?2, ?3)
ON CONFLICT (job) DO UPDATE SET percent = excluded.percent, message = excluded.message
