-- Keeps what the body returned. [settle.effect] Primary key of ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, result) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET result = excluded.result
