-- Keeps why the last attempt failed. [settle.effect] Primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, last_error) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET last_error = excluded.last_error
