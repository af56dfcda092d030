-- Replaces the checkpoint of a job. [report.progress] Primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, checkpoint) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET checkpoint = excluded.checkpoint
